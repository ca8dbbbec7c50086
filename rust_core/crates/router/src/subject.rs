//! Subjects: dot-separated tokens, matched byte for byte.
//!
//! `*` alone in a token matches one token; `>` alone in the last token matches one or more.
//! Inside a longer token (`foo*`, `f>`) both are ordinary text. Tokens need not be UTF-8.

use std::error::Error;
use std::fmt;

/// Separates the tokens of a subject.
pub const SEPARATOR: u8 = b'.';
/// The token that matches exactly one token.
pub const STAR: &[u8] = b"*";
/// The last token that matches one or more tokens.
pub const TAIL: &[u8] = b">";

/// The most tokens of a pattern with wildcards, a last `>` not counted.
pub const MAX_PATTERN_TOKENS: usize = 64;

/// Whether a subscription names one subject or many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No wildcard token: matches the subject equal to itself.
    Literal,
    /// At least one token is `*` or `>`.
    Wildcard,
}

/// Why a subject cannot be subscribed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvalidSubject {
    /// The subject is empty, begins or ends with a dot, or holds two dots in a row.
    EmptyToken,
    /// The subject holds SP, TAB, CR, LF, FF or NUL; the byte is the one found.
    ForbiddenByte(u8),
    /// A token follows `>`.
    TailNotLast,
    /// The subject has wildcards, and more than [`MAX_PATTERN_TOKENS`] tokens.
    TooManyTokens,
}

impl fmt::Display for InvalidSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyToken => f.write_str("subject has an empty token"),
            Self::ForbiddenByte(byte) => write!(f, "subject holds the byte {byte:#04x}"),
            Self::TailNotLast => f.write_str("a token follows '>'"),
            Self::TooManyTokens => write!(
                f,
                "subject has wildcards and more than {MAX_PATTERN_TOKENS} tokens"
            ),
        }
    }
}

impl Error for InvalidSubject {}

/// Checks a subscription's subject (the subject rules of the NATS protocol).
///
/// # Errors
/// [`InvalidSubject`] names the first token's fault.
pub fn validate_subscription(subject: &[u8]) -> Result<Kind, InvalidSubject> {
    let mut kind = Kind::Literal;
    let mut ended = false;
    let mut count = 0;
    for token in tokens(subject) {
        if token.is_empty() {
            return Err(InvalidSubject::EmptyToken);
        }
        if ended {
            return Err(InvalidSubject::TailNotLast);
        }
        if let Some(&byte) = token.iter().find(|&&byte| is_forbidden(byte)) {
            return Err(InvalidSubject::ForbiddenByte(byte));
        }
        ended = token == TAIL;
        count += usize::from(!ended);
        if ended || token == STAR {
            kind = Kind::Wildcard;
        }
    }
    if kind == Kind::Wildcard && count > MAX_PATTERN_TOKENS {
        return Err(InvalidSubject::TooManyTokens);
    }
    Ok(kind)
}

/// Whether a pedantic client may publish to `subject`: valid, and without wildcard tokens.
#[must_use]
pub fn is_valid_publish(subject: &[u8]) -> bool {
    validate_subscription(subject) == Ok(Kind::Literal)
}

/// The tokens of `subject`, the empty ones too: n dots give n + 1 tokens.
pub fn tokens(subject: &[u8]) -> impl Iterator<Item = &[u8]> {
    subject.split(|&byte| byte == SEPARATOR)
}

/// Whether a subscription to `pattern` gets what is published to `subject`.
#[must_use]
pub fn matches(pattern: &[u8], subject: &[u8]) -> bool {
    let mut published = tokens(subject);
    let mut subscribed = tokens(pattern).peekable();
    while let Some(token) = subscribed.next() {
        let Some(one) = published.next() else {
            return false;
        };
        if token == TAIL && subscribed.peek().is_none() {
            break;
        }
        if token != STAR && token != one {
            return false;
        }
    }
    let is_tail = pattern == TAIL || pattern.ends_with(b".>");
    (is_tail || published.next().is_none()) && !has_empty_token(subject)
}

