//! Responses of servers, and their heads as a client parses them.

use std::mem::MaybeUninit;

use httparse::Status;

use super::{HeadLimits, Headers, HttpError, MAX_HEADERS, Version, fields, no_head, syntax_error};

/// A response's head: a view of the buffer that it was parsed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHead<'a> {
    /// The version of the protocol.
    pub version: Version,
    /// The status code, 100 to 999.
    pub status: u16,
    /// The header fields.
    pub headers: Headers<'a>,
}

/// Parse the response head at the start of `buf`; return it with its length in bytes, or `None`
/// when more bytes are needed. What follows the head in `buf` is left alone.
///
/// # Errors
/// [`HttpError`], as soon as the bytes that show it are there; close the connection.
pub fn parse_response_head(
    buf: &[u8],
    limits: HeadLimits,
) -> Result<Option<(ResponseHead<'_>, usize)>, HttpError> {
    let view = buf.get(..limits.max_bytes).unwrap_or(buf);
    let mut fields = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let max_headers = limits.max_headers.min(MAX_HEADERS);
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        view,
        &mut fields[..max_headers],
    );
    let refusal = match parsed {
        Ok(Status::Complete(len)) => return whole_head(&response, &view[..len]).map(Some),
        Ok(Status::Partial) => None,
        Err(error) => Some(syntax_error(error)),
    };
    no_head(view, limits, refusal, HttpError::HeadTooLarge)
}

/// Return the response with the head `bytes`, and its length.
fn whole_head<'a>(
    response: &httparse::Response<'_, 'a>,
    bytes: &'a [u8],
) -> Result<(ResponseHead<'a>, usize), HttpError> {
    let version = match response.version {
        Some(1) => Version::Http11,
        _ => Version::Http10,
    };
    let status = response
        .code
        .filter(|code| *code >= 100)
        .ok_or(HttpError::Malformed("invalid status line"))?;
    let head = ResponseHead {
        version,
        status,
        headers: fields(bytes)?,
    };
    Ok((head, bytes.len()))
}

/// Append an HTTP/1.1 response with a `Content-Length`, and with `Connection: close` unless
/// `keep_alive`.
///
/// `head_only` leaves the body out but not its length, as HEAD asks. A status that has no body
/// (1xx, 204, 304) gets neither. CR, LF and NUL in `headers` are sent as blanks, so that no value
/// can smuggle in another line (RFC 9110 section 5.5).
pub fn encode_response<'h>(
    out: &mut Vec<u8>,
    status: u16,
    headers: impl IntoIterator<Item = (&'h str, &'h str)>,
    body: &[u8],
    keep_alive: bool,
    head_only: bool,
) {
    encode_head(out, status, headers);
    encode_rest(out, status, body, keep_alive, head_only);
}

/// Append the part of a response after the given fields, as [`encode_response`] does. For many
/// responses with equal beginnings, which are encoded once with [`encode_head`].
pub fn encode_rest(out: &mut Vec<u8>, status: u16, body: &[u8], keep_alive: bool, head_only: bool) {
    if !keep_alive {
        out.extend_from_slice(b"Connection: close\r\n");
    }
    if matches!(status, 100..=199 | 204 | 304) {
        out.extend_from_slice(b"\r\n");
        return;
    }
    out.extend_from_slice(b"Content-Length: ");
    encode_decimal(out, body.len());
    out.extend_from_slice(b"\r\n\r\n");
    if !head_only {
        out.extend_from_slice(body);
    }
}

/// The interim response to a client that waits before it sends a body (RFC 9110 section 15.2.1).
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Append the head of a response whose body ends with the connection (RFC 9112 section 6.3).
pub fn encode_head_until_close<'h>(
    out: &mut Vec<u8>,
    status: u16,
    headers: impl IntoIterator<Item = (&'h str, &'h str)>,
) {
    encode_head(out, status, headers);
    out.extend_from_slice(b"Connection: close\r\n\r\n");
}

/// Append the head of a response in chunks: any number of [`encode_chunk`] follows, then
/// [`encode_last_chunk`]. Clients of HTTP/1.0 do not know chunks.
///
/// `headers` are sent as by [`encode_response`]; include `Connection: close` if the connection ends
/// with the response.
pub fn encode_head_chunked<'h>(
    out: &mut Vec<u8>,
    status: u16,
    headers: impl IntoIterator<Item = (&'h str, &'h str)>,
) {
    encode_head(out, status, headers);
    out.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
}

/// Append a chunk (RFC 9112 section 7.1); nothing for empty `data`, which would end the body.
pub fn encode_chunk(out: &mut Vec<u8>, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    encode_number::<16>(out, data.len());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

/// Append the end of a chunked body.
pub fn encode_last_chunk(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n\r\n");
}

/// Append the status line and `headers`, sent as by [`encode_response`], without the empty line
/// that ends a head.
pub fn encode_head<'h>(
    out: &mut Vec<u8>,
    status: u16,
    headers: impl IntoIterator<Item = (&'h str, &'h str)>,
) {
    out.extend_from_slice(b"HTTP/1.1 ");
    encode_decimal(out, status.into());
    out.push(b' ');
    out.extend_from_slice(reason_phrase(status).as_bytes());
    out.extend_from_slice(b"\r\n");
    encode_fields(out, headers);
}

/// Append field lines.
pub(crate) fn encode_fields<'h>(
    out: &mut Vec<u8>,
    headers: impl IntoIterator<Item = (&'h str, &'h str)>,
) {
    for (name, value) in headers {
        encode_text(out, name);
        out.extend_from_slice(b": ");
        encode_text(out, value);
        out.extend_from_slice(b"\r\n");
    }
}

