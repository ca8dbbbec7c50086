//! Numbers that one shard writes, and that every thread reads without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::key::{Key, KeyMap};

/// Numbers, one for each key. One thread writes, so that an increment is a plain load, an addition
/// and a plain store; a second writer would lose increments. A reader gets each number whole, but
/// different numbers from slightly different times. Cells have cache lines of their own, apart from
/// other writers.
#[repr(align(128))]
pub struct Cells<K: Key>(KeyMap<K, AtomicU64>);

impl<K: Key> Cells<K> {
    /// Make cells that are all zero.
    #[must_use]
    pub fn new() -> Self {
        Self(KeyMap::new(|_| AtomicU64::new(0)))
    }

    /// Add to a number, modulo 2^64. Only the writing thread may call.
    #[inline]
    pub fn add(&self, key: K, count: u64) {
        add(&self.0[key], count);
    }

    /// Subtract from a number, modulo 2^64. Only the writing thread may call.
    #[inline]
    pub fn subtract(&self, key: K, count: u64) {
        add(&self.0[key], count.wrapping_neg());
    }

    /// Replace a number. Only the writing thread may call.
    #[inline]
    pub fn set(&self, key: K, value: u64) {
        self.0[key].store(value, Ordering::Relaxed);
    }

    /// Return a number as it is now.
    #[inline]
    #[must_use]
    pub fn value(&self, key: K) -> u64 {
        self.0[key].load(Ordering::Relaxed)
    }

    /// Return the sum of several cells for each key, modulo 2^64. A value that one shard adds and
    /// another subtracts is meaningful only in the sum.
    pub fn sum<'a>(all: impl IntoIterator<Item = &'a Self>) -> KeyMap<K, u64> {
        let mut sums = KeyMap::new(|_| 0_u64);
        for cells in all {
            for key in K::ALL {
                sums[*key] = sums[*key].wrapping_add(cells.value(*key));
            }
        }
        sums
    }
}

impl<K: Key> Default for Cells<K> {
    fn default() -> Self {
        Self::new()
    }
}

/// Add to a cell that no other thread writes to.
#[inline]
pub(crate) fn add(cell: &AtomicU64, count: u64) {
    let value = cell.load(Ordering::Relaxed).wrapping_add(count);
    cell.store(value, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    crate::keys! {
        enum Event: () {
            Came = (),
            Went = (),
        }
    }

    #[test]
    fn numbers_are_summed_over_shards() {
        let shards = [Cells::new(), Cells::default()];
        shards[0].add(Event::Came, 3);
        shards[1].add(Event::Came, 4);
        shards[1].set(Event::Went, 9);
        assert_eq!(shards[0].value(Event::Came), 3);
        let sums = Cells::sum(&shards);
        assert_eq!((sums[Event::Came], sums[Event::Went]), (7, 9));
    }

    #[test]
    fn a_shard_may_subtract_what_another_has_added() {
        let shards = [Cells::new(), Cells::new()];
        shards[0].add(Event::Came, 5);
        shards[1].subtract(Event::Came, 3);
        assert_eq!(Cells::sum(&shards)[Event::Came], 2);
        shards[1].subtract(Event::Came, 4);
        assert_eq!(Cells::sum(&shards)[Event::Came] as i64, -2);
    }

    #[test]
    fn readers_see_numbers_grow_while_one_thread_writes() {
        let cells = Arc::new(Cells::new());
        let writer = thread::spawn({
            let cells = Arc::clone(&cells);
            move || (0..100_000).for_each(|_| cells.add(Event::Went, 1))
        });
        let mut last = 0;
        while last < 100_000 {
            let seen = cells.value(Event::Went);
            assert!(seen >= last, "{seen} after {last}");
            last = seen;
        }
        writer.join().expect("the writer ends");
    }

    #[test]
    fn no_other_writer_is_on_the_same_cache_line() {
        assert_eq!(align_of::<Cells<Event>>(), 128);
        assert_eq!(size_of::<[Cells<Event>; 2]>(), 256);
    }
}
