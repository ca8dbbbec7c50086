//! The broadcast workload: every message goes to all users of its subject.
//!
//! Messages are numbered from 0. Message K is published on `/b/{K mod S}`, by publisher
//! `K mod S mod P`; user N is subscribed to `/b/{N mod S}`. So the number alone says on which subject
//! and to whom a message goes, the next message of a user is always S numbers further, and because a
//! broker keeps the order of one publisher, any other number is a gap or a duplicate.
//!
//! # Several processes
//!
//! The users may be divided among processes. One of them has the publishers; the others follow the
//! same plan without sending, and so know how many messages they have to wait for. Messages carry
//! the time at which they were due, of the run's clock: across machines latencies are as exact as the
//! offsets between their clocks that the configuration gives.
//!
//! # Structure
//!
//! The first thread publishes; each of the others has a share of the users. `window` is what they
//! know together: the messages under way, and who has received them so far. A thread adds to it once
//! a turn, so that a delivery touches nothing that is shared.

mod audience;
mod config;
mod engine;
mod message;
mod parts;
mod publishers;
mod receipts;
mod report;
mod subscribers;
mod window;
mod workload;

pub use config::BroadcasterConfig;
pub use engine::Broadcaster;
