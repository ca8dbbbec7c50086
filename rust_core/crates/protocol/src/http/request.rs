//! Heads of requests.

use std::mem::MaybeUninit;

use httparse::Status;

use super::response::{encode_decimal, encode_text};
use super::{
    Control, HeadLimits, Headers, HttpError, MAX_HEADERS, Version, encode_fields, fields, no_head,
    syntax_error,
};

/// A request's head: a view of the buffer that it was parsed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHead<'a> {
    /// The method, case-sensitive.
    pub method: &'a str,
    /// The request target as sent: visible ASCII in origin form (`/path?query`), absolute form
    /// (`http://host/path?query`) or asterisk form (`*`).
    pub target: &'a str,
    /// The version of the protocol.
    pub version: Version,
    /// The header fields.
    pub headers: Headers<'a>,
    path: &'a str,
    query: Option<&'a str>,
    authority: &'a [u8],
    /// Result for [`RequestHead::control`], read while the fields are parsed one by one.
    control: Result<Control, HttpError>,
}

impl<'a> RequestHead<'a> {
    /// Return the target's path, still percent-encoded, without authority and query.
    #[must_use]
    pub const fn path(&self) -> &'a str {
        self.path
    }

    /// Return the target's query after the `?`, still percent-encoded.
    #[must_use]
    pub const fn query(&self) -> Option<&'a str> {
        self.query
    }

    /// Return the host and port of the request: those of a target in absolute form, or else the
    /// `Host` field's (RFC 9112 section 3.2.2). Empty if both are absent.
    #[must_use]
    pub const fn authority(&self) -> &'a [u8] {
        self.authority
    }

    /// Return the facts that a server needs before it reads the body. Refused are fields that two
    /// parsers could read differently: `Content-Length` beside `Transfer-Encoding`, either of them or
    /// `Host` twice, a length that is not 1 to 19 digits, a coding other than `chunked`, `chunked` in
    /// HTTP/1.0, and HTTP/1.1 without `Host`.
    ///
    /// # Errors
    /// Status 417 for an unknown expectation, 431 for too many connection options, 501 for an unknown
    /// coding, otherwise 400. Answer with the status and close: the end of the request is unknown.
    pub const fn control(&self) -> Result<Control, HttpError> {
        self.control
    }
}

/// Parse the request head at the start of `buf`; return it with its length in bytes, or `None` if
/// more bytes are needed. Bytes after the head, such as a body, are ignored.
///
/// Stricter than RFC 9112, bare LF as a line end is refused, as are targets that are not ASCII or
/// have none of the forms of [`RequestHead::target`].
///
/// # Errors
/// [`HttpError`], as soon as the faulty bytes are there; answer with its status and close.
pub fn parse_head(
    buf: &[u8],
    limits: HeadLimits,
) -> Result<Option<(RequestHead<'_>, usize)>, HttpError> {
    let view = buf.get(..limits.max_bytes).unwrap_or(buf);
    let mut fields = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let max_headers = limits.max_headers.min(MAX_HEADERS);
    let mut request = httparse::Request::new(&mut []);
    let refusal = match request.parse_with_uninit_headers(view, &mut fields[..max_headers]) {
        Ok(Status::Complete(len)) => return whole_head(&request, &view[..len]).map(Some),
        Ok(Status::Partial) => None,
        Err(httparse::Error::Version) => Some(version_error(view)),
        Err(error) => Some(syntax_error(error)),
    };
    no_head(view, limits, refusal, HttpError::TargetTooLong)
}

/// Return the request with the head `bytes`, and its length.
#[inline]
fn whole_head<'a>(
    request: &httparse::Request<'_, 'a>,
    bytes: &'a [u8],
) -> Result<(RequestHead<'a>, usize), HttpError> {
    let (Some(method), Some(target)) = (request.method, request.path) else {
        return Err(HttpError::Malformed("invalid request line"));
    };
    if !target.is_ascii()
        || !(target.starts_with('/') || target == "*" || absolute_form(target).is_some())
    {
        return Err(HttpError::Malformed("invalid request target"));
    }
    let version = match request.version {
        Some(1) => Version::Http11,
        _ => Version::Http10,
    };
    let (path, query) = split_target(target);
    let mut host = None;
    let control = Control::read(version, &*request.headers, &mut host);
    if !target.starts_with('/') {
        host = target_authority(target).or(host);
    }
    let head = RequestHead {
        path,
        query,
        authority: host.unwrap_or_default(),
        method,
        target,
        version,
        headers: fields(bytes)?,
        control,
    };
    Ok((head, bytes.len()))
}

