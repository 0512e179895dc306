//! A disk in memory that can lose power, tear writes, run full and fail: the same way every time
//! for the same seed.
//!
//! What it models: a write reaches the medium in sectors of 512 bytes. Until it is persisted, a
//! power cut keeps any subset of them, so that writes are torn and reordered, and an older write of
//! a sector may outlive a newer one. Names survive in the order in which they were changed, up to a
//! random point at or after the last persisted folder; after [`SimDisk::scatter_names`] each folder
//! has such a point of its own. Data of a failed flush reads as written but never becomes durable,
//! as with a page cache. What it does not model: bad sectors that heal, time.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::traits::{Access, File, Files, Lock};

mod image;

use image::{Image, NameChange};

/// Unit in which the medium writes, bytes.
pub const SECTOR_BYTES: usize = 512;
/// Alignment that direct access needs for offsets, lengths and buffers, bytes.
const DIRECT_BYTES: usize = 4096;

/// The way in which a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The power fails during the call; every later call fails, too.
    PowerCut,
    /// An input/output error. If a flush fails with it, its data is never flushed.
    Io,
    /// No space left.
    Full,
    /// A write that writes only a part (and succeeds); any other call is not affected.
    Short,
}

/// One future failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The changing call (from 1, see [`SimDisk::calls`]) that fails.
    pub call: u64,
    pub failure: Failure,
}

#[derive(Default)]
struct State {
    image: Image,
    held: BTreeSet<PathBuf>,
    calls: u64,
    faults: Vec<Fault>,
    /// A fault that lasts from its call on.
    lasting: Option<Fault>,
    off: bool,
    refuses_direct: bool,
    compressing: bool,
    scatters_names: bool,
    capacity_bytes: Option<u64>,
    /// True if flushes of files, and changes of names, are acknowledged without being done.
    lies: (bool, bool),
    /// Draws the sectors of torn and short writes.
    noise: u64,
}

/// A simulated disk; see the module. Clones share the disk.
#[derive(Clone, Default)]
pub struct SimDisk(Arc<Mutex<State>>);

/// Returns the next number of a `SplitMix64` sequence.
pub(crate) fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl SimDisk {
    /// Returns an empty disk.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State { noise: seed, ..State::default() })))
    }

    /// Makes future calls fail.
    pub fn fail(&self, faults: &[Fault]) {
        self.0.lock().faults.extend_from_slice(faults);
    }

    /// Makes a future call and every later one fail, until [`SimDisk::clear_faults`].
    pub fn fail_from(&self, fault: Fault) {
        self.0.lock().lasting = Some(fault);
    }

    /// Cancels all failures that were planned. The power stays off.
    pub fn clear_faults(&self) {
        let mut state = self.0.lock();
        state.faults.clear();
        state.lasting = None;
    }

    /// Returns the number of calls so far that change something: creating, writing, persisting,
    /// sizing, naming.
    pub fn calls(&self) -> u64 {
        self.0.lock().calls
    }

    /// Returns true if the power is off.
    pub fn is_off(&self) -> bool {
        self.0.lock().off
    }

    /// Refuses direct access from now on, as some file systems do.
    pub fn refuse_direct(&self) {
        self.0.lock().refuses_direct = true;
    }

    /// Reports a file system that compresses from now on.
    pub fn compress(&self) {
        self.0.lock().compressing = true;
    }

    /// Makes folders independent from now on: persisting a folder persists only its own names, and
    /// a power cut may keep later names of one folder without earlier ones of another.
    pub fn scatter_names(&self) {
        self.0.lock().scatters_names = true;
    }

    /// From now on acknowledges flushes of files, or of folders, without doing them, to show that a
    /// test detects it.
    pub fn ignore_flushes(&self, about_flushes: bool, about_names: bool) {
        self.0.lock().lies = (about_flushes, about_names);
    }

    /// Limits the total size of all files to this number of bytes; `None` removes the limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.0.lock().capacity_bytes = bytes;
    }

    /// Returns a copy of the disk as a power cut at this instant could leave it: the durable
    /// content, and a part of the rest that is drawn from the seed. This disk itself is unaffected.
    #[must_use]
    pub fn crash(&self, seed: u64) -> Self {
        let state = self.0.lock();
        let mut noise = seed;
        let image = state.image.after_power_cut(state.scatters_names, &mut noise);
        let (refuses_direct, capacity_bytes) = (state.refuses_direct, state.capacity_bytes);
        Self(Arc::new(Mutex::new(State {
            image,
            refuses_direct,
            capacity_bytes,
            scatters_names: state.scatters_names,
            noise,
            ..State::default()
        })))
    }

    /// Returns a copy of the disk as the next process finds it after a kill, with everything that
    /// was written.
    #[must_use]
    pub fn kill(&self) -> Self {
        let state = self.0.lock();
        let (refuses_direct, capacity_bytes) = (state.refuses_direct, state.capacity_bytes);
        Self(Arc::new(Mutex::new(State {
            image: state.image.clone(),
            refuses_direct,
            capacity_bytes,
            scatters_names: state.scatters_names,
            noise: state.noise,
            ..State::default()
        })))
    }

    /// Returns the content of a file as a reader sees it now; `None` if there is no file.
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.0.lock();
        state.image.find_node(path).map(|node| state.image.content(node).to_vec())
    }

    /// Flips one bit of a file on the medium. Returns false if there is no such bit.
    pub fn flip(&self, path: &Path, byte: usize, bit: u8) -> bool {
        let mut state = self.0.lock();
        let node = state.image.find_node(path);
        node.is_some_and(|node| state.image.flip(node, byte, bit))
    }
}

