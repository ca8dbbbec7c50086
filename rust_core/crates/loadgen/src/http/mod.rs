//! Requests over HTTP: callers, each with at most one request under way, on connections that are kept
//! (`rest`) or made for each request (`rest-new`).
//!
//! `link` is one connection without I/O, `exchange` what is sent, `callers` the workload. A caller's
//! connection is established again when the next request needs it: a server may close one that is idle
//! at any time, and nothing is lost by that.

mod callers;
mod exchange;
mod link;

pub(crate) use callers::Callers;
pub(crate) use link::Answer;
