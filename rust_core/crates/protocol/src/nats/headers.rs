//! Header blocks (ADR-4): a version line, fields and an empty line, in the shape of HTTP.

use std::fmt;

const VERSION: &[u8] = b"NATS/1.0";
const CRLF: &[u8] = b"\r\n";

/// Why a header block cannot be read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadersError {
    /// The block does not begin with `NATS/1.0`.
    Version,
    /// A version that is not followed by a three-digit code and a description.
    Status,
    /// A line without a colon, or a name that is empty or holds blanks, colons or line ends, or a
    /// value that holds line ends.
    Field,
    /// The block does not end in an empty line, or has something behind it.
    End,
}

impl fmt::Display for HeadersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version => "header block does not begin with NATS/1.0",
            Self::Status => "header block has a bad status",
            Self::Field => "header block has a bad field",
            Self::End => "header block does not end with its empty line",
        })
    }
}

impl std::error::Error for HeadersError {}

/// The status in a header block's first line: `NATS/1.0 <code> [description]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status<'a> {
    /// Three digits: 503 = no responders.
    pub code: u16,
    /// Text behind the code, perhaps empty.
    pub description: &'a [u8],
}

/// A view of a header block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers<'a> {
    status: Option<Status<'a>>,
    /// The lines of the fields, all checked.
    fields: &'a [u8],
}

impl<'a> Headers<'a> {
    /// Read a whole block, from `NATS/1.0` to the empty line that ends it. Lines may end in a bare
    /// LF.
    ///
    /// # Errors
    ///
    /// A [`HeadersError`] naming the first thing that breaks the grammar.
    pub fn parse(block: &'a [u8]) -> Result<Self, HeadersError> {
        let rest = block.strip_prefix(VERSION).ok_or(HeadersError::Version)?;
        let (first, fields) = split_line(rest).ok_or(HeadersError::End)?;
        let status = parse_status(first)?;
        let mut rest = fields;
        loop {
            let (line, tail) = split_line(rest).ok_or(HeadersError::End)?;
            if line.is_empty() {
                let fields = &fields[..fields.len() - rest.len()];
                return if tail.is_empty() {
                    Ok(Self { status, fields })
                } else {
                    Err(HeadersError::End)
                };
            }
            split_field(line).ok_or(HeadersError::Field)?;
            rest = tail;
        }
    }

    /// Return the status, if the first line has one.
    #[must_use]
    pub const fn status(&self) -> Option<Status<'a>> {
        self.status
    }

    /// Return names and values in order, with case and repetitions preserved; values without
    /// surrounding blanks.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut rest = self.fields;
        std::iter::from_fn(move || {
            let (line, tail) = split_line(rest)?;
            rest = tail;
            split_field(line)
        })
    }

    /// Return the first value of the field called exactly `name`; letter case counts (ADR-4).
    #[must_use]
    pub fn value(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.iter()
            .find_map(|(found, value)| (found == name).then_some(value))
    }
}

/// Return the first line without its end, and the bytes after it.
fn split_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr(b'\n', bytes)?;
    let line = &bytes[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), &bytes[end + 1..]))
}

/// Parse the first line after the version.
fn parse_status(line: &[u8]) -> Result<Option<Status<'_>>, HeadersError> {
    let text = line.trim_ascii();
    if text.is_empty() {
        return Ok(None);
    }
    match text {
        [a @ b'0'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', rest @ ..]
            if line.starts_with(b" ") && rest.first().is_none_or(u8::is_ascii_whitespace) =>
        {
            let [a, b, c] = [a, b, c].map(|digit| u16::from(digit - b'0'));
            Ok(Some(Status {
                code: a * 100 + b * 10 + c,
                description: rest.trim_ascii(),
            }))
        }
        _ => Err(HeadersError::Status),
    }
}

/// Name and value of a field's line.
fn split_field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = memchr::memchr(b':', line)?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    is_name(name).then(|| (name, value.trim_ascii()))
}

/// Return a name is visible ASCII or UTF-8 without blanks, controls and colons.
fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && !name.iter().any(|&b| b <= b' ' || b == b':' || b == 0x7f)
}

/// Append a header block to `out` and return its length in bytes.
///
/// # Errors
///
/// [`HeadersError::Status`] or [`HeadersError::Field`] for text that would change the block's
/// structure; `out` is then unchanged.
pub fn encode_headers<'h>(
    out: &mut Vec<u8>,
    status: Option<Status<'_>>,
    fields: impl IntoIterator<Item = (&'h [u8], &'h [u8])>,
) -> Result<usize, HeadersError> {
    let start = out.len();
    let written = append_status(out, status).and_then(|()| {
        fields
            .into_iter()
            .try_for_each(|(name, value)| append_field(out, name, value))
    });
    if let Err(error) = written {
        out.truncate(start);
        return Err(error);
    }
    out.extend_from_slice(CRLF);
    Ok(out.len() - start)
}

fn append_status(out: &mut Vec<u8>, status: Option<Status<'_>>) -> Result<(), HeadersError> {
    out.extend_from_slice(VERSION);
    if let Some(Status { code, description }) = status {
        if code > 999 || has_line_end(description) {
            return Err(HeadersError::Status);
        }
        out.push(b' ');
        // Each is a single digit.
        out.extend([code / 100, code / 10 % 10, code % 10].map(|digit| b'0' + digit as u8));
        if !description.is_empty() {
            out.push(b' ');
            out.extend_from_slice(description);
        }
    }
    out.extend_from_slice(CRLF);
    Ok(())
}

