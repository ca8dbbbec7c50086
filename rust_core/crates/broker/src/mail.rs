//! The mail between shards.

use std::sync::Arc;

use reactor::ConnId;

use crate::message::{OwnedMessage, Receivers};
use crate::monitor::Survey;

/// `UNSUB`s that wait until no mail has a message for their subscriptions any more.
#[derive(Clone, Copy)]
pub(crate) struct Barrier {
    pub(crate) shard: u16,
    /// Number of the barrier among the connection's.
    pub(crate) ticket: u32,
    pub(crate) conn: ConnId,
}

/// Mail between shards, and from the process to its shards.
pub(crate) enum Mail {
    /// A message to be delivered; `publisher` is to be stalled if a receiver falls behind. `weight` is its
    /// output in bytes, as counted in [`Shared::queued`](crate::shared::Shared::queued).
    Deliver {
        owned: Arc<OwnedMessage>,
        receivers: Receivers,
        publisher: (u16, ConnId),
        weight: usize,
    },
    /// A receiver on another shard has fallen behind.
    Stall(ConnId),
    /// A barrier, to be answered with `Passed`: all mail sent before has then arrived.
    Barrier(Barrier),
    /// The barrier has come back from one shard.
    Passed(Barrier),
    /// Go on with this part of a survey.
    Survey(Box<Survey>),
    /// A shard's part of a survey is done.
    Surveyed(Box<Survey>),
    /// End the largest holders of memory: a shard without them has found that too much is held.
    BoundMemory,
    /// This half-open connection has lost its place to one of another shard.
    Evict(ConnId),
    /// Begin lame duck mode.
    Drain,
    /// End at once.
    Stop,
    /// Fail, so that tests see what becomes of the broker.
    #[cfg(test)]
    Panic,
}

impl Mail {
    /// Return the bytes of memory that a message takes in mail to its receivers on a shard.
    pub(crate) fn bytes(owned: &OwnedMessage, receivers: &Receivers) -> usize {
        owned.own_bytes() + size_of::<Self>() + size_of_val(receivers.as_slice())
    }
}
