//! Sessions decode to what was encoded.

use crate::common;
use link::{Limits, Operation, Payload, Session, SessionBuilder, encode, verify};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn session_encoding_round_trips(session in common::any_session()) {
        let bytes = encode(&session);
        let view = verify(&bytes, &Limits::default()).unwrap();
        prop_assert_eq!(view.to_session(), session);
    }

    #[test]
    fn session_builder_stays_within_announced_bytes(session in common::any_session()) {
        let Payload::Sync { values, .. } = &session.payload else { return Ok(()) };
        let mut builder = SessionBuilder::new();
        for v in values {
            let before = builder.bytes();
            let cost = SessionBuilder::cost(&v.id, &v.index, &v.data);
            builder.push(v.operation, &v.id, &v.index, v.version, &v.data);
            prop_assert!(builder.bytes() <= before + cost, "{} > {before} + {cost}", builder.bytes());
        }
        let announced = builder.bytes();
        prop_assert_eq!(builder.values(), values.len());
        prop_assert!(builder.finish(&session.start).len() <= announced);
    }
}

#[test]
fn verified_bodies_borrow_from_the_buffer() {
    let bytes = encode(&common::full());
    let view = verify(&bytes, &Limits::default()).unwrap();
    let link::PayloadView::Sync(sync) = view.payload else { panic!("{view:?}") };
    let range = bytes.as_ptr_range();
    for value in sync.values() {
        assert!(range.contains(&value.data.as_ptr()) && !value.data.is_empty());
    }
}

#[test]
fn empty_session_round_trips() {
    let bytes = encode(&Session::default());
    let session = verify(&bytes, &Limits::default()).unwrap().to_session();
    assert_eq!(session, Session::default());
}

#[test]
fn repeated_index_name_is_stored_once() {
    let mut builder = SessionBuilder::new();
    let index = "wazuh-states-fim-files";
    for n in 0..1000u64 {
        builder.push(Operation::Upsert, &format!("{n:040}"), index, n, b"{}");
    }
    let bytes = builder.finish(&common::full().start);
    let found = bytes.windows(index.len()).filter(|w| *w == index.as_bytes()).count();
    assert_eq!(found, 1, "the start's list shares it too");
    assert!(bytes.len() < 1000 * 124, "{} bytes", bytes.len());
    assert!(verify(&bytes, &Limits::default()).is_ok());
}
