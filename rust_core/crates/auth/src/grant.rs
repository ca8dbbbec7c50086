//! What one client may do.

use crate::pattern::Pattern;
use crate::permissions::{Entry, Permissions, ResponseLimits, Rules};
use router::subject;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Permissions with the values of one client for their placeholders.
///
/// Decisions are nats-server's, except that a wildcard subscription must be covered by an allowed
/// subject: nats-server lets `foo.>` pass under `foo.*`.
#[derive(Debug, Clone)]
pub struct Grant {
    permissions: Arc<Permissions>,
    values: Box<[Box<[u8]>]>,
}

/// A value that cannot stand for a placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidValue {
    /// The name of the placeholder.
    pub name: String,
    /// The fault.
    pub reason: &'static str,
}

impl fmt::Display for InvalidValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}}}: {}", self.name, self.reason)
    }
}

impl Error for InvalidValue {}

impl Grant {
    /// Join permissions with the values that `value_of` returns for the names of their placeholders.
    ///
    /// # Errors
    /// [`InvalidValue`] if a value is missing, or is not one literal token of a subject. Such a value
    /// could reach the subjects of other clients.
    pub fn new<'a>(
        permissions: Arc<Permissions>,
        value_of: impl Fn(&str) -> Option<&'a str>,
    ) -> Result<Self, InvalidValue> {
        let value = |name: &String| {
            let invalid = |reason| InvalidValue {
                name: name.clone(),
                reason,
            };
            let value = value_of(name).ok_or_else(|| invalid("the client has no such value"))?;
            if value.contains('.') || !subject::is_valid_publish(value.as_bytes()) {
                return Err(invalid(
                    "the client's value is not one literal token of a subject",
                ));
            }
            Ok(value.as_bytes().into())
        };
        let values = permissions
            .names
            .iter()
            .map(value)
            .collect::<Result<_, _>>()?;
        Ok(Self {
            permissions,
            values,
        })
    }

    /// Return whether the client may publish to `subject`, also as the reply of a message.
    #[must_use]
    pub fn may_publish(&self, subject: &[u8]) -> bool {
        let rules = &self.permissions.publish;
        rules.permit_all() || self.permits_publish(rules, subject)
    }

    // A call of its own: most clients may publish everything.
    #[inline(never)]
    fn permits_publish(&self, rules: &Rules<Pattern>, subject: &[u8]) -> bool {
        // A subject with an empty token matches nothing, so it is neither allowed nor denied.
        let is_matchable = !subject::has_empty_token(subject);
        let matches = |pattern: &Pattern| is_matchable && pattern.matches(&self.values, subject);
        rules
            .allow
            .as_ref()
            .is_none_or(|allow| allow.iter().any(matches))
            && !rules.deny.iter().any(matches)
    }

    /// Return whether the client may subscribe to `subject`, in a queue group or alone.
    ///
    /// A subject that is wider than a denied one is permitted: see [`filters`](Self::filters).
    #[must_use]
    pub fn may_subscribe(&self, subject: &[u8], queue: Option<&[u8]>) -> bool {
        let rules = &self.permissions.subscribe;
        let allows = |allow: &[Entry]| {
            let (plain, in_queue) = self.matching(allow, queue, |pattern| {
                pattern.covers(&self.values, subject)
            });
            in_queue.unwrap_or(plain)
        };
        rules.allow.as_deref().is_none_or(allows) && self.is_not_denied(subject, queue)
    }

    /// Return whether messages of this permitted subscription need [`may_receive`](Self::may_receive).
    #[must_use]
    pub fn filters(&self, subject: &[u8], queue: Option<&[u8]>) -> bool {
        let concerns = |entry: &&Entry| queue.is_some() || entry.queue.is_none();
        let mut deny = self.permissions.subscribe.deny.iter().filter(concerns);
        deny.any(|entry| entry.subject.meets(&self.values, subject))
    }

    /// Return whether the client may receive a message published to `subject`, by a subscription of the
    /// queue group, or by a plain one.
    #[must_use]
    pub fn may_receive(&self, subject: &[u8], queue: Option<&[u8]>) -> bool {
        self.is_not_denied(subject, queue)
    }

    /// Return the bounds of the permission to reply; `None`: no such permission.
    #[must_use]
    pub fn responses(&self) -> Option<&ResponseLimits> {
        self.permissions.responses.as_ref()
    }

    /// Return whether no denied subject matches. Wildcards in `subject` are literal text, so that a
    /// denied subject refuses at least the subscriptions that it covers.
    fn is_not_denied(&self, subject: &[u8], queue: Option<&[u8]>) -> bool {
        let deny = &self.permissions.subscribe.deny;
        if deny.is_empty() || subject::has_empty_token(subject) {
            return true;
        }
        let (plain, in_queue) = self.matching(deny, queue, |pattern| {
            pattern.matches(&self.values, subject)
        });
        !plain && !in_queue.unwrap_or(false)
    }

    /// Return whether an entry without a queue group matches; and whether one with this queue group
    /// does, `None` if no entry with any queue group concerns the subject, or if no group is given.
    fn matching(
        &self,
        entries: &[Entry],
        queue: Option<&[u8]>,
        matches: impl Fn(&Pattern) -> bool,
    ) -> (bool, Option<bool>) {
        let (mut plain, mut in_queue) = (false, None);
        for entry in entries.iter().filter(|entry| matches(&entry.subject)) {
            match (&entry.queue, queue) {
                (None, _) => plain = true,
                (Some(name), Some(queue)) => {
                    let found = name.matches(&self.values, queue);
                    in_queue = Some(in_queue.unwrap_or(false) || found);
                }
                (Some(_), None) => {}
            }
        }
        (plain, in_queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive;
    use crate::permissions::{List, PermissionLists};
    use fastrand::Rng;

    fn grant(lists: &PermissionLists, user: &str) -> Grant {
        let permissions = Arc::new(Permissions::new(lists).expect("valid"));
        Grant::new(permissions, |name| (name == "user").then_some(user)).expect("valid")
    }

    fn words(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn everything_is_permitted_without_lists() {
        let grant = grant(&PermissionLists::default(), "ann");
        for subject in ["a", ">", "a..b", "$SYS.>"] {
            assert!(grant.may_publish(subject.as_bytes()));
            assert!(grant.may_subscribe(subject.as_bytes(), None));
            assert!(grant.may_subscribe(subject.as_bytes(), Some(b"q")));
            assert!(!grant.filters(subject.as_bytes(), Some(b"q")));
        }
        assert_eq!(grant.responses(), None);
    }

    #[test]
    fn permission_to_reply_takes_the_others_away() {
        let lists = PermissionLists {
            responses: Some(ResponseLimits::default()),
            ..Default::default()
        };
        let grant = grant(&lists, "ann");
        assert!(!grant.may_publish(b"a"));
        assert!(grant.may_subscribe(b"a", None));
    }

    #[test]
    fn a_value_is_one_literal_token() {
        let list = List {
            allow: Some(words(&["c.{user}.>"])),
            deny: Vec::new(),
        };
        let lists = PermissionLists {
            subscribe: Some(list),
            ..Default::default()
        };
        let permissions = Arc::new(Permissions::new(&lists).expect("valid"));
        for value in ["", "*", ">", "a.b", ".", "a b", "a\r\n"] {
            let error = Grant::new(Arc::clone(&permissions), |_| Some(value)).expect_err(value);
            assert_eq!(error.name, "user");
        }
        let error = Grant::new(Arc::clone(&permissions), |_| None).expect_err("missing");
        assert_eq!(error.to_string(), "{user}: the client has no such value");
        let grant = Grant::new(permissions, |_| Some("a*b")).expect("valid");
        assert!(grant.may_subscribe(b"c.a*b.>", None));
        assert!(!grant.may_subscribe(b"c.axb.>", None));
    }

    #[test]
    fn decisions_are_those_of_the_plain_reading_of_the_lists() {
        let mut rng = Rng::with_seed(7);
        let mut counts = [[0; 2]; 4];
        for _ in 0..3_000 {
            let lists = naive::random_lists(&mut rng);
            let grant = grant(&lists, "a");
            for _ in 0..20 {
                let subject = naive::random_subject(&mut rng, false);
                let pattern = naive::random_subject(&mut rng, true);
                let queue = rng
                    .bool()
                    .then(|| *rng.choice(&["q", "q.a", "r"]).expect("some"));
                let bytes = queue.map(str::as_bytes);
                let what = format!("{lists:?} {subject} {pattern} {queue:?}");
                let decisions = [
                    (
                        grant.may_publish(subject.as_bytes()),
                        naive::may_publish(&lists, "a", &subject),
                    ),
                    (
                        grant.may_subscribe(pattern.as_bytes(), bytes),
                        naive::may_subscribe(&lists, "a", &pattern, queue),
                    ),
                    (
                        grant.may_receive(subject.as_bytes(), bytes),
                        naive::may_receive(&lists, "a", &subject, queue),
                    ),
                ];
                for (number, (found, wanted)) in decisions.into_iter().enumerate() {
                    assert_eq!(found, wanted, "decision {number} of {what}");
                    counts[number][usize::from(found)] += 1;
                }
                let filters = grant.filters(pattern.as_bytes(), bytes);
                counts[3][usize::from(filters)] += 1;
                if subject::matches(pattern.as_bytes(), subject.as_bytes()) && !decisions[2].0 {
                    assert!(filters, "{what} is filtered");
                }
            }
        }
        assert!(
            counts.iter().flatten().all(|&count| count > 1_000),
            "{counts:?}"
        );
    }
}
