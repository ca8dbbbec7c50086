//! What a lookup found.

use crate::queue_group::Choices;
use crate::tokens::Tokens;
use std::hash::Hash;

/// The work that matching took, for callers that charge it to the publisher.
///
/// Counts are exact. They follow from the routing table and the subject, except that a queue group
/// is asked from a random member on, and that look-ups meet the forms of patterns which by chance
/// share a partition.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// Look-ups in a hash table, except for that of the literal subject, which every message takes:
    /// one for each form of wildcard pattern that the subject may match, and one more for each
    /// pattern and each queue group found.
    pub lookups: u32,
    /// Subscribers that were examined, whether or not they accepted.
    pub members: u32,
}

/// The receivers of one message; the caller keeps it and clears it between messages, so that
/// matching does not allocate once the buffers have grown.
#[derive(Debug)]
pub struct Matches<S> {
    pub(crate) found: Found<S>,
    /// The tokens of the subject, for its wildcard patterns.
    pub(crate) tokens: Tokens,
}

/// The receivers found so far, and the work that took.
#[derive(Debug)]
pub(crate) struct Found<S> {
    pub(crate) plain: Vec<S>,
    pub(crate) choices: Choices<S>,
    /// The work, with only those members that are not in `plain`: the commonest match counts
    /// nothing.
    pub(crate) work: Work,
}

impl<S: Copy + Eq + Hash> Matches<S> {
    /// Return a list of no receivers.
    #[must_use]
    pub fn new() -> Self {
        Self {
            found: Found {
                plain: Vec::new(),
                choices: Choices::new(),
                work: Work::default(),
            },
            tokens: Tokens::default(),
        }
    }

    /// Forget the receivers and the work, and keep the memory.
    pub fn clear(&mut self) {
        self.found.plain.clear();
        self.found.choices.clear();
        self.found.work = Work::default();
    }

    /// Return the work that all look-ups since the last [`clear`](Self::clear) took.
    #[inline]
    #[must_use]
    pub fn work(&self) -> Work {
        let Work { lookups, members } = self.found.work;
        Work {
            lookups,
            members: members + self.found.plain.len() as u32,
        }
    }

    /// Return the plain subscribers, once per matching subscription, in no particular order.
    #[inline]
    #[must_use]
    pub fn plain(&self) -> &[S] {
        &self.found.plain
    }

    /// Add a receiver that no table names.
    #[inline]
    pub fn add(&mut self, subscriber: S) {
        self.found.plain.push(subscriber);
    }

    /// Visit each queue group's name with the member chosen from it.
    pub fn groups(&self) -> impl Iterator<Item = (&[u8], S)> {
        self.found.choices.iter()
    }

    /// Visit every receiver of the message: plain subscribers, then one of each group.
    pub fn receivers(&self) -> impl Iterator<Item = S> {
        let chosen = self.found.choices.iter().map(|(_, member)| member);
        self.found.plain.iter().copied().chain(chosen)
    }

    /// Return the number of receivers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.found.plain.len() + self.found.choices.len()
    }

    /// Return whether the message has no receiver.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<S: Copy + Eq + Hash> Default for Matches<S> {
    fn default() -> Self {
        Self::new()
    }
}
