//! State that an engine's threads share with its owner: counters that one thread writes and any
//! thread reads, and a few values that all threads agree on.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use reactor::Clock;

use crate::clock::RunClock;
use crate::recorder::Second;

/// Lock a mutex that is held briefly and never left half-changed, even by a panic.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Return the part of `total` that thread `thread` of `threads` takes: its start and its size.
pub(crate) fn share(total: u32, threads: u32, thread: u32) -> (u32, u32) {
    let (each, more) = (total / threads, total % threads);
    (
        thread * each + thread.min(more),
        each + u32::from(thread < more),
    )
}

/// Messages, and the bytes of their headers and payloads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MessageCount {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

impl MessageCount {
    /// Count a message of `len` bytes.
    #[inline]
    pub(crate) fn add(&mut self, len: usize) {
        self.messages += 1;
        self.bytes += len as u64;
    }
}

/// Counters of one thread; a cache line pair of its own, so that no other thread's writes slow it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct ThreadCounters {
    pub(crate) connect_failures: AtomicU64,
    pub(crate) disconnected: AtomicU64,
    /// Connections that were closed to be established again.
    pub(crate) churned: AtomicU64,
    /// Churned connections that were established again.
    pub(crate) reconnected: AtomicU64,
    /// Attempts that failed after all had been connected.
    pub(crate) reconnect_failures: AtomicU64,
    pub(crate) server_errors: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) outstanding: AtomicU64,
    pub(crate) timed_out: AtomicU64,
    pub(crate) errors: AtomicU64,
    /// 1 while there are requests to come.
    pub(crate) sending: AtomicU64,
    /// 1 once every request of the sweep has ended.
    pub(crate) swept: AtomicU64,
    /// Connections established, including those that are closed again.
    pub(crate) connections_opened: AtomicU64,
    /// Connections that ended with an HTTP response that announced it.
    pub(crate) answered: AtomicU64,
    /// Messages handed to connections for the server to publish, and bytes of their payloads.
    pub(crate) published: AtomicU64,
    pub(crate) published_bytes: AtomicU64,
    /// Messages that the server delivered, and bytes of their headers and payloads.
    pub(crate) delivered: AtomicU64,
    pub(crate) delivered_bytes: AtomicU64,
    /// Bytes received and sent since the run began, with all that frames the messages; TCP and IP are
    /// not counted.
    pub(crate) wire_bytes_in: AtomicU64,
    pub(crate) wire_bytes_out: AtomicU64,
    /// Bytes of HTTP heads, which `wire_bytes_in` and `wire_bytes_out` include.
    pub(crate) head_bytes_in: AtomicU64,
    pub(crate) head_bytes_out: AtomicU64,
    /// Messages that a provider cannot answer.
    pub(crate) unanswerable: AtomicU64,
    /// Replies that never left.
    pub(crate) dropped: AtomicU64,
    pub(crate) misrouted: AtomicU64,
    pub(crate) corrupt: AtomicU64,
    /// Replies of the last second.
    pub(crate) second_count: AtomicU64,
    /// Sum of their latencies in nanoseconds.
    pub(crate) second_sum: AtomicU64,
    /// Longest of their latencies in nanoseconds.
    pub(crate) second_max: AtomicU64,
}

impl ThreadCounters {
    /// Show how many messages of `len` bytes were handed to connections.
    #[inline]
    pub(crate) fn set_published(&self, messages: u64, len: usize) {
        set(&self.published, messages);
        set(&self.published_bytes, messages * len as u64);
    }

    /// Show a second that is over.
    #[inline]
    pub(crate) fn set_second(&self, second: &Second) {
        set(&self.second_count, second.count);
        set(&self.second_sum, second.sum);
        set(&self.second_max, second.max);
    }
}

/// Set a counter that the calling thread alone writes.
#[inline]
pub(crate) fn set(counter: &AtomicU64, value: u64) {
    counter.store(value, Ordering::Relaxed);
}

