//! Bytes as NATS operations, either direction: how they were cut must not change what they say, and
//! what was read can be written and read again.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use protocol::nats::encode::{encode_msg, encode_pub};
use protocol::nats::{
    ClientOp, ConnectOptions, FromClient, FromServer, Headers, Limits, ParseError, Parser,
    ServerInfo, ServerOp, Side,
};

#[derive(Arbitrary, Debug)]
struct Input {
    from_client: bool,
    max_control_line: u16,
    max_payload: u16,
    headers: bool,
    /// The lengths of the pieces in turn, in bytes; none means one byte each.
    pieces: Vec<u8>,
    stream: Vec<Part>,
}

/// Random bytes alone hardly ever make an operation.
#[derive(Arbitrary, Debug)]
enum Part {
    /// An index into `TOKENS`.
    Token(u8),
    Bytes(Vec<u8>),
}

const TOKENS: &[&str] = &[
    "PUB ",
    "HPUB ",
    "SUB ",
    "UNSUB ",
    "CONNECT ",
    "INFO ",
    "PING",
    "PONG",
    "+OK",
    "-ERR ",
    "MSG ",
    "HMSG ",
    "pub\t",
    "a ",
    "b.c ",
    "_INBOX.x.* ",
    "0",
    "1",
    "2",
    "10",
    "12",
    "27",
    "1000000000",
    "\r\n",
    "\n",
    "\r",
    " ",
    "\t",
    "'",
    "{\"echo\":false}",
    "NATS/1.0",
    " 503",
    "K: v",
    "xy",
    "PUB a 2\r\nxy\r\n",
    "MSG a 1 2\r\nxy\r\n",
    "HPUB a 12 14\r\n",
    "HMSG a 1 12 14\r\n",
    "NATS/1.0\r\n\r\n",
];

impl Input {
    fn stream(&self) -> Vec<u8> {
        let part = |part: &Part| match part {
            Part::Token(index) => TOKENS[usize::from(*index) % TOKENS.len()].into(),
            Part::Bytes(bytes) => bytes.clone(),
        };
        self.stream.iter().flat_map(part).collect()
    }
}

/// An operation in words, independent of the bytes that it borrows from.
trait Say {
    /// What it is, after everything in it that has a grammar of its own was read.
    fn say(&self) -> String;

    /// The operation as its encoder writes it, if it carries a payload.
    fn encode(&self) -> Option<Vec<u8>>;
}

impl Say for ClientOp<'_> {
    fn say(&self) -> String {
        if let Self::Connect(json) = self {
            let _ = ConnectOptions::parse(json).map(|options| options.validate(true));
            return format!("Connect {}", json.escape_ascii());
        }
        format!("{self:?}")
    }

    fn encode(&self) -> Option<Vec<u8>> {
        let Self::Pub(message) = self else {
            return None;
        };
        let mut out = Vec::new();
        encode_pub(&mut out, message);
        Some(out)
    }
}

impl Say for ServerOp<'_> {
    fn say(&self) -> String {
        if let Self::Info(json) = self {
            let _ = ServerInfo::parse(json);
        }
        format!("{self:?}")
    }

    fn encode(&self) -> Option<Vec<u8>> {
        let Self::Msg { sid, message } = self else {
            return None;
        };
        if let Some(headers) = message.headers {
            let _ = Headers::parse(headers).map(|headers| headers.iter().count());
        }
        let mut out = Vec::new();
        encode_msg(&mut out, sid, message);
        Some(out)
    }
}

fn read<S: Side>(
    limits: &Limits,
    stream: &[u8],
    mut next_len: impl FnMut() -> usize,
) -> (Vec<String>, Option<ParseError>)
where
    for<'a> S::Op<'a>: Say,
{
    let mut parser = Parser::<S>::new();
    let (mut said, mut failed) = (Vec::new(), None);
    let mut rest = stream;
    while !rest.is_empty() {
        let (mut piece, after) = rest.split_at(next_len().clamp(1, rest.len()));
        rest = after;
        loop {
            match parser.next(limits, &mut piece) {
                Ok(Some(op)) => {
                    assert_eq!(failed, None);
                    said.push(op.say());
                }
                Ok(None) => break,
                Err(error) => assert_eq!(failed.replace(error), None),
            }
        }
        assert!(piece.is_empty());
        assert!(parser.kept_bytes() <= limits.max_control_line + limits.max_payload + 32);
    }
    (said, failed)
}

/// Reads operations from `stream` while they can be written, and compares what is read back.
fn rewrite<S: Side>(limits: &Limits, mut stream: &[u8])
where
    for<'a> S::Op<'a>: Say,
{
    let mut parser = Parser::<S>::new();
    while let Ok(Some(op)) = parser.next(limits, &mut stream) {
        if let Some(encoded) = op.encode() {
            let again = read::<S>(limits, &encoded, || usize::MAX);
            assert_eq!(again, (vec![op.say()], None));
        }
    }
}

fn check<S: Side>(input: &Input)
where
    for<'a> S::Op<'a>: Say,
{
    let limits = Limits {
        max_control_line: input.max_control_line.into(),
        max_payload: input.max_payload.into(),
        headers: input.headers,
    };
    let stream = input.stream();
    let whole = read::<S>(&limits, &stream, || usize::MAX);
    assert_eq!(whole, read::<S>(&limits, &stream, || 1));
    let mut lens = input.pieces.iter().copied().cycle();
    let next_len = || lens.next().map_or(1, usize::from);
    assert_eq!(whole, read::<S>(&limits, &stream, next_len));
    rewrite::<S>(&limits, &stream);
}

fuzz_target!(|input: Input| {
    match input.from_client {
        true => check::<FromClient>(&input),
        false => check::<FromServer>(&input),
    }
});