/// The tokens of a valid pattern before a last `>`, if there are any, and whether it has that.
pub(crate) fn split_tail(pattern: &[u8]) -> (Option<&[u8]>, bool) {
    match pattern.strip_suffix(TAIL) {
        Some(b"") => (None, true),
        Some([tokens @ .., SEPARATOR]) => (Some(tokens), true),
        _ => (Some(pattern), false),
    }
}

/// Whether `subject` has an empty token; such a subject matches no subscription.
#[must_use]
pub fn has_empty_token(subject: &[u8]) -> bool {
    // No early exit, so that the compiler vectorises the scan.
    let doubled = subject
        .iter()
        .zip(subject.iter().skip(1))
        .fold(false, |found, (&a, &b)| {
            found | ((a == SEPARATOR) & (b == SEPARATOR))
        });
    doubled
        || subject.first().is_none_or(|&byte| byte == SEPARATOR)
        || subject.last() == Some(&SEPARATOR)
}

/// Call `visit` with the end of each token of `subject`, in bytes: each dot, then the subject's
/// length. Stop where it returns false.
#[inline]
pub(crate) fn for_token_ends(subject: &[u8], mut visit: impl FnMut(usize) -> bool) {
    // Eight bytes at a time: a subject is so short that a call would cost more than the search.
    let (words, rest) = subject.as_chunks::<8>();
    let last = match subject.last_chunk::<8>() {
        Some(last) => u64::from_le_bytes(*last) >> (56 - 8 * rest.len()) >> 8,
        None => rest
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    // A dot behind the last byte stands for the end.
    let last = last | u64::from(SEPARATOR) << (8 * rest.len());
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    let mut start = 0;
    for word in words.chain([last]) {
        let mut dots = separators(word);
        while dots != 0 {
            if !visit(start + dots.trailing_zeros() as usize / 8) {
                return;
            }
            dots &= dots - 1;
        }
        start += 8;
    }
}

/// The highest bit of every byte that is a separator.
#[inline]
const fn separators(word: u64) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let differs = word ^ u64::from_ne_bytes([SEPARATOR; 8]);
    !(((differs & LOW) + LOW) | differs | LOW)
}

/// The first two tokens of a subject that has more than two.
#[inline]
pub(crate) fn two_token_prefix(subject: &[u8]) -> Option<&[u8]> {
    let first = token_len(subject);
    let rest = subject.get(first + 1..)?;
    let second = token_len(rest);
    if second == rest.len() {
        return None;
    }
    subject.get(..first + 1 + second)
}

/// The first two tokens of a pattern, if both are literal and more tokens follow.
pub(crate) fn literal_prefix(pattern: &[u8]) -> Option<&[u8]> {
    two_token_prefix(pattern)
        .filter(|prefix| !prefix.starts_with(b"*.") && !prefix.ends_with(b".*"))
}

/// Length of the first token, in bytes.
#[inline]
pub(crate) fn token_len(subject: &[u8]) -> usize {
    subject
        .iter()
        .position(|&byte| byte == SEPARATOR)
        .unwrap_or(subject.len())
}

