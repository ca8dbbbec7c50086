//! The wire protocols of subjectbus as state machines without I/O: bytes in, events out.
//!
//! The crate owns no socket, reads no clock and starts no thread. A caller passes received bytes,
//! takes the decoded events, and appends output to its own buffer. Every decoder resumes at any
//! byte boundary and copies only incomplete items. Bad input causes a typed error, never a panic.
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
