//! A hash index of `u32` ids that never rehashes much at once.

use hashbrown::HashTable;

/// Mean number of ids per part. In a round of splits a part holds between one and two times
/// this many, so that parts of 256 and 512 buckets stay below hashbrown's load factor of 7/8.
const TARGET: usize = 200;

/// A map from hashes to ids; its owner keeps the values behind the ids, and compares them.
///
/// Linear hashing (Litwin 1980) over small hash tables: one part is split in two whenever the
/// mean load passes 200 ids, and the last two are merged when it falls to a quarter. One insertion
/// therefore moves at most about 500 ids, however many the index holds. Hashes must be good in all
/// 64 bits.
#[derive(Debug, Default)]
pub struct Index {
    parts: Vec<HashTable<u32>>,
    /// The number of parts, rounded up to a power of two, less one.
    mask: usize,
    len: usize,
}

impl Index {
    /// Return the number of bytes allocated.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(HashTable::allocation_size).sum()
    }

    /// Return the id under `hash` for which `is_match` holds.
    #[inline]
    #[must_use]
    pub fn find(&self, hash: u64, mut is_match: impl FnMut(u32) -> bool) -> Option<u32> {
        let part = self.parts.get(self.part(hash))?;
        part.find(hash, |&id| is_match(id)).copied()
    }

    /// Add an id that the index does not hold; `hash_of` gives the hash of any id held.
    pub fn insert(&mut self, hash: u64, id: u32, hash_of: impl Fn(u32) -> u64) {
        if self.len >= self.parts.len() * TARGET {
            self.split(&hash_of);
        }
        let at = self.part(hash);
        self.parts[at].insert_unique(hash, id, |&id| hash_of(id));
        self.len += 1;
    }

    /// Remove `id`, which was inserted under `hash`.
    pub fn remove(&mut self, hash: u64, id: u32, hash_of: impl Fn(u32) -> u64) {
        let at = self.part(hash);
        let Some(part) = self.parts.get_mut(at) else {
            return;
        };
        let Ok(entry) = part.find_entry(hash, |&held| held == id) else {
            return;
        };
        entry.remove();
        self.len -= 1;
        if self.parts.len() > 1 && self.len < self.parts.len() * TARGET / 4 {
            self.merge(&hash_of);
        }
    }

    /// Put `new` in the place of `old`; the hash stays.
    pub fn replace(&mut self, hash: u64, old: u32, new: u32) {
        let at = self.part(hash);
        if let Some(part) = self.parts.get_mut(at)
            && let Some(id) = part.find_mut(hash, |&held| held == old)
        {
            *id = new;
        }
    }

    /// Return the number of ids.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Return whether the index holds no id.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The part for `hash`: always below the number of parts, or 0.
    #[inline]
    fn part(&self, hash: u64) -> usize {
        // hashbrown takes the lowest bits for the bucket and the highest seven for the tag.
        let at = (hash >> 24) as usize & self.mask;
        if at < self.parts.len() {
            at
        } else {
            at & (self.mask >> 1)
        }
    }

    fn set_mask(&mut self) {
        self.mask = self.parts.len().next_power_of_two() - 1;
    }

    /// Adds a part and divides the part that covered its hashes until now.
    fn split(&mut self, hash_of: &impl Fn(u32) -> u64) {
        let added = self.parts.len();
        self.parts.push(HashTable::new());
        self.set_mask();
        if added == 0 {
            return;
        }
        let ids = std::mem::take(&mut self.parts[buddy(added)]);
        for at in [buddy(added), added] {
            self.parts[at].reserve(ids.len() / 2, |_| 0);
        }
        self.redistribute(ids, hash_of);
    }

    /// Takes the last part away and moves its ids to the part that covers their hashes now.
    fn merge(&mut self, hash_of: &impl Fn(u32) -> u64) {
        if let Some(ids) = self.parts.pop() {
            self.set_mask();
            self.redistribute(ids, hash_of);
        }
    }

    fn redistribute(&mut self, ids: HashTable<u32>, hash_of: &impl Fn(u32) -> u64) {
        for id in ids {
            let hash = hash_of(id);
            let at = self.part(hash);
            self.parts[at].insert_unique(hash, id, |&id| hash_of(id));
        }
    }
}

/// The part that part `at` (at least 1) was split from: `at` without its highest bit.
fn buddy(at: usize) -> usize {
    at ^ (1 << at.ilog2())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use hashbrown::DefaultHashBuilder;
    use std::hash::BuildHasher;

    #[test]
    fn ids_survive_growth_and_shrinking() {
        let hasher = DefaultHashBuilder::default();
        let hash_of = |id: u32| hasher.hash_one(id);
        let mut index = Index::default();
        assert_eq!(index.find(hash_of(0), |_| true), None);
        for id in 0..50_000 {
            index.insert(hash_of(id), id, hash_of);
        }
        assert_eq!(index.len(), 50_000);
        assert!(index.parts.len() > 100);
        assert!(index.parts.iter().all(|part| part.len() < 2 * TARGET + 150));
        for id in 0..50_000 {
            assert_eq!(index.find(hash_of(id), |held| held == id), Some(id));
        }
        for id in (0..50_000).rev() {
            index.remove(hash_of(id), id, hash_of);
            index.remove(hash_of(id), id, hash_of);
            assert_eq!(index.len(), id as usize);
            if id % 1000 == 0 {
                assert!((0..id).all(|id| index.find(hash_of(id), |held| held == id).is_some()));
            }
        }
        assert_eq!(index.parts.len(), 1);
    }

    #[test]
    fn replacing_keeps_the_hash() {
        let hasher = DefaultHashBuilder::default();
        let mut index = Index::default();
        let hash = hasher.hash_one(7);
        index.insert(hash, 7, |_| hash);
        index.replace(hash, 7, 9);
        assert_eq!(index.find(hash, |held| held == 9), Some(9));
        assert_eq!(index.find(hash, |held| held == 7), None);
    }

    #[test]
    fn an_insertion_moves_few_ids() {
        let hasher = DefaultHashBuilder::default();
        let mut index = Index::default();
        let mut most = 0;
        for id in 0..200_000 {
            let moved = std::cell::Cell::new(0);
            index.insert(hasher.hash_one(id), id, |id| {
                moved.set(moved.get() + 1);
                hasher.hash_one(id)
            });
            most = most.max(moved.get());
        }
        assert!(most > 0 && most < 1024, "{most}");
    }
}
