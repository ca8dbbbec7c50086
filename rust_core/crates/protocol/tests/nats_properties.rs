//! Properties of the NATS codec over random operations and random bytes.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use proptest::sample::{Index, select};
use subjectbus_protocol::nats::encode::{
    encode_err, encode_msg, encode_pub, encode_sub, encode_unsub,
};
use subjectbus_protocol::nats::{
    ClientOp, FromClient, FromServer, Limits, Message, ParseError, Parser, ServerOp, Side,
};

const LIMITS: Limits = Limits {
    max_control_line: 256,
    max_payload: 2000,
    headers: true,
};

type Bytes = Vec<u8>;

/// An operation of either side that has an encoder, independent of any buffer.
#[derive(Debug, Clone, PartialEq)]
enum Op {
    /// `PUB`, `HPUB`; with a SID `MSG`, `HMSG`.
    Message {
        subject: Bytes,
        sid: Option<Bytes>,
        reply: Option<Bytes>,
        headers: Option<Bytes>,
        payload: Bytes,
    },
    Sub(Bytes, Option<Bytes>, Bytes),
    Unsub(Bytes, Option<u64>),
    Err(String),
    /// Anything else, by its `Debug` output.
    Other(String),
}

impl Op {
    fn message(sid: Option<&[u8]>, message: &Message<'_>) -> Self {
        Self::Message {
            subject: message.subject.to_vec(),
            sid: sid.map(<[u8]>::to_vec),
            reply: message.reply.map(<[u8]>::to_vec),
            headers: message.headers.map(<[u8]>::to_vec),
            payload: message.payload.to_vec(),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Message {
                subject,
                sid,
                reply,
                headers,
                payload,
            } => {
                let message = Message {
                    subject,
                    reply: reply.as_deref(),
                    headers: headers.as_deref(),
                    payload,
                };
                match sid {
                    None => encode_pub(out, &message),
                    Some(sid) => encode_msg(out, sid, &message),
                }
            }
            Self::Sub(subject, queue, sid) => encode_sub(out, subject, queue.as_deref(), sid),
            Self::Unsub(sid, max) => encode_unsub(out, sid, *max),
            Self::Err(text) => encode_err(out, text),
            Self::Other(name) => {
                out.extend_from_slice(name.as_bytes());
                out.extend_from_slice(b"\r\n");
            }
        }
    }
}

impl From<ClientOp<'_>> for Op {
    fn from(op: ClientOp<'_>) -> Self {
        match op {
            ClientOp::Pub(message) => Self::message(None, &message),
            ClientOp::Sub {
                subject,
                queue,
                sid,
            } => Self::Sub(subject.to_vec(), queue.map(<[u8]>::to_vec), sid.to_vec()),
            ClientOp::Unsub { sid, max } => Self::Unsub(sid.to_vec(), max),
            ClientOp::Connect(json) => Self::Other(format!("CONNECT {}", json.escape_ascii())),
            op => Self::Other(format!("{op:?}").to_uppercase()),
        }
    }
}

impl From<ServerOp<'_>> for Op {
    fn from(op: ServerOp<'_>) -> Self {
        match op {
            ServerOp::Msg { sid, message } => Self::message(Some(sid), &message),
            ServerOp::Err(text) => Self::Err(String::from_utf8_lossy(text).into_owned()),
            op => Self::Other(format!("{op:?}").to_uppercase()),
        }
    }
}

/// Return the ends of the pieces of a stream of `len` bytes.
fn ends(len: usize, cuts: &[Index]) -> Vec<usize> {
    let mut ends: Vec<_> = cuts.iter().map(|cut| cut.index(len + 1)).collect();
    ends.push(len);
    ends.sort_unstable();
    ends
}

/// Feed `stream` in pieces that end at `ends`. Return the operations, the error if there was one,
/// and the most bytes that the parser ever kept.
fn read<S: Side>(
    stream: &[u8],
    limits: &Limits,
    ends: &[usize],
) -> (Vec<Op>, Option<ParseError>, usize)
where
    for<'a> Op: From<S::Op<'a>>,
{
    let mut parser = Parser::<S>::new();
    let (mut ops, mut failed, mut most) = (Vec::new(), None, 0);
    let mut start = 0;
    for &end in ends {
        let mut input = &stream[start..end];
        start = end;
        loop {
            match parser.next(limits, &mut input) {
                Ok(Some(op)) => {
                    assert_eq!(failed, None, "an operation after an error");
                    ops.push(Op::from(op));
                }
                Ok(None) => break,
                Err(error) => assert_eq!(failed.replace(error), None, "a second error"),
            }
            most = most.max(parser.kept_bytes());
        }
        assert!(input.is_empty());
        most = most.max(parser.kept_bytes());
    }
    (ops, failed, most)
}

/// Return a field: bytes without blanks and line ends.
fn field() -> impl Strategy<Value = Bytes> {
    let byte = any::<u8>().prop_filter("blank", |b| !b" \t\r\n".contains(b));
    prop::collection::vec(byte, 1..24)
}

