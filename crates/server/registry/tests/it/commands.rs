//! Commands to agents: created once, handed out, answered, counted.

use crate::common::{self, Fixture, fixture, named};
use model::AgentId;
use registry::{
    Command, CommandCounts, CommandKind, CommandOutcome, ControlStore, OutcomeFilter, OutcomeState,
    Permitted, Reader, WriteContext,
};

fn fleet(fixture: &Fixture, n: u32) -> Vec<AgentId> {
    let agents: Vec<_> = (1..=n).map(|i| (None, named(&format!("agent-{i}")))).collect();
    fixture.registry.add_agents(&WriteContext::server(), &agents).unwrap()
}

fn counts(fixture: &Fixture, id: u64) -> CommandCounts {
    fixture.registry.command(&Reader::server(), id).unwrap().unwrap().counts
}

fn command_outcome_of(state: OutcomeState) -> CommandOutcome {
    CommandOutcome { state, detail: "said so".into() }
}

#[test]
fn command_is_handed_out_answered_and_counted() {
    let fixture = fixture();
    let ids = fleet(&fixture, 3);
    let id = fixture
        .registry
        .create_command(&WriteContext::server(), CommandKind::Restart, &ids, "admin")
        .unwrap();
    assert_eq!(counts(&fixture, id), CommandCounts { pending: 3, total: 3, ..Default::default() });
    let command = Command { id, kind: CommandKind::Restart };
    assert_eq!(fixture.registry.pending_commands(ids[0]), std::slice::from_ref(&command));
    assert_eq!(fixture.registry.pending_commands(ids[1]), [command]);
    let expected = CommandCounts { pending: 1, sent: 2, total: 3, ..Default::default() };
    assert_eq!(counts(&fixture, id), expected);
    assert!(fixture.registry.command_outcome(
        ids[0],
        id,
        &command_outcome_of(OutcomeState::Acknowledged)
    ));
    assert!(fixture.registry.command_outcome(
        ids[1],
        id,
        &command_outcome_of(OutcomeState::Failed)
    ));
    let expected =
        CommandCounts { pending: 1, acknowledged: 1, failed: 1, total: 3, ..Default::default() };
    assert_eq!(counts(&fixture, id), expected);
    let rows = fixture.registry.outcomes(&Reader::server(), id, None, None, 10).unwrap();
    let states: Vec<_> = rows.iter().map(|r| (r.agent, r.state)).collect();
    let expected = [OutcomeState::Acknowledged, OutcomeState::Failed, OutcomeState::Pending];
    assert_eq!(states, ids.iter().copied().zip(expected).collect::<Vec<_>>());
    assert_eq!(rows[0].detail, "said so");
    let failed = fixture
        .registry
        .outcomes(&Reader::server(), id, Some(OutcomeState::Failed), None, 10)
        .unwrap();
    assert_eq!(failed.len(), 1);
    let rest = fixture.registry.outcomes(&Reader::server(), id, None, Some(ids[1]), 10).unwrap();
    assert_eq!(rest.len(), 1);
}

#[test]
fn command_skips_unknown_duplicate_and_server_agents() {
    let fixture = fixture();
    let ids = fleet(&fixture, 1);
    let asked = [ids[0], ids[0], AgentId::SERVER, AgentId(77)];
    let id = fixture
        .registry
        .create_command(&WriteContext::server(), CommandKind::Rescan, &asked, "admin")
        .unwrap();
    assert_eq!(counts(&fixture, id).total, 1);
    assert_eq!(fixture.registry.pending_commands(AgentId(77)), []);
    assert!(!fixture.registry.command_outcome(
        AgentId(77),
        id,
        &command_outcome_of(OutcomeState::Failed)
    ));
    assert!(!fixture.registry.command_outcome(ids[0], id, &command_outcome_of(OutcomeState::Sent)));
    assert!(fixture.registry.command_outcome(
        ids[0],
        id,
        &command_outcome_of(OutcomeState::Failed)
    ));
    assert!(!fixture.registry.command_outcome(
        ids[0],
        id,
        &command_outcome_of(OutcomeState::Acknowledged)
    ));
    assert_eq!(counts(&fixture, id).failed, 1, "the first answer stands");
}

