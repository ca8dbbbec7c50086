//! The routing table that all shards share.

use crate::matches::Matches;
use crate::patterns::Patterns;
use crate::subject::{self, InvalidSubject, Kind};
use crate::table::Table;
use crate::tokens::PatternHasher;
use fastrand::Rng;
use hashbrown::DefaultHashBuilder;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Number of partitions of each kind, a power of two.
const PARTITIONS: usize = 256;

/// Number of literal tokens that a deep pattern begins with.
const PREFIX: usize = 2;

/// All subscriptions of the process, used from any thread.
///
/// Literal subjects are spread by their hash over 256 partitions, wildcard patterns whose first
/// two tokens are literal by the hash of these ("deep" ones, `_INBOX.<id>.*` above all) over
/// another 256; all other patterns share one table ("shallow"). Each has a lock of its own, held
/// by a subscription for about a microsecond. A lookup takes one lock at a time: that of the
/// literal partition always, that of a deep partition or of the shallow table only while such
/// subscriptions exist.
///
/// A subscription is seen by every lookup that happens after [`SharedRouter::subscribe`]
/// returned, in the sense of the memory model.
pub struct SharedRouter<S> {
    hasher: DefaultHashBuilder,
    pattern_hasher: PatternHasher,
    literals: Box<[Partition<Table<S>>]>,
    deep: Box<[Partition<Patterns<S>>]>,
    shallow: Partition<Patterns<S>>,
    literal_len: Counter,
    deep_len: Counter,
    shallow_len: Counter,
}

impl<S: Copy + Eq + Hash> SharedRouter<S> {
    /// An empty routing table with a random hash seed.
    #[must_use]
    pub fn new() -> Self {
        let hasher = DefaultHashBuilder::default();
        let table = || Partition::new(Table::with_hasher(hasher.clone()));
        let pattern_hasher = PatternHasher::new(hasher.clone());
        let patterns = || Partition::new(Patterns::with_hasher(pattern_hasher.clone()));
        Self {
            literals: (0..PARTITIONS).map(|_| table()).collect(),
            deep: (0..PARTITIONS).map(|_| patterns()).collect(),
            shallow: patterns(),
            hasher,
            pattern_hasher,
            literal_len: Counter::default(),
            deep_len: Counter::default(),
            shallow_len: Counter::default(),
        }
    }

    /// Adds a subscription, plain or as a member of a queue group; `Ok(false)` if it is there
    /// already.
    ///
    /// # Errors
    /// [`InvalidSubject`] if `pattern` cannot be subscribed to; nothing is added.
    pub fn subscribe(
        &self,
        pattern: &[u8],
        queue: Option<&[u8]>,
        subscriber: S,
    ) -> Result<bool, InvalidSubject> {
        if subject::validate_subscription(pattern)? == Kind::Literal {
            let hash = self.hasher.hash_one(pattern);
            let mut table = partition(&self.literals, hash).write();
            let inserted = table.insert_hashed(hash, pattern, queue, subscriber);
            self.literal_len.add(inserted);
            return Ok(inserted);
        }
        let (patterns, len) = self.patterns(pattern);
        let mut patterns = patterns.write();
        let inserted = patterns.insert(pattern, queue, subscriber);
        len.add(inserted);
        Ok(inserted)
    }

    /// Removes a subscription; false if it is not there.
    pub fn unsubscribe(&self, pattern: &[u8], queue: Option<&[u8]>, subscriber: &S) -> bool {
        match subject::validate_subscription(pattern) {
            Err(_) => false,
            Ok(Kind::Literal) => {
                let hash = self.hasher.hash_one(pattern);
                let mut table = partition(&self.literals, hash).write();
                let removed = table.remove_hashed(hash, pattern, queue, subscriber);
                self.literal_len.subtract(removed);
                removed
            }
            Ok(Kind::Wildcard) => {
                let (patterns, len) = self.patterns(pattern);
                let mut patterns = patterns.write();
                let removed = patterns.remove(pattern, queue, subscriber);
                len.subtract(removed);
                removed
            }
        }
    }

    /// Adds the receivers of a message published to `subject` to `matches`, which the caller
    /// clears first, and counts the [work](Matches::work) that finding them took.
    ///
    /// Every plain subscription that `accept` takes is a receiver, and of each queue group, over
    /// all patterns that match, one member that it takes. `accept` runs under a lock: it must be
    /// short and must not call the router. Wildcard tokens in `subject` are literal text; a
    /// subject with an empty token matches nothing.
    #[inline]
    pub fn match_into(
        &self,
        subject: &[u8],
        matches: &mut Matches<S>,
        rng: &mut Rng,
        mut accept: impl FnMut(&S) -> bool,
    ) {
        let hash = self.hasher.hash_one(subject);
        let literals = partition(&self.literals, hash).read();
        literals.match_hashed(hash, subject, &mut matches.found, rng, &mut accept);
        drop(literals);
        if !self.deep_len.is_zero() || !self.shallow_len.is_zero() {
            self.match_patterns(subject, matches, rng, &mut accept);
        }
    }

