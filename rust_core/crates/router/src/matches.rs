//! What a lookup found.

use crate::queue_group::Choices;
use std::hash::Hash;

/// The receivers of one message; the caller keeps it and clears it between messages, so that
/// matching does not allocate once the buffers have grown.
#[derive(Debug)]
pub struct Matches<S> {
    pub(crate) plain: Vec<S>,
    pub(crate) choices: Choices<S>,
    /// Where the walk through a trie must still go: node id, and offset of the next token.
    pub(crate) stack: Vec<(u32, usize)>,
}

impl<S: Copy + Eq + Hash> Matches<S> {
    /// No receivers.
    #[must_use]
    pub fn new() -> Self {
        Self {
            plain: Vec::new(),
            choices: Choices::new(),
            stack: Vec::new(),
        }
    }

    /// Forgets the receivers and keeps the memory.
    pub fn clear(&mut self) {
        self.plain.clear();
        self.choices.clear();
    }

    /// The plain subscribers, once per matching subscription, in no particular order.
    #[inline]
    #[must_use]
    pub fn plain(&self) -> &[S] {
        &self.plain
    }

    /// Adds a receiver that no table names.
    #[inline]
    pub fn add(&mut self, subscriber: S) {
        self.plain.push(subscriber);
    }

    /// Each queue group's name with the member chosen from it.
    pub fn groups(&self) -> impl Iterator<Item = (&[u8], S)> {
        self.choices.iter()
    }

    /// Everybody who receives the message: plain subscribers, then one of each group.
    pub fn receivers(&self) -> impl Iterator<Item = S> {
        let chosen = self.choices.iter().map(|(_, member)| member);
        self.plain.iter().copied().chain(chosen)
    }

    /// Number of receivers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.plain.len() + self.choices.len()
    }

    /// Whether nobody receives the message.
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
