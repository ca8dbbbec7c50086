//! Parts of a request's target: percent-encoding and the parameters of a query.

use super::HttpError;

const INVALID: HttpError = HttpError::Malformed("invalid percent-encoding");

/// Appends `text` with its percent-encoded bytes decoded (RFC 3986 section 2.1), whatever they
/// are; a `+` stays a `+`.
///
/// # Errors
/// [`HttpError::Malformed`] where two hexadecimal digits do not follow a `%`; `out` then ends with
/// what came before it.
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

/// The value, still percent-encoded, of the parameter `name` in a query of the form `a=b&c=d`;
/// empty where the parameter has no `=`. Names are compared as they are when decoded.
///
/// # Errors
/// [`HttpError::DuplicateParameter`] where the parameter stands more than once, and
/// [`HttpError::Malformed`] for a parameter's name with invalid percent-encoding.
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

/// Whether `text` is `name` when decoded.
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

/// The byte that the two digits at the start of `text` stand for, and what follows them.
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