impl State {
    /// Counts a changing call and returns the failure planned for it, if any. Switches the power
    /// off for a power cut.
    fn call(&mut self) -> io::Result<Option<Failure>> {
        self.alive()?;
        self.calls += 1;
        let found = self.faults.iter().position(|f| f.call == self.calls);
        let lasting = self.lasting.filter(|f| f.call <= self.calls);
        let found = found.map(|i| self.faults.swap_remove(i)).or(lasting);
        let failure = found.map(|fault| fault.failure);
        self.off = failure == Some(Failure::PowerCut);
        Ok(failure)
    }

    fn alive(&self) -> io::Result<()> {
        if self.off { Err(io::Error::other("the power is off")) } else { Ok(()) }
    }

    /// Returns an error if a file of this size would exceed the capacity.
    fn check_capacity(&self, node: usize, bytes: u64) -> io::Result<()> {
        let more = bytes.saturating_sub(self.image.content(node).len() as u64);
        match self.capacity_bytes {
            Some(capacity) if more > 0 && self.image.bytes() + more > capacity => {
                Err(io::ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        }
    }

    /// Changes a name: visible now, durable later.
    fn rename(&mut self, change: NameChange) -> io::Result<()> {
        let failure = self.call()?;
        refusal(failure)?;
        self.image.change_name(change);
        cut(failure)
    }
}

/// Returns the error of a failure that leaves the call undone.
fn refusal(failure: Option<Failure>) -> io::Result<()> {
    match failure {
        Some(Failure::Io) => Err(io::Error::other("simulated input/output error")),
        Some(Failure::Full) => Err(io::ErrorKind::StorageFull.into()),
        _ => Ok(()),
    }
}

/// Returns the error of a call during which the power failed.
fn cut(failure: Option<Failure>) -> io::Result<()> {
    match failure {
        Some(Failure::PowerCut) => Err(io::Error::other("simulated power cut")),
        _ => Ok(()),
    }
}

struct SimFile {
    disk: Arc<Mutex<State>>,
    node: usize,
    access: Access,
}

impl SimFile {
    fn aligned(&self, address: usize, bytes: usize, offset: u64) -> io::Result<()> {
        let whole = |n: usize| n.is_multiple_of(DIRECT_BYTES);
        if !self.access.direct || (whole(address) && whole(bytes) && whole(offset as usize)) {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, "direct access is not aligned"))
    }

    fn writable(&self) -> io::Result<()> {
        if self.access.write { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }
}

impl File for SimFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.aligned(into.as_ptr().addr(), into.len(), offset)?;
        let state = self.disk.lock();
        state.alive()?;
        let content = state.image.content(self.node).get(offset as usize..).unwrap_or_default();
        let n = content.len().min(into.len());
        if let (Some(to), Some(from)) = (into.get_mut(..n), content.get(..n)) {
            to.copy_from_slice(from);
        }
        Ok(n)
    }

