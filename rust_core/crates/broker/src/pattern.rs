//! Limits of the subjects that clients subscribe to.
//!
//! They bound what one message can cost: the routing table looks a subject up once for each form of
//! pattern, and tokens and wildcards of a pattern decide how many forms there can be.

use std::fmt;

use router::subject::{self, STAR, TAIL};

/// Limits of the subject of a subscription.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PatternLimits {
    /// Tokens, if one of them is a wildcard.
    pub(crate) tokens: usize,
    /// Tokens that are `*` or `>`.
    pub(crate) wildcards: usize,
    /// Bytes.
    pub(crate) length: usize,
}

/// The limit that a subject exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Excess {
    Tokens(usize),
    Wildcards(usize),
    Length(usize),
    /// Length of the subscription's SID, in bytes.
    Sid(usize),
}

impl PatternLimits {
    /// Check the subject of a subscription.
    pub(crate) fn check(&self, subject: &[u8]) -> Result<(), Excess> {
        if subject.len() > self.length {
            return Err(Excess::Length(self.length));
        }
        let (mut tokens, mut wildcards) = (0, 0);
        for token in subject::tokens(subject) {
            tokens += 1;
            wildcards += usize::from(token == STAR || token == TAIL);
        }
        if wildcards > self.wildcards {
            Err(Excess::Wildcards(self.wildcards))
        } else if wildcards > 0 && tokens > self.tokens {
            Err(Excess::Tokens(self.tokens))
        } else {
            Ok(())
        }
    }
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tokens(limit) => write!(
                f,
                "too many tokens: at most {limit} beside wildcards (max_subject_tokens)"
            ),
            Self::Wildcards(limit) => write!(
                f,
                "too many wildcards: at most {limit} (max_subject_wildcards)"
            ),
            Self::Length(limit) => write!(
                f,
                "too long a subject: at most {limit} bytes (max_subject_length)"
            ),
            Self::Sid(limit) => write!(f, "too long a SID: at most {limit} bytes (max_sid_length)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_beyond_a_limit_is_told_which() {
        let limits = PatternLimits {
            tokens: 4,
            wildcards: 2,
            length: 20,
        };
        for allowed in [
            "a.*.*.d",
            "*.*",
            "a.b.c.>",
            "a.b.c.d.e.f.g",
            "a.**.b*.>",
            "",
        ] {
            assert_eq!(limits.check(allowed.as_bytes()), Ok(()), "{allowed}");
        }
        for (refused, excess) in [
            ("a.b.c.d.>", Excess::Tokens(4)),
            ("*.b.c.d.e", Excess::Tokens(4)),
            ("*.*.*", Excess::Wildcards(2)),
            ("*.*.>", Excess::Wildcards(2)),
            ("aaaaaaaaaaaaaaaaaaaaa", Excess::Length(20)),
        ] {
            assert_eq!(limits.check(refused.as_bytes()), Err(excess), "{refused}");
        }
        assert!(
            Excess::Sid(7)
                .to_string()
                .contains("7 bytes (max_sid_length)")
        );
    }
}
