//! Literal subjects: one hash lookup, whatever the number of subjects.

use crate::bytes::equal;
use crate::entries::{Entries, Insertion};
use crate::matches::{Found, Matches};
use crate::set::Removal;
use fastrand::Rng;
use hashbrown::DefaultHashBuilder;
use std::hash::{BuildHasher, Hash};

/// Longest subject kept in its entry, in bytes.
const INLINE: usize = 23;

/// Subscribers by literal subject.
///
/// An entry is 48 bytes for a 16-byte subscriber and a subject of up to 23 bytes; the index adds
/// about 8.
pub struct Table<S> {
    hasher: DefaultHashBuilder,
    entries: Entries<S, INLINE>,
}

impl<S: Copy + Eq + Hash> Table<S> {
    /// Return an empty table with a random hash seed.
    #[must_use]
    pub fn new() -> Self {
        Self::with_hasher(DefaultHashBuilder::default())
    }

    pub(crate) fn with_hasher(hasher: DefaultHashBuilder) -> Self {
        Self {
            hasher,
            entries: Entries::new(),
        }
    }

    /// Return the number of subscriptions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Return the number of different subjects.
    #[must_use]
    pub fn subjects(&self) -> usize {
        self.entries.texts()
    }

    /// Return the number of bytes allocated, except for long subjects and for the further
    /// subscribers of one subject.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.entries.bytes()
    }

    /// Return whether there are no subscriptions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Add a subscription to a literal subject; false if it is there already. The caller has
    /// validated the subject.
    pub fn insert(&mut self, subject: &[u8], queue: Option<&[u8]>, subscriber: S) -> bool {
        self.insert_hashed(self.hasher.hash_one(subject), subject, queue, subscriber)
    }

    /// Remove a subscription; false if it is not there.
    pub fn remove(&mut self, subject: &[u8], queue: Option<&[u8]>, subscriber: &S) -> bool {
        self.remove_hashed(self.hasher.hash_one(subject), subject, queue, subscriber)
    }

    /// Add the subscribers of `subject` to `matches`.
    pub fn match_into(
        &self,
        subject: &[u8],
        matches: &mut Matches<S>,
        rng: &mut Rng,
        mut accept: impl FnMut(&S) -> bool,
    ) {
        let hash = self.hasher.hash_one(subject);
        self.match_hashed(hash, subject, &mut matches.found, rng, &mut accept);
    }

    pub(crate) fn insert_hashed(
        &mut self,
        hash: u64,
        subject: &[u8],
        queue: Option<&[u8]>,
        subscriber: S,
    ) -> bool {
        let hash_of = |text: &[u8]| self.hasher.hash_one(text);
        let insertion = self
            .entries
            .insert(hash, subject, queue, subscriber, hash_of);
        insertion != Insertion::Present
    }

    pub(crate) fn remove_hashed(
        &mut self,
        hash: u64,
        subject: &[u8],
        queue: Option<&[u8]>,
        subscriber: &S,
    ) -> bool {
        let hash_of = |text: &[u8]| self.hasher.hash_one(text);
        let removal = self
            .entries
            .remove(hash, subject, queue, subscriber, hash_of);
        removal != Removal::Absent
    }

    #[inline]
    pub(crate) fn match_hashed(
        &self,
        hash: u64,
        subject: &[u8],
        found: &mut Found<S>,
        rng: &mut Rng,
        accept: &mut impl FnMut(&S) -> bool,
    ) {
        if let Some(set) = self.entries.find(hash, |text| equal(text, subject)) {
            set.collect(found, rng, accept);
        }
    }

    /// Fail if an inner count or reference is wrong: for tests.
    ///
    /// # Panics
    /// If an invariant does not hold.
    #[doc(hidden)]
    pub fn check_invariants(&self) {
        self.entries
            .check_invariants(|text| self.hasher.hash_one(text));
    }
}

impl<S: Copy + Eq + Hash> Default for Table<S> {
    fn default() -> Self {
        Self::new()
    }
}
