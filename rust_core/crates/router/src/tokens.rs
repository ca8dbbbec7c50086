//! A published subject cut into tokens, each hashed once for all patterns.

use crate::bytes::strip_prefix;
use crate::form::Form;
use crate::subject::{self, MAX_PATTERN_TOKENS, STAR, TAIL};
use hashbrown::DefaultHashBuilder;
use std::hash::{BuildHasher, Hasher};

/// The hash of wildcard patterns: the sum of its tokens' hashes, each rotated by its position, and
/// mixed at the end.
///
/// So the hash of every pattern that a subject can match follows from the hashes of the subject's
/// tokens: where the pattern has a `*`, the difference of the two tokens is added.
#[derive(Clone)]
pub(crate) struct PatternHasher {
    hasher: DefaultHashBuilder,
    star: u64,
    tail: u64,
}

impl PatternHasher {
    pub(crate) fn new(hasher: DefaultHashBuilder) -> Self {
        let mut new = Self {
            hasher,
            star: 0,
            tail: 0,
        };
        (new.star, new.tail) = (new.token(0, STAR), new.token(0, TAIL));
        new
    }

    /// Return the hash of a pattern.
    pub(crate) fn pattern(&self, pattern: &[u8]) -> u64 {
        let (tokens, is_tail) = subject::split_tail(pattern);
        let tail = if is_tail { self.tail } else { 0 };
        let sum = tokens.map_or(0, |tokens| self.prefix(tokens));
        mix(sum.wrapping_add(tail))
    }

    /// Return the sum for the first tokens of a pattern or subject.
    pub(crate) fn prefix(&self, tokens: &[u8]) -> u64 {
        let (mut start, mut position, mut sum) = (0, 0, 0_u64);
        subject::for_token_ends(tokens, |end| {
            let token = tokens.get(start..end).unwrap_or_default();
            sum = sum.wrapping_add(self.token(position, token));
            (start, position) = (end + 1, position + 1);
            true
        });
        sum
    }

    #[inline]
    fn token(&self, position: u32, token: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(token);
        hasher.finish().rotate_left(position)
    }
}

/// The beginning of one token.
#[derive(Debug, Clone, Copy)]
struct Cut {
    /// Where the token begins, in bytes.
    start: usize,
    /// Sum of the hashes of the tokens before it.
    sum: u64,
    /// What a `*` in place of the token adds to the hash.
    star: u64,
}

/// The tokens of one subject: as many as a pattern can name, and one more.
///
/// Kept between messages for its memory.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    /// One for each token, and one for the end.
    cuts: Vec<Cut>,
    /// A bit for each token that is `*` or `>`: as literal text it is in no pattern.
    wildcards: u64,
    /// What `>` adds to the hash.
    tail: u64,
}

impl Tokens {
    /// Cut `subject`; false if it has fewer tokens than `least`, or an empty one.
    #[inline]
    pub(crate) fn cut(&mut self, subject: &[u8], least: usize, hasher: &PatternHasher) -> bool {
        let cut_at = |start| Cut {
            start,
            sum: 0,
            star: 0,
        };
        self.cuts.clear();
        self.cuts.push(cut_at(0));
        subject::for_token_ends(subject, |end| {
            self.cuts.push(cut_at(end + 1));
            self.cuts.len() <= MAX_PATTERN_TOKENS + 1
        });
        self.len() >= least && self.hash_tokens(subject, hasher)
    }

    /// Hash every token; false if one is empty.
    #[inline]
    fn hash_tokens(&mut self, subject: &[u8], hasher: &PatternHasher) -> bool {
        let (mut position, mut sum) = (0, 0_u64);
        self.wildcards = 0;
        self.tail = hasher.tail;
        let mut cuts = self.cuts.as_mut_slice();
        while let [cut, rest @ ..] = cuts {
            cut.sum = sum;
            let Some(next) = rest.first() else {
                let rest = subject.get(cut.start..);
                return !rest.is_some_and(subject::has_empty_token);
            };
            let Some(token @ [first, more @ ..]) = subject.get(cut.start..next.start - 1) else {
                return false;
            };
            if more.is_empty() && matches!(first, b'*' | b'>') {
                self.wildcards |= 1_u64.checked_shl(position).unwrap_or(0);
            }
            let hash = hasher.token(position, token);
            cut.star = hasher.star.rotate_left(position).wrapping_sub(hash);
            sum = sum.wrapping_add(hash);
            position += 1;
            cuts = rest;
        }
        false
    }

