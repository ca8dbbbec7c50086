//! A subject of a permission: literal tokens, wildcards and placeholders.

use router::subject::{self, InvalidSubject, SEPARATOR, STAR, TAIL, tokens};
use std::error::Error;
use std::fmt;

/// A compiled subject of a permission.
///
/// Matching compares the literal beginning at once, and only then token by token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// The bytes that every match begins with: all tokens before the first one that is not literal,
    /// each with its separator; or the whole subject if all are literal.
    beginning: Box<[u8]>,
    /// The tokens behind the beginning, without a last `>`.
    tokens: Box<[Token]>,
    /// Whether one or more further tokens follow (`>`).
    is_tail: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Literal(Box<[u8]>),
    /// `*`.
    Any,
    /// Text with placeholders.
    Parts(Box<[Part]>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(Box<[u8]>),
    /// The value with this number.
    Value(usize),
}

/// The fault of a permission's subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InvalidPattern {
    /// The text is not a subject.
    Subject(InvalidSubject),
    /// A `{` without its `}`, or the reverse.
    Brace,
}

impl fmt::Display for InvalidPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Subject(error) => error.fmt(f),
            Self::Brace => f.write_str("a brace has no counterpart: placeholders are {name}"),
        }
    }
}

impl Error for InvalidPattern {}

impl Pattern {
    /// Compile `text`; a placeholder `{name}` becomes the value whose number `number_of` returns.
    ///
    /// # Errors
    /// The text is not a subject, or a brace has no counterpart.
    pub(crate) fn new(
        text: &str,
        mut number_of: impl FnMut(&str) -> usize,
    ) -> Result<Self, InvalidPattern> {
        subject::validate_subscription(text.as_bytes()).map_err(InvalidPattern::Subject)?;
        let (body, is_tail) = match text.strip_suffix('>') {
            Some("") => ("", true),
            Some(body) if body.ends_with('.') => (&body[..body.len() - 1], true),
            _ => (text, false),
        };
        let mut beginning = Vec::new();
        let mut compiled = Vec::new();
        for token in body.split('.').filter(|token| !token.is_empty()) {
            match Token::new(token, &mut number_of)? {
                Token::Literal(literal) if compiled.is_empty() => {
                    beginning.extend_from_slice(&literal);
                    beginning.push(SEPARATOR);
                }
                token => compiled.push(token),
            }
        }
        if compiled.is_empty() && !is_tail {
            beginning.pop();
        }
        Ok(Self {
            beginning: beginning.into(),
            tokens: compiled.into(),
            is_tail,
        })
    }

    /// Return whether the pattern matches `subject`, whose wildcard tokens are literal text. The subject
    /// has no empty token.
    pub(crate) fn matches(&self, values: &[Box<[u8]>], subject: &[u8]) -> bool {
        let Some(rest) = subject.strip_prefix(&*self.beginning) else {
            return false;
        };
        if self.tokens.is_empty() {
            return self.is_tail != rest.is_empty();
        }
        let mut published = tokens(rest);
        for token in &self.tokens {
            match published.next() {
                Some(one) if token.matches(values, one) => {}
                _ => return false,
            }
        }
        self.is_tail == published.next().is_some()
    }

    /// Return whether the pattern matches every subject that the subscription `subject` matches.
    pub(crate) fn covers(&self, values: &[Box<[u8]>], subject: &[u8]) -> bool {
        // A last `>` stands for any number of tokens, so only `>` covers it.
        (self.is_tail || !has_tail(subject)) && self.matches(values, subject)
    }

    /// Return whether there is a subject that both the pattern and the subscription `subject` match.
    pub(crate) fn meets(&self, values: &[Box<[u8]>], subject: &[u8]) -> bool {
        let mut own = self.own_tokens();
        let mut others = tokens(subject).peekable();
        loop {
            let other = others.next();
            if other == Some(TAIL) && others.peek().is_none() {
                return self.is_tail || own.next().is_some();
            }
            match (own.next(), other) {
                (None, None) => return !self.is_tail,
                (None, Some(_)) => return self.is_tail,
                (Some(_), None) => return false,
                (Some(own), Some(other)) => {
                    if other != STAR && !own.matches(values, other) {
                        return false;
                    }
                }
            }
        }
    }

    /// Visit all tokens but a last `>`.
    fn own_tokens(&self) -> impl Iterator<Item = TokenRef<'_>> {
        let beginning = match &*self.beginning {
            [text @ .., SEPARATOR] => text,
            text => text,
        };
        let literals = tokens(beginning).filter(|token| !token.is_empty());
        let others = self.tokens.iter().map(TokenRef::Compiled);
        literals.map(TokenRef::Literal).chain(others)
    }
}

/// Return whether a subscription's last token is `>`.
pub(crate) fn has_tail(subject: &[u8]) -> bool {
    subject == TAIL || subject.ends_with(b".>")
}

enum TokenRef<'a> {
    Literal(&'a [u8]),
    Compiled(&'a Token),
}

impl TokenRef<'_> {
    fn matches(&self, values: &[Box<[u8]>], one: &[u8]) -> bool {
        match self {
            Self::Literal(literal) => *literal == one,
            Self::Compiled(token) => token.matches(values, one),
        }
    }
}