#[test]
fn unanswered_command_is_handed_out_again_after_a_minute() {
    let fixture = fixture();
    let ids = fleet(&fixture, 1);
    fixture
        .registry
        .create_command(&WriteContext::server(), CommandKind::Rescan, &ids, "admin")
        .unwrap();
    assert_eq!(fixture.registry.pending_commands(ids[0]).len(), 1);
    fixture.after(59);
    assert_eq!(fixture.registry.pending_commands(ids[0]).len(), 0);
    fixture.after(1);
    assert_eq!(fixture.registry.pending_commands(ids[0]).len(), 1);
}

#[test]
fn command_survives_a_kill_and_is_delivered() {
    let fixture = fixture();
    let ids = fleet(&fixture, 2);
    let id = fixture
        .registry
        .create_command(&WriteContext::server(), CommandKind::Restart, &ids, "admin")
        .unwrap();
    fixture.registry.pending_commands(ids[0]);
    fixture.registry.command_outcome(ids[0], id, &command_outcome_of(OutcomeState::Acknowledged));
    fixture.registry.pending_commands(ids[1]);
    fixture.after(5);
    assert_eq!(fixture.registry.tick().unwrap().outcomes, 3);
    let killed = fixture.killed();
    assert_eq!(killed.registry.pending_commands(ids[0]), []);
    assert_eq!(killed.registry.pending_commands(ids[1]).len(), 1, "sent, but not answered");
    assert_eq!(counts(&killed, id).acknowledged, 1);
}

#[test]
fn unanswered_command_expires_and_a_late_answer_still_counts() {
    let fixture = fixture();
    let ids = fleet(&fixture, 2);
    let id = fixture
        .registry
        .create_command(&WriteContext::server(), CommandKind::Restart, &ids, "admin")
        .unwrap();
    fixture.registry.pending_commands(ids[0]);
    fixture.after(24 * 3_600);
    assert_eq!(fixture.registry.tick().unwrap().expired, 2);
    assert_eq!(counts(&fixture, id).expired, 2);
    assert_eq!(fixture.registry.pending_commands(ids[1]), []);
    fixture.registry.command_outcome(ids[0], id, &command_outcome_of(OutcomeState::Acknowledged));
    let expected = CommandCounts { acknowledged: 1, expired: 1, total: 2, ..Default::default() };
    assert_eq!(counts(&fixture, id), expected);
    assert_eq!(fixture.registry.tick().unwrap().expired, 0);
}

#[test]
fn cancelled_command_is_not_handed_out() {
    let fixture = fixture();
    let ids = fleet(&fixture, 2);
    let id = fixture
        .registry
        .create_command(&WriteContext::server(), CommandKind::Restart, &ids, "admin")
        .unwrap();
    fixture.registry.pending_commands(ids[0]);
    fixture.registry.command_outcome(ids[0], id, &command_outcome_of(OutcomeState::Acknowledged));
    assert_eq!(fixture.registry.cancel_command(&WriteContext::server(), id).unwrap(), 1);
    assert_eq!(fixture.registry.pending_commands(ids[1]), []);
    let expected = CommandCounts { acknowledged: 1, cancelled: 1, total: 2, ..Default::default() };
    assert_eq!(counts(&fixture, id), expected);
    assert_eq!(fixture.registry.cancel_command(&WriteContext::server(), 99).unwrap(), 0);
}

#[test]
fn removed_agent_has_no_open_command_outcomes() {
    let fixture = fixture();
    let ids = fleet(&fixture, 2);
    let id = fixture
        .registry
        .create_command(&WriteContext::server(), CommandKind::Restart, &ids, "admin")
        .unwrap();
    fixture.registry.pending_commands(ids[0]);
    fixture.registry.remove_agent(&WriteContext::server(), ids[0]).unwrap();
    assert_eq!(fixture.registry.pending_commands(ids[0]), []);
    let counts = counts(&fixture, id);
    assert_eq!((counts.pending, counts.sent, counts.cancelled), (1, 0, 1));
}

