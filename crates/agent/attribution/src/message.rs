//! Messages of the process connector, decoded from bytes.
//!
//! Layout (`linux/netlink.h`, `linux/connector.h`, `linux/cn_proc.h`), in the machine's byte order:
//! a netlink header of 16 bytes, a connector header of 20 bytes, and the event: `what` (4), `cpu`
//! (4), `timestamp_ns` (8), and fields that depend on `what`.

/// Bytes of a netlink header.
const NETLINK_HEADER: usize = 16;
/// Bytes of a connector header.
const CONNECTOR_HEADER: usize = 20;
/// `CN_IDX_PROC` and `CN_VAL_PROC`.
const PROCESS_CONNECTOR: (u32, u32) = (1, 1);
/// `NLMSG_DONE`: the type of every connector message.
const NLMSG_DONE: u16 = 3;
/// `PROC_CN_MCAST_LISTEN`.
const LISTEN: u32 = 1;

const ACKNOWLEDGED: u32 = 0;
const FORK: u32 = 0x0000_0001;
const EXEC: u32 = 0x0000_0002;
const UID: u32 = 0x0000_0004;
const GID: u32 = 0x0000_0040;
const SID: u32 = 0x0000_0080;
const COMM: u32 = 0x0000_0200;
const EXIT: u32 = 0x8000_0000;

/// Real and effective user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ids {
    pub real: u32,
    pub effective: u32,
}

/// A thread and the process it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    pub tid: u32,
    pub pid: u32,
}

impl Task {
    /// Returns true if the task is the first thread of its process, which has the process's number.
    pub fn is_leader(self) -> bool {
        self.tid == self.pid
    }
}

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A process or thread was created. The parent is the child's parent, which is not the process
    /// that called `clone` if that used `CLONE_PARENT`.
    Fork {
        parent: Task,
        child: Task,
    },
    Exec(Task),
    /// A thread changed its users.
    Uid(Task, Ids),
    Gid(Task),
    Sid(Task),
    Comm(Task),
    Exit(Task),
    /// A subscription was accepted (0) or refused with an error number.
    Acknowledged(u32),
    Other,
}

/// One message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    pub cpu: u32,
    /// Number of the message on its CPU; every message counts.
    pub sequence: u32,
    /// Time of the event, nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    pub kind: Kind,
}

