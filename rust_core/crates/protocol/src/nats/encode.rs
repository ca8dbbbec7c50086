//! Encoders of operations, which append to a buffer. Only the buffer's growth allocates.
//!
//! Subjects, queue groups, SIDs and replies are appended unchecked: they must not be empty and hold
//! no blanks and no line ends. Fields are separated by one space and lines end in CR LF.

use super::Message;
use super::info::{ConnectOptions, ServerInfo};

/// A `PING`.
pub const PING: &[u8] = b"PING\r\n";
/// A `PONG`.
pub const PONG: &[u8] = b"PONG\r\n";
/// A `+OK`.
pub const OK: &[u8] = b"+OK\r\n";

const CRLF: &[u8] = b"\r\n";
const NO_RESPONDERS_STATUS: &[u8] = b"NATS/1.0 503\r\nNats-Subject: ";

/// Digits of the largest `usize`.
const MAX_DIGITS: usize = 20;

/// A number in decimal digits.
struct Decimal {
    digits: [u8; MAX_DIGITS],
    start: usize,
}

impl Decimal {
    #[inline]
    fn new(mut n: u64) -> Self {
        let mut digits = [b'0'; MAX_DIGITS];
        let mut start = MAX_DIGITS;
        loop {
            start -= 1;
            // The remainder is below ten.
            digits[start] = b'0' + (n % 10) as u8;
            n /= 10;
            if n == 0 || start == 0 {
                return Self { digits, start };
            }
        }
    }

    #[inline]
    fn as_bytes(&self) -> &[u8] {
        &self.digits[self.start..]
    }
}

/// Number of decimal digits of `n`.
#[inline]
const fn decimal_len(n: usize) -> usize {
    match n.checked_ilog10() {
        Some(log) => log as usize + 1,
        None => 1,
    }
}

/// Size of an optional field and the space before it.
#[inline]
fn field_len(field: Option<&[u8]>) -> usize {
    field.map_or(0, |field| 1 + field.len())
}

#[inline]
fn push_field(out: &mut Vec<u8>, field: &[u8]) {
    out.push(b' ');
    out.extend_from_slice(field);
}

/// Return the number of bytes that [`encode_pub`] appends.
#[inline]
#[must_use]
pub fn pub_len(message: &Message<'_>) -> usize {
    let size = message.size();
    let headers = message
        .headers
        .map_or(0, |headers| "H".len() + 1 + decimal_len(headers.len()));
    "PUB ".len()
        + message.subject.len()
        + field_len(message.reply)
        + headers
        + 1
        + decimal_len(size)
        + CRLF.len()
        + size
        + CRLF.len()
}

/// Return the number of bytes that [`encode_msg`] appends: `MSG` has the fields of `PUB` and a SID.
#[inline]
#[must_use]
pub fn msg_len(sid: &[u8], message: &Message<'_>) -> usize {
    pub_len(message) + field_len(Some(sid))
}

/// Append `MSG <subject> <sid> [reply] <size>` and the payload; or, with headers, `HMSG <subject> <sid> [reply]
/// <header length> <size>`, the header block and the payload.
#[inline]
pub fn encode_msg(out: &mut Vec<u8>, sid: &[u8], message: &Message<'_>) {
    encode_msg_line(out, sid, message);
    encode_body(out, message);
}

/// Append the line of [`encode_msg`], for headers and payload that stand elsewhere, with the CR LF that ends the
/// operation.
#[inline]
pub fn encode_msg_line(out: &mut Vec<u8>, sid: &[u8], message: &Message<'_>) {
    match message.headers {
        Some(_) => out.extend_from_slice(b"HMSG "),
        None => out.extend_from_slice(b"MSG "),
    }
    out.extend_from_slice(message.subject);
    push_field(out, sid);
    encode_sizes(out, message);
}

