//! The broadcast workload: every message goes to all users of its subject.
//!
//! Messages are numbered from 0. Message K is published on `/b/{K mod S}`, by publisher `K mod S
//! mod P`; user N is subscribed to `/b/{N mod S}`. So the number alone determines the subject and
//! the users of a message. The next message of a user is always S numbers further. A broker keeps
//! the order of one publisher, so any other number is a gap or a duplicate.
//!
//! # Several processes
//!
//! The users may be divided among processes. One of them has the publishers. The others follow the
//! same schedule without sending, and so know the number of messages to expect. Messages carry the
//! planned send time on the run's clock. Across machines, latencies are as exact as the configured
//! offsets between their clocks.
//!
//! # Structure
//!
//! The first thread publishes; each of the others has a share of the users. `window` is the state
//! that all threads share: the messages in flight and their receipts. A thread updates it once a
//! turn, so that a delivery touches nothing that is shared.

mod audience;
mod config;
mod engine;
mod message;
mod publishers;
mod receipt_batch;
mod receipts;
mod report;
mod subscribers;
mod window;
mod workload;

pub use config::BroadcasterConfig;
pub use engine::Broadcaster;
