//! Sockets, timers and wake-ups for very many connections on few threads.
//!
//! The crate knows no protocol. A *shard* is one thread that runs turns over its own listeners,
//! [`connections`], [`timer`] wheel, [`mailbox`] and, through [`fdtable`], its own file-descriptor
//! table. What to do with bytes is decided by a [`Handler`], which is told "these bytes arrived",
//! "closed, because", and which asks "send these bytes", "close", "connect", "wake me" through [`Io`].
//! Whether the kernel is asked by readiness (epoll) or by completion (io_uring) is the [`driver`]'s
//! affair alone.
//!
//! # A turn
//!
//! 1. Wait; take completions, then the mail that has arrived.
//! 2. Hand out mail, then traffic (received bytes and room to write), then changes (connections that
//!    come and go), then timers, then what the handler has put off. Each part has its share of the
//!    turn's budget of [`work`]; what a part has left keeps its order and goes on in the next turn.
//! 3. Carry out what the handler asked for: connects and ends of connections.
//! 4. Post the mail for other shards, with at most one wake-up for each.
//! 5. Give every connection with pending output exactly one write.
//! 6. If work is left, let the other threads of the core go first.
//!
//! Consequences:
//!
//! - A connection that has little to say is served in every turn, while others send as much as they can
//!   and a million others come, go or read. A read brings only so much that all connections that wait are
//!   read within the turn; behind more than two hundred floods it may take several turns. Connections
//!   whose bytes take more than a slice of the budget continue behind the others, and changes never keep
//!   traffic waiting.
//! - Mail is posted before anything is written, and taken after received bytes: when a peer has read
//!   our answer, all mail sent before the answer is in front of everything that it causes.
//!   [`Io::mail_mark`] tells a handler when that mail has been handed out.
//! - Bytes of one connection are handed out in their order, and before its end, even if a write has
//!   failed because the peer has gone. A reset ends a connection that is not read at once.
//! - Listeners take turns: a herd at one of them delays no connection to another one. A listener
//!   that finds no descriptor pauses alone.
//! - Drivers differ in nothing that a peer can see.
//!
//! An idle connection owns no buffer: reading uses the driver's own buffer, and output buffers
//! come from a pool and return to it when the kernel has taken their bytes.

mod accepting;
mod chunk;
pub mod clock;
pub mod conn_id;
mod connections;
pub mod driver;
pub mod fdtable;
mod handler;
mod io;
pub mod listener;
mod mail;
pub mod mailbox;
pub mod output;
pub mod shard;
mod shrink;
#[cfg(feature = "sim")]
pub mod sim;
mod socket;
mod stats;
pub mod timer;
mod turn;
mod wake;
pub mod work;

pub use clock::Clock;
pub use conn_id::ConnId;
pub use connections::{Conn, Connections};
pub use driver::{DriverChoice, DriverKind};
pub use handler::{Closed, Handler, Io, Origin};
pub use io::ShardIo;
pub use listener::{ListenError, Reservation};
pub use mailbox::Mailboxes;
pub use output::{Output, Shared};
pub use shard::{Shard, ShardSpec, wake_precisely};
pub use stats::{Calls, Descriptors, Memory, Sent, page_size, process_cpu_time, thread_cpu_time};
