//! The account that all shards share.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// A shard tells the others when what it holds has changed by so many bytes.
const GRAIN: usize = 16 << 10;

/// Bytes that all shards hold, and their bound.
pub(crate) struct Account {
    limit: usize,
    used: Padded<AtomicUsize>,
    /// The size class of the largest holder of each shard.
    largest: Box<[Padded<AtomicU8>]>,
}

/// A value on a cache line of its own, because other processors write to its neighbours.
#[repr(align(128))]
struct Padded<T>(T);

impl Account {
    pub(crate) fn new(limit: usize, shards: usize) -> Self {
        Self {
            limit,
            used: Padded(AtomicUsize::new(0)),
            largest: (0..shards).map(|_| Padded(AtomicU8::new(0))).collect(),
        }
    }

    /// Return the bytes that all shards hold, but for what each has not told yet.
    pub(crate) fn used(&self) -> usize {
        self.used.0.load(Ordering::Relaxed)
    }

    /// Return the bytes that may be held.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Return the bytes above the bound.
    pub(crate) fn excess(&self) -> usize {
        self.used().saturating_sub(self.limit)
    }

    /// Return whether the bound is exceeded and no connection holds enough to be ended for it.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.excess() > 0 && self.largest_class() == 0
    }

    /// Set a shard's part, of which the account has `entered`, to `used` bytes. Small changes wait.
    pub(super) fn enter(&self, entered: &mut usize, used: usize) {
        if used >= *entered + GRAIN {
            self.add(used - *entered);
        } else if used + GRAIN <= *entered {
            self.subtract(*entered - used);
        } else {
            return;
        }
        *entered = used;
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.used.0.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, bytes: usize) {
        self.used.0.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Tell which size class the largest holder of a shard has.
    pub(super) fn set_largest(&self, shard: usize, class: u8) {
        let largest = &self.largest[shard].0;
        if largest.load(Ordering::Relaxed) != class {
            largest.store(class, Ordering::Relaxed);
        }
    }

    /// Return the size class of the largest holder of all shards; 0 when there is none.
    pub(crate) fn largest_class(&self) -> u8 {
        let classes = self
            .largest
            .iter()
            .map(|shard| shard.0.load(Ordering::Relaxed));
        classes.max().unwrap_or(0)
    }

    /// Return the first shard with a holder of this size class.
    pub(crate) fn shard_with(&self, class: u8) -> usize {
        let has = |shard: &Padded<AtomicU8>| shard.0.load(Ordering::Relaxed) >= class;
        self.largest.iter().position(has).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_enter_what_changes_by_much() {
        let account = Account::new(100_000, 2);
        let (mut one, mut other) = (0, 0);
        account.enter(&mut one, 1000);
        assert_eq!((account.used(), one), (0, 0));
        account.enter(&mut one, 90_000);
        account.enter(&mut other, 30_000);
        assert_eq!((account.used(), account.excess()), (120_000, 20_000));
        account.enter(&mut one, 80_000);
        assert_eq!(account.used(), 120_000);
        account.enter(&mut one, 0);
        assert_eq!((account.used(), account.excess()), (30_000, 0));
    }

    #[test]
    fn the_largest_holder_is_found_among_all_shards() {
        let account = Account::new(0, 3);
        account.add(1);
        assert!(account.is_exhausted());
        account.set_largest(1, 12);
        account.set_largest(2, 14);
        assert!(!account.is_exhausted());
        assert_eq!((account.largest_class(), account.shard_with(14)), (14, 2));
        assert_eq!(account.shard_with(12), 1);
    }
}
