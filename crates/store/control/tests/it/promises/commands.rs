//! Commands and their outcomes.

use model::{AgentId, Permitted};

use super::{add, by, except, new_agent, only, open, reader};
use control::limits::COMMANDS_USER_MAX;
use control::{
    CommandCounts, CommandKind, ControlError, ControlStore, NewAgent, NewCommand, OutcomeFilter,
    OutcomeRow, OutcomeState,
};

const PAGE: OutcomeFilter = OutcomeFilter { state: None, after: None, limit: 100 };

fn create(store: &ControlStore, agents: &[AgentId]) -> u64 {
    let (agents, kind) = (agents.to_vec(), CommandKind::Rescan);
    let new = NewCommand { kind, agents, user: "admin".into(), now_s: 1, expires_at_s: 9 };
    store.create_command(&by(), &new).unwrap()
}

fn outcome(command: u64, agent: AgentId, state: OutcomeState) -> OutcomeRow {
    OutcomeRow { command, agent, state, detail: String::new(), at_s: 2 }
}

fn counts(store: &ControlStore, id: u64) -> CommandCounts {
    store.command(&reader(), id, &Permitted::All, PAGE).unwrap().unwrap().0.counts
}

fn states(store: &ControlStore, id: u64, filter: OutcomeFilter) -> Vec<(u32, OutcomeState)> {
    let (_, rows) = store.command(&reader(), id, &Permitted::All, filter).unwrap().unwrap();
    rows.into_iter().map(|row| (row.agent.0, row.state)).collect()
}

#[test]
fn command_counts_follow_its_outcomes() {
    let store = open();
    let agents = add(&store, &["a", "b", "c"]);
    let id = create(&store, &agents);
    assert_eq!(counts(&store, id), CommandCounts { pending: 3, total: 3, ..Default::default() });
    let open = &store.load().unwrap().outstanding[0];
    assert_eq!((open.id, &open.agents, open.expires_at_s), (id, &agents, 9));
    store
        .save_outcomes(&[
            outcome(id, agents[0], OutcomeState::Sent),
            outcome(id, agents[1], OutcomeState::Failed),
            outcome(id, AgentId(77), OutcomeState::Failed),
            outcome(id + 1, agents[1], OutcomeState::Failed),
        ])
        .unwrap();
    let expected = CommandCounts { pending: 1, sent: 1, failed: 1, total: 3, ..Default::default() };
    assert_eq!(counts(&store, id), expected, "unknown agents are skipped");
    assert_eq!(store.load().unwrap().outstanding[0].agents, [agents[0], agents[2]]);
    assert!(store.command(&reader(), id + 1, &Permitted::All, PAGE).unwrap().is_none());
    let newest = create(&store, &agents[..1]);
    let rows = store.commands(&reader(), 1, &Permitted::All).unwrap();
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), [newest]);
}

#[test]
fn command_outcome_moves_only_forward() {
    use OutcomeState::{Acknowledged, Cancelled, Expired, Failed, Pending, Sent};
    let store = open();
    let a = add(&store, &["a"])[0];
    for (steps, last) in [
        (&[Sent, Pending, Sent][..], Sent),
        (&[Sent, Expired, Sent, Cancelled], Expired),
        (&[Cancelled, Failed, Acknowledged], Failed),
        (&[Acknowledged, Failed, Expired], Acknowledged),
    ] {
        let id = create(&store, &[a]);
        for state in steps {
            store.save_outcomes(&[outcome(id, a, *state)]).unwrap();
        }
        assert_eq!(states(&store, id, PAGE), [(a.0, last)], "{steps:?}");
        assert_eq!(counts(&store, id).total, 1);
    }
}

#[test]
fn finishing_a_command_expires_open_outcomes() {
    let store = open();
    let agents = add(&store, &["a", "b", "c"]);
    let id = create(&store, &agents);
    store
        .save_outcomes(&[
            outcome(id, agents[0], OutcomeState::Acknowledged),
            outcome(id, agents[1], OutcomeState::Sent),
        ])
        .unwrap();
    assert_eq!(store.finish_command(&by(), id, OutcomeState::Expired, 9).unwrap(), 2);
    assert_eq!(store.finish_command(&by(), id, OutcomeState::Expired, 9).unwrap(), 0);
    assert_eq!(
        counts(&store, id),
        CommandCounts { acknowledged: 1, expired: 2, total: 3, ..Default::default() }
    );
    store.save_outcomes(&[outcome(id, agents[2], OutcomeState::Acknowledged)]).unwrap();
    assert_eq!(counts(&store, id).acknowledged, 2, "a late answer is what happened");
    assert_eq!(store.load().unwrap().outstanding, []);
    assert!(!store.trim_commands().unwrap(), "there are few");
}