/// Return the path and the query of a target.
fn split_target(target: &str) -> (&str, Option<&str>) {
    let path_and_query = if target.starts_with('/') {
        target
    } else if let Some(after_scheme) = absolute_form(target) {
        let start = after_scheme.find(['/', '?']);
        start.map_or("/", |start| &after_scheme[start..])
    } else {
        target
    };
    match memchr::memchr(b'?', path_and_query.as_bytes()) {
        Some(mark) => (&path_and_query[..mark], Some(&path_and_query[mark + 1..])),
        None => (path_and_query, None),
    }
}

/// Return the authority of a target in absolute form. Proxies send that form, and hardly any
/// client.
#[cold]
fn target_authority(target: &str) -> Option<&[u8]> {
    let authority = absolute_form(target)?.split(['/', '?']).next()?;
    Some(authority.as_bytes())
}

/// Append an HTTP/1.1 request, with a `Content-Length` if there is a `body`, even an empty one.
/// `headers` must name the `Host`.
///
/// Bytes of `target` that are not visible ASCII are percent-encoded. CR, LF and NUL in `method` and
/// `headers` are sent as blanks, so that no value can smuggle in another line.
pub fn encode_request(
    out: &mut Vec<u8>,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: Option<&[u8]>,
) {
    encode_text(out, method);
    out.push(b' ');
    encode_target(out, target);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    encode_fields(out, headers.iter().copied());
    if let Some(body) = body {
        out.extend_from_slice(b"Content-Length: ");
        encode_decimal(out, body.len());
        out.extend_from_slice(b"\r\n\r\n");
        out.extend_from_slice(body);
    } else {
        out.extend_from_slice(b"\r\n");
    }
}

fn encode_target(out: &mut Vec<u8>, target: &str) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in target.bytes() {
        match byte {
            b'!'..=b'~' => out.push(byte),
            _ => out.extend([
                b'%',
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ]),
        }
    }
}

/// Return the text after `http://` or `https://`.
fn absolute_form(target: &str) -> Option<&str> {
    let (scheme, rest) = target.split_once("://")?;
    let known = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    known.then_some(rest)
}

