//! The expected deliveries of each client: computed apart from the broker, and compared with its
//! deliveries.

use std::collections::{BTreeMap, BTreeSet};

/// Number of a client, under which it publishes and subscribes.
pub(crate) type Member = usize;

/// Message as its publisher made it.
pub(crate) struct Published {
    pub(crate) subject: &'static str,
}

/// Published messages, and the acknowledged number of each publisher.
#[derive(Default)]
pub(crate) struct Oracle {
    /// Messages of each publisher, by number.
    published: BTreeMap<Member, Vec<Published>>,
    /// Messages of each publisher that a `PONG` has acknowledged.
    acknowledged: BTreeMap<Member, usize>,
    /// Deliveries to queue groups.
    grouped: BTreeSet<(&'static str, Member, usize)>,
    /// Deliveries that were checked.
    pub(crate) checked: u64,
}

/// Number of published or acknowledged messages of every publisher at some moment.
pub(crate) type Snapshot = BTreeMap<Member, usize>;

impl Oracle {
    /// Add a message; return its number.
    pub(crate) fn publish(&mut self, member: Member, subject: &'static str) -> usize {
        let all = self.published.entry(member).or_default();
        all.push(Published { subject });
        all.len() - 1
    }

    pub(crate) fn count(&self, member: Member) -> usize {
        self.published.get(&member).map_or(0, Vec::len)
    }

    /// Note that the first `count` messages of a publisher are acknowledged.
    pub(crate) fn acknowledge(&mut self, member: Member, count: usize) {
        let acknowledged = self.acknowledged.entry(member).or_default();
        *acknowledged = count.max(*acknowledged);
    }

    pub(crate) fn acknowledged(&self) -> Snapshot {
        self.acknowledged.clone()
    }

    pub(crate) fn counts(&self) -> Snapshot {
        self.published
            .iter()
            .map(|(member, all)| (*member, all.len()))
            .collect()
    }

    /// Return the numbers of the messages of `publisher` from number `from` up to `upto` that
    /// `pattern` matches.
    pub(crate) fn due(
        &self,
        publisher: Member,
        from: usize,
        upto: usize,
        pattern: &str,
    ) -> impl Iterator<Item = usize> {
        let all = self.published.get(&publisher).map_or(&[][..], |all| all);
        (from..upto.min(all.len())).filter(move |n| matches(pattern, all[*n].subject))
    }

    /// Check a delivery against the published messages.
    pub(crate) fn check(
        &mut self,
        publisher: Member,
        number: usize,
        subject: &str,
        pattern: &str,
    ) -> Result<(), String> {
        self.checked += 1;
        let message = self
            .published
            .get(&publisher)
            .and_then(|all| all.get(number));
        let Some(message) = message else {
            return Err(format!(
                "message {number} of {publisher} was never published"
            ));
        };
        if message.subject != subject {
            return Err(format!(
                "message {number} of {publisher} on {subject}, published on {}",
                message.subject
            ));
        }
        if !matches(pattern, subject) {
            return Err(format!("{subject} does not match {pattern}"));
        }
        Ok(())
    }

    /// Check that a message goes to only one member of a queue group.
    pub(crate) fn check_group(
        &mut self,
        group: &'static str,
        publisher: Member,
        number: usize,
    ) -> Result<(), String> {
        if self.grouped.insert((group, publisher, number)) {
            return Ok(());
        }
        Err(format!(
            "message {number} of {publisher} was delivered twice to group {group}"
        ))
    }
}

/// Return whether a subject matches a pattern, by the rules of NATS, token by token.
fn matches(pattern: &str, subject: &str) -> bool {
    let mut tokens = subject.split('.');
    for part in pattern.split('.') {
        match (part, tokens.next()) {
            (">", Some(_)) => return true,
            ("*", Some(_)) => {}
            (part, Some(token)) if part == token => {}
            _ => return false,
        }
    }
    tokens.next().is_none()
}