/// Append `PUB <subject> [reply] <size>` and the payload; or, with headers, `HPUB <subject> [reply] <header
/// length> <size>`, the header block and the payload.
#[inline]
pub fn encode_pub(out: &mut Vec<u8>, message: &Message<'_>) {
    match message.headers {
        Some(_) => out.extend_from_slice(b"HPUB "),
        None => out.extend_from_slice(b"PUB "),
    }
    out.extend_from_slice(message.subject);
    encode_sizes(out, message);
    encode_body(out, message);
}

/// Append the rest of a line, from the reply on.
#[inline]
fn encode_sizes(out: &mut Vec<u8>, message: &Message<'_>) {
    if let Some(reply) = message.reply {
        push_field(out, reply);
    }
    if let Some(headers) = message.headers {
        push_field(out, Decimal::new(headers.len() as u64).as_bytes());
    }
    push_field(out, Decimal::new(message.size() as u64).as_bytes());
    out.extend_from_slice(CRLF);
}

/// Append what follows the line.
#[inline]
fn encode_body(out: &mut Vec<u8>, message: &Message<'_>) {
    if let Some(headers) = message.headers {
        out.extend_from_slice(headers);
    }
    out.extend_from_slice(message.payload);
    out.extend_from_slice(CRLF);
}

/// Append `SUB <subject> [queue] <sid>`.
pub fn encode_sub(out: &mut Vec<u8>, subject: &[u8], queue: Option<&[u8]>, sid: &[u8]) {
    out.extend_from_slice(b"SUB ");
    out.extend_from_slice(subject);
    if let Some(queue) = queue {
        push_field(out, queue);
    }
    push_field(out, sid);
    out.extend_from_slice(CRLF);
}

/// Append `UNSUB <sid> [max]`. Servers read at most nine digits of `max`, and take a longer one as
/// "now".
pub fn encode_unsub(out: &mut Vec<u8>, sid: &[u8], max: Option<u64>) {
    out.extend_from_slice(b"UNSUB ");
    out.extend_from_slice(sid);
    if let Some(max) = max {
        push_field(out, Decimal::new(max).as_bytes());
    }
    out.extend_from_slice(CRLF);
}

/// Append `-ERR '<text>'`, with the single quotes that clients require. The texts are in
/// [`error`](super::error).
pub fn encode_err(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(b"-ERR '");
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"'\r\n");
}

/// Append `INFO <json>`.
pub fn encode_info(out: &mut Vec<u8>, info: &ServerInfo) {
    out.extend_from_slice(b"INFO ");
    info.encode_json(out);
    out.extend_from_slice(CRLF);
}

/// Append `CONNECT <json>`.
pub fn encode_connect(out: &mut Vec<u8>, options: &ConnectOptions) {
    out.extend_from_slice(b"CONNECT ");
    options.encode_json(out);
    out.extend_from_slice(CRLF);
}

