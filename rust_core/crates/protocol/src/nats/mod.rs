//! The NATS client protocol, in both directions.
//!
//! A stream consists of control lines, some of which announce a payload:
//!
//! ```text
//! PUB <subject> [reply] <size>␍␊<payload>␍␊        client to server
//! MSG <subject> <sid> [reply] <size>␍␊<payload>␍␊  server to client
//! ```
//!
//! [`Parser`] parses received bytes to [`ClientOp`]s (for a server) or [`ServerOp`]s (for a
//! client), which borrow from those bytes. [`encode`] appends operations to a caller's buffer.
//! [`ServerInfo`] and [`ConnectOptions`] are the JSON of `INFO` and `CONNECT`, [`Headers`] reads a
//! header block, [`error`] holds the exact texts of `-ERR`.
//!
//! The crate follows nats-server's code if its documentation differs.

mod args;
pub mod encode;
pub mod error;
mod grammar;
mod headers;
mod info;
mod message;
mod op;
mod parser;

pub use error::ParseError;
pub use grammar::{FromClient, FromServer, Side};
pub use headers::{Headers, HeadersError, Status, encode_headers};
pub use info::{ConnectOptions, JsonError, Secret, ServerInfo};
pub use message::Message;
pub use op::{ClientOp, ServerOp};
pub use parser::{DEFAULT_MAX_CONTROL_LINE, DEFAULT_MAX_PAYLOAD, Limits, Parser};
