//! The locks of the gate, with a second implementation for loom (`make loom`).

#[cfg(feature = "loom")]
pub(crate) use model::{Condvar, Mutex, MutexGuard};
#[cfg(not(feature = "loom"))]
pub(crate) use real::{Condvar, Mutex, MutexGuard};

/// The result of a wait with a time limit.
pub(crate) struct TimedWait<'a, T> {
    pub(crate) guard: MutexGuard<'a, T>,
    pub(crate) timed_out: bool,
}

#[cfg(not(feature = "loom"))]
mod real {
    use std::time::Instant;

    pub(crate) use parking_lot::{Mutex, MutexGuard};

    use super::TimedWait;

    #[derive(Default)]
    pub(crate) struct Condvar(parking_lot::Condvar);

    impl Condvar {
        pub(crate) fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(&mut guard);
            guard
        }

        pub(crate) fn wait_until<'a, T>(
            &self,
            mut guard: MutexGuard<'a, T>,
            until: Instant,
        ) -> TimedWait<'a, T> {
            let timed_out = self.0.wait_until(&mut guard, until).timed_out();
            TimedWait { guard, timed_out }
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

#[cfg(feature = "loom")]
mod model {
    use std::time::Instant;

    pub(crate) use loom::sync::MutexGuard;

    use super::TimedWait;

    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T: Default> Default for Mutex<T> {
        fn default() -> Self {
            Self::new(T::default())
        }
    }

    #[expect(clippy::unwrap_used, reason = "a model: a panic is what it looks for")]
    impl<T> Mutex<T> {
        pub(crate) fn new(inner: T) -> Self {
            Self(loom::sync::Mutex::new(inner))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }

    #[derive(Default)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    #[expect(clippy::unwrap_used, reason = "a model: a panic is what it looks for")]
    impl Condvar {
        pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(guard).unwrap()
        }

        /// Ignores the time limit: time does not pass in a model, so another thread must notify.
        pub(crate) fn wait_until<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
            _until: Instant,
        ) -> TimedWait<'a, T> {
            TimedWait { guard: self.wait(guard), timed_out: false }
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}
