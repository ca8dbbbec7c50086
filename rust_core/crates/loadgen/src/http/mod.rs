//! Requests over HTTP, on persistent connections (`rest`) or on a new one for each request
//! (`rest-new`).
//!
//! `link` is one connection without I/O, `request_encoder` encodes requests, `users` is the
//! workload. Each user has at most one request in flight. A user's connection is established again
//! when the next request needs it: a server may close an idle one at any time, and no request is
//! lost by that.

mod link;
mod request_encoder;
mod users;

pub(crate) use users::HttpUsers;
