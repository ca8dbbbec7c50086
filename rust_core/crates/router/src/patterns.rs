//! Wildcard patterns: one hash lookup for each form that a subject can match.
//!
//! A form says how many tokens a pattern has, which of them are `*`, and whether `>` follows
//! (tuple space search: Srinivasan, Suri, Varghese 1999). Given a form, a subject of enough tokens
//! matches exactly one pattern, whose hash follows from a sum over the subject's tokens. All
//! patterns stand in one hash table, so a lookup costs as many probes as there are forms for the
//! subject's number of tokens. Applications have a handful of forms, however many patterns. A
//! subject of `n` tokens never takes more than 2^(n+1) probes, nor more than there are patterns.

use crate::entries::{Entries, Insertion};
use crate::form::{Form, Forms};
use crate::matches::{Found, Matches};
use crate::set::Removal;
use crate::tokens::{PatternHasher, Tokens};
use fastrand::Rng;
use hashbrown::DefaultHashBuilder;
use std::hash::Hash;

/// Longest pattern kept in its entry, in bytes: `_INBOX.<22 bytes>.*` has this length.
const INLINE: usize = 31;

/// Subscribers by wildcard pattern.
///
/// An entry is 56 bytes for a 16-byte subscriber and a pattern of up to 31 bytes; the index adds
/// about 8.
pub struct Patterns<S> {
    hasher: PatternHasher,
    entries: Entries<S, INLINE>,
    forms: Forms,
}

impl<S: Copy + Eq + Hash> Patterns<S> {
    /// Return an empty table with a random hash seed.
    #[must_use]
    pub fn new() -> Self {
        Self::with_hasher(PatternHasher::new(DefaultHashBuilder::default()))
    }

    pub(crate) fn with_hasher(hasher: PatternHasher) -> Self {
        Self {
            hasher,
            entries: Entries::new(),
            forms: Forms::default(),
        }
    }

    /// Return the number of subscriptions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Return the number of different patterns.
    #[must_use]
    pub fn patterns(&self) -> usize {
        self.entries.texts()
    }

    /// Return the number of bytes allocated, except for long patterns and for the further
    /// subscribers of one pattern.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.entries.bytes()
    }

    /// Return whether there are no subscriptions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Add a subscription to a pattern; false if it is there already. The caller has validated the
    /// pattern.
    pub fn insert(&mut self, pattern: &[u8], queue: Option<&[u8]>, subscriber: S) -> bool {
        let hash = self.hasher.pattern(pattern);
        let hash_of = |text: &[u8]| self.hasher.pattern(text);
        let insertion = self
            .entries
            .insert(hash, pattern, queue, subscriber, hash_of);
        if insertion == Insertion::Created {
            self.forms.add(Form::new(pattern));
        }
        insertion != Insertion::Present
    }

    /// Remove a subscription; false if it is not there.
    pub fn remove(&mut self, pattern: &[u8], queue: Option<&[u8]>, subscriber: &S) -> bool {
        let hash = self.hasher.pattern(pattern);
        let hash_of = |text: &[u8]| self.hasher.pattern(text);
        let removal = self
            .entries
            .remove(hash, pattern, queue, subscriber, hash_of);
        if removal == Removal::Emptied {
            self.forms.remove(Form::new(pattern));
        }
        removal != Removal::Absent
    }

    /// Add the subscribers of every pattern that matches `subject` to `matches`. Wildcard tokens in
    /// `subject` are literal text; a subject with an empty token matches nothing.
    pub fn match_into(
        &self,
        subject: &[u8],
        matches: &mut Matches<S>,
        rng: &mut Rng,
        mut accept: impl FnMut(&S) -> bool,
    ) {
        let Matches { found, tokens } = matches;
        if tokens.cut(subject, 1, &self.hasher) {
            self.match_tokens(subject, tokens, found, rng, &mut accept);
        }
    }

    #[inline]
    pub(crate) fn match_tokens(
        &self,
        subject: &[u8],
        tokens: &Tokens,
        found: &mut Found<S>,
        rng: &mut Rng,
        accept: &mut impl FnMut(&S) -> bool,
    ) {
        self.forms.for_subject(tokens.len(), |form| {
            found.work.lookups += 1;
            let is_match = |pattern: &[u8]| tokens.is_match(pattern, subject, form);
            if let Some(set) = self.entries.find(tokens.hash(form), is_match) {
                found.work.lookups += 1;
                set.collect(found, rng, accept);
            }
        });
    }

    /// Fail if an inner count or reference is wrong: for tests.
    ///
    /// # Panics
    /// If an invariant does not hold.
    #[doc(hidden)]
    pub fn check_invariants(&self) {
        self.entries
            .check_invariants(|text| self.hasher.pattern(text));
        let mut forms = Forms::default();
        self.entries
            .iter()
            .map(Form::new)
            .for_each(|form| forms.add(form));
        assert_eq!(self.forms.counts(), forms.counts());
    }
}

impl<S: Copy + Eq + Hash> Default for Patterns<S> {
    fn default() -> Self {
        Self::new()
    }
}
