//! A resumable parser of operations for both directions.

use std::fmt;
use std::marker::PhantomData;

use memchr::memchr;

use super::args::Envelope;
use super::error::ParseError;
use super::grammar::sealed::Grammar;
use super::grammar::{Side, split_verb};
use super::message::Message;

/// Limit of a control line's arguments in bytes, as in nats-server.
pub const DEFAULT_MAX_CONTROL_LINE: usize = 4096;
/// Limit of a payload in bytes, as in nats-server.
pub const DEFAULT_MAX_PAYLOAD: usize = 1024 * 1024;

/// Line end after a payload.
const TERMINATOR: &[u8] = b"\r\n";
/// Most bytes of an incomplete control line beyond the limit on its arguments: the longest name,
/// the blank after it, CR LF and the byte that shows an excess, rounded up.
const LINE_SLACK: usize = 16;

/// Limits of a parser. They are passed with every call, because they change during a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of a control line behind the operation's name and one blank. A client should
    /// allow for the server's `INFO`, which lists the URLs of its whole cluster.
    pub max_control_line: usize,
    /// Most bytes of a payload, headers included.
    pub max_payload: usize,
    /// Whether both sides agreed on headers; without, `HPUB` and `HMSG` are malformed.
    pub headers: bool,
}

/// Limits for an operation that was checked before.
const UNLIMITED: Limits = Limits {
    max_control_line: usize::MAX,
    max_payload: usize::MAX,
    headers: true,
};

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_control_line: DEFAULT_MAX_CONTROL_LINE,
            max_payload: DEFAULT_MAX_PAYLOAD,
            headers: false,
        }
    }
}

/// Outcome of reading the bytes from the start of an operation.
enum Scan<O> {
    /// More are needed.
    Partial(Stage),
    /// The operation and its length in bytes.
    Whole(O, usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Inside a control line.
    Line,
    /// The control line is checked; the operation ends after `total` bytes, CR LF included.
    Payload { total: usize },
    /// The operation was handed out, and may be forgotten.
    Taken,
    /// After an error: all input is discarded.
    Failed,
}

/// Read the operation at the start of `bytes`, of which the first `scanned` hold no LF.
#[inline]
fn scan<'a, S: Grammar>(
    bytes: &'a [u8],
    scanned: usize,
    limits: &Limits,
) -> Result<Scan<S::Op<'a>>, ParseError> {
    let line_feed = memchr(b'\n', bytes.get(scanned..).unwrap_or_default()).map(|i| i + scanned);
    let line = bytes
        .get(..line_feed.unwrap_or(bytes.len()))
        .unwrap_or(bytes);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let found = split_verb(S::VERBS, line, line_feed.is_some())?;
    if let Some((_, args)) = found
        && args.len() > limits.max_control_line
    {
        return Err(ParseError::ControlLineTooLong {
            limit: limits.max_control_line,
        });
    }
    let (Some(line_feed), Some((verb, args))) = (line_feed, found) else {
        return Ok(Scan::Partial(Stage::Line));
    };
    let start = line_feed + 1;
    let Some(envelope) = verb.parse_envelope(args)? else {
        return Ok(Scan::Whole(S::parse_line(verb, args)?, start));
    };
    check(&envelope, limits)?;
    let total = start + envelope.total + TERMINATOR.len();
    if !is_terminated(bytes, total)? {
        return Ok(Scan::Partial(Stage::Payload { total }));
    }
    let body = &bytes[start..total - TERMINATOR.len()];
    let (headers, payload) = body.split_at(envelope.header_len.unwrap_or(0));
    // An `HPUB` with an empty header block is a `PUB` to nats-server.
    let headers = (!headers.is_empty()).then_some(headers);
    let message = Message {
        subject: envelope.subject,
        reply: envelope.reply,
        headers,
        payload,
    };
    Ok(Scan::Whole(S::message(envelope.sid, message), total))
}

/// Check an announced payload against the connection's limits.
#[inline]
fn check(envelope: &Envelope<'_>, limits: &Limits) -> Result<(), ParseError> {
    if envelope.header_len.is_some() && !limits.headers {
        return Err(ParseError::Malformed("headers were not negotiated"));
    }
    if envelope.total > limits.max_payload {
        return Err(ParseError::PayloadTooLarge {
            size: envelope.total,
            limit: limits.max_payload,
        });
    }
    Ok(())
}

/// Return whether `bytes` hold an operation of `total` bytes. Its final CR LF is checked as it
/// arrives.
#[inline]
fn is_terminated(bytes: &[u8], total: usize) -> Result<bool, ParseError> {
    let end = total - TERMINATOR.len();
    let tail = bytes.get(end..total.min(bytes.len())).unwrap_or_default();
    if !TERMINATOR.starts_with(tail) {
        return Err(ParseError::PayloadNotTerminated);
    }
    Ok(tail.len() == TERMINATOR.len())
}

/// Start of an operation whose end has not arrived.
struct PartialOp {
    bytes: Vec<u8>,
    stage: Stage,
}

impl PartialOp {
    const FAILED: Self = Self {
        bytes: Vec::new(),
        stage: Stage::Failed,
    };