/// Return the standard reason phrase of a status (RFC 9110 section 15, RFC 6585), or an empty one,
/// which is allowed.
#[must_use]
pub const fn reason_phrase(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        411 => "Length Required",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}

/// Append `text` with CR, LF and NUL replaced by blanks.
pub(super) fn encode_text(out: &mut Vec<u8>, text: &str) {
    let start = out.len();
    out.extend_from_slice(text.as_bytes());
    for byte in &mut out[start..] {
        if matches!(byte, b'\r' | b'\n' | 0) {
            *byte = b' ';
        }
    }
}

pub(super) fn encode_decimal(out: &mut Vec<u8>, number: usize) {
    encode_number::<10>(out, number);
}

/// Append `number` to the base `BASE`, at most 16.
fn encode_number<const BASE: usize>(out: &mut Vec<u8>, mut number: usize) {
    let start = out.len();
    loop {
        out.push(b"0123456789abcdef"[number % BASE]);
        number /= BASE;
        if number == 0 {
            break;
        }
    }
    out[start..].reverse();
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn encoded(status: u16, body: &[u8], keep_alive: bool, head_only: bool) -> String {
        let mut out = Vec::new();
        let headers = [("Content-Type", "text/plain")];
        encode_response(&mut out, status, headers, body, keep_alive, head_only);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn responses() {
        assert_eq!(
            encoded(200, b"x", true, false),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1\r\n\r\nx"
        );
        assert_eq!(
            encoded(503, &[b'x'; 1230], false, true),
            "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\n\
             Connection: close\r\nContent-Length: 1230\r\n\r\n"
        );
        assert_eq!(
            encoded(204, b"never", true, false),
            "HTTP/1.1 204 No Content\r\nContent-Type: text/plain\r\n\r\n"
        );
        assert!(encoded(299, b"", true, false).starts_with("HTTP/1.1 299 \r\n"));
    }

    #[test]
    fn responses_in_chunks() {
        let mut out = b"kept".to_vec();
        encode_head_chunked(&mut out, 200, [("X", "a\nb")]);
        encode_chunk(&mut out, b"");
        encode_chunk(&mut out, b"x");
        encode_chunk(&mut out, &[b'y'; 0x1a0]);
        encode_last_chunk(&mut out);
        let want = "keptHTTP/1.1 200 OK\r\nX: a b\r\nTransfer-Encoding: chunked\r\n\r\n\
            1\r\nx\r\n1a0\r\n";
        let want = format!("{want}{}\r\n0\r\n\r\n", "y".repeat(0x1a0));
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }

    #[test]
    fn the_interim_response() {
        let parsed = parse_response_head(CONTINUE, HeadLimits::default()).unwrap();
        let (head, len) = parsed.unwrap();
        assert_eq!((head.status, len), (100, CONTINUE.len()));
        assert_eq!(head.headers.iter().count(), 0);
    }

    #[test]
    fn a_value_cannot_add_a_line() {
        let mut out = Vec::new();
        let headers = [("X", "a\r\nSet-Cookie: b\0"), ("Y\r\nZ", "c")];
        encode_response(&mut out, 200, headers, b"", true, false);
        assert!(out.starts_with(
            b"HTTP/1.1 200 OK\r\nX: a  Set-Cookie: b \r\nY  Z: c\r\nContent-Length: 0\r\n\r\n"
        ));
    }

    #[test]
    fn what_is_encoded_parses_whole_and_byte_by_byte() {
        let response = encoded(404, b"nothing\n", false, false);
        let head_len = response.len() - 8;
        let limits = HeadLimits::default();
        for n in 0..head_len {
            let prefix = &response.as_bytes()[..n];
            assert_eq!(parse_response_head(prefix, limits), Ok(None), "{n}");
        }
        let parsed = parse_response_head(response.as_bytes(), limits);
        let (head, len) = parsed.unwrap().unwrap();
        assert_eq!((head.status, len), (404, head_len));
        assert_eq!(head.version, Version::Http11);
        assert_eq!(
            head.headers.value("content-length"),
            Ok(Some(b"8".as_slice()))
        );
        assert!(head.headers.has_token("connection", "close"));
    }

    #[test]
    fn heads_that_are_refused() {
        let limits = HeadLimits {
            max_bytes: 64,
            max_headers: 2,
        };
        let cases: [(&[u8], HttpError); 8] = [
            (
                b"HTTP/1.1 200 OK\nA: b\r\n\r\n",
                HttpError::Malformed("line ends without CR"),
            ),
            (
                b"HTTP/1.1 20 OK\r\n\r\n",
                HttpError::Malformed("invalid status line"),
            ),
            (
                b"HTTP/1.1 099 OK\r\n\r\n",
                HttpError::Malformed("invalid status line"),
            ),
            (b"HTTP/2.0 200 OK\r\n\r\n", HttpError::Version),
            (b"-ERR 'no'\r\n", HttpError::Version),
            (
                b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
                HttpError::Malformed("invalid header name"),
            ),
            (
                b"HTTP/1.1 200 OK\r\nA:\r\nA:\r\nA:\r\n\r\n",
                HttpError::TooManyHeaders,
            ),
            (
                &[b"HTTP/1.1 200 ".as_slice(), &[b'x'; 64]].concat(),
                HttpError::HeadTooLarge,
            ),
        ];
        for (bytes, want) in cases {
            assert_eq!(parse_response_head(bytes, limits), Err(want));
        }
    }
}
