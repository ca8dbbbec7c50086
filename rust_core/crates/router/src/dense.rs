//! A set in one dense vector.

use hashbrown::DefaultHashBuilder;
use slab::Index;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

/// Up to this many items are searched one after the other.
const UNINDEXED: usize = 16;

/// A set that is iterated as a slice and loses an item in constant time, whatever its size.
///
/// As with the standard maps, an item hashes like the key that it is borrowed as.
pub(crate) struct Dense<T> {
    items: Vec<T>,
    /// Positions by item; exists only while the set is large.
    positions: Option<Box<Positions>>,
}

#[derive(Default)]
struct Positions {
    hasher: DefaultHashBuilder,
    index: Index,
}

impl<T: Eq + Hash> Dense<T> {
    pub(crate) fn new() -> Self {
        Self {
            items: Vec::new(),
            positions: None,
        }
    }

    pub(crate) fn of(item: T) -> Self {
        let mut set = Self::new();
        set.insert(item);
        set
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[T] {
        &self.items
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn get_mut(&mut self, position: usize) -> Option<&mut T> {
        self.items.get_mut(position)
    }

    pub(crate) fn position<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<usize>
    where
        T: Borrow<Q>,
    {
        let Some(positions) = &self.positions else {
            return self.items.iter().position(|item| item.borrow() == key);
        };
        let hash = positions.hasher.hash_one(key);
        let is_match = |at: u32| {
            self.items
                .get(at as usize)
                .is_some_and(|item| item.borrow() == key)
        };
        positions.index.find(hash, is_match).map(|at| at as usize)
    }

    /// Adds `item`; false if the set holds it already.
    pub(crate) fn insert(&mut self, item: T) -> bool {
        if self.position(&item).is_some() {
            return false;
        }
        if self.items.is_empty() {
            self.items.reserve_exact(2);
        }
        self.items.push(item);
        let last = self.items.len() - 1;
        if self.positions.is_some() {
            self.index_position(last);
        } else if self.items.len() > UNINDEXED {
            self.positions = Some(Box::default());
            for position in 0..=last {
                self.index_position(position);
            }
        }
        true
    }

    /// Removes the item at `position`, which the last item takes over.
    pub(crate) fn swap_remove(&mut self, position: usize) {
        let Some(last) = self.items.len().checked_sub(1) else {
            return;
        };
        if position > last {
            return;
        }
        if let Some(positions) = &mut self.positions {
            let Positions { hasher, index } = &mut **positions;
            let hash_of = |at: u32| hash_at(hasher, &self.items, at);
            index.remove(hash_of(position as u32), position as u32, hash_of);
            if position != last {
                index.replace(hash_of(last as u32), last as u32, position as u32);
            }
        }
        self.items.swap_remove(position);
        // Below half, so that a set that wavers at the limit does not rebuild its index.
        if self.items.len() < UNINDEXED / 2 {
            self.positions = None;
        }
        if self.items.len() < self.items.capacity() / 4 {
            self.items.shrink_to(self.items.len() * 2);
        }
    }

    fn index_position(&mut self, position: usize) {
        if let Some(positions) = &mut self.positions {
            let Positions { hasher, index } = &mut **positions;
            // 2^32 items are beyond the memory of one process.
            let at = u32::try_from(position).expect("a set holds fewer than 2^32 items");
            let hash_of = |at: u32| hash_at(hasher, &self.items, at);
            index.insert(hash_of(at), at, hash_of);
        }
    }
}

fn hash_at<T: Hash>(hasher: &DefaultHashBuilder, items: &[T], at: u32) -> u64 {
    items
        .get(at as usize)
        .map_or(0, |item| hasher.hash_one(item))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_large_set_is_emptied_in_any_order() {
        let mut set = Dense::new();
        for n in 0..20_000_u64 {
            assert!(set.insert(n));
            assert!(!set.insert(n));
        }
        for n in (0..20_000_u64).map(|n| n * 7919 % 20_000) {
            let position = set.position(&n).unwrap();
            assert_eq!(set.as_slice()[position], n);
            set.swap_remove(position);
            assert_eq!(set.position(&n), None);
        }
        assert!(set.is_empty());
        assert!(set.positions.is_none());
        set.swap_remove(0);
    }

    proptest! {
        #[test]
        fn behaves_like_a_set(ops in prop::collection::vec((any::<bool>(), 0..40_u8), 0..400)) {
            let mut set = Dense::new();
            let mut model = BTreeSet::new();
            for (insert, n) in ops {
                if insert {
                    prop_assert_eq!(set.insert(n), model.insert(n));
                } else {
                    let position = set.position(&n);
                    prop_assert_eq!(position.is_some(), model.remove(&n));
                    if let Some(position) = position {
                        set.swap_remove(position);
                    }
                }
                prop_assert_eq!(set.as_slice().iter().copied().collect::<BTreeSet<_>>(), model.clone());
                prop_assert_eq!(set.len(), model.len());
                prop_assert!(model.iter().all(|n| set.position(n).is_some()));
                if let Some(positions) = &set.positions {
                    prop_assert_eq!(positions.index.len(), model.len());
                }
            }
        }
    }
}
