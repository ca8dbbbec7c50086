//! Time that several processes of one machine agree on.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of CLOCK_MONOTONIC, which is the same for every process of a machine, and another on
/// every other machine.
#[inline]
pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // It counts from the machine's start: neither part is negative.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