impl Token {
    fn new(text: &str, number_of: &mut impl FnMut(&str) -> usize) -> Result<Self, InvalidPattern> {
        if text.as_bytes() == STAR {
            return Ok(Self::Any);
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(open);
            let named = from.strip_prefix('{').and_then(|from| from.split_once('}'));
            let Some((name, after)) = named.filter(|(name, _)| !name.contains('{')) else {
                return Err(InvalidPattern::Brace);
            };
            if !before.is_empty() {
                parts.push(Part::Text(before.as_bytes().into()));
            }
            parts.push(Part::Value(number_of(name)));
            rest = after;
        }
        if parts.is_empty() {
            return Ok(Self::Literal(text.as_bytes().into()));
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.as_bytes().into()));
        }
        Ok(Self::Parts(parts.into()))
    }

    fn matches(&self, values: &[Box<[u8]>], one: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Literal(literal) => **literal == *one,
            Self::Parts(parts) => {
                let mut rest = Some(one);
                for part in parts {
                    let text = match part {
                        Part::Text(text) => text,
                        Part::Value(number) => &values[*number],
                    };
                    rest = rest.and_then(|rest| rest.strip_prefix(&**text));
                }
                rest.is_some_and(<[u8]>::is_empty)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use router::subject::validate_subscription;

    fn pattern(text: &str) -> Pattern {
        Pattern::new(text, |_| 0).expect("valid")
    }

    /// All subjects of up to three tokens from a small alphabet.
    fn subjects() -> Vec<String> {
        let alphabet = ["a", "b", "*", ">"];
        let mut all: Vec<String> = alphabet.map(str::to_owned).to_vec();
        for _ in 0..2 {
            let longer: Vec<_> = all
                .iter()
                .flat_map(|start| alphabet.map(|token| format!("{start}.{token}")))
                .collect();
            all.extend(longer);
        }
        all.sort();
        all.dedup();
        all.retain(|text| validate_subscription(text.as_bytes()).is_ok());
        all
    }

    fn is_literal(text: &str) -> bool {
        !text.split('.').any(|token| token == "*" || token == ">")
    }

    #[test]
    fn relations_between_patterns_are_those_of_the_subjects_that_they_match() {
        let all = subjects();
        // One token more than any pattern has, so that `>` has something to differ by.
        let alphabet = ["a", "b", "c"];
        let mut literals: Vec<String> = alphabet.map(str::to_owned).to_vec();
        for _ in 0..3 {
            let longer: Vec<_> = literals
                .iter()
                .flat_map(|start| alphabet.map(|token| format!("{start}.{token}")))
                .collect();
            literals.extend(longer);
        }
        literals.sort();
        literals.dedup();
        for one in &all {
            let compiled = pattern(one);
            for subject in &literals {
                assert_eq!(
                    compiled.matches(&[], subject.as_bytes()),
                    subject::matches(one.as_bytes(), subject.as_bytes()),
                    "{one} {subject}"
                );
            }
            for other in &all {
                let of = |text: &str, subject: &String| {
                    subject::matches(text.as_bytes(), subject.as_bytes())
                };
                let covers = literals.iter().all(|s| !of(other, s) || of(one, s));
                let meets = literals.iter().any(|s| of(other, s) && of(one, s));
                assert_eq!(
                    compiled.covers(&[], other.as_bytes()),
                    covers,
                    "{one} covers {other}"
                );
                assert_eq!(
                    compiled.meets(&[], other.as_bytes()),
                    meets,
                    "{one} meets {other}"
                );
            }
        }
        assert!(all.iter().any(|text| is_literal(text)));
    }

    #[test]
    fn placeholders_stand_for_text_within_one_token() {
        let mut names = Vec::new();
        let compiled = Pattern::new("c.{user}.x-{user}-{role}.>", |name| {
            names.push(name.to_owned());
            usize::from(name == "role")
        });
        let compiled = compiled.expect("valid");
        assert_eq!(names, ["user", "user", "role"]);
        let values: [Box<[u8]>; 2] = [(*b"ann").into(), (*b"boss").into()];
        assert!(compiled.matches(&values, b"c.ann.x-ann-boss.1"));
        for other in [
            "c.ann.x-ann-boss",
            "c.bob.x-ann-boss.1",
            "c.ann.x-ann-bos.1",
            "c.ann.x-ann-boss1.1",
        ] {
            assert!(!compiled.matches(&values, other.as_bytes()), "{other}");
        }
        assert!(compiled.covers(&values, b"c.ann.x-ann-boss.*"));
        assert!(!compiled.covers(&values, b"c.*.x-ann-boss.*"));
        assert!(compiled.meets(&values, b"c.*.x-ann-boss.1"));
        assert!(!compiled.meets(&values, b"c.bob.>"));
    }

    #[test]
    fn faults_are_named() {
        for text in ["a.{user", "a.user}", "{a{b}}", "}{"] {
            assert_eq!(
                Pattern::new(text, |_| 0),
                Err(InvalidPattern::Brace),
                "{text}"
            );
        }
        for text in ["", "a..b", "a b", ">.a"] {
            let error = Pattern::new(text, |_| 0).expect_err(text);
            assert!(matches!(error, InvalidPattern::Subject(_)), "{text}");
        }
    }
}
