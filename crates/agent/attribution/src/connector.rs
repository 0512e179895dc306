//! The socket of the kernel's process connector.
//!
//! The kernel queues a message on the socket before the process that caused it runs on: FORK
//! before the child's first instruction, EXEC before the new image's, EXIT after the last file was
//! closed. A message that finds the buffer full is lost. The next [`Connector::receive`] then
//! returns [`Received::Lost`], and further messages are lost until the buffer has been emptied.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::error::AttributionError;
use crate::message::{self, Kind, Message};

/// `CN_IDX_PROC`: the multicast group, as a bit mask.
const PROCESS_GROUP: u32 = 1;
/// Bytes of a datagram that are read; a message has 76.
const DATAGRAM_BYTES: usize = 4096;

/// The outcome of a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Messages(Vec<Message>),
    /// Every message that was sent before the call has been received.
    Empty,
    /// Messages were lost.
    Lost,
}

/// A subscribed socket.
#[derive(Debug)]
pub(crate) struct Connector {
    socket: OwnedFd,
}

impl Connector {
    /// Opens and subscribes a socket with a receive buffer of this size.
    ///
    /// The kernel accepts the subscription only from the first user, process and network
    /// namespaces; elsewhere no message ever arrives, or the socket cannot be created.
    pub(crate) fn open(buffer_bytes: usize) -> Result<Self, AttributionError> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        #[expect(unsafe_code, reason = "no safe wrapper has NETLINK_CONNECTOR")]
        // SAFETY: the call takes no pointers; a descriptor it returns is new and owned by nothing.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_CONNECTOR);
            let fd = check(fd).map_err(explain)?;
            OwnedFd::from_raw_fd(fd)
        };
        let connector = Self { socket };
        connector.set_buffer(buffer_bytes).map_err(explain)?;
        connector.bind().map_err(explain)?;
        let flags = rustix::net::SendFlags::empty();
        rustix::net::send(&connector.socket, &message::subscription(), flags)
            .map_err(|error| explain(error.into()))?;
        connector.check_acknowledgement()?;
        Ok(connector)
    }

    /// Reads the answer to the subscription, which the kernel queues before the call that sends the
    /// subscription returns. In another namespace it ignores the subscription.
    fn check_acknowledgement(&self) -> Result<(), AttributionError> {
        loop {
            let messages = match self.receive()? {
                Received::Empty => return Err(AttributionError::OtherNamespace),
                // /proc is read after this call, so nothing is missing.
                Received::Lost => return Ok(()),
                Received::Messages(messages) => messages,
            };
            let answer = messages.iter().find_map(|message| match message.kind {
                Kind::Acknowledged(error) => Some(error),
                _ => None,
            });
            match answer {
                Some(0) => return Ok(()),
                Some(error) => return Err(explain(io::Error::from_raw_os_error(error as i32))),
                None => {}
            }
        }
    }

    fn set_buffer(&self, bytes: usize) -> io::Result<()> {
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        let size = size_of::<i32>() as libc::socklen_t;
        #[expect(unsafe_code, reason = "no safe wrapper has SO_RCVBUFFORCE for netlink")]
        // SAFETY: the pointer is to an integer of the given size that outlives the call.
        let result = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVBUFFORCE,
                (&raw const bytes).cast(),
                size,
            )
        };
        check(result).map(drop)
    }

    fn bind(&self) -> io::Result<()> {
        let address = address(PROCESS_GROUP);
        let size = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        #[expect(unsafe_code, reason = "no safe wrapper binds a netlink socket to groups")]
        // SAFETY: the pointer is to an address of the given size that outlives the call.
        let result =
            unsafe { libc::bind(self.socket.as_raw_fd(), (&raw const address).cast(), size) };
        check(result).map(drop)
    }

    /// Reads one datagram without waiting.
    pub(crate) fn receive(&self) -> io::Result<Received> {
        let mut datagram = [0u8; DATAGRAM_BYTES];
        let mut sender = address(0);
        let mut size = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        #[expect(unsafe_code, reason = "no safe wrapper returns the sender of a netlink message")]
        // SAFETY: each pointer is to a local of the given size that outlives the call.
        let length = unsafe {
            libc::recvfrom(
                self.socket.as_raw_fd(),
                datagram.as_mut_ptr().cast(),
                datagram.len(),
                0,
                (&raw mut sender).cast(),
                &raw mut size,
            )
        };
        let Ok(length) = usize::try_from(length) else {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EAGAIN) => Ok(Received::Empty),
                Some(libc::ENOBUFS) => Ok(Received::Lost),
                Some(libc::EINTR) => Ok(Received::Messages(Vec::new())),
                _ => Err(error),
            };
        };
        // Only the kernel has the address 0; another sender is not believed.
        if sender.nl_pid != 0 {
            return Ok(Received::Messages(Vec::new()));
        }
        let bytes = datagram.get(..length).unwrap_or_default();
        // A kernel whose messages cannot be decoded is treated as one that lost them.
        Ok(message::decode(bytes).map_or(Received::Lost, Received::Messages))
    }
}

impl AsFd for Connector {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn address(groups: u32) -> libc::sockaddr_nl {
    #[expect(unsafe_code, reason = "the type has a private padding field and no constructor")]
    // SAFETY: all-zero bytes are a valid address: the type consists of integers.
    let mut address: libc::sockaddr_nl = unsafe { mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    address.nl_groups = groups;
    address
}

/// Names the missing right or feature.
fn explain(error: io::Error) -> AttributionError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => AttributionError::NotPermitted,
        Some(libc::ECONNREFUSED) => AttributionError::OtherNamespace,
        Some(libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT) => AttributionError::NotSupported,
        _ => AttributionError::Io(error),
    }
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
