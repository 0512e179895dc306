//! Images: a program that a process runs, from one exec to the next.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Identity of a file's content: an executable that was replaced or rewritten has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    pub device: u64,
    pub inode: u64,
    pub ctime_ns: i128,
}

/// The executable of an image.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Program {
    /// Path without the kernel's marker of a deleted file.
    pub path: Vec<u8>,
    pub deleted: bool,
    pub file: FileId,
}

/// The login that a process descends from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Login {
    pub user: Option<u32>,
    pub session: Option<u32>,
}

/// A program in a process, as `/proc` described it after the exec.
#[derive(Debug, Default)]
pub struct Image {
    /// Absent for a thread of the kernel, and if it is not permitted to read it.
    pub program: Option<Program>,
    /// True for a thread of the kernel.
    pub kernel: bool,
    /// Arguments, each ended by a zero byte; cut off after [`crate::limits::ARGUMENTS_BYTES_MAX`].
    pub arguments: Vec<u8>,
    pub working_directory: Vec<u8>,
    pub tty: String,
    pub container: String,
    /// Digest of the path of the control group, which is that of a login session or service.
    pub control_group: u64,
    /// See [`model::ProcessInfo::foreign`].
    pub foreign: bool,
    /// The first few arguments as text; computed when they are first reported.
    pub first_arguments: OnceLock<Arc<[String]>>,
    /// The arguments as text, with secrets masked; computed when they are first reported.
    pub command_line: OnceLock<String>,
    /// Time at which `/proc` had been read, nanoseconds of `CLOCK_MONOTONIC`.
    pub read_ns: u64,
    /// True if a later message showed that `/proc` may have described the next image already.
    pub doubtful: AtomicBool,
}

/// An image in one process, as `/proc` showed it there.
#[derive(Debug)]
pub struct ObservedImage {
    pub image: Arc<Image>,
    /// Time at which `/proc` had been read, nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// True if the process inherited the image and only its executable was compared.
    inherited: bool,
    doubtful: AtomicBool,
}

impl ObservedImage {
    /// Returns the sighting of an image that was read in the process itself.
    pub fn of_reading(image: Arc<Image>) -> Self {
        let at_ns = image.read_ns;
        Self { image, at_ns, inherited: false, doubtful: AtomicBool::new(false) }
    }

    /// Returns the sighting of a child that was seen with the executable of its parent.
    pub fn inherited(image: Arc<Image>, at_ns: u64) -> Self {
        Self { image, at_ns, inherited: true, doubtful: AtomicBool::new(false) }
    }

    /// Returns the executable if it is certain.
    pub fn known_program(&self) -> Option<&Program> {
        let doubtful = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        let known = !doubtful(&self.doubtful) && !doubtful(&self.image.doubtful);
        self.image.program.as_ref().filter(|_| known)
    }

    /// Marks the image as possibly another one. If it was read here, this applies to every process
    /// that inherited it.
    pub fn doubt(&self) {
        let flag = if self.inherited { &self.doubtful } else { &self.image.doubtful };
        flag.store(true, Ordering::Relaxed);
    }

    /// Returns true if the executable is this file, or this one and the other are not known.
    pub fn has_file(&self, file: Option<FileId>) -> bool {
        self.image.program.as_ref().map(|program| program.file) == file
    }
}

/// A process that created another one, with the image it had then.
#[derive(Debug)]
pub struct Ancestor {
    pub pid: u32,
    pub start: Start,
    pub image: Option<Arc<ObservedImage>>,
    /// Effective user then; `None` if it is not known.
    pub user: Option<u32>,
}

/// Start of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Start {
    /// Nanoseconds of `CLOCK_MONOTONIC`; may be rounded down to a tick. Negative if the process
    /// started before a suspend of which this clock does not know. `None` if not known.
    pub at_ns: Option<i64>,
    /// Ticks since boot, from `/proc/PID/stat`.
    pub ticks: Option<u64>,
}

impl Start {
    /// Returns true if both are the start of one process, given the same number.
    pub(crate) fn is_same(self, other: Self) -> bool {
        match (self.ticks, other.ticks) {
            (Some(one), Some(other)) => one == other,
            _ => self.at_ns.is_some() && self.at_ns == other.at_ns,
        }
    }
}
