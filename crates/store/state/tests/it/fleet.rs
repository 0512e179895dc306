//! Documents of many agents.

use std::sync::Arc;

use model::{AgentId, Dataset, Permitted, Position, Record};
use records::{document, session};
use state::{
    Comparison, Condition, DocumentField, DocumentPage, FleetQuery, Reader, SortDirection,
    StateOptions, StateStore,
};

#[test]
fn fleet_documents_span_more_than_1000_agents() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.db");
    let store = StateStore::open(&file, StateOptions::default()).unwrap();
    let agents = 1..=1_500_u32;
    let batch: Vec<(Position, Record)> = agents
        .clone()
        .map(|agent| {
            let size = u64::from(agent % 100);
            let writes = vec![document("/etc/a", 1, |o| o.size = size), document("/b", 1, |_| ())];
            (Position(u64::from(agent)), session(agent, 1, writes))
        })
        .collect();
    store.apply(&batch).unwrap();
    let query = |agents, condition, limit| FleetQuery {
        agents,
        dataset: Dataset::fim_files(),
        condition,
        sort: Vec::new(),
        offset: 0,
        limit,
    };
    let all = store
        .fleet_documents(&Reader::server(), &query(Permitted::All, Condition::default(), 5_000))
        .unwrap();
    assert_eq!((all.total, all.items.len()), (3_000, 3_000));
    let order: Vec<u32> = all.items.iter().map(|item| item.agent.0).collect();
    assert!(order.is_sorted(), "by agent");
    let etc = || Condition::field(DocumentField::Path, Comparison::Prefix, "/etc/");
    let but = Permitted::Except(Arc::new(vec![AgentId(1), AgentId(1_500)]));
    let page = FleetQuery { offset: 1_495, ..query(but, etc(), 10) };
    let page = store.fleet_documents(&Reader::server(), &page).unwrap();
    let last: Vec<u32> = page.items.iter().map(|item| item.agent.0).collect();
    assert_eq!((page.total, last), (1_498, vec![1_497, 1_498, 1_499]));
    let only = Permitted::Only(Arc::new((1..=1_200).map(AgentId).collect()));
    let largest = FleetQuery {
        sort: vec![(DocumentField::Size, SortDirection::Descending)],
        ..query(only, etc(), 13)
    };
    let largest = store.fleet_documents(&Reader::server(), &largest).unwrap();
    let ids: Vec<u32> = largest.items.iter().map(|item| item.agent.0).collect();
    let wanted: Vec<u32> = (0..12).map(|n| n * 100 + 99).chain([98]).collect();
    assert_eq!((largest.total, ids), (1_200, wanted));
    let none =
        store.fleet_documents(&Reader::server(), &query(Permitted::none(), etc(), 10)).unwrap();
    assert_eq!(none, DocumentPage::default());
}
