//! A session with every field set, and random ones.

use link::{Context, Mode, Operation, Payload, Session, SessionValue, Start, SyncOption};
use proptest::collection::vec;
use proptest::prelude::*;

/// Returns a session with every field set to a different value, so that swapped fields are
/// detected.
pub(crate) fn full() -> Session {
    Session {
        start: Start {
            module: "fim".into(),
            mode: Mode::ModuleDelta,
            index: vec!["holdfast-events".into(), "wazuh-states-fim-files".into()],
            option: SyncOption::VdSync,
            architecture: "x86_64".into(),
            hostname: "web-1".into(),
            osname: "Debian GNU/Linux".into(),
            osplatform: "debian".into(),
            ostype: "linux".into(),
            osversion: "12".into(),
            agentversion: "Holdfast v0.1.0".into(),
            agentname: "web".into(),
            agentid: "007".into(),
            groups: vec!["default".into(), "web".into()],
            global_version: 0x0102_0304_0506_0708,
            cluster_name: "holdfast".into(),
            feed_offset: 99,
        },
        payload: Payload::Sync {
            values: vec![
                SessionValue {
                    operation: Operation::Upsert,
                    id: "b5cc3f676d00dd320d85ef41a5209fa0a99891ea".into(),
                    index: "wazuh-states-fim-files".into(),
                    version: 1_763_751_122_000_001,
                    data: br#"{"file":{"path":"/etc/passwd"}}"#.to_vec(),
                },
                SessionValue {
                    operation: Operation::Delete,
                    id: "gone".into(),
                    index: "wazuh-states-fim-files".into(),
                    version: 1_763_751_122_000_002,
                    data: b"{}".to_vec(),
                },
            ],
            contexts: vec![Context {
                id: "os".into(),
                index: "wazuh-states-inventory-system".into(),
                data: br#"{"host":{}}"#.to_vec(),
            }],
        },
    }
}

prop_compose! {
    fn value()(
        delete in any::<bool>(),
        id in ".{0,50}",
        index in prop_oneof![Just("wazuh-states-fim-files".to_owned()), ".{0,20}".boxed()],
        version in any::<u64>(),
        data in vec(any::<u8>(), 0..200),
    ) -> SessionValue {
        let operation = if delete { Operation::Delete } else { Operation::Upsert };
        SessionValue { operation, id, index, version, data }
    }
}

prop_compose! {
    fn context()(id in ".{0,9}", index in ".{0,9}", data in vec(any::<u8>(), 0..40)) -> Context {
        Context { id, index, data }
    }
}

fn payload() -> impl Strategy<Value = Payload> {
    prop_oneof![
        Just(Payload::None),
        (vec(value(), 0..12), vec(context(), 0..3))
            .prop_map(|(values, contexts)| Payload::Sync { values, contexts }),
        vec(".{0,12}", 0..5).prop_map(Payload::Cleans),
        (".{0,12}", "[0-9a-f]{40}")
            .prop_map(|(index, checksum)| Payload::Checksum { index, checksum }),
    ]
}

prop_compose! {
    fn start()(
        texts in proptest::array::uniform12(".{0,12}"),
        lists in (vec(".{0,8}", 0..4), vec(".{0,8}", 0..4)),
        mode in 0..Mode::ALL.len(),
        option in 0..SyncOption::ALL.len(),
        numbers in any::<(u64, u64)>(),
    ) -> Start {
        let [module, architecture, hostname, osname, osplatform, ostype, osversion, agentversion,
            agentname, agentid, cluster_name, _] = texts;
        Start {
            module, mode: Mode::ALL[mode], index: lists.0, option: SyncOption::ALL[option],
            architecture, hostname, osname, osplatform, ostype, osversion, agentversion, agentname,
            agentid, groups: lists.1, global_version: numbers.0, cluster_name,
            feed_offset: numbers.1,
        }
    }
}

/// Returns a strategy for any session that can be written.
pub(crate) fn any_session() -> impl Strategy<Value = Session> {
    (start(), payload()).prop_map(|(start, payload)| Session { start, payload })
}
