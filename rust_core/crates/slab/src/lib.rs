//! Storage for very many values: a slab with stable ids, and an index of ids by hash.
//!
//! Neither ever moves much at once. A [`Slab`] grows by a chunk of 256 slots and copies nothing, an
//! [`Index`] splits one small hash table in two. So no insertion waits for a table of a million to
//! be copied or rehashed, and memory comes back part by part.
//!
//! ```
//! use subjectbus_slab::{Id, Slab};
//!
//! let mut slab: Slab<&str, u16> = Slab::new();
//! let first = slab.insert("first");
//! assert_eq!(slab.value(first), Some(&"first"));
//! slab.remove(first);
//! let second = slab.insert("second");
//! assert_eq!(second.slot(), first.slot());
//! assert_eq!(slab.value(first), None); // another generation
//! ```

mod generation;
mod index;
mod slab;

pub use generation::Generation;
pub use index::Index;
pub use slab::{Id, Slab};
