use std::fmt;

use super::message::{Message, Text};

/// Operation that a server receives from a client.
///
/// Slices borrow from the received bytes. Subjects, queue groups and SIDs hold no blanks and no
/// line ends, but are not checked further.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ClientOp<'a> {
    /// `CONNECT`: the options as JSON; see [`ConnectOptions::parse`](super::ConnectOptions::parse).
    Connect(&'a [u8]),
    /// `PUB`, or `HPUB` with headers.
    Pub(Message<'a>),
    /// `SUB`.
    Sub {
        /// The subject, wildcards included.
        subject: &'a [u8],
        /// The queue group to join.
        queue: Option<&'a [u8]>,
        /// The client's name for this subscription.
        sid: &'a [u8],
    },
    /// `UNSUB`.
    Unsub {
        /// The subscription's name.
        sid: &'a [u8],
        /// Number of messages since `SUB` after which the subscription ends, at most 999,999,999.
        /// `None` ends it now, as 0 and every maximum that is not a number of one to nine digits
        /// do.
        max: Option<u64>,
    },
    /// `PING`, to be answered by `PONG`.
    Ping,
    /// `PONG`.
    Pong,
    /// `INFO`, which a server ignores.
    Info,
    /// `+OK`, which a server ignores.
    Ok,
    /// `-ERR`, upon which a server closes the connection.
    Err,
}

/// An operation that a client receives from a server; slices borrow from the received bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ServerOp<'a> {
    /// `INFO`: the server's description as JSON; see [`ServerInfo::parse`](super::ServerInfo::parse).
    Info(&'a [u8]),
    /// `MSG`, or `HMSG` with headers.
    Msg {
        /// The subscription that the message is delivered to.
        sid: &'a [u8],
        /// The message.
        message: Message<'a>,
    },
    /// `PING`, to be answered by `PONG`.
    Ping,
    /// `PONG`.
    Pong,
    /// `+OK`.
    Ok,
    /// `-ERR`: the text without its quotes.
    Err(&'a [u8]),
}

impl fmt::Debug for ClientOp<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            // The options hold passwords and tokens.
            Self::Connect(json) => write!(f, "Connect({} bytes)", json.len()),
            Self::Pub(message) => f.debug_tuple("Pub").field(&message).finish(),
            Self::Sub {
                subject,
                queue,
                sid,
            } => f
                .debug_struct("Sub")
                .field("subject", &Text(subject))
                .field("queue", &queue.map(Text))
                .field("sid", &Text(sid))
                .finish(),
            Self::Unsub { sid, max } => f
                .debug_struct("Unsub")
                .field("sid", &Text(sid))
                .field("max", &max)
                .finish(),
            Self::Ping => f.write_str("Ping"),
            Self::Pong => f.write_str("Pong"),
            Self::Info => f.write_str("Info"),
            Self::Ok => f.write_str("Ok"),
            Self::Err => f.write_str("Err"),
        }
    }
}

impl fmt::Debug for ServerOp<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Info(json) => f.debug_tuple("Info").field(&Text(json)).finish(),
            Self::Msg { sid, message } => f
                .debug_struct("Msg")
                .field("sid", &Text(sid))
                .field("message", &message)
                .finish(),
            Self::Ping => f.write_str("Ping"),
            Self::Pong => f.write_str("Pong"),
            Self::Ok => f.write_str("Ok"),
            Self::Err(text) => f.debug_tuple("Err").field(&Text(text)).finish(),
        }
    }
}