    /// Return the number of tokens, at most one more than a pattern can have.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.cuts.len() - 1
    }

    /// Return the sum for the first tokens.
    #[inline]
    pub(crate) fn prefix(&self, tokens: usize) -> u64 {
        self.cuts.get(tokens).map_or(0, |cut| cut.sum)
    }

    /// Return the hash of the pattern of this form that the subject matches.
    #[inline]
    pub(crate) fn hash(&self, form: Form) -> u64 {
        let tail = if form.is_tail { self.tail } else { 0 };
        let literal = self.prefix(form.tokens).wrapping_add(tail);
        mix(form.stars().fold(literal, |sum, position| {
            sum.wrapping_add(self.cuts.get(position).map_or(0, |cut| cut.star))
        }))
    }

    /// Return whether `pattern` is the one of this form that `subject` matches.
    #[inline]
    pub(crate) fn is_match(&self, pattern: &[u8], subject: &[u8], form: Form) -> bool {
        form.covers(self.wildcards) && self.strip(pattern, subject, form).is_some()
    }

    /// Remove from the pattern what stands in the subject, from star to star. None if anything else
    /// is found or left.
    #[inline]
    fn strip(&self, mut pattern: &[u8], subject: &[u8], form: Form) -> Option<()> {
        let mut from = 0;
        for position in form.stars() {
            let literal = subject.get(from..self.cuts.get(position)?.start)?;
            pattern = strip_prefix(pattern, literal)?.strip_prefix(STAR)?;
            from = self.cuts.get(position + 1)?.start - 1;
        }
        let literal = match form.tokens {
            0 => &[],
            tokens => subject.get(from..self.cuts.get(tokens)?.start - 1)?,
        };
        let rest = strip_prefix(pattern, literal)?;
        let is_end = match (form.is_tail, form.tokens) {
            (false, _) => rest.is_empty(),
            (true, 0) => rest == b">",
            (true, _) => rest == b".>",
        };
        is_end.then_some(())
    }
}

/// Make every bit of the hash depend on every bit of the sum.
///
/// The sums for a subject with equal tokens are near multiples of one number. If that is even, their
/// lowest bits, with which a table begins, take few values.
#[inline]
fn mix(sum: u64) -> u64 {
    // Without the shift the product of such a multiple is near a multiple again.
    let product = u128::from(sum ^ (sum >> 32)) * 0x9e37_79b9_7f4a_7c15;
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn tokens(subject: &str, hasher: &PatternHasher) -> Option<Tokens> {
        let mut tokens = Tokens::default();
        let is_valid = tokens.cut(subject.as_bytes(), 1, hasher);
        is_valid.then_some(tokens)
    }

    #[test]
    fn hashes_of_patterns_follow_from_those_of_tokens() {
        let hasher = PatternHasher::new(DefaultHashBuilder::default());
        let subject = "a.bc.def.*.bc";
        let cut = tokens(subject, &hasher).expect("no empty token");
        assert_eq!(cut.len(), 5);
        for pattern in [
            ">",
            "*.>",
            "a.>",
            "a.bc.def.*.>",
            "*.*.*.*.>",
            "a.bc.def.*.*",
            "*.bc.*.*.bc",
            "*.*.*.*.*",
            "a.*.def.*.>",
        ] {
            let form = Form::new(pattern.as_bytes());
            assert_eq!(
                hasher.pattern(pattern.as_bytes()),
                cut.hash(form),
                "{pattern}"
            );
            assert!(
                cut.is_match(pattern.as_bytes(), subject.as_bytes(), form),
                "{pattern}"
            );
            for other in ["a.>", "*.bc.*.*.b", "*x.bc.*.*.bc", "a.bc.def.**.*"] {
                let is_same = pattern == other;
                let is_match = cut.is_match(other.as_bytes(), subject.as_bytes(), form);
                assert_eq!(is_match, is_same, "{other} as {pattern}");
            }
        }
    }

    #[test]
    fn lowest_bits_of_the_hashes_of_equal_tokens_differ_with_every_seed() {
        let patterns = (0..1_usize << 8).map(|stars| {
            let token = |at: u32| if stars >> at & 1 == 1 { "*" } else { "a" };
            (0..8).map(token).collect::<Vec<_>>().join(".")
        });
        let patterns: Vec<_> = patterns.collect();
        for _ in 0..64 {
            let hasher = PatternHasher::new(DefaultHashBuilder::default());
            let hashes = patterns.iter().map(|one| hasher.pattern(one.as_bytes()));
            let values: BTreeSet<_> = hashes.map(|hash| hash as u8).collect();
            // Random ones would take 162 of the 256 values, with a standard deviation of 5.
            assert!(values.len() > 120, "{}", values.len());
        }
    }

    #[test]
    fn empty_tokens_are_found_however_long_the_subject() {
        let hasher = PatternHasher::new(DefaultHashBuilder::default());
        let long = ["a"; 2000].join(".");
        for subject in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            &format!("{long}."),
            &format!("{long}..a"),
        ] {
            assert!(tokens(subject, &hasher).is_none(), "{subject:?}");
        }
        let count = |subject: &str| tokens(subject, &hasher).map(|tokens| tokens.len());
        assert_eq!(count("a"), Some(1));
        assert_eq!(count(&["a"; 64].join(".")), Some(64));
        assert_eq!(count(&["a"; 65].join(".")), Some(65));
        assert_eq!(count(&long), Some(65));
    }
}