#[test]
fn oldest_finished_command_is_deleted_beyond_the_limit() {
    let fixture = fixture();
    let ids = fleet(&fixture, 1);
    let open = fixture
        .registry
        .create_command(&WriteContext::server(), CommandKind::Restart, &ids, "admin")
        .unwrap();
    for _ in 1..1_000 {
        fixture
            .registry
            .create_command(&WriteContext::server(), CommandKind::Rescan, &[], "admin")
            .unwrap();
    }
    let newest = fixture
        .registry
        .create_command(&WriteContext::server(), CommandKind::Rescan, &[], "admin")
        .unwrap();
    fixture.after(5);
    fixture.registry.tick().unwrap();
    assert!(
        fixture.registry.command(&Reader::server(), open).unwrap().is_some(),
        "it is not finished"
    );
    assert!(fixture.registry.command(&Reader::server(), open + 1).unwrap().is_none());
    assert_eq!(
        fixture.registry.commands(&Reader::server(), 5_000, &Permitted::All).unwrap().len(),
        1_000
    );
    assert_eq!(
        fixture.registry.commands(&Reader::server(), 1, &Permitted::All).unwrap()[0].id,
        newest
    );
}

#[test]
fn large_command_is_paged_filtered_expired_and_answered_late() {
    let fixture = fixture();
    let ids = fleet(&fixture, 2_500);
    let id = fixture
        .registry
        .create_command(&WriteContext::server(), CommandKind::Restart, &ids, "admin")
        .unwrap();
    let answer = |agent: AgentId| {
        fixture.registry.pending_commands(agent);
        fixture.registry.command_outcome(agent, id, &command_outcome_of(OutcomeState::Acknowledged))
    };
    assert!(answer(ids[0]) && answer(ids[2_400]));
    fixture.registry.pending_commands(ids[1]);
    let all = fixture.registry.outcomes(&Reader::server(), id, None, None, 10_000).unwrap();
    assert_eq!(all.iter().map(|o| o.agent).collect::<Vec<_>>(), ids);
    let pending = fixture
        .registry
        .outcomes(&Reader::server(), id, Some(OutcomeState::Pending), None, 10_000)
        .unwrap();
    assert_eq!(pending.len(), 2_497);
    let two = fixture
        .registry
        .outcomes(&Reader::server(), id, Some(OutcomeState::Pending), Some(ids[2_398]), 2)
        .unwrap();
    let two: Vec<AgentId> = two.iter().map(|o| o.agent).collect();
    assert_eq!(two, [ids[2_399], ids[2_401]]);
    let some: Vec<AgentId> = [0, 1, 2].map(|n| ids[n]).to_vec();
    let page = OutcomeFilter { limit: 10, ..OutcomeFilter::default() };
    let within = |scope: &Permitted| {
        let (command, outcomes) =
            fixture.registry.command_page(&Reader::server(), id, scope, page).unwrap().unwrap();
        (command.counts, outcomes.len())
    };
    let (counted, listed) = within(&Permitted::Only(some.clone().into()));
    let expected =
        CommandCounts { pending: 1, sent: 1, acknowledged: 1, total: 3, ..Default::default() };
    assert_eq!((counted, listed), (expected, 3));
    let (counted, _) = within(&Permitted::Except(some.into()));
    assert_eq!((counted.pending, counted.acknowledged, counted.total), (2_496, 1, 2_497));

    fixture.after(24 * 3600);
    assert_eq!(fixture.registry.tick().unwrap().expired, 2_498);
    let fixture = fixture.reopen();
    assert_eq!(fixture.registry.pending_commands(ids[5]), []);
    assert!(
        !fixture.registry.command_outcome(ids[5], id, &command_outcome_of(OutcomeState::Failed)),
        "late"
    );
    let expected = CommandCounts {
        expired: 2_497,
        acknowledged: 2,
        failed: 1,
        total: 2_500,
        ..Default::default()
    };
    assert_eq!(counts(&fixture, id), expected);
    let failed = fixture
        .registry
        .outcomes(&Reader::server(), id, Some(OutcomeState::Failed), None, 9)
        .unwrap();
    assert_eq!(failed.iter().map(|o| o.agent).collect::<Vec<_>>(), [ids[5]]);
    let expired = fixture
        .registry
        .outcomes(&Reader::server(), id, Some(OutcomeState::Expired), None, 9)
        .unwrap();
    assert_eq!(expired.len(), 9);
}

