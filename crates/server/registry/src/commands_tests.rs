//! The index of unfinished commands, compared with a list of unanswered agents per command.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const AGENTS: u32 = 100;

#[derive(Debug, Clone)]
enum Step {
    /// A command for N agents, numbered from the first value.
    Create(u32, u32),
    Answer(u32, usize),
    Remove(u32),
    Finish(usize),
    Beat(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let agent = 1..=AGENTS;
    prop_oneof![
        2 => (agent.clone(), prop_oneof![1..4u32, 60..=AGENTS]).prop_map(|(a, n)| Step::Create(a, n)),
        8 => (agent.clone(), 0..12usize).prop_map(|(a, c)| Step::Answer(a, c)),
        1 => agent.clone().prop_map(Step::Remove),
        1 => (0..12usize).prop_map(Step::Finish),
        4 => agent.prop_map(Step::Beat),
    ]
}

/// Checks that every list agrees with the sets of agents.
fn consistent(all: &OutstandingCommands) {
    for (id, open) in &all.open {
        assert!(!open.agents.is_empty(), "{id}");
        let few = all.few.values().filter(|own| own.contains(id)).count() as u64;
        let wide = all.wide.contains(id);
        assert_eq!(few, if wide { 0 } else { open.agents.len() }, "{id}");
        assert_eq!(wide, open.agents.len() > COMMAND_AGENTS_FEW, "{id}");
    }
    assert!(all.wide.iter().all(|id| all.open.contains_key(id)));
    let listed = all.few.iter().flat_map(|(agent, own)| own.iter().map(move |id| (agent, id)));
    for (agent, id) in listed {
        assert!(all.open.get(id).is_some_and(|open| open.agents.contains(agent.0)), "{agent} {id}");
    }
    assert!(all.few.values().all(|own| !own.is_empty()));
}

proptest! {
    #[test]
    fn agent_is_handed_out_exactly_its_own_commands(
        steps in prop::collection::vec(step(), 1..200)
    ) {
        let mut all = OutstandingCommands::default();
        let mut model: BTreeMap<u64, (Vec<u32>, Vec<u32>)> = BTreeMap::new();
        for (id, step) in (1..).zip(steps) {
            let nth = |model: &BTreeMap<u64, _>, n: usize| model.keys().nth(n).copied();
            match step {
                Step::Create(first, n) => {
                    let agents: Vec<u32> = (first..first + n).collect();
                    let ids: Vec<AgentId> = agents.iter().copied().map(AgentId).collect();
                    all.add(id, Open::new(CommandKind::Restart, "admin", 0, &ids));
                    model.insert(id, (agents, Vec::new()));
                }
                Step::Answer(agent, n) => {
                    let id = nth(&model, n).unwrap_or(id);
                    let known = model.get_mut(&id);
                    let had = known.is_some_and(|(open, _)| {
                        let before = open.len();
                        open.retain(|other| *other != agent);
                        open.len() < before
                    });
                    prop_assert_eq!(all.close(AgentId(agent), id), had);
                }
                Step::Remove(agent) => {
                    all.forget(&[AgentId(agent), AgentId(agent + 1)]);
                    for (open, _) in model.values_mut() {
                        open.retain(|a| *a != agent && *a != agent + 1);
                    }
                }
                Step::Finish(n) => if let Some(id) = nth(&model, n) {
                    all.remove(id);
                    model.remove(&id);
                },
                Step::Beat(agent) => {
                    let given = all.hand_out(AgentId(agent), Duration::ZERO, 0);
                    let due = model.iter_mut().filter(|(_, (open, sent))| {
                        open.contains(&agent) && !sent.contains(&agent)
                    });
                    let mut wanted = Vec::new();
                    for (id, (_, sent)) in due.take(COMMANDS_AT_ONCE_MAX) {
                        sent.push(agent);
                        wanted.push(*id);
                    }
                    let given: Vec<u64> = given.iter().map(|command| command.id).collect();
                    prop_assert_eq!(given, wanted);
                }
            }
            model.retain(|_, (open, _)| !open.is_empty());
            consistent(&all);
        }
    }
}