#[test]
fn command_outcomes_are_paged_by_agent() {
    use OutcomeState::{Acknowledged, Pending};
    let store = open();
    let agents = add(&store, &["a", "b", "c", "d"]);
    let id = create(&store, &agents);
    store.save_outcomes(&[outcome(id, agents[1], Acknowledged)]).unwrap();
    let page = OutcomeFilter { limit: 2, ..PAGE };
    assert_eq!(states(&store, id, page), [(1, Pending), (2, Acknowledged)]);
    let next = OutcomeFilter { after: Some(agents[1]), ..page };
    assert_eq!(states(&store, id, next), [(3, Pending), (4, Pending)]);
    let answered = OutcomeFilter { state: Some(Acknowledged), ..PAGE };
    assert_eq!(states(&store, id, answered), [(2, Acknowledged)]);
    let (row, rows) = store.command(&reader(), id, &only(&agents[..2]), PAGE).unwrap().unwrap();
    assert_eq!((row.counts.total, row.counts.pending, rows.len()), (2, 1, 2));
    let (row, rows) = store.command(&reader(), id, &except(&agents[..2]), PAGE).unwrap().unwrap();
    assert_eq!((row.counts.total, row.counts.pending, rows.len()), (2, 2, 2));
}

#[test]
fn removing_an_agent_cancels_its_open_outcomes() {
    let store = open();
    let agents = add(&store, &["a", "b"]);
    let id = create(&store, &agents);
    store.remove_agent(&by(), agents[0], 5).unwrap();
    assert_eq!(
        states(&store, id, PAGE),
        [(1, OutcomeState::Cancelled), (2, OutcomeState::Pending)]
    );
    assert_eq!(store.load().unwrap().outstanding[0].agents, [agents[1]]);
}

#[test]
fn reused_number_does_not_see_commands_of_former_agent() {
    let store = open();
    let agents = add(&store, &["a", "b"]);
    let (a, b) = (agents[0], agents[1]);
    let (alone, both) = (create(&store, &[a]), create(&store, &[a, b]));
    let done = |command| outcome(command, a, OutcomeState::Acknowledged);
    store.save_outcomes(&[done(alone), done(both)]).unwrap();
    store.remove_agents(&by(), &[a], 3).unwrap();
    store.free_numbers(&by(), &[a]).unwrap();
    store.add_agents(&by(), &[NewAgent { id: Some(a), ..new_agent("c") }]).unwrap();
    let seen = |scope: Permitted| -> Vec<(u64, u64)> {
        let rows = store.commands(&reader(), 10, &scope).unwrap();
        rows.into_iter().map(|row| (row.id, row.counts.total)).collect()
    };
    assert_eq!(seen(only(&[b])), [(both, 1)]);
    assert_eq!(seen(only(&[a])), [], "its new agent had no command");
    assert_eq!(seen(only(&[a, b])), [(both, 1)]);
    assert_eq!(seen(except(&[a])), [(both, 1)]);
    assert_eq!(seen(except(&[b])), []);
    assert_eq!(seen(except(&[AgentId(77)])), [(both, 1)]);
}

#[test]
fn unfinished_commands_per_user_are_limited() {
    let store = open();
    let a = add(&store, &["a"])[0];
    for _ in 0..COMMANDS_USER_MAX {
        create(&store, &[a]);
    }
    let new = |user: &str| NewCommand {
        kind: CommandKind::Rescan,
        agents: vec![a],
        user: user.into(),
        now_s: 1,
        expires_at_s: 9,
    };
    let error = store.create_command(&by(), &new("admin")).unwrap_err();
    assert!(matches!(error, ControlError::Limit { max: COMMANDS_USER_MAX, .. }));
    let other = store.create_command(&by(), &new("other")).unwrap();
    store.finish_command(&by(), other - 1, OutcomeState::Cancelled, 2).unwrap();
    store.create_command(&by(), &new("admin")).unwrap();
}
