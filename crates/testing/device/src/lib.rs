//! A block device in user space that forgets what was not flushed, and counts what reaches it.
//!
//! A file in memory, served by FUSE, is the backing of a loop device (direct I/O); a file system is
//! made on it and mounted in a folder. Programs use that folder as any other. Every write of a
//! 4 KiB block and every flush is seen here, however the program made it.
//!
//! ```no_run
//! use device::{Device, Fs, PowerCut};
//!
//! # fn main() -> Result<(), device::DeviceError> {
//! let mut device = Device::new(64 << 20)?;
//! let folder = device.mount(Fs::Ext4)?;
//! // ... write below `folder`, fsync, write more ...
//! device.power_cut(&PowerCut::ALL)?; // what was not flushed is gone
//! let folder = device.remount()?; // the file system's own recovery runs; go on
//! # let _ = folder;
//! # Ok(())
//! # }
//! ```
//!
//! # What survives what
//! - A flush makes every write that was answered before it durable. Nothing else does.
//! - [`Device::power_cut`] keeps what is durable and, as [`PowerCut`] says, a random part of the
//!   writes since the last flush: whole blocks, or single sectors of 512 bytes.
//! - From the cut on, or from the moment set by [`Device::die_after`], every request to the device
//!   fails: nothing written later can be acknowledged, and open files of the old mount never reach
//!   the new one.
//!
//! # Faults
//! [`Device::fail`] fails requests to the device, once or until it is cleared, with what the file
//! system makes of it: ext4 answers a failed write at the next `fsync`, and is read-only after a
//! failed flush. On a [`FaultyFolder`] each `write` and `fsync` of a program is one request.
//!
//! # Limits
//! Linux; root, `/dev/fuse`, loop devices and the `mkfs` of the file system, or
//! [`DeviceError::Unavailable`]. Everything is in memory: two images that share equal blocks;
//! blocks of zeros take nothing. A process that is killed leaves its mounts behind; the next
//! [`Device`] removes them.

mod error;
mod fault;
mod fiemap;
mod files;
mod folder;
mod fuse;
mod host;
mod image;
mod options;
mod report;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use error::DeviceError;
pub use fault::{DiskFault, FaultError, FaultyRequest};
pub use folder::FaultyFolder;
pub use image::{Counters, Moment, PowerCut, SECTOR_BYTES};
pub use options::{BLOCK_BYTES, DEVICE_BYTES_MAX, DEVICE_BYTES_MIN, DeviceOptions, Fs};
pub use report::{Class, Report, Tally, block_sizes};

use host::Mounts;
use image::Image;

/// A device. Dropping it unmounts it and forgets everything.
pub struct Device {
    image: Arc<Image>,
    mounts: Mounts,
}

impl Device {
    /// Makes a device of `bytes` bytes.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] where this machine or user cannot have one.
    pub fn new(bytes: u64) -> Result<Self, DeviceError> {
        Self::with(DeviceOptions { bytes, ..DeviceOptions::default() })
    }

    /// Makes a device with these options.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] where this machine or user cannot have one.
    pub fn with(options: DeviceOptions) -> Result<Self, DeviceError> {
        let image = Arc::new(Image::new(&options)?);
        let mounts = Mounts::new(fuse::Served(Arc::clone(&image)))?;
        Ok(Self { image, mounts })
    }

    /// Makes a file system, mounts it and returns the folder.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] without the program that makes it; else as the programs say.
    pub fn mount(&mut self, fs: Fs) -> Result<PathBuf, DeviceError> {
        let journal = self.mounts.format(&self.image.name(), fs)?;
        self.image.set_journal(journal);
        self.remount()
    }

    /// Mounts the file system again after [`Device::unmount`] or [`Device::power_cut`], in the same
    /// folder.
    ///
    /// # Errors
    /// The error of a program, for example if the file system cannot recover.
    pub fn remount(&mut self) -> Result<PathBuf, DeviceError> {
        self.mounts.mount(&self.image.name())
    }

    /// Returns the folder, whether mounted or not.
    pub fn folder(&self) -> &Path {
        self.mounts.folder()
    }

    /// Unmounts the file system.
    ///
    /// # Errors
    /// The error of `umount`, for example if a file is still open.
    pub fn unmount(&mut self) -> Result<(), DeviceError> {
        self.mounts.unmount()
    }