/// Append the status for a request to `subject` without a subscriber: an `HMSG` to `reply` with
/// status 503 and no payload. It names the subject, as nats-server does since 2.12.
pub fn encode_no_responders(out: &mut Vec<u8>, reply: &[u8], sid: &[u8], subject: &[u8]) {
    let len = NO_RESPONDERS_STATUS.len() + subject.len() + 2 * CRLF.len();
    let digits = Decimal::new(len as u64);
    out.reserve(64 + reply.len() + sid.len() + len);
    out.extend_from_slice(b"HMSG ");
    out.extend_from_slice(reply);
    push_field(out, sid);
    push_field(out, digits.as_bytes());
    push_field(out, digits.as_bytes());
    out.extend_from_slice(CRLF);
    out.extend_from_slice(NO_RESPONDERS_STATUS);
    out.extend_from_slice(subject);
    out.extend_from_slice(b"\r\n\r\n\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = b"before ".to_vec();
        encode(&mut out);
        let text = String::from_utf8_lossy(&out).into_owned();
        assert!(text.starts_with("before "), "{text}");
        text["before ".len()..].to_owned()
    }

    const HEADERS: &[u8] = b"NATS/1.0\r\nA: b\r\n\r\n";

    /// A message with or without reply and headers.
    fn messages<'a>(payload: &'a [u8]) -> impl Iterator<Item = Message<'a>> {
        [None, Some(&b"_INBOX.abc"[..])]
            .into_iter()
            .flat_map(move |reply| {
                [None, Some(HEADERS)].map(|headers| Message {
                    subject: b"some.subject",
                    reply,
                    headers,
                    payload,
                })
            })
    }

    #[test]
    fn a_line_and_the_rest_are_the_whole_operation() {
        for message in messages(b"hello") {
            let whole = encoded(|out| encode_msg(out, b"1", &message));
            let line = encoded(|out| encode_msg_line(out, b"1", &message));
            let rest = encoded(|out| encode_body(out, &message));
            assert_eq!(whole, line + &rest);
        }
    }

    #[test]
    fn decimal_matches_display() {
        let edges = (0..20).map(|power| 10u64.pow(power)).chain([u64::MAX]);
        for n in edges.flat_map(|n| [n - 1, n, n.saturating_add(1)]) {
            assert_eq!(Decimal::new(n).as_bytes(), n.to_string().as_bytes());
            assert_eq!(decimal_len(n as usize), n.to_string().len());
        }
    }

    #[test]
    fn operations() {
        let ends = [
            ("5\r\nhello\r\n", ""),
            ("18 23\r\nNATS/1.0\r\nA: b\r\n\r\nhello\r\n", "H"),
            ("_INBOX.abc 5\r\nhello\r\n", ""),
            ("_INBOX.abc 18 23\r\nNATS/1.0\r\nA: b\r\n\r\nhello\r\n", "H"),
        ];
        for (message, (end, verb)) in messages(b"hello").zip(ends) {
            assert_eq!(
                encoded(|out| encode_msg(out, b"9", &message)),
                format!("{verb}MSG some.subject 9 {end}")
            );
            assert_eq!(
                encoded(|out| encode_pub(out, &message)),
                format!("{verb}PUB some.subject {end}")
            );
        }
    }

    #[test]
    fn lengths_are_exact() {
        for size in [0, 1, 9, 10, 99, 100, 99_999, 100_000] {
            for message in messages(&vec![b'x'; size]) {
                let msg = encoded(|out| encode_msg(out, b"12345", &message));
                assert_eq!(msg.len(), msg_len(b"12345", &message));
                let publish = encoded(|out| encode_pub(out, &message));
                assert_eq!(publish.len(), pub_len(&message));
            }
        }
    }

    #[test]
    fn no_allocation_when_there_is_room() {
        for message in messages(b"xyz") {
            let mut out = Vec::with_capacity(msg_len(b"1", &message));
            let before = (out.as_ptr(), out.capacity());
            encode_msg(&mut out, b"1", &message);
            assert_eq!(before, (out.as_ptr(), out.capacity()));
        }
    }

    #[test]
    fn lines() {
        assert_eq!(
            encoded(|out| encode_sub(out, b"a.*", Some(b"q"), b"7")),
            "SUB a.* q 7\r\n"
        );
        assert_eq!(
            encoded(|out| encode_sub(out, b">", None, b"7")),
            "SUB > 7\r\n"
        );
        assert_eq!(
            encoded(|out| encode_unsub(out, b"7", Some(100))),
            "UNSUB 7 100\r\n"
        );
        assert_eq!(encoded(|out| encode_unsub(out, b"7", None)), "UNSUB 7\r\n");
        assert_eq!(
            encoded(|out| encode_err(out, super::super::error::STALE_CONNECTION)),
            "-ERR 'Stale Connection'\r\n"
        );
    }

    #[test]
    fn no_responders_names_the_subject() {
        // 32 + len("svc.x"), as nats-server's processInboundClientMsg computes it.
        assert_eq!(
            encoded(|out| encode_no_responders(out, b"_INBOX.1.2", b"3", b"svc.x")),
            "HMSG _INBOX.1.2 3 37 37\r\nNATS/1.0 503\r\nNats-Subject: svc.x\r\n\r\n\r\n"
        );
    }
}