    fn write_at(&self, from: &[u8], offset: u64) -> io::Result<usize> {
        self.writable()?;
        self.aligned(from.as_ptr().addr(), from.len(), offset)?;
        let mut state = self.disk.lock();
        let failure = state.call()?;
        if failure == Some(Failure::Full) {
            refusal(failure)?;
        }
        state.check_capacity(self.node, offset + from.len() as u64)?;
        let mut bytes = from.len();
        if matches!(failure, Some(Failure::Short | Failure::Io)) {
            let step = if self.access.direct { DIRECT_BYTES } else { 1 };
            bytes = draw(&mut state.noise) as usize % from.len().max(1) / step * step;
            if failure == Some(Failure::Short) {
                bytes = bytes.max(step.min(from.len()));
            }
        }
        state.image.write(self.node, offset as usize, from.get(..bytes).unwrap_or_default());
        refusal(failure)?;
        cut(failure)?;
        if self.access.dsync && !state.lies.0 {
            state.image.persist_range(self.node, offset as usize, bytes);
        }
        Ok(bytes)
    }

    fn persist(&self) -> io::Result<()> {
        let mut state = self.disk.lock();
        let failure = state.call()?;
        if matches!(failure, Some(Failure::Io | Failure::Full)) {
            state.image.forget(self.node);
        }
        refusal(failure)?;
        cut(failure)?;
        if !state.lies.0 {
            state.image.persist(self.node);
        }
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        let state = self.disk.lock();
        state.alive()?;
        Ok(state.image.content(self.node).len() as u64)
    }

    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.writable()?;
        let mut state = self.disk.lock();
        let failure = state.call()?;
        refusal(failure)?;
        state.check_capacity(self.node, bytes)?;
        state.image.resize(self.node, bytes as usize);
        cut(failure)
    }

    fn allocate(&self, bytes: u64) -> io::Result<bool> {
        let size = self.size()?;
        self.set_size(bytes.max(size)).map(|()| true)
    }
}

struct SimLock {
    disk: Arc<Mutex<State>>,
    path: PathBuf,
}

impl Lock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.lock().held.remove(&self.path);
    }
}

impl Files for SimDisk {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let mut state = self.0.lock();
        state.alive()?;
        if access.direct && state.refuses_direct {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let node = match state.image.find_node(path) {
            Some(node) => node,
            None if access.create => {
                state.rename(NameChange::Create(path.to_owned()))?;
                state.image.find_node(path).ok_or(io::ErrorKind::NotFound)?
            }
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Arc::new(SimFile { disk: Arc::clone(&self.0), node, access }))
    }

    fn compressing(&self, _dir: &Path) -> Option<&'static str> {
        self.0.lock().compressing.then_some("simulated")
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.0.lock();
        state.alive()?;
        Ok(state.image.names_in(dir))
    }

    fn create_dir(&self, _dir: &Path) -> io::Result<()> {
        self.0.lock().alive()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        state.alive()?;
        state.image.find_node(from).ok_or(io::ErrorKind::NotFound)?;
        state.rename(NameChange::Rename(from.to_owned(), to.to_owned()))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        state.alive()?;
        state.image.find_node(path).ok_or(io::ErrorKind::NotFound)?;
        state.rename(NameChange::Remove(path.to_owned()))
    }

    fn persist_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        let failure = state.call()?;
        refusal(failure)?;
        cut(failure)?;
        if !state.lies.1 {
            let only = state.scatters_names.then_some(dir);
            state.image.persist_names(only);
        }
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        let mut state = self.0.lock();
        state.alive()?;
        if !state.held.insert(path.to_owned()) {
            return Ok(None);
        }
        Ok(Some(Box::new(SimLock { disk: Arc::clone(&self.0), path: path.to_owned() })))
    }
}

#[cfg(test)]
mod tests;
