//! The time as a shard sees it: the system's, or a simulation's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A clock; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Clock(Option<Virtual>);

#[derive(Debug, Clone)]
struct Virtual {
    start: Instant,
    elapsed_ns: Arc<AtomicU64>,
}

impl Clock {
    /// Return a clock that stands still until [`advance`](Self::advance) moves it. All clones of it
    /// tell the same time.
    #[must_use]
    pub fn virtual_time() -> Self {
        Self(Some(Virtual {
            start: Instant::now(),
            elapsed_ns: Arc::default(),
        }))
    }

    /// Return the time now.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Instant {
        match &self.0 {
            None => Instant::now(),
            Some(time) => {
                time.start + Duration::from_nanos(time.elapsed_ns.load(Ordering::Relaxed))
            }
        }
    }

    /// Move a virtual clock forward by `by`; the system's clock is left alone.
    pub fn advance(&self, by: Duration) {
        if let Some(time) = &self.0 {
            let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
            time.elapsed_ns.fetch_add(by, Ordering::Relaxed);
        }
    }
}