fn append_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) -> Result<(), HeadersError> {
    if !is_name(name) || has_line_end(value) {
        return Err(HeadersError::Field);
    }
    for part in [name, b": ", value, CRLF] {
        out.extend_from_slice(part);
    }
    Ok(())
}

fn has_line_end(text: &[u8]) -> bool {
    memchr::memchr2(b'\r', b'\n', text).is_some()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn fields_keep_case_order_and_repeats() {
        let block = b"NATS/1.0\r\nA: 1\r\na:2\r\nA:  three \r\nEmpty:\r\nUrl: x:y\r\n\r\n";
        let headers = Headers::parse(block).unwrap();
        assert_eq!(headers.status(), None);
        let fields: Vec<_> = headers.iter().collect();
        let expected: [(&[u8], &[u8]); 5] = [
            (b"A", b"1"),
            (b"a", b"2"),
            (b"A", b"three"),
            (b"Empty", b""),
            (b"Url", b"x:y"),
        ];
        assert_eq!(fields, expected);
        assert_eq!(headers.value(b"A"), Some(&b"1"[..]));
        assert_eq!(headers.value(b"EMPTY"), None);
    }

    #[test]
    fn statuses() {
        let status = |block: &'static [u8]| Headers::parse(block).unwrap().status();
        let no_responders = b"NATS/1.0 503\r\nNats-Subject: a.b\r\n\r\n";
        assert_eq!(
            status(no_responders),
            Some(Status {
                code: 503,
                description: b""
            })
        );
        assert_eq!(
            Headers::parse(no_responders)
                .unwrap()
                .value(b"Nats-Subject"),
            Some(&b"a.b"[..])
        );
        assert_eq!(
            status(b"NATS/1.0 100 Idle Heartbeat\r\n\r\n"),
            Some(Status {
                code: 100,
                description: b"Idle Heartbeat"
            })
        );
        assert_eq!(status(b"NATS/1.0 \r\n\r\n"), None);
        assert_eq!(status(b"NATS/1.0\n\n"), None);
    }

    #[test]
    fn bad_blocks_say_what_is_wrong() {
        for (block, error) in [
            (&b""[..], HeadersError::Version),
            (b"HTTP/1.1\r\n\r\n", HeadersError::Version),
            (b"NATS/1.0", HeadersError::End),
            (b"NATS/1.0\r\n", HeadersError::End),
            (b"NATS/1.0\r\nA: b\r\n", HeadersError::End),
            (b"NATS/1.0\r\n\r\nx", HeadersError::End),
            (b"NATS/1.1\r\n\r\n", HeadersError::Version),
            (b"NATS/1.0503\r\n\r\n", HeadersError::Status),
            (b"NATS/1.0 50\r\n\r\n", HeadersError::Status),
            (b"NATS/1.0 5033\r\n\r\n", HeadersError::Status),
            (b"NATS/1.0 abc\r\n\r\n", HeadersError::Status),
            (b"NATS/1.0\r\nno colon\r\n\r\n", HeadersError::Field),
            (b"NATS/1.0\r\n: x\r\n\r\n", HeadersError::Field),
            (b"NATS/1.0\r\nA : x\r\n\r\n", HeadersError::Field),
        ] {
            assert_eq!(
                Headers::parse(block),
                Err(error),
                "{}",
                block.escape_ascii()
            );
        }
    }

    #[test]
    fn written_blocks_read_the_same() {
        let status = Some(Status {
            code: 99,
            description: b"Some Text",
        });
        let fields: [(&[u8], &[u8]); 2] = [(b"Name", b"a value"), (b"x", b"")];
        let mut out = b"before".to_vec();
        let len = encode_headers(&mut out, status, fields).unwrap();
        let block = &out[6..];
        assert_eq!(block.len(), len);
        assert_eq!(
            block,
            b"NATS/1.0 099 Some Text\r\nName: a value\r\nx: \r\n\r\n"
        );
        let headers = Headers::parse(block).unwrap();
        assert_eq!(headers.status(), status);
        assert_eq!(headers.iter().collect::<Vec<_>>(), fields);
    }

    #[test]
    fn what_would_break_the_block_is_not_written() {
        let bad: [(&[u8], &[u8]); 6] = [
            (b"", b"v"),
            (b"a b", b"v"),
            (b"a:b", b"v"),
            (b"a\r\nb", b"v"),
            (b"a", b"v\r\nInjected: x"),
            (b"a", b"v\n"),
        ];
        for field in bad {
            let mut out = b"before".to_vec();
            assert_eq!(
                encode_headers(&mut out, None, [field]),
                Err(HeadersError::Field)
            );
            assert_eq!(out, b"before");
        }
        for (code, description) in [(1000, &b""[..]), (503, b"x\r\n")] {
            let status = Some(Status { code, description });
            let mut out = Vec::new();
            assert_eq!(
                encode_headers(&mut out, status, []),
                Err(HeadersError::Status)
            );
            assert!(out.is_empty());
        }
    }
}
