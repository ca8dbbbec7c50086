//! The forms of wildcard patterns, which are what a lookup goes through.

use crate::dense::Dense;
use crate::subject::{self, MAX_PATTERN_TOKENS, STAR};
use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

const _: () = assert!(MAX_PATTERN_TOKENS <= u64::BITS as usize);

/// The places of the wildcards in a pattern. A subject matches at most one pattern of each form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Form {
    /// Number of tokens, a last `>` not counted.
    pub(crate) tokens: usize,
    /// Whether `>` follows them.
    pub(crate) is_tail: bool,
    /// A bit for each token, from the first one on; set for `*`.
    stars: u64,
}

impl Form {
    /// Return the form of a valid pattern.
    pub(crate) fn new(pattern: &[u8]) -> Self {
        let (tokens, is_tail) = subject::split_tail(pattern);
        let mut form = Self {
            tokens: 0,
            is_tail,
            stars: 0,
        };
        for token in tokens.into_iter().flat_map(subject::tokens) {
            form.stars |= u64::from(token == STAR) << form.tokens;
            form.tokens += 1;
        }
        form
    }

    /// Return whether the pattern has a star, or no token of its own, wherever a bit is set.
    #[inline]
    pub(crate) fn covers(self, positions: u64) -> bool {
        let named = positions & !self.stars;
        named.trailing_zeros() as usize >= self.tokens
    }

    /// Visit the positions of the stars.
    #[inline]
    pub(crate) fn stars(self) -> impl Iterator<Item = usize> {
        let mut left = self.stars;
        std::iter::from_fn(move || {
            let position = left.trailing_zeros();
            left &= left.checked_sub(1)?;
            Some(position as usize)
        })
    }
}

/// The forms of all patterns of a table, with the number of patterns of each.
#[derive(Default)]
pub(crate) struct Forms {
    /// Those of whole subjects, by number of tokens.
    whole: Vec<Dense<Counted>>,
    /// Those that end in `>`, by number of tokens before it.
    tails: Vec<Dense<Counted>>,
}

/// The stars of a form, and the number of its patterns.
struct Counted {
    stars: u64,
    patterns: usize,
}

// A form is found by its stars alone, so it is equal and hashes like them.
impl Borrow<u64> for Counted {
    fn borrow(&self) -> &u64 {
        &self.stars
    }
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.stars == other.stars
    }
}

impl Eq for Counted {}

impl Hash for Counted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.stars.hash(state);
    }
}

impl Forms {
    /// Count one more pattern of this form.
    pub(crate) fn add(&mut self, form: Form) {
        let of_length = self.of_length(form);
        let position = of_length.position(&form.stars);
        match position.and_then(|at| of_length.get_mut(at)) {
            Some(known) => known.patterns += 1,
            None => {
                of_length.insert(Counted {
                    stars: form.stars,
                    patterns: 1,
                });
            }
        }
    }

    /// Count one pattern of this form less.
    pub(crate) fn remove(&mut self, form: Form) {
        let of_length = self.of_length(form);
        let Some(at) = of_length.position(&form.stars) else {
            return;
        };
        let Some(known) = of_length.get_mut(at) else {
            return;
        };
        known.patterns -= 1;
        if known.patterns == 0 {
            of_length.swap_remove(at);
        }
    }

    /// Visit the forms that a subject of so many tokens can match.
    #[inline]
    pub(crate) fn for_subject(&self, tokens: usize, mut visit: impl FnMut(Form)) {
        let whole = self.whole.get(tokens).map(|forms| (tokens, false, forms));
        let tails = self.tails.iter().take(tokens).enumerate();
        let tails = tails.map(|(tokens, forms)| (tokens, true, forms));
        for (tokens, is_tail, forms) in whole.into_iter().chain(tails) {
            for &Counted { stars, .. } in forms.as_slice() {
                visit(Form {
                    tokens,
                    is_tail,
                    stars,
                });
            }
        }
    }

    /// Return the number of patterns of each form, for tests: whether there is a tail, tokens,
    /// stars, patterns.
    pub(crate) fn counts(&self) -> BTreeSet<(bool, usize, u64, usize)> {
        let whole = self
            .whole
            .iter()
            .enumerate()
            .map(|lengths| (false, lengths));
        let tails = self.tails.iter().enumerate().map(|lengths| (true, lengths));
        let forms = whole.chain(tails).flat_map(|(is_tail, (tokens, forms))| {
            let counted = forms.as_slice().iter();
            counted.map(move |one| (is_tail, tokens, one.stars, one.patterns))
        });
        forms.collect()
    }

    fn of_length(&mut self, form: Form) -> &mut Dense<Counted> {
        let lengths = if form.is_tail {
            &mut self.tails
        } else {
            &mut self.whole
        };
        if lengths.len() <= form.tokens {
            lengths.resize_with(form.tokens + 1, Dense::new);
        }
        &mut lengths[form.tokens]
    }
}
