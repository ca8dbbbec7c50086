//! Sockets, timers and wake-ups for very many connections on few threads.
//!
//! The crate knows no protocol. A *shard* is one thread that runs a [`driver`] over its own
//! listeners, connection [`slab`], [`timer`] wheel, [`mailbox`] and, through [`fdtable`], its own
//! file-descriptor table. What to do with bytes is decided by a [`Handler`], which the driver
//! tells "these bytes arrived", "closed, because", and which asks "send these bytes", "close",
//! "connect", "wake me". Whether the kernel was asked by readiness (epoll) or by completion
//! (io_uring) is the driver's affair alone, and a TLS layer fits between driver and handler with
//! the same contract on both sides.
//!
//! # A turn
//!
//! 1. Wait for events, at most until the next timer or the handler's own deadline.
//! 2. Hand out what arrived: accepted connections, received bytes, mail, timers.
//! 3. [`Handler::on_turn_end`].
//! 4. Give every connection with pending output exactly one write, carry out closes and connects,
//!    and post the mail for other shards, one wake-up per shard that sleeps.
//!
//! An idle connection owns no buffer: reading uses the driver's own buffer, and output buffers
//! come from a pool and return to it when the kernel has taken their bytes.

pub mod driver;
pub mod fdtable;
pub mod listener;
pub mod mailbox;
pub mod output;
pub mod shard;
pub mod slab;
mod socket;
pub mod timer;

pub use driver::io::{Conn, Io};
pub use driver::stats::{Calls, Descriptors, Memory, Sent};
pub use driver::{Closed, DriverKind, Handler, Origin};
pub use listener::{ListenError, Reservation};
pub use mailbox::{Mailboxes, MailboxesBuilder};
pub use output::Output;
pub use shard::{Shard, ShardSpec, process_cpu_time, thread_cpu_time, wake_precisely};
pub use slab::ConnId;

/// Bytes of a memory page.
#[must_use]
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}