    /// Cuts the power: requests fail from now on, and all writes that were not flushed are lost
    /// except those that `cut` keeps. The file system is no longer mounted in its folder, and its
    /// open files fail for good. Continue with [`Device::remount`].
    ///
    /// # Errors
    /// As the programs say.
    pub fn power_cut(&mut self, cut: &PowerCut) -> Result<(), DeviceError> {
        self.image.die();
        self.mounts.detach();
        self.image.revive(cut);
        Ok(())
    }

    /// Makes the device fail by itself at that moment, counted from now: every request fails from
    /// then on, until [`Device::power_cut`].
    pub fn die_after(&self, moment: Moment) {
        self.image.arm(moment);
    }

    /// Returns true if the moment of [`Device::die_after`] has come.
    pub fn is_dead(&self) -> bool {
        self.image.is_dead()
    }

    /// Plans a fault, in place of an earlier one: a request to the device fails, with what the file
    /// system makes of it. Requests are counted from now on. A power cut does not end the fault.
    pub fn fail(&self, fault: DiskFault) {
        self.image.with_plan(|plan| plan.set(fault));
    }

    /// Ends the fault.
    pub fn clear_fault(&self) {
        self.image.with_plan(fault::Plan::clear);
    }

    /// Returns the number of requests that the last planned fault failed.
    pub fn failed_requests(&self) -> u64 {
        self.image.with_plan(|plan| plan.failed())
    }

    /// Does the same as [`FaultyFolder::fail_each`], with requests to the device. After the work the
    /// power is cut, so that nothing but flushed data is left to check. Every second run is checked
    /// before that, too, if the file system can still be written, as after a restart of the program
    /// alone.
    ///
    /// # Panics
    /// Panics if a folder or a mount cannot be made or removed.
    pub fn fail_each<T>(
        &mut self,
        step: usize,
        prepare: impl Fn(&Path) -> T,
        work: impl Fn(&Path, &mut T),
        check: impl Fn(&Path, &mut T),
    ) -> u64 {
        let folder = self.folder().join("run");
        fault::each_fault(step, |fault| {
            std::fs::create_dir(&folder).map_err(DeviceError::io(&folder))?;
            let mut held = prepare(&folder);
            self.fail(fault);
            work(&folder, &mut held);
            self.clear_fault();
            let writable = std::fs::write(folder.join("writable"), b"").is_ok();
            if writable && fault.number % 2 == 0 {
                check(&folder, &mut held);
            }
            self.power_cut(&PowerCut::ALL)?;
            self.remount()?;
            check(&folder, &mut held);
            std::fs::remove_dir_all(&folder).map_err(DeviceError::io(&folder))?;
            Ok(self.failed_requests())
        })
    }

    /// Returns the requests since the device was made.
    pub fn counters(&self) -> Counters {
        self.image.counters()
    }

    /// Discards the measurements so far. Flush first the data that should not be counted.
    pub fn start_measuring(&self) {
        self.image.start_measuring();
    }

    /// Returns the writes that reached the device since [`Device::start_measuring`], by location:
    /// the files named, the file system's journal, elsewhere. The files must still exist; sync
    /// first the data that should be counted. Needs [`DeviceOptions::measure`].
    ///
    /// # Errors
    /// Returns an error if the location of a file's blocks cannot be read.
    pub fn report(&self, files: &[impl AsRef<Path>]) -> Result<Report, DeviceError> {
        let mut extents = Vec::new();
        for file in files {
            extents.extend(fiemap::extents(file.as_ref())?);
        }
        Ok(self.image.report(&extents))
    }
}

/// Returns what a test made, or skips the test and returns `None` if it is unavailable here.
///
/// # Panics
/// On any other error.
pub fn or_skip<T>(made: Result<T, DeviceError>) -> Option<T> {
    match made {
        Err(DeviceError::Unavailable(why)) => {
            needs::skip(why);
            None
        }
        #[expect(clippy::panic, reason = "a test that cannot go on fails")]
        Err(error) => panic!("{error}"),
        Ok(made) => Some(made),
    }
}

/// Checks that a device with this file system is available on this machine.
///
/// # Errors
/// [`DeviceError::Unavailable`] with the reason.
pub fn available(fs: Fs) -> Result<(), DeviceError> {
    host::available(fs)
}
