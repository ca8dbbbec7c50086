//! The oracle: the rules of subjects and queue groups word for word, slow and obvious.

use std::collections::BTreeMap;

/// Every subscription in one list.
#[derive(Debug, Default)]
pub struct Naive<S> {
    subscriptions: Vec<(Vec<u8>, Option<Vec<u8>>, S)>,
}

/// Who must receive a message, and who may.
#[derive(Debug, PartialEq, Eq)]
pub struct Expected<S> {
    /// All plain subscribers, sorted, once per matching subscription.
    pub plain: Vec<S>,
    /// Per queue group those members of whom exactly one must receive it.
    pub groups: BTreeMap<Vec<u8>, Vec<S>>,
}

impl<S: Copy + Ord> Naive<S> {
    /// Adds a subscription; false if it is there already.
    pub fn subscribe(&mut self, pattern: &[u8], queue: Option<&[u8]>, subscriber: S) -> bool {
        let new = (pattern.to_vec(), queue.map(<[u8]>::to_vec), subscriber);
        let is_new = !self.subscriptions.contains(&new);
        if is_new {
            self.subscriptions.push(new);
        }
        is_new
    }

    /// Removes a subscription; false if it is not there.
    pub fn unsubscribe(&mut self, pattern: &[u8], queue: Option<&[u8]>, subscriber: &S) -> bool {
        let before = self.subscriptions.len();
        self.subscriptions
            .retain(|(p, q, s)| (p.as_slice(), q.as_deref(), s) != (pattern, queue, subscriber));
        self.subscriptions.len() < before
    }

    /// Number of subscriptions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.subscriptions.len()
    }

    /// Whether there are no subscriptions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.subscriptions.is_empty()
    }

    /// Who receives a message published to `subject`.
    pub fn matches(&self, subject: &[u8], mut accept: impl FnMut(&S) -> bool) -> Expected<S> {
        let mut plain = Vec::new();
        let mut groups = BTreeMap::<_, Vec<S>>::new();
        for (pattern, queue, subscriber) in &self.subscriptions {
            if !matches(&split(pattern), &split(subject)) || !accept(subscriber) {
                continue;
            }
            match queue {
                None => plain.push(*subscriber),
                Some(name) => groups.entry(name.clone()).or_default().push(*subscriber),
            }
        }
        plain.sort_unstable();
        Expected { plain, groups }
    }
}

/// Whether the tokens of a pattern match those of a subject.
fn matches(pattern: &[&[u8]], subject: &[&[u8]]) -> bool {
    if subject.iter().any(|token| token.is_empty()) {
        return false;
    }
    for (at, wanted) in pattern.iter().enumerate() {
        let is_last = at + 1 == pattern.len();
        if *wanted == b">" && is_last {
            return subject.len() > at;
        }
        if at >= subject.len() || *wanted != b"*" && *wanted != subject[at] {
            return false;
        }
    }
    pattern.len() == subject.len()
}

fn split(subject: &[u8]) -> Vec<&[u8]> {
    let mut tokens = Vec::new();
    let mut start = 0;
    for (at, byte) in subject.iter().enumerate() {
        if *byte == b'.' {
            tokens.push(&subject[start..at]);
            start = at + 1;
        }
    }
    tokens.push(&subject[start..]);
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the NATS documentation and the corner cases of nats-server.
    #[test]
    fn documented_examples() {
        let holds = [
            ("time.us", "time.us"),
            ("time.*.east", "time.us.east"),
            ("time.us.>", "time.us.east.atlanta"),
            ("time.us.*", "time.us.east"),
            ("*.*.east", "time.us.east"),
            (">", "time"),
            (">", "time.us.east"),
            ("*.>", "time.us"),
            ("foo.*", "foo.*"),
            ("foo.*", "foo.>"),
            ("foo.>", "foo.>"),
            ("foo*", "foo*"),
        ];
        for (pattern, subject) in holds {
            assert!(
                matches(&split(pattern.as_bytes()), &split(subject.as_bytes())),
                "{pattern} {subject}"
            );
        }
        let fails = [
            ("time.us.>", "time.us"),
            ("time.us.*", "time.us.east.atlanta"),
            ("time.us.*", "time.us"),
            ("*", "time.us"),
            ("*.>", "time"),
            ("Time", "time"),
            ("foo.bar", "foo.*"),
            ("foo*", "foobar"),
            ("foo.>", "foo."),
            ("foo.>", "foo..bar"),
            (">", ""),
            ("*", ""),
            ("*.*", "."),
        ];
        for (pattern, subject) in fails {
            assert!(
                !matches(&split(pattern.as_bytes()), &split(subject.as_bytes())),
                "{pattern} {subject}"
            );
        }
    }
}
