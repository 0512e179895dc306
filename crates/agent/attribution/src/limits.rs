//! Limits of the process table.

use std::time::Duration;

/// Most processes in the table, running and ended.
pub const PROCESSES_MAX: usize = 64 * 1024;
/// Most phases of a process: spans of one image and one pair of users.
pub const PHASES_MAX: usize = 16;
/// Most ancestors of a process.
pub const ANCESTORS_MAX: usize = 8;
/// Most users that threads of a process set for themselves.
pub const THREAD_IDS_MAX: usize = 4;
/// Most intervals of losses; the two oldest are merged.
pub const LOSSES_MAX: usize = 64;
/// Time for which an ended process is kept.
pub const ENDED_KEPT_NS: u64 = 60_000_000_000;
/// Most bytes of a process's arguments.
pub const ARGUMENTS_BYTES_MAX: usize = 4096;
/// Most bytes of a file of `/proc`, except arguments.
pub const PROC_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of a described command line. The texts of a description are limited because 8 writers
/// with 8 ancestors each must fit into an event of [`model::limits::DOCUMENT_BYTES_MAX`].
pub const COMMAND_LINE_BYTES_MAX: usize = 2048;
/// Most bytes of an ancestor's described command line.
pub const ANCESTOR_COMMAND_LINE_BYTES_MAX: usize = 512;
/// Most programs that are described of those that come into question for one writer.
pub const CANDIDATES_MAX: usize = 8;
/// Most programs that are described of those that a writer ran before its last change.
pub const EARLIER_MAX: usize = 4;
/// Most arguments of a process that the explanation of changes gets.
pub const FIRST_ARGUMENTS_MAX: usize = 32;
/// Most bytes of the environment of a program that explains changes. A larger one is not trusted.
pub const ENVIRONMENT_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of a described path.
pub const PATH_BYTES_MAX: usize = 1024;
/// Bytes of the connector's receive buffer: about 20,000 messages.
pub const BUFFER_BYTES: usize = 8 * 1024 * 1024;
/// Longest wait until the table has passed a time.
pub const PASS_WAIT_MAX: Duration = Duration::from_secs(2);
/// Most cached hashes of executables.
pub const HASHES_MAX: usize = 4096;
/// Largest executable that is hashed, bytes.
pub const HASH_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Most cached names of users. A full cache is cleared.
pub const NAMES_MAX: usize = 10_000;
/// Age after which a cached name of a user is looked up again.
pub const NAME_AGE_MAX: Duration = Duration::from_mins(1);

/// A file that an exec closes (`O_CLOEXEC`) is notified when the system call returns, after the
/// message of the exec. An image is therefore a candidate for a closing until this time after it
/// was replaced.
pub const CLOSE_DELAY_NS: u64 = 5_000_000;
/// Longest time between the moment in which an exec replaces what `/proc` shows, and its message.
/// The kernel maps the new program in between, on a busy machine with interruptions.
pub const EXEC_WINDOW_NS: u64 = 10_000_000_000;
/// Time after its reading in which no message may contradict an image that an answer uses.
pub const SETTLE_NS: u64 = 50_000_000;