#[test]
fn agent_with_many_open_commands_gets_them_in_batches() {
    let fixture = fixture();
    let ids = fleet(&fixture, 22);
    let order = |other: usize| {
        let two = [ids[0], ids[other]];
        fixture
            .registry
            .create_command(&WriteContext::server(), CommandKind::Rescan, &two, "admin")
            .unwrap()
    };
    let made: Vec<u64> = (1..21).map(order).collect();
    let given = |fixture: &Fixture| -> Vec<u64> {
        fixture.registry.pending_commands(ids[0]).iter().map(|command| command.id).collect()
    };
    assert_eq!(given(&fixture), made[..16]);
    assert_eq!(given(&fixture), made[16..]);
    assert!(given(&fixture).is_empty());
    // A new command does not wait for unanswered ones.
    fixture.after(61);
    let new = order(21);
    let again = given(&fixture);
    assert_eq!((again[0], again.len()), (new, 16));
}

#[test]
fn partially_deleted_command_is_never_visible() {
    let fixture = fixture();
    let ids = fleet(&fixture, 6_000);
    let id = fixture
        .registry
        .create_command(&WriteContext::server(), CommandKind::Restart, &ids, "admin")
        .unwrap();
    for agent in &ids {
        fixture.registry.pending_commands(*agent);
        fixture.registry.command_outcome(
            *agent,
            id,
            &command_outcome_of(OutcomeState::Acknowledged),
        );
    }
    for _ in 0..1_000 {
        fixture
            .registry
            .create_command(&WriteContext::server(), CommandKind::Rescan, &[], "admin")
            .unwrap();
    }
    fixture.registry.flush().unwrap();
    // Runs one of several steps, which deletes some outcomes of the oldest command but not all.
    let store = ControlStore::open(&fixture.folder.path().join("registry.db")).unwrap();
    assert!(store.trim_commands().unwrap());
    let page = OutcomeFilter { limit: 10_000, ..OutcomeFilter::default() };
    assert_eq!(
        fixture.registry.command_page(&Reader::server(), id, &Permitted::All, page).unwrap(),
        None
    );
    let listed = fixture.registry.commands(&Reader::server(), 5_000, &Permitted::All).unwrap();
    assert!(listed.len() == 1_000 && listed.iter().all(|command| command.id != id));
    // A late report of one of its agents changes nothing.
    fixture.registry.command_outcome(ids[5_999], id, &command_outcome_of(OutcomeState::Failed));
    assert_eq!(fixture.registry.command(&Reader::server(), id).unwrap(), None);
    while store.trim_commands().unwrap() {}
    assert_eq!(
        fixture.registry.commands(&Reader::server(), 5_000, &Permitted::All).unwrap().len(),
        1_000
    );
}

#[test]
fn command_with_unreadable_agents_does_not_block_the_server() {
    let fixture = fixture();
    let ids = fleet(&fixture, 3);
    let broken = fixture
        .registry
        .create_command(&WriteContext::server(), CommandKind::Restart, &ids, "admin")
        .unwrap();
    let whole = fixture
        .registry
        .create_command(&WriteContext::server(), CommandKind::Rescan, &ids, "admin")
        .unwrap();
    let database = rusqlite::Connection::open(fixture.folder.path().join("registry.db")).unwrap();
    database.execute("UPDATE command SET agents = 'torn' WHERE id = ?1", [broken as i64]).unwrap();
    let fixture = fixture.reopen();
    let given = fixture.registry.pending_commands(ids[0]);
    assert_eq!(given.iter().map(|command| command.id).collect::<Vec<_>>(), [whole]);
    fixture.registry.remove_agent(&WriteContext::server(), ids[2]).unwrap();
    fixture.after(24 * 3_600);
    fixture.registry.tick().unwrap();
    let counts = counts(&fixture, broken);
    assert_eq!((counts.pending, counts.expired, counts.total), (0, 3, 3));
}