fn is_forbidden(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0x0c | 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_the_oracle_says() {
        let tokens = ["a", "b", "*", ">", "a>", ""];
        let mut subjects: Vec<String> = tokens.map(str::to_owned).to_vec();
        for _ in 0..2 {
            let longer: Vec<_> = subjects
                .iter()
                .flat_map(|start| tokens.map(|token| format!("{start}.{token}")))
                .collect();
            subjects.extend(longer);
        }
        subjects.dedup();
        let is_valid = |pattern: &&String| validate_subscription(pattern.as_bytes()).is_ok();
        for pattern in subjects.iter().filter(is_valid) {
            let mut oracle = crate::naive::Naive::default();
            oracle.subscribe(pattern.as_bytes(), None, ());
            for subject in &subjects {
                let wanted = !oracle
                    .matches(subject.as_bytes(), |()| true)
                    .plain
                    .is_empty();
                let found = matches(pattern.as_bytes(), subject.as_bytes());
                assert_eq!(found, wanted, "{pattern:?} {subject:?}");
            }
        }
    }

    #[test]
    fn subscriptions_are_classified() {
        for literal in [
            "foo", "foo.bar", "foo*", "f>", ">x.y", "**", "a.*b", "ä.ö", "$SYS.x",
        ] {
            assert_eq!(
                validate_subscription(literal.as_bytes()),
                Ok(Kind::Literal),
                "{literal}"
            );
            assert!(is_valid_publish(literal.as_bytes()), "{literal}");
        }
        for wildcard in ["*", ">", "foo.*", "*.foo", "foo.>", "*.>", "a.*.c", "*.*"] {
            assert_eq!(
                validate_subscription(wildcard.as_bytes()),
                Ok(Kind::Wildcard),
                "{wildcard}"
            );
            assert!(!is_valid_publish(wildcard.as_bytes()), "{wildcard}");
        }
        assert_eq!(validate_subscription(b"\xff\xfe.\x80"), Ok(Kind::Literal));
    }

    #[test]
    fn invalid_subjects_are_named() {
        use InvalidSubject::{EmptyToken, ForbiddenByte, TailNotLast};
        for subject in ["", ".", ".foo", "foo.", "foo..bar", "..", ">.", "*..*"] {
            assert_eq!(
                validate_subscription(subject.as_bytes()),
                Err(EmptyToken),
                "{subject:?}"
            );
            assert!(!is_valid_publish(subject.as_bytes()));
        }
        for byte in [b' ', b'\t', b'\r', b'\n', 0x0c, 0] {
            for subject in [vec![byte], vec![b'a', byte], vec![b'a', b'.', byte, b'b']] {
                assert_eq!(validate_subscription(&subject), Err(ForbiddenByte(byte)));
            }
        }
        for subject in [">.foo", "foo.>.bar", ">.>", ">.*"] {
            assert_eq!(
                validate_subscription(subject.as_bytes()),
                Err(TailNotLast),
                "{subject}"
            );
        }
    }

    #[test]
    fn empty_tokens_are_found_anywhere() {
        for subject in ["", ".", "..", ".a", "a.", "a..b", "a.b..", "a.b.c..d.e"] {
            assert!(has_empty_token(subject.as_bytes()), "{subject:?}");
        }
        for subject in ["a", "a.b", "a.b.c", "*.>"] {
            assert!(!has_empty_token(subject.as_bytes()), "{subject:?}");
        }
    }

    #[test]
    fn tokens_end_at_dots_and_at_the_end() {
        for subject in [
            "",
            ".",
            "a",
            "abc.def",
            "abcdefg.",
            "abcdefgh",
            "abcdefg.i",
            "..abcdefghijkl..",
            "a.b.c.d.e.f.g.h.i",
            "_INBOX.0123456789012345678901.7",
        ] {
            let mut ends = Vec::new();
            for_token_ends(subject.as_bytes(), |end| {
                ends.push(end);
                true
            });
            let dots = subject.match_indices('.').map(|(at, _)| at);
            let expected: Vec<usize> = dots.chain([subject.len()]).collect();
            assert_eq!(ends, expected, "{subject:?}");
            let mut calls = 0;
            for_token_ends(subject.as_bytes(), |_| {
                calls += 1;
                false
            });
            assert_eq!(calls, 1, "{subject:?}");
        }
    }

    #[test]
    fn prefixes_hold_two_tokens_and_leave_one() {
        assert_eq!(two_token_prefix(b"a.bc.d"), Some(&b"a.bc"[..]));
        assert_eq!(two_token_prefix(b"a.bc.d.e"), Some(&b"a.bc"[..]));
        assert_eq!(two_token_prefix(b".."), Some(&b"."[..]));
        for short in [&b""[..], b"a", b".", b"a.", b"a.b"] {
            assert_eq!(two_token_prefix(short), None);
        }
        assert_eq!(literal_prefix(b"a.b.*"), Some(&b"a.b"[..]));
        assert_eq!(literal_prefix(b"a*.*b.>"), Some(&b"a*.*b"[..]));
        for shallow in [&b"*.b.c"[..], b"a.*.c", b"a.*", b"a.>", b">"] {
            assert_eq!(literal_prefix(shallow), None);
        }
    }
}
