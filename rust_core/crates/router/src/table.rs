//! Literal subjects: one hash lookup, whatever the number of subjects.

use crate::index::Index;
use crate::matches::Matches;
use crate::name::Name;
use crate::rng::Rng;
use crate::set::{Removal, Set};
use crate::slab::Slab;
use hashbrown::DefaultHashBuilder;
use std::hash::{BuildHasher, Hash};

/// Subscribers by literal subject.
///
/// An entry is 48 bytes for a 16-byte subscriber and a subject of up to 22 bytes; the index adds
/// about 8. Entries stand in a slab, and the index holds their ids, so that neither growing nor
/// hashing ever touches more than about 500 entries at once.
pub struct Table<S> {
    hasher: DefaultHashBuilder,
    index: Index,
    entries: Slab<Entry<S>>,
    len: usize,
}

struct Entry<S> {
    subject: Name,
    set: Set<S>,
}

impl<S: Copy + Eq + Hash> Table<S> {
    /// An empty table with a random hash seed.
    #[must_use]
    pub fn new() -> Self {
        Self::with_hasher(DefaultHashBuilder::default())
    }

    pub(crate) fn with_hasher(hasher: DefaultHashBuilder) -> Self {
        Self {
            hasher,
            index: Index::default(),
            entries: Slab::new(),
            len: 0,
        }
    }

    /// Number of subscriptions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Number of different subjects.
    #[must_use]
    pub fn subjects(&self) -> usize {
        self.entries.len()
    }

    /// Bytes allocated, but for long subjects and for the further subscribers of one subject.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.entries.bytes() + self.index.bytes()
    }

    /// Whether there are no subscriptions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a subscription to a literal subject; false if it is there already. The caller has
    /// validated the subject.
    pub fn insert(&mut self, subject: &[u8], queue: Option<&[u8]>, subscriber: S) -> bool {
        self.insert_hashed(self.hasher.hash_one(subject), subject, queue, subscriber)
    }

    /// Removes a subscription; false if it is not there.
    pub fn remove(&mut self, subject: &[u8], queue: Option<&[u8]>, subscriber: &S) -> bool {
        self.remove_hashed(self.hasher.hash_one(subject), subject, queue, subscriber)
    }

    /// Adds the subscribers of `subject` to `matches`.
    pub fn match_into(
        &self,
        subject: &[u8],
        matches: &mut Matches<S>,
        rng: &mut Rng,
        mut accept: impl FnMut(&S) -> bool,
    ) {
        let hash = self.hasher.hash_one(subject);
        self.match_hashed(hash, subject, matches, rng, &mut accept);
    }

    pub(crate) fn insert_hashed(
        &mut self,
        hash: u64,
        subject: &[u8],
        queue: Option<&[u8]>,
        subscriber: S,
    ) -> bool {
        let inserted = match self.find(hash, subject) {
            Some(id) => self
                .entries
                .get_mut(id)
                .is_some_and(|entry| entry.set.insert(queue, subscriber)),
            None => {
                let id = self.entries.insert(Entry {
                    subject: Name::new(subject),
                    set: Set::new(queue, subscriber),
                });
                let hash_of = |id: u32| hash_at(&self.hasher, &self.entries, id);
                self.index.insert(hash, id, hash_of);
                true
            }
        };
        self.len += usize::from(inserted);
        inserted
    }

    pub(crate) fn remove_hashed(
        &mut self,
        hash: u64,
        subject: &[u8],
        queue: Option<&[u8]>,
        subscriber: &S,
    ) -> bool {
        let Some(id) = self.find(hash, subject) else {
            return false;
        };
        let Some(entry) = self.entries.get_mut(id) else {
            return false;
        };
        match entry.set.remove(queue, subscriber) {
            Removal::Absent => return false,
            Removal::Removed => {}
            Removal::Emptied => {
                let hash_of = |id: u32| hash_at(&self.hasher, &self.entries, id);
                self.index.remove(hash, id, hash_of);
                self.entries.remove(id);
            }
        }
        self.len -= 1;
        true
    }

    #[inline]
    pub(crate) fn match_hashed(
        &self,
        hash: u64,
        subject: &[u8],
        matches: &mut Matches<S>,
        rng: &mut Rng,
        accept: &mut impl FnMut(&S) -> bool,
    ) {
        let entry = self.find(hash, subject).and_then(|id| self.entries.get(id));
        if let Some(entry) = entry {
            entry.set.collect(matches, rng, accept);
        }
    }

    #[inline]
    pub(crate) fn contains_hashed(&self, hash: u64, subject: &[u8]) -> bool {
        self.find(hash, subject).is_some()
    }

    /// Fails if an inner count or reference is wrong: for tests.
    ///
    /// # Panics
    /// If an invariant does not hold.
    #[doc(hidden)]
    pub fn check_invariants(&self) {
        assert_eq!(self.index.len(), self.entries.len());
        let sets = self.entries.iter().map(|(_, entry)| entry.set.len());
        assert_eq!(self.len, sets.sum::<usize>());
        for (id, entry) in self.entries.iter() {
            let subject = entry.subject.as_bytes();
            assert_eq!(self.find(self.hasher.hash_one(subject), subject), Some(id));
            assert!(entry.set.len() > 0);
        }
    }

    #[inline]
    fn find(&self, hash: u64, subject: &[u8]) -> Option<u32> {
        self.index.find(hash, |id| {
            self.entries
                .get(id)
                .is_some_and(|entry| entry.subject.as_bytes() == subject)
        })
    }
}

impl<S: Copy + Eq + Hash> Default for Table<S> {
    fn default() -> Self {
        Self::new()
    }
}

fn hash_at<S>(hasher: &DefaultHashBuilder, entries: &Slab<Entry<S>>, id: u32) -> u64 {
    entries
        .get(id)
        .map_or(0, |entry| hasher.hash_one(entry.subject.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_takes_48_bytes() {
        assert_eq!(size_of::<Entry<[u64; 2]>>(), 48);
        assert_eq!(size_of::<Option<Entry<[u64; 2]>>>(), 48);
    }
}
