//! Parts of a request's target: authority, percent-encoding and the parameters of a query.

use super::HttpError;

const INVALID: HttpError = HttpError::Malformed("invalid percent-encoding");

/// Append `text` with its percent-encoded bytes decoded (RFC 3986 section 2.1); a `+` stays a `+`.
///
/// # Errors
/// [`HttpError::Malformed`] if a `%` is not followed by two hexadecimal digits; `out` then ends
/// with the text before it.
pub fn decode_percent(text: &str, out: &mut Vec<u8>) -> Result<(), HttpError> {
    let mut rest = text.as_bytes();
    while let Some(percent) = memchr::memchr(b'%', rest) {
        out.extend_from_slice(&rest[..percent]);
        let byte;
        (byte, rest) = split_encoded(&rest[percent + 1..])?;
        out.push(byte);
    }
    out.extend_from_slice(rest);
    Ok(())
}

/// Split an authority into its host, an IPv6 address with its brackets, and its port (RFC 3986
/// section 3.2). An empty port counts as absent. `None` if the text behind the host is not a port.
#[must_use]
pub fn split_authority(authority: &[u8]) -> Option<(&[u8], Option<u16>)> {
    let host_end = match authority {
        [b'[', rest @ ..] => memchr::memchr(b']', rest)? + 2,
        _ => memchr::memchr(b':', authority).unwrap_or(authority.len()),
    };
    let (host, rest) = authority.split_at(host_end);
    match rest {
        [] | [b':'] => Some((host, None)),
        [b':', digits @ ..] if digits.iter().all(u8::is_ascii_digit) => {
            let port = std::str::from_utf8(digits).ok()?.parse().ok()?;
            Some((host, Some(port)))
        }
        _ => None,
    }
}

/// Return the value, still percent-encoded, of the parameter `name` in a query of the form
/// `a=b&c=d`; empty if the parameter has no `=`. Names are compared in decoded form.
///
/// # Errors
/// [`HttpError::DuplicateParameter`] if the parameter is repeated, and [`HttpError::Malformed`] for
/// a parameter's name with invalid percent-encoding.
pub fn query_value<'a>(query: Option<&'a str>, name: &str) -> Result<Option<&'a str>, HttpError> {
    let mut found = None;
    for parameter in query.unwrap_or_default().split('&') {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        if is_encoded(key.as_bytes(), name.as_bytes())? && found.replace(value).is_some() {
            return Err(HttpError::DuplicateParameter);
        }
    }
    Ok(found)
}

/// Return whether `text` is `name` when decoded.
fn is_encoded(mut text: &[u8], name: &[u8]) -> Result<bool, HttpError> {
    let mut name = name.iter();
    let mut same = true;
    while let Some((&first, after)) = text.split_first() {
        let byte;
        (byte, text) = match first {
            b'%' => split_encoded(after)?,
            _ => (first, after),
        };
        same &= name.next() == Some(&byte);
    }
    Ok(same && name.next().is_none())
}

/// Return the byte of the two digits at the start of `text`, and the rest of `text`.
fn split_encoded(text: &[u8]) -> Result<(u8, &[u8]), HttpError> {
    let Some((&[high, low], rest)) = text.split_first_chunk() else {
        return Err(INVALID);
    };
    match (hex_digit(high), hex_digit(low)) {
        (Some(high), Some(low)) => Ok((high << 4 | low, rest)),
        _ => Err(INVALID),
    }
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn decoding() {
        let cases: [(&str, &[u8]); 8] = [
            ("", b""),
            ("a.b", b"a.b"),
            ("a%2Eb%2fc", b"a.b/c"),
            ("%00%fF%25", b"\0\xff%"),
            ("a+b%2B", b"a+b+"),
            ("%2541", b"%41"),
            ("%C3%A9", "\u{e9}".as_bytes()),
            ("\u{e9}%20", "\u{e9} ".as_bytes()),
        ];
        for (text, want) in cases {
            let mut out = b"kept ".to_vec();
            decode_percent(text, &mut out).unwrap();
            assert_eq!(out, [b"kept ", want].concat(), "{text}");
        }
        for text in [
            "%", "a%", "%4", "a%4", "%4g", "%g4", "%%41", "% 41", "%+1", "%\u{e9}",
        ] {
            let mut out = Vec::new();
            assert_eq!(decode_percent(text, &mut out), Err(INVALID), "{text}");
        }
        assert_eq!(INVALID.status(), 400);
    }

    #[test]
    fn authorities() {
        let cases = [
            ("", "", None),
            (":80", "", Some(80)),
            ("a", "a", None),
            ("a:", "a", None),
            ("a.example:65535", "a.example", Some(65535)),
            ("127.0.0.1:0080", "127.0.0.1", Some(80)),
            ("[::1]", "[::1]", None),
            ("[::1]:8080", "[::1]", Some(8080)),
        ];
        for (authority, host, port) in cases {
            let want = Some((host.as_bytes(), port));
            assert_eq!(split_authority(authority.as_bytes()), want, "{authority}");
        }
        for authority in [
            "a:65536", "a:-1", "a:+1", "a:b", "a:1:2", "::1", "[::1", "[::1]x",
        ] {
            assert_eq!(split_authority(authority.as_bytes()), None, "{authority}");
        }
    }

    #[test]
    fn parameters() {
        let cases = [
            (None, None),
            (Some(""), None),
            (Some("timeout=5"), Some("5")),
            (Some("timeout"), Some("")),
            (Some("timeout="), Some("")),
            (Some("timeout=a%20b=c+d?e"), Some("a%20b=c+d?e")),
            (Some("&a=b&&timeout=5&"), Some("5")),
            (Some("time%6Fut=5"), Some("5")),
            (Some("Timeout=5&timeouts=5&timeou=5&=timeout"), None),
            (Some("timeout%3D=5"), None),
            (Some("a=%zz"), None),
        ];
        for (query, want) in cases {
            assert_eq!(query_value(query, "timeout"), Ok(want), "{query:?}");
        }
        for query in [
            "timeout=5&timeout=5",
            "timeout&a&timeout=",
            "timeout=1&%74imeout=2",
        ] {
            let error = query_value(Some(query), "timeout").unwrap_err();
            assert_eq!(error, HttpError::DuplicateParameter, "{query}");
            assert_eq!(error.status(), 400);
        }
        for query in ["%=5", "a&%4=5", "%zz", "timeout%"] {
            assert_eq!(query_value(Some(query), "timeout"), Err(INVALID), "{query}");
        }
    }
}
