//! Damaged, truncated and malicious buffers: each gives an error, without a panic or a read outside
//! the buffer.

use crate::common;
use link::{Limits, Payload, Session, SessionValue, VerifyError, encode, verify};
use proptest::prelude::*;

/// Reads everything that the verifier accepts.
fn read(bytes: &[u8]) -> Result<Session, VerifyError> {
    verify(bytes, &Limits::default()).map(|view| view.to_session())
}

/// Returns the little-endian bytes of a buffer written by hand.
fn buffer(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

#[test]
fn every_truncation_is_an_error() {
    let bytes = encode(&common::full());
    let whole = read(&bytes).unwrap();
    for n in 0..bytes.len() {
        match read(&bytes[..n]) {
            Err(_) => {}
            // What follows the last string up to the alignment is padding.
            Ok(session) => assert!(n > bytes.len() - 8 && session == whole, "{n} bytes taken"),
        }
    }
}

#[test]
fn every_changed_session_byte_is_decoded_or_refused() {
    let bytes = encode(&common::full());
    let mut refused = 0;
    for at in 0..bytes.len() {
        for flip in [0x01, 0x40, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            refused += usize::from(read(&damaged).is_err());
        }
    }
    assert!(refused > bytes.len(), "only {refused} of {} changes were noticed", 4 * bytes.len());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn randomly_changed_session_never_panics(
        session in common::any_session(),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = encode(&session);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = read(&bytes);
    }

    #[test]
    fn random_bytes_are_not_a_session(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(read(&bytes).is_err());
    }
}

#[test]
fn message_of_another_type_is_not_a_session() {
    // root -> table {soffset, content_type = 1}, its vtable {8 bytes, table of 8 bytes, type at 4}
    let bytes = buffer(&[
        &12u32.to_le_bytes(),
        &[0, 0],
        &6u16.to_le_bytes(),
        &8u16.to_le_bytes(),
        &4u16.to_le_bytes(),
        &6i32.to_le_bytes(),
        &[1, 0, 0, 0],
    ]);
    assert_eq!(read(&bytes), Err(VerifyError::NotASession));
}

#[test]
fn session_without_start_is_refused() {
    let bytes = buffer(&[
        &16u32.to_le_bytes(), // root
        &8u16.to_le_bytes(),  // 4: vtable of Message: 8 bytes, table of 12, type at 4, content at 8
        &12u16.to_le_bytes(),
        &4u16.to_le_bytes(),
        &8u16.to_le_bytes(),
        &4u16.to_le_bytes(), // 12: vtable of FullSession: 4 bytes, no field
        &4u16.to_le_bytes(),
        &12i32.to_le_bytes(), // 16: Message
        &[6, 0, 0, 0],
        &4u32.to_le_bytes(),  // 24: to FullSession
        &16i32.to_le_bytes(), // 28: FullSession, vtable at 12
    ]);
    assert_eq!(read(&bytes), Err(VerifyError::NoStart));
}

#[test]
fn shared_parts_cannot_expand_without_limit() {
    let mut session = common::full();
    let big = vec![b'x'; 100_000];
    session.payload = Payload::Sync {
        values: (0..50)
            .map(|_| SessionValue { id: "a".into(), ..SessionValue::default() })
            .collect(),
        contexts: Vec::new(),
    };
    let small = encode(&session);
    assert!(read(&small).is_ok());
    // One long id, and the vector's fifty offsets all redirected to its value.
    let Payload::Sync { values, .. } = &mut session.payload else { unreachable!() };
    values[0].data = big;
    let mut bytes = encode(&session);
    let (vector, first) = values_vector(&bytes);
    let target = first + u32_at(&bytes, first) as usize;
    for n in 0..50 {
        let at = vector + 4 + 4 * n;
        bytes[at..at + 4].copy_from_slice(&((target - at) as u32).to_le_bytes());
    }
    assert!(matches!(read(&bytes), Err(VerifyError::Damaged(_))), "5 MB out of 100 kB");
}

#[test]
fn too_large_session_error_asks_for_smaller_parts() {
    let mut session = common::full();
    session.payload = Payload::Sync {
        values: (0..3000u32)
            .map(|n| SessionValue { id: n.to_string(), ..SessionValue::default() })
            .collect(),
        contexts: Vec::new(),
    };
    let bytes = encode(&session);
    for max in [2999, 100] {
        let limits = Limits { values_max: max, ..Limits::default() };
        let error = verify(&bytes, &limits).unwrap_err();
        assert_eq!(error, VerifyError::TooManyValues { max });
        assert!(error.is_size());
    }
    let limits = Limits { bytes_max: bytes.len() - 1, ..Limits::default() };
    assert!(verify(&bytes, &limits).unwrap_err().is_size());
    assert!(verify(&bytes, &Limits { values_max: 3000, bytes_max: bytes.len() }).is_ok());
}

#[test]
fn unknown_operation_code_is_refused_with_its_field() {
    let bytes = encode(&common::full());
    let (vector, _) = values_vector(&bytes);
    // The first value is an upsert, which is not written; the second, a delete, is.
    let at = vector + 8;
    let table = at + u32_at(&bytes, at) as usize;
    let vtable = table - u32_at(&bytes, table) as usize;
    let operation = u16::from_le_bytes([bytes[vtable + 4], bytes[vtable + 5]]) as usize;
    assert_eq!(bytes[table + operation], 1);
    let mut damaged = bytes.clone();
    damaged[table + operation] = 2;
    let error = read(&damaged).unwrap_err();
    assert_eq!(error, VerifyError::UnknownCode { field: "value.operation", value: 2 });
}

#[test]
fn name_lists_above_the_limit_are_refused() {
    let mut session = common::full();
    session.start.groups = vec!["g".into(); link::NAMES_MAX + 1];
    let error = read(&encode(&session)).unwrap_err();
    assert_eq!(error.to_string(), "start.groups lists 1025 names, above the limit of 1024");
    let cleans = vec!["x".into(); link::NAMES_MAX + 1];
    let session = Session { payload: Payload::Cleans(cleans), ..common::full() };
    assert!(read(&encode(&session)).is_err());
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Returns the offset of the vector of values and of its first element, by walking the buffer.
fn values_vector(bytes: &[u8]) -> (usize, usize) {
    let field = |table: usize, number: usize| {
        let vtable = table - u32_at(bytes, table) as usize;
        let slot = vtable + 4 + 2 * number;
        table + u16::from_le_bytes([bytes[slot], bytes[slot + 1]]) as usize
    };
    let follow = |at: usize| at + u32_at(bytes, at) as usize;
    let message = follow(0);
    let session = follow(field(message, 1));
    let data = follow(field(session, 2));
    let vector = follow(field(data, 0));
    (vector, vector + 4)
}