#[test]
fn repeated_command_is_deduplicated_until_it_is_answered() {
    let fixture = fixture();
    let ids = fleet(&fixture, 3);
    let order = |kind, ids: &[AgentId]| {
        fixture.registry.create_command(&WriteContext::server(), kind, ids, "admin").unwrap()
    };
    let first = order(CommandKind::Restart, &ids[..2]);
    fixture.registry.pending_commands(ids[0]);
    assert_eq!(order(CommandKind::Restart, &[ids[1], ids[0]]), first);
    assert_ne!(order(CommandKind::Rescan, &ids[..2]), first);
    let other = order(CommandKind::Restart, &ids);
    assert_ne!(other, first);
    fixture.registry.command_outcome(
        ids[0],
        first,
        &command_outcome_of(OutcomeState::Acknowledged),
    );
    let rest = order(CommandKind::Restart, &ids[..2]);
    assert!(![first, other].contains(&rest), "who has answered is to do it once more");
    let scan = order(CommandKind::Rescan, &ids[..1]);
    assert_eq!(order(CommandKind::Rescan, &ids[..1]), scan);
    fixture.registry.pending_commands(ids[0]);
    assert_ne!(order(CommandKind::Rescan, &ids[..1]), scan, "that scan may have begun already");
}

#[test]
fn command_is_not_reused_for_another_user_or_a_later_expiry() {
    let fixture = fixture();
    let ids = fleet(&fixture, 2);
    let order = |user: &str| {
        fixture
            .registry
            .create_command(&WriteContext::server(), CommandKind::Restart, &ids, user)
            .unwrap()
    };
    let first = order("admin");
    let other = order("other");
    assert_ne!(first, other, "the first user may cancel the one and not the other");
    fixture.registry.cancel_command(&WriteContext::server(), first).unwrap();
    assert_eq!(fixture.registry.pending_commands(ids[0]).len(), 1);
    fixture.after(11 * 3_600);
    assert_eq!(order("other"), other);
    let fixture = fixture.reopen();
    let order = |user: &str| {
        fixture
            .registry
            .create_command(&WriteContext::server(), CommandKind::Restart, &ids, user)
            .unwrap()
    };
    assert_eq!(order("other"), other, "after a restart, too");
    fixture.after(2 * 3_600);
    let late = order("other");
    assert_ne!(late, other, "that one expires in eleven hours");
    fixture.after(12 * 3_600);
    fixture.registry.tick().unwrap();
    let open: Vec<u64> = fixture.registry.pending_commands(ids[0]).iter().map(|c| c.id).collect();
    assert_eq!(open, [late]);
}

#[test]
fn registry_limits_open_commands_per_user() {
    let fixture = fixture();
    let ids = fleet(&fixture, 501);
    let order = |n: usize, user: &str| {
        fixture.registry.create_command(
            &WriteContext::server(),
            CommandKind::Restart,
            &ids[n..=n],
            user,
        )
    };
    for n in 0..500 {
        order(n, "eager").unwrap();
    }
    let refused = order(500, "eager").unwrap_err().to_string();
    assert!(refused.contains("of one user"), "{refused}");
    order(500, "other").unwrap();
}

#[test]
fn tick_continues_after_one_of_its_steps_fails() {
    let fixture = fixture();
    let ids = fleet(&fixture, 1);
    fixture
        .registry
        .create_command(&WriteContext::server(), CommandKind::Restart, &ids, "admin")
        .unwrap();
    let path = fixture.folder.path().join("registry.db");
    let database = rusqlite::Connection::open(path).unwrap();
    database
        .execute_batch(
            "CREATE TRIGGER no_end BEFORE UPDATE OF rest ON command
             BEGIN SELECT raise(ABORT, 'on purpose'); END",
        )
        .unwrap();
    fixture.registry.keepalive(ids[0], &common::info("debian", "1"));
    fixture.after(24 * 3_600);
    fixture.registry.keepalive(ids[0], &common::info("debian", "2"));
    let error = fixture.registry.tick().unwrap_err().to_string();
    assert!(error.contains("on purpose"), "{error}");
    let version: String =
        database.query_row("SELECT version FROM agent WHERE id = 1", [], |r| r.get(0)).unwrap();
    assert_eq!(version, "2", "what agents said is written all the same");
}
