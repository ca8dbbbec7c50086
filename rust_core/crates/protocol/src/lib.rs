//! The wire protocols of subjectbus as state machines without I/O: bytes in, events out.
//!
//! Nothing in this crate owns a socket, reads a clock or starts a thread. A caller hands in the
//! bytes that it received, takes the events that they hold, and appends what it wants to send to
//! a buffer of its own. Every decoder resumes at any byte boundary, copies only what a read left
//! incomplete, and answers bad input with a typed error, never with a panic.
//!
//! * [`http`]: HTTP/1.1, heads and bodies of requests and responses ([RFC 9112]).
//! * [`ws`]: the WebSocket handshake, frames and messages, for both roles ([RFC 6455]).
//! * [`nats`]: the NATS client protocol, for both directions.
//!
//! [RFC 6455]: https://www.rfc-editor.org/rfc/rfc6455
//! [RFC 9112]: https://www.rfc-editor.org/rfc/rfc9112

pub mod http;
pub mod nats;
pub mod ws;