/// State of an engine's threads as a whole.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The server, for error texts.
    pub(crate) target: String,
    /// Number of connections to establish.
    pub(crate) wanted: u32,
    /// The threads' clock.
    pub(crate) clock: Clock,
    pub(crate) run_clock: RunClock,
    pub(crate) began: Instant,
    pub(crate) counters: Box<[ThreadCounters]>,
    /// Connections that are ready now.
    ready: AtomicU32,
    /// Time when all were ready for the first time.
    connected: OnceLock<Instant>,
    error: OnceLock<String>,
    server_error: OnceLock<String>,
    /// Threads that have ended.
    ended: AtomicU32,
}

impl Shared {
    pub(crate) fn new(
        target: String,
        wanted: u32,
        threads: u32,
        clock: Clock,
        run_clock: RunClock,
    ) -> Self {
        Self {
            target,
            wanted,
            began: clock.now(),
            clock,
            run_clock,
            counters: (0..threads).map(|_| ThreadCounters::default()).collect(),
            ready: AtomicU32::new(0),
            connected: OnceLock::new(),
            error: OnceLock::new(),
            server_error: OnceLock::new(),
            ended: AtomicU32::new(0),
        }
    }

    /// Return the sum of a counter over all threads.
    pub(crate) fn total(&self, counter: impl Fn(&ThreadCounters) -> &AtomicU64) -> u64 {
        self.counters
            .iter()
            .map(|counters| counter(counters).load(Ordering::Relaxed))
            .sum()
    }

    /// Return the largest value of a counter among the threads.
    pub(crate) fn max(&self, counter: impl Fn(&ThreadCounters) -> &AtomicU64) -> u64 {
        let values = self
            .counters
            .iter()
            .map(|counters| counter(counters).load(Ordering::Relaxed));
        values.max().unwrap_or(0)
    }

    /// Return the number of connections that are ready now.
    pub(crate) fn ready(&self) -> u32 {
        self.ready.load(Ordering::Relaxed)
    }

    pub(crate) fn add_ready(&self) {
        if self.ready.fetch_add(1, Ordering::Relaxed) + 1 == self.wanted {
            self.connected.get_or_init(|| self.clock.now());
        }
    }

    pub(crate) fn remove_ready(&self) {
        self.ready.fetch_sub(1, Ordering::Relaxed);
    }

    /// Return when all connections were ready for the first time.
    pub(crate) fn connected(&self) -> Option<Instant> {
        self.connected.get().copied()
    }

    /// Return the seconds until all connections were ready; 0 before that.
    pub(crate) fn connect_s(&self) -> f64 {
        self.connected()
            .map_or(0.0, |at| at.duration_since(self.began).as_secs_f64())
    }

    /// Why the engine failed.
    pub(crate) fn error(&self) -> Option<&str> {
        self.error.get().map(String::as_str)
    }

    /// Note that the engine has failed; the first reason counts.
    pub(crate) fn fail(&self, why: String) {
        self.error.get_or_init(|| why);
    }

    /// Return the text of the first `-ERR` on a connection that was ready, or of the first answer
    /// of HTTP that is an error.
    pub(crate) fn server_error(&self) -> Option<&str> {
        self.server_error.get().map(String::as_str)
    }

    pub(crate) fn note_server_error(&self, text: impl FnOnce() -> String) {
        self.server_error.get_or_init(text);
    }

    /// Return whether every thread has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire) as usize == self.counters.len()
    }

    pub(crate) fn end_thread(&self) {
        self.ended.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_the_whole_without_overlap() {
        for (total, threads) in [(1, 1), (10, 3), (16, 16), (1_000_016, 7)] {
            let mut next = 0;
            for thread in 0..threads {
                let (first, count) = share(total, threads, thread);
                assert_eq!(first, next);
                assert!((total / threads..=total / threads + 1).contains(&count));
                next += count;
            }
            assert_eq!(next, total);
        }
    }
}
