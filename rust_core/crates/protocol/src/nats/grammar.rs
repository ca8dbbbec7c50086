//! The operations of the two directions: their names and how their lines read.

use super::args::{Envelope, Fields, parse_size, trim};
use super::error::ParseError;
use super::message::Message;
use super::op::{ClientOp, ServerOp};

/// The direction that a [`Parser`](super::Parser) reads: [`FromClient`] or [`FromServer`].
pub trait Side: sealed::Grammar {}

/// Operations that a server receives.
#[derive(Debug, Clone, Copy)]
pub struct FromClient;

/// Operations that a client receives.
#[derive(Debug, Clone, Copy)]
pub struct FromServer;

impl Side for FromClient {}
impl Side for FromServer {}

/// First word of a control line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Connect,
    Err,
    Hmsg,
    Hpub,
    Info,
    Msg,
    Ok,
    Ping,
    Pong,
    Pub,
    Sub,
    Unsub,
}

impl Verb {
    /// Return whether a blank must follow the name. nats-server reads `CONNECT{}`, and ignores text
    /// between `PING`, `PONG` or `+OK` and the end of the line.
    const fn needs_blank(self) -> bool {
        !matches!(
            self,
            Self::Connect | Self::Info | Self::Ok | Self::Ping | Self::Pong
        )
    }

    /// Return the parsed arguments, if this operation carries a payload.
    #[inline]
    pub(super) fn parse_envelope(self, args: &[u8]) -> Result<Option<Envelope<'_>>, ParseError> {
        match self {
            Self::Pub => Envelope::parse_pub(args),
            Self::Msg => Envelope::parse_msg(args),
            Self::Hpub => Envelope::parse_hpub(args),
            Self::Hmsg => Envelope::parse_hmsg(args),
            _ => return Ok(None),
        }
        .map(Some)
    }
}

pub(super) mod sealed {
    use super::{Message, ParseError, Verb};

    /// The operations of one direction.
    pub trait Grammar {
        /// An operation that borrows from the received bytes.
        type Op<'a>;

        /// Every name with its verb, the most frequent first. No name is the start of another.
        const VERBS: &'static [(&'static [u8], Verb)];

        /// Return the operation of a line that carries no payload.
        fn parse_line(verb: Verb, args: &[u8]) -> Result<Self::Op<'_>, ParseError>;

        /// Return the operation with a message; `sid` is empty from a client.
        fn message<'a>(sid: &'a [u8], message: Message<'a>) -> Self::Op<'a>;
    }
}
use sealed::Grammar;

impl Grammar for FromClient {
    type Op<'a> = ClientOp<'a>;

    const VERBS: &'static [(&'static [u8], Verb)] = &[
        (b"PUB", Verb::Pub),
        (b"HPUB", Verb::Hpub),
        (b"SUB", Verb::Sub),
        (b"UNSUB", Verb::Unsub),
        (b"PING", Verb::Ping),
        (b"PONG", Verb::Pong),
        (b"CONNECT", Verb::Connect),
        (b"INFO", Verb::Info),
        (b"+OK", Verb::Ok),
        (b"-ERR", Verb::Err),
    ];

    fn parse_line(verb: Verb, args: &[u8]) -> Result<ClientOp<'_>, ParseError> {
        Ok(match verb {
            Verb::Sub => return parse_sub(args),
            Verb::Unsub => return parse_unsub(args),
            Verb::Ping => ClientOp::Ping,
            Verb::Pong => ClientOp::Pong,
            Verb::Connect => ClientOp::Connect(trim(args)),
            Verb::Info => ClientOp::Info,
            Verb::Ok => ClientOp::Ok,
            Verb::Err => ClientOp::Err,
            Verb::Pub | Verb::Hpub | Verb::Msg | Verb::Hmsg => {
                return Err(ParseError::UnknownOperation);
            }
        })
    }

    #[inline]
    fn message<'a>(_: &'a [u8], message: Message<'a>) -> ClientOp<'a> {
        ClientOp::Pub(message)
    }
}

impl Grammar for FromServer {
    type Op<'a> = ServerOp<'a>;

    const VERBS: &'static [(&'static [u8], Verb)] = &[
        (b"MSG", Verb::Msg),
        (b"HMSG", Verb::Hmsg),
        (b"PING", Verb::Ping),
        (b"PONG", Verb::Pong),
        (b"+OK", Verb::Ok),
        (b"-ERR", Verb::Err),
        (b"INFO", Verb::Info),
    ];

    fn parse_line(verb: Verb, args: &[u8]) -> Result<ServerOp<'_>, ParseError> {
        Ok(match verb {
            Verb::Ping => ServerOp::Ping,
            Verb::Pong => ServerOp::Pong,
            Verb::Info => ServerOp::Info(trim(args)),
            Verb::Ok => ServerOp::Ok,
            Verb::Err => ServerOp::Err(unquote(trim(args))),
            _ => return Err(ParseError::UnknownOperation),
        })
    }

    #[inline]
    fn message<'a>(sid: &'a [u8], message: Message<'a>) -> ServerOp<'a> {
        ServerOp::Msg { sid, message }
    }
}

/// Parse `SUB <subject> [queue] <sid>`.
fn parse_sub(args: &[u8]) -> Result<ClientOp<'_>, ParseError> {
    let fields = Fields::split(args);
    let (subject, queue, sid) = match fields.as_ref().map(Fields::as_slice) {
        Some(&[subject, sid]) => (subject, None, sid),
        Some(&[subject, queue, sid]) => (subject, Some(queue), sid),
        _ => return Err(ParseError::Malformed("SUB: wrong number of arguments")),
    };
    Ok(ClientOp::Sub {
        subject,
        queue,
        sid,
    })
}

/// Parse `UNSUB <sid> [max]`. As in nats-server, a maximum that is not a count removes the
/// subscription now.
fn parse_unsub(args: &[u8]) -> Result<ClientOp<'_>, ParseError> {
    let fields = Fields::split(args);
    match fields.as_ref().map(Fields::as_slice) {
        Some(&[sid]) => Ok(ClientOp::Unsub { sid, max: None }),
        Some(&[sid, max]) => Ok(ClientOp::Unsub {
            sid,
            max: parse_size(max).filter(|max| *max > 0).map(|max| max as u64),
        }),
        _ => Err(ParseError::Malformed("UNSUB: wrong number of arguments")),
    }
}

/// Return `text` without the pair of single quotes around it, if there is one.
fn unquote(text: &[u8]) -> &[u8] {
    match text {
        [b'\'', inner @ .., b'\''] => inner,
        _ => text,
    }
}

/// Return the operation that `line` begins with, and the text after its name and one blank. `None`
/// if an incomplete line leaves the operation open. Letter case is ignored.
#[inline]
pub(super) fn split_verb<'a>(
    verbs: &[(&[u8], Verb)],
    line: &'a [u8],
    complete: bool,
) -> Result<Option<(Verb, &'a [u8])>, ParseError> {
    for &(name, verb) in verbs {
        if let Some((start, rest)) = line.split_at_checked(name.len()) {
            if !start.eq_ignore_ascii_case(name) {
                continue;
            }
            return match rest {
                [b' ' | b'\t', args @ ..] => Ok(Some((verb, args))),
                _ if !verb.needs_blank() => Ok(Some((verb, rest))),
                [] if !complete => Ok(None),
                _ => Err(ParseError::UnknownOperation),
            };
        } else if !complete && name[..line.len()].eq_ignore_ascii_case(line) {
            return Ok(None);
        }
    }
    Err(ParseError::UnknownOperation)
}
