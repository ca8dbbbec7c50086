//! A log of typed events, one line for each.
//!
//! | module | holds |
//! |---|---|
//! | [`event`] | the interface of an event: kind, level, fields, and the topics that have rates |
//! | `limit` | the rate of a topic |
//! | [`source`](mod@source) | the access of one shard to the log |
//! | `record`, `queue` | events on their way to the writer |
//! | [`shared`] | the log that shards and writer share |
//! | [`writer`] | the thread that writes lines, and reports the number of omitted events |
//! | [`format`](mod@format) | lines as logfmt and as JSON |
//!
//! A shard never waits for a reader of the log. An event below the log's level costs one
//! comparison, one beyond its rate a second comparison and a count. Only the other events enter a
//! bounded queue, and the writer's thread formats them.

pub mod event;
pub mod format;
mod limit;
mod queue;
mod record;
pub mod shared;
pub mod source;
#[cfg(test)]
mod testing;
pub mod writer;

pub use event::{Event, Level, Topic, Value};
pub use format::Format;
pub use shared::Log;
pub use source::Source;
pub use writer::Writer;
