//! Who receives a message: the routing table of a subject-based broker.
//!
//! Pure data, generic in the subscriber (any small `Copy` handle): no socket, no clock, no
//! thread of its own, and nothing of the wire protocol but the rules of its subjects.
//!
//! ```
//! use subjectbus_router::{Matches, Rng, SharedRouter};
//!
//! let router = SharedRouter::new();
//! router.subscribe(b"orders.*", None, 1)?;
//! router.subscribe(b"orders.new", Some(b"workers"), 2)?;
//! router.subscribe(b"orders.>", Some(b"workers"), 3)?;
//!
//! let (mut matches, mut rng) = (Matches::new(), Rng::with_seed(42));
//! router.match_into(b"orders.new", &mut matches, &mut rng, |_subscriber| true);
//! assert_eq!(matches.plain(), [1]);
//! assert_eq!(matches.groups().count(), 1); // 2 or 3, evenly
//! # Ok::<(), subjectbus_router::InvalidSubject>(())
//! ```
//!
//! # Structure
//!
//! [`SharedRouter`] divides all subscriptions into partitions with a lock each. A partition is a
//! [`Table`] of literal subjects or a table of wildcard [`Patterns`]; both lead to a set of
//! subscribers with its queue groups. A lookup adds what it finds to a [`Matches`], which the
//! caller keeps: once its buffers have grown, matching does not allocate.
//!
//! Everything large stands on the crate `slab`: values in chunks of 256, and an index of ids by
//! linear hashing that moves at most about 500 ids per insertion. So no subscription holds a lock
//! for a rehash of the whole table, not even in a partition, or one subject's set, of a million.
//!
//! A wildcard pattern is found by its hash, as a literal subject is. Its form says how many tokens
//! it has, which of them are `*`, and whether `>` follows. A lookup probes the table once for each
//! form that the subject's number of tokens allows and that at least one pattern has.
//!
//! # Costs
//!
//! A subscription with a 16-byte subscriber, all keys visited in random order, one thread.
//! `examples/million.rs` with 1,000,000 subscriptions of one kind, November 2026, two virtual
//! cores of an Intel Xeon (2 MiB L2 each) under the load of other work, Linux 6.18, glibc,
//! release profile; the slowest of three runs. In brackets the 99.9th percentile, which for
//! `subscribe` is a split of the index.
//!
//! | pattern               | resident bytes | subscribe, ns | match, ns    | unsubscribe, ns |
//! |-----------------------|----------------|---------------|--------------|-----------------|
//! | `/c/N`                | 61             | 415 (23,801)  | 207 (1,726)  | 341 (7,492)     |
//! | `_INBOX.<22 bytes>.*` | 86             | 868 (39,824)  | 750 (31,055) | 680 (23,056)    |
//! | `*.N`, one partition  | 84             | 695 (35,359)  | 377 (3,030)  | 340 (5,052)     |
//! | one subject for all   | 27             | 411 (32,261)  | -            | 388 (4,659)     |
//!
//! The times are cache misses: with 3,000 subscriptions a match takes 23 ns for a literal and
//! 97 ns for an inbox. An empty `SharedRouter` takes about 0.2 MB.
//!
//! # Bounds
//!
//! [`Matches::work`] tells what a lookup took, for a caller that charges its publishers. A lookup
//! probes a table once per form, 2 to 9 ns each, and 45 to 60 ns where thousands of forms have a
//! pattern that matches. It copies every receiver out under the partition's read lock (16 MB for a
//! million subscribers of one subject), and asks the members of a queue group in turn while none
//! accepts.
//!
//! A subject of `n` tokens has fewer than 2^(n+1) forms, so short subjects are cheap whatever
//! strangers subscribe to. A caller that limits the tokens and the wildcards of a pattern bounds the
//! rest. `examples/worst.rs` subscribes to every pattern that matches one subject:
//!
//! | tokens | wildcards | forms  | none match, ms | all match, ms |
//! |--------|-----------|--------|----------------|---------------|
//! | 16     | 4         | 5,032  | 0.01           | 0.16          |
//! | 16     | 5         | 13,768 | 0.06           | 0.57          |
//! | 16     | 6         | 29,784 | 0.11           | 1.48          |
//! | 24     | 4         | 25,900 | 0.04           | 0.97          |
//! | 32     | 3         | 10,976 | 0.01           | 0.28          |
//! | 32     | 4         | 82,896 | 0.12           | 5.8           |

mod bytes;
mod dense;
mod entries;
mod form;
mod matches;
#[doc(hidden)]
pub mod naive;
mod name;
mod patterns;
mod queue_group;
mod set;
mod shared;
pub mod subject;
mod table;
mod tokens;

pub use fastrand::Rng;
pub use matches::{Matches, Work};
pub use patterns::Patterns;
pub use shared::{Extent, SharedRouter};
pub use subject::{
    InvalidSubject, Kind, MAX_PATTERN_TOKENS, is_valid_publish, validate_subscription,
};
pub use table::Table;