    /// Add the receivers by wildcard patterns.
    // A call of its own, so that literal subjects have the registers for themselves.
    #[inline(never)]
    fn match_patterns(
        &self,
        subject: &[u8],
        matches: &mut Matches<S>,
        rng: &mut Rng,
        accept: &mut impl FnMut(&S) -> bool,
    ) {
        let Matches { found, tokens } = matches;
        // Deep patterns match no shorter subject: it needs no hashing.
        let least = if self.shallow_len.is_zero() {
            PREFIX + 1
        } else {
            1
        };
        if !tokens.cut(subject, least, &self.pattern_hasher) {
            return;
        }
        if !self.deep_len.is_zero() && tokens.len() > PREFIX {
            let deep = partition(&self.deep, tokens.prefix(PREFIX)).read();
            deep.match_tokens(subject, tokens, found, rng, accept);
        }
        if !self.shallow_len.is_zero() {
            let shallow = self.shallow.read();
            shallow.match_tokens(subject, tokens, found, rng, accept);
        }
    }

    /// Number of subscriptions.
    #[must_use]
    pub fn len(&self) -> usize {
        [&self.literal_len, &self.deep_len, &self.shallow_len]
            .iter()
            .map(|counter| counter.0.load(Ordering::Relaxed))
            .sum()
    }

    /// What the table holds, part by part: each is locked for a moment.
    #[must_use]
    pub fn extent(&self) -> Extent {
        let mut extent = Extent::default();
        for table in &self.literals {
            let table = table.read();
            extent.subjects += table.subjects();
            extent.subscriptions += table.len();
            extent.bytes += table.bytes();
        }
        for patterns in self.deep.iter().chain([&self.shallow]) {
            let patterns = patterns.read();
            extent.subjects += patterns.patterns();
            extent.subscriptions += patterns.len();
            extent.bytes += patterns.bytes();
        }
        // Subscribers beyond the first of a subject stand in vectors and their indexes.
        let further = extent.subscriptions - extent.subjects.min(extent.subscriptions);
        extent.bytes += further * 2 * size_of::<S>();
        extent
    }

    /// Whether there are no subscriptions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fails if an inner count or reference is wrong: for tests.
    ///
    /// # Panics
    /// If an invariant does not hold.
    #[doc(hidden)]
    pub fn check_invariants(&self) {
        let mut len = 0;
        for table in &self.literals {
            table.read().check_invariants();
            len += table.read().len();
        }
        for patterns in self.deep.iter().chain([&self.shallow]) {
            patterns.read().check_invariants();
            len += patterns.read().len();
        }
        assert_eq!(len, self.len());
    }

    /// The part that holds a wildcard pattern, and its counter.
    fn patterns(&self, pattern: &[u8]) -> (&Partition<Patterns<S>>, &Counter) {
        match subject::literal_prefix(pattern) {
            Some(prefix) => {
                let hash = self.pattern_hasher.prefix(prefix);
                (partition(&self.deep, hash), &self.deep_len)
            }
            None => (&self.shallow, &self.shallow_len),
        }
    }
}

impl<S: Copy + Eq + Hash> Default for SharedRouter<S> {
    fn default() -> Self {
        Self::new()
    }
}

/// How much a routing table holds.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Different subjects and patterns that are subscribed to.
    pub subjects: usize,
    /// Subscriptions.
    pub subscriptions: usize,
    /// Bytes allocated, about.
    pub bytes: usize,
}

/// A part of the routing table behind its lock, on cache lines of its own.
#[repr(align(128))]
struct Partition<T>(RwLock<T>);

impl<T> Partition<T> {
    fn new(content: T) -> Self {
        Self(RwLock::new(content))
    }

    // A thread that panicked must not take the routing of all others with it.
    #[inline]
    fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A number of subscriptions, changed under the lock of the part that it counts.
#[derive(Default)]
#[repr(align(128))]
struct Counter(AtomicUsize);

impl Counter {
    fn add(&self, one: bool) {
        self.0.fetch_add(usize::from(one), Ordering::Release);
    }

    fn subtract(&self, one: bool) {
        self.0.fetch_sub(usize::from(one), Ordering::Release);
    }

    #[inline]
    fn is_zero(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}

/// The partition for `hash`, by bits that no index inside it uses.
#[inline]
fn partition<T>(partitions: &[Partition<T>], hash: u64) -> &Partition<T> {
    &partitions[(hash >> 48) as usize & (PARTITIONS - 1)]
}