/// Decodes a datagram, which holds one or more messages. Returns `None` if it is truncated or no
/// message of the process connector.
pub fn decode(datagram: &[u8]) -> Option<Vec<Message>> {
    let mut messages = Vec::with_capacity(1);
    let mut rest = datagram;
    while !rest.is_empty() {
        let length = number(rest, 0)? as usize;
        if length < NETLINK_HEADER {
            return None;
        }
        messages.push(decode_one(rest.get(..length)?)?);
        // Messages are aligned to 4 bytes; the last one may lack its padding.
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(messages)
}

fn decode_one(message: &[u8]) -> Option<Message> {
    let kind = u16::from_ne_bytes(message.get(4..6)?.try_into().ok()?);
    let connector = message.get(NETLINK_HEADER..)?;
    if kind != NLMSG_DONE || (number(connector, 0)?, number(connector, 4)?) != PROCESS_CONNECTOR {
        return None;
    }
    let event = connector.get(CONNECTOR_HEADER..)?;
    let at_ns = u64::from_ne_bytes(event.get(8..16)?.try_into().ok()?);
    let data = event.get(16..)?;
    let task = |at: usize| Some(Task { tid: number(data, at)?, pid: number(data, at + 4)? });
    let kind = match number(event, 0)? {
        ACKNOWLEDGED => Kind::Acknowledged(number(data, 0)?),
        FORK => Kind::Fork { parent: task(0)?, child: task(8)? },
        EXEC => Kind::Exec(task(0)?),
        UID => Kind::Uid(task(0)?, Ids { real: number(data, 8)?, effective: number(data, 12)? }),
        GID => Kind::Gid(task(0)?),
        SID => Kind::Sid(task(0)?),
        COMM => Kind::Comm(task(0)?),
        EXIT => Kind::Exit(task(0)?),
        _ => Kind::Other,
    };
    Some(Message { cpu: number(event, 4)?, sequence: number(connector, 8)?, at_ns, kind })
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Returns the message that subscribes to the connector. It requests no filter: a filter would
/// leave gaps in the sequence numbers.
pub fn subscription() -> Vec<u8> {
    let length = (NETLINK_HEADER + CONNECTOR_HEADER + 4) as u32;
    let mut bytes = Vec::with_capacity(length as usize);
    bytes.extend(length.to_ne_bytes());
    bytes.extend(NLMSG_DONE.to_ne_bytes());
    // Flags, sequence number and sender; 0 is the kernel's choice of address.
    bytes.extend([0; 10]);
    bytes.extend(PROCESS_CONNECTOR.0.to_ne_bytes());
    bytes.extend(PROCESS_CONNECTOR.1.to_ne_bytes());
    // Sequence number and acknowledgement.
    bytes.extend([0; 8]);
    bytes.extend(4u16.to_ne_bytes());
    bytes.extend([0; 2]);
    bytes.extend(LISTEN.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    // Recorded on Linux 6.18, on a little-endian machine.
    const FORK_BYTES: &str = "4c00000003000000010000000000000001000000010000000100000000000000\
         280000000100000001000000f4e779fec51400007d0300007d030000a6030000a6030000\
         0000000000000000";
    const EXEC_BYTES: &str = "4c00000003000000020000000000000001000000010000000200000000000000\
         280000000200000001000000c1f1a2fec5140000a6030000a6030000\
         00000000000000000000000000000000";
    const EXIT_BYTES: &str = "4c00000003000000030000000000000001000000010000000300000000000000\
         2800000000000080010000001c39a9fec5140000a6030000a6030000\
         00000000110000007d0300007d030000";
    const ACKNOWLEDGEMENT_BYTES: &str = "4c00000003000000000000000000000001000000010000000000000001000000\
         28000000000000000100000013e173fec51400000000000000000000\
         00000000000000000000000000000000";

    fn bytes(hex: &str) -> Vec<u8> {
        let pair = |n: usize| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap();
        (0..hex.len() / 2).map(pair).collect()
    }

    fn one(hex: &str) -> Message {
        let messages = decode(&bytes(hex)).unwrap();
        assert_eq!(messages.len(), 1);
        messages[0]
    }

    #[test]
    fn recorded_messages_decode() {
        let task = |pid| Task { tid: pid, pid };
        let message = |sequence, at_ns, kind| Message { cpu: 1, sequence, at_ns, kind };
        let fork = Kind::Fork { parent: task(893), child: task(934) };
        assert_eq!(one(FORK_BYTES), message(1, 22_840_610_514_932, fork));
        assert_eq!(one(EXEC_BYTES), message(2, 22_840_613_204_417, Kind::Exec(task(934))));
        assert_eq!(one(EXIT_BYTES), message(3, 22_840_613_615_900, Kind::Exit(task(934))));
        assert_eq!(one(ACKNOWLEDGEMENT_BYTES).kind, Kind::Acknowledged(0));
    }

    #[test]
    fn ids_of_a_thread_decode() {
        let mut datagram = bytes(EXEC_BYTES);
        datagram[36..40].copy_from_slice(&UID.to_ne_bytes());
        for (at, value) in [(52, 7u32), (56, 6), (60, 1000), (64, 0)] {
            datagram[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        let kind = decode(&datagram).unwrap()[0].kind;
        let ids = Ids { real: 1000, effective: 0 };
        assert_eq!(kind, Kind::Uid(Task { tid: 7, pid: 6 }, ids));
        for (what, kind) in
            [(GID, Kind::Gid as fn(Task) -> Kind), (SID, Kind::Sid), (COMM, Kind::Comm)]
        {
            datagram[36..40].copy_from_slice(&what.to_ne_bytes());
            assert_eq!(decode(&datagram).unwrap()[0].kind, kind(Task { tid: 7, pid: 6 }));
        }
    }

    #[test]
    fn datagram_with_two_messages_decodes_both() {
        let mut datagram = bytes(FORK_BYTES);
        datagram.extend(bytes(EXEC_BYTES));
        let sequences: Vec<u32> =
            decode(&datagram).unwrap().iter().map(|message| message.sequence).collect();
        assert_eq!(sequences, [1, 2]);
    }

    #[test]
    fn truncated_and_foreign_datagrams_are_refused() {
        let whole = bytes(FORK_BYTES);
        for length in 1..whole.len() {
            assert_eq!(decode(&whole[..length]), None, "{length} bytes");
        }
        for at in [0, 4, 16, 20] {
            let mut foreign = whole.clone();
            foreign[at] ^= 0x03;
            assert_eq!(decode(&foreign), None, "byte {at}");
        }
    }

    #[test]
    fn subscription_has_forty_bytes() {
        let expected = "280000000300000000000000000000000100000001000000\
             0000000000000000040000000100000000";
        assert_eq!(subscription().len(), 40);
        assert_eq!(subscription()[..24], bytes(expected)[..24]);
        assert_eq!(subscription()[36..], 1u32.to_ne_bytes());
    }
}
