//! Faults of a disk that goes on working: a request that fails once, or requests that fail from
//! then on.

use crate::error::DeviceError;

/// The error of a failed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultError {
    /// `EIO`: the medium failed.
    Io,
    /// `ENOSPC`: the disk is full.
    Full,
}

impl FaultError {
    pub const ALL: [Self; 2] = [Self::Io, Self::Full];
}

/// The requests that a fault counts and fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultyRequest {
    /// Everything that changes content or names.
    Write,
    /// Everything that makes changes durable.
    Flush,
    /// Both.
    Any,
}

/// A planned failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DiskFault {
    pub request: FaultyRequest,
    /// The request that fails: 1 is the next one.
    pub number: u64,
    pub error: FaultError,
    /// True if all later requests of this kind fail, too, until the fault is cleared.
    pub lasting: bool,
}

/// The fault of a disk, if one is planned, and the number of requests that it failed.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    fault: Option<DiskFault>,
    /// Requests since the fault was planned.
    seen: u64,
    failed: u64,
}

impl Plan {
    pub(crate) fn set(&mut self, fault: DiskFault) {
        *self = Self { fault: Some(fault), seen: 0, failed: 0 };
    }

    /// Ends the fault. The number of failed requests is kept.
    pub(crate) fn clear(&mut self) {
        self.fault = None;
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failed
    }

    /// Counts a request; `Err` if it must fail.
    pub(crate) fn admit(&mut self, request: FaultyRequest) -> Result<(), FaultError> {
        let Some(fault) = self.fault else { return Ok(()) };
        if fault.request != FaultyRequest::Any && fault.request != request {
            return Ok(());
        }
        self.seen += 1;
        if self.seen < fault.number || (self.seen > fault.number && !fault.lasting) {
            return Ok(());
        }
        self.failed += 1;
        Err(fault.error)
    }
}

/// Runs some work with each fault in turn, and returns the number of runs. `run` returns the number
/// of requests that failed; a fault that fails none is the last one of its kind.
#[expect(clippy::panic, clippy::print_stderr, reason = "for tests: the output names the fault")]
pub(crate) fn each_fault(
    step: usize,
    mut run: impl FnMut(DiskFault) -> Result<u64, DeviceError>,
) -> u64 {
    let mut runs = 0;
    let kinds = FaultError::ALL.into_iter().flat_map(|error| [(error, false), (error, true)]);
    // The kinds begin at different requests, so that together they meet more of them.
    for (first, (error, lasting)) in (1..=step as u64).cycle().zip(kinds) {
        for number in (first..).step_by(step) {
            let fault = DiskFault { request: FaultyRequest::Any, number, error, lasting };
            eprintln!("{fault:?}");
            runs += 1;
            match run(fault) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => panic!("{fault:?}: {error}"),
            }
        }
    }
    runs
}
