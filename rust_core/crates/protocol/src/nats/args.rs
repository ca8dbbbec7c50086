//! The arguments of control lines.

use super::error::ParseError;

/// `HMSG` has the most: subject, sid, reply, header length, total length.
const MAX_FIELDS: usize = 5;

/// Sizes have at most nine digits in nats-server (`parseSize`), leading zeros counted.
const MAX_SIZE_DIGITS: usize = 9;

/// Return whether `byte` separates fields. A CR inside a line does, too, so that no field can hold
/// one.
#[inline]
pub(super) const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r')
}

/// Return `bytes` without leading and trailing blanks.
pub(super) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = bytes
        && is_blank(*first)
    {
        bytes = rest;
    }
    while let [rest @ .., last] = bytes
        && is_blank(*last)
    {
        bytes = rest;
    }
    bytes
}

/// The fields of one control line.
pub(super) struct Fields<'a> {
    list: [&'a [u8]; MAX_FIELDS],
    len: usize,
}

impl<'a> Fields<'a> {
    /// Split at runs of blanks; `None` if there are more fields than any operation has.
    #[inline]
    pub(super) fn split(args: &'a [u8]) -> Option<Self> {
        let mut list: [&[u8]; MAX_FIELDS] = [b""; MAX_FIELDS];
        let mut len = 0;
        let mut rest = args;
        while let Some(start) = rest.iter().position(|&b| !is_blank(b)) {
            rest = &rest[start..];
            let end = rest.iter().position(|&b| is_blank(b)).unwrap_or(rest.len());
            let (field, tail) = rest.split_at(end);
            *list.get_mut(len)? = field;
            len += 1;
            rest = tail;
        }
        Some(Self { list, len })
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[&'a [u8]] {
        &self.list[..self.len]
    }
}

/// Return a size or a count: one to nine digits and nothing else.
#[inline]
pub(super) fn parse_size(digits: &[u8]) -> Option<usize> {
    if !(1..=MAX_SIZE_DIGITS).contains(&digits.len()) {
        return None;
    }
    digits.iter().try_fold(0, |n, &digit| {
        let value = digit.wrapping_sub(b'0');
        // Nine digits cannot overflow.
        (value <= 9).then(|| n * 10 + usize::from(value))
    })
}

/// The arguments of an operation that carries a payload.
pub(super) struct Envelope<'a> {
    pub(super) subject: &'a [u8],
    /// Empty for `PUB` and `HPUB`.
    pub(super) sid: &'a [u8],
    pub(super) reply: Option<&'a [u8]>,
    /// Length of the header block, at most `total`; `None` for `PUB` and `MSG`.
    pub(super) header_len: Option<usize>,
    /// Length of header block and payload together, in bytes.
    pub(super) total: usize,
}

impl<'a> Envelope<'a> {
    /// Parse `PUB <subject> [reply] <size>`.
    #[inline]
    pub(super) fn parse_pub(args: &'a [u8]) -> Result<Self, ParseError> {
        let fields = Fields::split(args);
        let (subject, reply, size) = match fields.as_ref().map(Fields::as_slice) {
            Some(&[subject, size]) => (subject, None, size),
            Some(&[subject, reply, size]) => (subject, Some(reply), size),
            _ => return Err(ParseError::Malformed("PUB: wrong number of arguments")),
        };
        let total = parse_size(size).ok_or(ParseError::Malformed("PUB: bad size"))?;
        Ok(Self {
            subject,
            sid: b"",
            reply,
            header_len: None,
            total,
        })
    }

    /// Parse `HPUB <subject> [reply] <header length> <total length>`.
    #[inline]
    pub(super) fn parse_hpub(args: &'a [u8]) -> Result<Self, ParseError> {
        let fields = Fields::split(args);
        let (subject, reply, sizes) = match fields.as_ref().map(Fields::as_slice) {
            Some(&[subject, header, total]) => (subject, None, [header, total]),
            Some(&[subject, reply, header, total]) => (subject, Some(reply), [header, total]),
            _ => return Err(ParseError::Malformed("HPUB: wrong number of arguments")),
        };
        let (header_len, total) = parse_sizes(sizes, "HPUB: bad sizes")?;
        Ok(Self {
            subject,
            sid: b"",
            reply,
            header_len: Some(header_len),
            total,
        })
    }

    /// Parse `MSG <subject> <sid> [reply] <size>`.
    #[inline]
    pub(super) fn parse_msg(args: &'a [u8]) -> Result<Self, ParseError> {
        let fields = Fields::split(args);
        let (subject, sid, reply, size) = match fields.as_ref().map(Fields::as_slice) {
            Some(&[subject, sid, size]) => (subject, sid, None, size),
            Some(&[subject, sid, reply, size]) => (subject, sid, Some(reply), size),
            _ => return Err(ParseError::Malformed("MSG: wrong number of arguments")),
        };
        let total = parse_size(size).ok_or(ParseError::Malformed("MSG: bad size"))?;
        Ok(Self {
            subject,
            sid,
            reply,
            header_len: None,
            total,
        })
    }

    /// Parse `HMSG <subject> <sid> [reply] <header length> <total length>`.
    #[inline]
    pub(super) fn parse_hmsg(args: &'a [u8]) -> Result<Self, ParseError> {
        let fields = Fields::split(args);
        let (subject, sid, reply, sizes) = match fields.as_ref().map(Fields::as_slice) {
            Some(&[subject, sid, header, total]) => (subject, sid, None, [header, total]),
            Some(&[subject, sid, reply, header, total]) => {
                (subject, sid, Some(reply), [header, total])
            }
            _ => return Err(ParseError::Malformed("HMSG: wrong number of arguments")),
        };
        let (header_len, total) = parse_sizes(sizes, "HMSG: bad sizes")?;
        Ok(Self {
            subject,
            sid,
            reply,
            header_len: Some(header_len),
            total,
        })
    }
}

/// Header length and total length, of which the first is not the larger.
fn parse_sizes(
    [header, total]: [&[u8]; 2],
    bad: &'static str,
) -> Result<(usize, usize), ParseError> {
    match (parse_size(header), parse_size(total)) {
        (Some(header), Some(total)) if header <= total => Ok((header, total)),
        _ => Err(ParseError::Malformed(bad)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn fields_split_at_runs_of_blanks() {
        let fields = Fields::split(b" \ta  b\t\rc ").unwrap();
        assert_eq!(fields.as_slice(), [b"a", b"b", b"c"]);
        assert!(Fields::split(b"").unwrap().as_slice().is_empty());
        assert!(Fields::split(b"1 2 3 4 5").is_some());
        assert!(Fields::split(b"1 2 3 4 5 6").is_none());
    }

    #[test]
    fn sizes_are_digits_only() {
        assert_eq!(parse_size(b"0"), Some(0));
        assert_eq!(parse_size(b"000000012"), Some(12));
        assert_eq!(parse_size(b"999999999"), Some(999_999_999));
        for bad in [
            &b""[..],
            b"-1",
            b"+1",
            b"1a",
            b"0x1",
            b"1000000000",
            b"0000000001",
        ] {
            assert_eq!(parse_size(bad), None, "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn trim_takes_blanks_off_both_ends() {
        assert_eq!(trim(b" \t a b \r"), b"a b");
        assert_eq!(trim(b" \t"), b"");
    }
}
