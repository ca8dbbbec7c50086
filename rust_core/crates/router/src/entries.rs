//! Sets of subscribers under the text that they subscribed to.

use crate::name::Name;
use crate::set::{Removal, Set};
use slab::{Index, Slab};
use std::hash::Hash;

/// Sets of subscribers by subject or pattern. The caller hashes the texts.
///
/// Texts of up to `INLINE` bytes stand in the entries. An entry has a place in the slab, and the
/// index holds its number: neither growing nor hashing touches more than about 500 entries at once.
pub(crate) struct Entries<S, const INLINE: usize> {
    index: Index,
    entries: Slab<Entry<S, INLINE>>,
    /// Number of subscriptions.
    len: usize,
}

struct Entry<S, const INLINE: usize> {
    text: Name<INLINE>,
    set: Set<S>,
}

/// The effect of adding a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Insertion {
    /// None: it is there already.
    Present,
    /// The text has one more subscription.
    Added,
    /// The text has its first subscription.
    Created,
}

impl<S: Copy + Eq + Hash, const INLINE: usize> Entries<S, INLINE> {
    pub(crate) fn new() -> Self {
        Self {
            index: Index::default(),
            entries: Slab::new(),
            len: 0,
        }
    }

    /// Return the number of subscriptions.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Return the number of different texts.
    pub(crate) fn texts(&self) -> usize {
        self.entries.len()
    }

    /// Return the number of bytes allocated, except for long texts and for the further subscribers
    /// of one text.
    pub(crate) fn bytes(&self) -> usize {
        self.entries.bytes() + self.index.bytes()
    }

    /// Return the subscribers of the text under `hash` for which `is_match` holds.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_match: impl Fn(&[u8]) -> bool) -> Option<&Set<S>> {
        let mut set = None;
        self.index.find(hash, |id| {
            let entry = self.entries.value(id.into());
            set = entry
                .filter(|entry| is_match(entry.text.as_bytes()))
                .map(|entry| &entry.set);
            set.is_some()
        })?;
        set
    }

    /// Add a subscription to `text`, whose hash is that of `hash_of`.
    pub(crate) fn insert(
        &mut self,
        hash: u64,
        text: &[u8],
        queue: Option<&[u8]>,
        subscriber: S,
        hash_of: impl Fn(&[u8]) -> u64,
    ) -> Insertion {
        let insertion = match self.id(hash, text) {
            Some(id) => {
                let entry = self.entries.value_mut(id.into());
                if entry.is_some_and(|entry| entry.set.insert(queue, subscriber)) {
                    Insertion::Added
                } else {
                    Insertion::Present
                }
            }
            None => {
                let id = self.entries.insert(Entry {
                    text: Name::new(text),
                    set: Set::new(queue, subscriber),
                });
                let hash_of = |id: u32| hash_at(&self.entries, id, &hash_of);
                self.index.insert(hash, id.slot(), hash_of);
                Insertion::Created
            }
        };
        self.len += usize::from(insertion != Insertion::Present);
        insertion
    }

    /// Remove a subscription from `text`, and the text with its last one.
    pub(crate) fn remove(
        &mut self,
        hash: u64,
        text: &[u8],
        queue: Option<&[u8]>,
        subscriber: &S,
        hash_of: impl Fn(&[u8]) -> u64,
    ) -> Removal {
        let Some(id) = self.id(hash, text) else {
            return Removal::Absent;
        };
        let Some(entry) = self.entries.value_mut(id.into()) else {
            return Removal::Absent;
        };
        let removal = entry.set.remove(queue, subscriber);
        if removal == Removal::Emptied {
            let hash_of = |id: u32| hash_at(&self.entries, id, &hash_of);
            self.index.remove(hash, id, hash_of);
            self.entries.remove(id.into());
        }
        self.len -= usize::from(removal != Removal::Absent);
        removal
    }

    /// Visit every text.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.iter().map(|(_, entry)| entry.text.as_bytes())
    }

    /// Fail if an inner count or reference is wrong: for tests.
    pub(crate) fn check_invariants(&self, hash_of: impl Fn(&[u8]) -> u64) {
        assert_eq!(self.index.len(), self.entries.len());
        let sets = self.entries.iter().map(|(_, entry)| entry.set.len());
        assert_eq!(self.len, sets.sum::<usize>());
        for (id, entry) in self.entries.iter() {
            let text = entry.text.as_bytes();
            assert_eq!(self.id(hash_of(text), text), Some(id.slot()));
            assert!(entry.set.len() > 0);
        }
    }

    fn id(&self, hash: u64, text: &[u8]) -> Option<u32> {
        self.index.find(hash, |id| {
            let entry = self.entries.value(id.into());
            entry.is_some_and(|entry| entry.text.as_bytes() == text)
        })
    }
}

fn hash_at<S, const INLINE: usize>(
    entries: &Slab<Entry<S, INLINE>>,
    id: u32,
    hash_of: impl Fn(&[u8]) -> u64,
) -> u64 {
    let entry = entries.value(id.into());
    entry.map_or(0, |entry| hash_of(entry.text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_its_text_and_24_bytes() {
        assert_eq!(size_of::<Option<Entry<[u64; 2], 23>>>(), 48);
        assert_eq!(size_of::<Option<Entry<[u64; 2], 31>>>(), 56);
    }

    #[test]
    fn the_first_and_the_last_subscription_are_told() {
        let mut entries = Entries::<_, 23>::new();
        let hash_of = |text: &[u8]| text.len() as u64;
        assert_eq!(
            entries.insert(1, b"a", None, 1, hash_of),
            Insertion::Created
        );
        assert_eq!(
            entries.insert(1, b"a", None, 1, hash_of),
            Insertion::Present
        );
        assert_eq!(entries.insert(1, b"a", None, 2, hash_of), Insertion::Added);
        assert_eq!(
            entries.insert(1, b"b", None, 2, hash_of),
            Insertion::Created
        );
        assert_eq!((entries.len(), entries.texts()), (3, 2));
        entries.check_invariants(hash_of);
        assert_eq!(entries.remove(1, b"c", None, &1, hash_of), Removal::Absent);
        assert_eq!(entries.remove(1, b"a", None, &3, hash_of), Removal::Absent);
        assert_eq!(entries.remove(1, b"a", None, &1, hash_of), Removal::Removed);
        assert_eq!(entries.remove(1, b"a", None, &2, hash_of), Removal::Emptied);
        assert!(entries.find(1, |text| text == b"a").is_none());
        assert_eq!(entries.iter().collect::<Vec<_>>(), [b"b"]);
        entries.check_invariants(hash_of);
    }
}