fn body() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        prop::collection::vec(select(b"\r\n PUB1".to_vec()), 0..900),
    ]
}

fn message(with_sid: bool) -> impl Strategy<Value = Op> {
    let headers = prop::option::of(body().prop_filter("empty", |block| !block.is_empty()));
    let reply = prop::option::of(field());
    (field(), field(), reply, headers, body()).prop_map(
        move |(subject, sid, reply, headers, payload)| Op::Message {
            subject,
            sid: with_sid.then_some(sid),
            reply,
            headers,
            payload,
        },
    )
}

fn client_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => message(false),
        2 => (field(), prop::option::of(field()), field()).prop_map(|(s, q, n)| Op::Sub(s, q, n)),
        1 => (field(), prop::option::of(1..=999_999_999_u64)).prop_map(|(sid, max)| Op::Unsub(sid, max)),
        1 => select(vec!["PING", "PONG", "CONNECT {}"]).prop_map(|name| Op::Other(name.into())),
    ]
}

fn server_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => message(true),
        1 => "[A-Za-z\"' ]{0,40}".prop_map(Op::Err),
        1 => select(vec!["PING", "PONG"]).prop_map(|name| Op::Other(name.into())),
    ]
}

fn cuts() -> impl Strategy<Value = Vec<Index>> {
    prop::collection::vec(any::<Index>(), 0..30)
}

/// Return bytes that reach deep into the parser more often than uniform ones would.
fn wire_like() -> impl Strategy<Value = Bytes> {
    let part = prop_oneof![
        4 => select(vec![
            "PUB a 3\r\nabc\r\n", "PUB ", "HPUB ", "SUB a 1\r\n", "SUB ", "UNSUB 1 2\r\n", "UNSUB ",
            "PING\r\n", "PONG", "CONNECT {}\r\n", "INFO ", "+OK", "-ERR ", "MSG a 1 2\r\nxy\r\n",
            "MSG ", "HMSG ", "HPUB a 3 5\r\nabcde\r\n", "HMSG a 1 2 2\r\nxy\r\n",
        ]).prop_map(|text| text.as_bytes().to_vec()),
        4 => select(vec!["\r\n", "\n", "\r", " ", "\t", "0", "1", "7", "99", "2000", "a.b", "'"])
            .prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..8),
        1 => (0..600usize).prop_map(|len| vec![b'z'; len]),
    ];
    prop::collection::vec(part, 0..24).prop_map(|parts| parts.concat())
}

fn limits() -> impl Strategy<Value = Limits> {
    (0..300usize, 0..3000usize, any::<bool>()).prop_map(
        |(max_control_line, max_payload, headers)| Limits {
            max_control_line,
            max_payload,
            headers,
        },
    )
}

/// Assert that cutting `stream` changes nothing, and that kept bytes stay within the limits.
fn cutting_changes_nothing<S: Side>(
    stream: &[u8],
    limits: &Limits,
    cuts: &[Index],
) -> Result<(), TestCaseError>
where
    for<'a> Op: From<S::Op<'a>>,
{
    let (ops, error, _) = read::<S>(stream, limits, &[stream.len()]);
    let every_byte = (1..=stream.len()).collect();
    for ends in [ends(stream.len(), cuts), every_byte] {
        let (cut_ops, cut_error, most) = read::<S>(stream, limits, &ends);
        prop_assert_eq!(&cut_ops, &ops);
        prop_assert_eq!(cut_error, error);
        prop_assert!(most <= limits.max_control_line + limits.max_payload + 32);
    }
    Ok(())
}

proptest! {
    #[test]
    fn client_operations_round_trip(
        ops in prop::collection::vec(client_op(), 0..12), cuts in cuts(),
    ) {
        let mut stream = Vec::new();
        ops.iter().for_each(|op| op.encode(&mut stream));
        let (read, error, _) = read::<FromClient>(&stream, &LIMITS, &ends(stream.len(), &cuts));
        prop_assert_eq!(error, None);
        prop_assert_eq!(read, ops);
    }

    #[test]
    fn server_operations_round_trip(
        ops in prop::collection::vec(server_op(), 0..12), cuts in cuts(),
    ) {
        let mut stream = Vec::new();
        ops.iter().for_each(|op| op.encode(&mut stream));
        let (read, error, _) = read::<FromServer>(&stream, &LIMITS, &ends(stream.len(), &cuts));
        prop_assert_eq!(error, None);
        prop_assert_eq!(read, ops);
    }

    #[test]
    fn cutting_random_bytes_changes_nothing(
        stream in prop_oneof![wire_like(), prop::collection::vec(any::<u8>(), 0..200)],
        limits in limits(),
        cuts in cuts(),
    ) {
        cutting_changes_nothing::<FromClient>(&stream, &limits, &cuts)?;
        cutting_changes_nothing::<FromServer>(&stream, &limits, &cuts)?;
    }
}