    /// Take from `input` the bytes of the operation, until it is whole or `input` is used up.
    fn complete<S: Grammar>(
        &mut self,
        limits: &Limits,
        input: &mut &[u8],
    ) -> Result<(), ParseError> {
        while !input.is_empty() {
            match self.stage {
                Stage::Line => {
                    let scanned = self.bytes.len();
                    let end = memchr(b'\n', input).map_or(input.len(), |i| i + 1);
                    self.take(
                        end,
                        limits.max_control_line.saturating_add(LINE_SLACK),
                        input,
                    );
                    self.stage = match scan::<S>(&self.bytes, scanned, limits)? {
                        Scan::Whole(..) => Stage::Taken,
                        Scan::Partial(stage) => stage,
                    };
                }
                Stage::Payload { total } => {
                    self.take(input.len(), total, input);
                    if is_terminated(&self.bytes, total)? {
                        self.stage = Stage::Taken;
                    }
                }
                Stage::Taken => break,
                Stage::Failed => *input = &[],
            }
        }
        Ok(())
    }

    /// Move up to `count` bytes of `input` here, while the operation has at most `most`.
    fn take(&mut self, count: usize, most: usize, input: &mut &[u8]) {
        let len = self.bytes.len();
        let (taken, rest) = input.split_at(count.min(input.len()).min(most.saturating_sub(len)));
        if len + taken.len() > self.bytes.capacity() {
            // Doubles as a vector does on its own, but not beyond the operation's size.
            let doubled = self.bytes.capacity().saturating_mul(2).min(most);
            let target = doubled.max(len + taken.len());
            self.bytes.reserve_exact(target - len);
        }
        self.bytes.extend_from_slice(taken);
        *input = rest;
    }
}

/// Parser of operations in a byte stream, which may be cut anywhere.
///
/// An operation that lies whole in the input borrows from it. Of any other, the received bytes are
/// kept until the rest arrives. Between operations nothing is kept, and nothing is allocated.
/// Memory grows with the received bytes, not with the announced size, and stays within the limits.
///
/// After an error the parser has failed for good: it consumes every input and yields nothing.
pub struct Parser<S> {
    kept: Option<Box<PartialOp>>,
    side: PhantomData<fn() -> S>,
}

impl<S: Side> Parser<S> {
    /// Return a parser at the start of a stream. Allocates nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            kept: None,
            side: PhantomData,
        }
    }

    /// Return the bytes of memory held for an operation that is incomplete, or was just returned.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.bytes.capacity())
    }

    /// Return the next operation, consuming `input` from its front.
    ///
    /// `None` means that `input` is used up; call again with the next bytes. The limits apply to
    /// operations whose control line has not been read yet.
    ///
    /// # Errors
    ///
    /// Any [`ParseError`], as soon as the bytes so far allow no other outcome, wherever they were
    /// cut. The rest of the stream cannot be read, so the connection has to be closed.
    #[inline]
    pub fn next<'s, 'i: 's>(
        &'s mut self,
        limits: &Limits,
        input: &mut &'i [u8],
    ) -> Result<Option<S::Op<'s>>, ParseError> {
        if let Some(kept) = &self.kept {
            if kept.stage != Stage::Taken {
                return self.next_kept(limits, input);
            }
            self.kept = None;
        }
        if input.is_empty() {
            return Ok(None);
        }
        let bytes: &'s [u8] = input;
        match scan::<S>(bytes, 0, limits) {
            Ok(Scan::Whole(op, len)) => {
                *input = &input[len..];
                Ok(Some(op))
            }
            Ok(Scan::Partial(stage)) => {
                let bytes = bytes.to_vec();
                self.keep(PartialOp { bytes, stage }, input);
                Ok(None)
            }
            Err(error) => {
                self.keep(PartialOp::FAILED, input);
                Err(error)
            }
        }
    }

    /// Consume the input and keep the incomplete operation.
    #[cold]
    fn keep(&mut self, kept: PartialOp, input: &mut &[u8]) {
        *input = &[];
        self.kept = Some(Box::new(kept));
    }

    /// Continue an operation that earlier input began.
    #[cold]
    fn next_kept(
        &mut self,
        limits: &Limits,
        input: &mut &[u8],
    ) -> Result<Option<S::Op<'_>>, ParseError> {
        let Some(kept) = &mut self.kept else {
            return Ok(None);
        };
        if let Err(error) = kept.complete::<S>(limits, input) {
            **kept = PartialOp::FAILED;
            *input = &[];
            return Err(error);
        }
        if kept.stage != Stage::Taken {
            return Ok(None);
        }
        match scan::<S>(&kept.bytes, 0, &UNLIMITED)? {
            Scan::Whole(op, _) => Ok(Some(op)),
            Scan::Partial(_) => Ok(None),
        }
    }
}

impl<S: Side> Default for Parser<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> fmt::Debug for Parser<S> {
    /// Show no received bytes: a kept `CONNECT` may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.kept.as_deref();
        f.debug_struct("Parser")
            .field("kept_bytes", &kept.map_or(0, |kept| kept.bytes.len()))
            .field("stage", &kept.map(|kept| kept.stage))
            .finish()
    }
}