/// Return a request line that ends in something other than HTTP/1.0 or HTTP/1.1: another version of
/// HTTP, or no HTTP at all.
fn version_error(view: &[u8]) -> HttpError {
    let mut words = view.trim_ascii_start().split(|b| *b == b' ');
    match words.nth(2) {
        Some(word) if word.starts_with(b"HTTP/") => HttpError::Version,
        _ => HttpError::Malformed("invalid request line"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const LIMITS: HeadLimits = HeadLimits {
        max_bytes: 256,
        max_headers: 4,
    };

    fn parsed(bytes: &[u8]) -> (RequestHead<'_>, usize) {
        parse_head(bytes, LIMITS).unwrap().unwrap()
    }

    /// Return the error of `bytes` given whole; given byte by byte the status must be the same.
    fn refused(bytes: &[u8]) -> HttpError {
        let whole = parse_head(bytes, LIMITS).unwrap_err();
        let mut prefixes = (0..=bytes.len()).map(|n| parse_head(&bytes[..n], LIMITS));
        let early = prefixes.find_map(Result::err).unwrap();
        assert_eq!(early.status(), whole.status(), "{}", bytes.escape_ascii());
        whole
    }

    #[test]
    fn a_head_whole_byte_by_byte_and_with_a_tail() {
        let bytes = b"\r\nPOST /v1/request/a%2Eb?x=1?2 HTTP/1.1\r\nHost: a:1\r\nX-Empty:\r\n\
            Connection: keep-alive , Upgrade\r\nconnection:\tTE \r\n\r\n";
        for n in 0..bytes.len() {
            assert_eq!(parse_head(&bytes[..n], LIMITS), Ok(None), "{n}");
        }
        let (head, len) = parsed(bytes);
        assert_eq!(len, bytes.len());
        let with_tail = [bytes.as_slice(), b"{body}\n\0"].concat();
        assert_eq!(parsed(&with_tail), (head, len));

        assert_eq!(head.method, "POST");
        assert_eq!(head.path(), "/v1/request/a%2Eb");
        assert_eq!(head.query(), Some("x=1?2"));
        assert_eq!(head.version, Version::Http11);
        let headers = head.headers;
        assert_eq!(headers.value("host"), Ok(Some(b"a:1".as_slice())));
        assert_eq!(headers.value("x-empty"), Ok(Some(b"".as_slice())));
        assert_eq!(headers.value("absent"), Ok(None));
        assert_eq!(headers.value("connection"), Err(HttpError::DuplicateHeader));
        assert_eq!((headers.count("CONNECTION"), headers.count("hos")), (2, 0));
        for token in ["keep-alive", "upgrade", "te"] {
            assert!(headers.has_token("Connection", token), "{token}");
        }
        assert!(!headers.has_token("Connection", "keep"));
        assert!(!headers.has_token("Host", ""));
        assert_eq!(headers.iter().count(), 4);
        assert_eq!(
            format!("{:?}", parsed(b"GET / HTTP/1.1\r\nA: b\r\n\r\n").0.headers),
            r#"{"A": "b"}"#
        );
    }

    #[test]
    fn forms_of_the_target() {
        let cases = [
            ("/", "host:1", "/", None),
            ("/a?", "host:1", "/a", Some("")),
            ("/http://h/", "host:1", "/http://h/", None),
            ("*", "host:1", "*", None),
            ("http://h:80/p/q?r=/s", "h:80", "/p/q", Some("r=/s")),
            ("HTTPS://h?q", "h", "", Some("q")),
            ("http://h", "h", "/", None),
            ("http:///p", "", "/p", None),
        ];
        for (target, authority, path, query) in cases {
            let bytes = format!("GET {target} HTTP/1.1\r\nHost: host:1\r\n\r\n");
            let (head, _) = parsed(bytes.as_bytes());
            assert_eq!((head.path(), head.query()), (path, query), "{target}");
            assert_eq!(head.authority(), authority.as_bytes(), "{target}");
        }
        assert_eq!(parsed(b"GET / HTTP/1.0\r\n\r\n").0.authority(), b"");
        for target in ["a", "host:80", "ftp://h/", "/é", "?q", "://"] {
            let bytes = format!("GET {target} HTTP/1.1\r\n\r\n");
            assert_eq!(refused(bytes.as_bytes()).status(), 400, "{target}");
        }
    }

    #[test]
    fn keeping_the_connection() {
        let cases: [(&[u8], bool); 5] = [
            (b"GET / HTTP/1.1\r\nHost:\r\n\r\n", true),
            (
                b"GET / HTTP/1.1\r\nHost:\r\nConnection: Close\r\n\r\n",
                false,
            ),
            (
                b"GET / HTTP/1.1\r\nHost:\r\nConnection: x, close\r\n\r\n",
                false,
            ),
            (b"GET / HTTP/1.0\r\n\r\n", false),
            (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", false),
        ];
        for (bytes, want) in cases {
            assert_eq!(parsed(bytes).0.control().unwrap().keep_alive, want);
        }
    }

    #[test]
    fn malformed_heads() {
        let cases: [&[u8]; 24] = [
            b"GET / HTTP/1.1\nHost: a\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\n\n",
            b"\nGET / HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\r\n\r\n",
            b"GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n",
            b"GET / HTTP/1.1\r\nA: b\r\n\tfolded\r\n\r\n",
            b"GET / HTTP/1.1\r\n A: b\r\n\r\n",
            b"GET / HTTP/1.1\r\nA : b\r\n\r\n",
            b"GET / HTTP/1.1\r\nA\t: b\r\n\r\n",
            b"GET / HTTP/1.1\r\nA\r\n\r\n",
            b"GET / HTTP/1.1\r\n: b\r\n\r\n",
            b"GET / HTTP/1.1\r\nA\0: b\r\n\r\n",
            b"GET / HTTP/1.1\r\nA: b\0\r\n\r\n",
            b"GET / HTTP/1.1\r\nA: \x7f\r\n\r\n",
            b"GET /\0 HTTP/1.1\r\n\r\n",
            b"GET  / HTTP/1.1\r\n\r\n",
            b"GET /  HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1 \r\n\r\n",
            b"GET /\r\n\r\n",
            b" GET / HTTP/1.1\r\n\r\n",
            b"CONNECT {\"verbose\":false}\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        ];
        for bytes in cases {
            assert_eq!(refused(bytes).status(), 400, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn other_versions() {
        for version in ["HTTP/0.9", "HTTP/1.2", "HTTP/2.0", "HTTP/3"] {
            let bytes = format!("GET / {version}\r\n\r\n");
            assert_eq!(refused(bytes.as_bytes()), HttpError::Version);
            assert_eq!(refused(bytes.as_bytes()).status(), 505);
        }
        assert_eq!(refused(b"GET / SMTP/1.1\r\n\r\n").status(), 400);
        assert_eq!(refused(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").status(), 505);
        assert_eq!(refused(b"PRI * HTTP/2.0\r\n\r\n\n").status(), 505);
    }

    #[test]
    fn what_is_encoded_parses() {
        let encoded = |method, target, body| {
            let mut out = b"kept".to_vec();
            encode_request(
                &mut out,
                method,
                target,
                &[("Host", "a"), ("X", "b\r\nc")],
                body,
            );
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            encoded("GET", "/a?b", None),
            "keptGET /a?b HTTP/1.1\r\nHost: a\r\nX: b  c\r\n\r\n"
        );
        assert_eq!(
            encoded("POST", "/", Some(b"xyz".as_slice())),
            "keptPOST / HTTP/1.1\r\nHost: a\r\nX: b  c\r\nContent-Length: 3\r\n\r\nxyz"
        );
        assert!(encoded("POST", "/", Some(b"")).ends_with("\r\nContent-Length: 0\r\n\r\n"));
        let request = encoded("A\r\n", "/ \r\n\0\u{e9}%7f\u{7f}", None);
        assert!(request.starts_with("keptA   /%20%0D%0A%00%C3%A9%7f%7F HTTP/1.1\r\nHost"));
    }

    #[test]
    fn limits() {
        let with = |fields: &str| format!("GET / HTTP/1.1\r\n{fields}\r\n").into_bytes();
        let exact = with(&format!("A: {}\r\n", "x".repeat(256 - 23)));
        assert_eq!(parsed(&exact).1, 256);
        let over = with(&format!("A: {}\r\n", "x".repeat(257 - 23)));
        assert_eq!(refused(&over), HttpError::HeadTooLarge);
        assert_eq!(refused(&over).status(), 431);
        let target = [b"GET /", [b'a'; 300].as_slice()].concat();
        assert_eq!(refused(&target), HttpError::TargetTooLong);
        assert_eq!(refused(&target).status(), 414);
        assert_eq!(parsed(&with(&"A: b\r\n".repeat(4))).0.headers.count("a"), 4);
        let many = with(&"A: b\r\n".repeat(5));
        assert_eq!(refused(&many), HttpError::TooManyHeaders);
        assert_eq!(refused(&many).status(), 431);
        let generous = HeadLimits {
            max_headers: usize::MAX,
            ..HeadLimits::default()
        };
        let many = with(&"A: b\r\n".repeat(MAX_HEADERS + 1));
        assert_eq!(parse_head(&many, generous), Err(HttpError::TooManyHeaders));
        assert_eq!(refused(&[b'\r', b'\n'].repeat(200)).status(), 414);
    }
}
