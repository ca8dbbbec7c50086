//! Permissions: the lists of a configuration or a token, and their compiled form.

use crate::pattern::{InvalidPattern, Pattern};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::fmt;
use std::time::Duration;

/// The permissions of a user as the configuration or a token writes them.
///
/// The default permits everything.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PermissionLists {
    /// Subjects that the user may publish to, replies included. `None`: all.
    pub publish: Option<List>,
    /// Subjects that the user may subscribe to; a second word is a queue group. `None`: all.
    pub subscribe: Option<List>,
    /// The permission to publish to the reply subjects of received messages. `None`: no such permission.
    pub responses: Option<ResponseLimits>,
}

/// Subjects that are allowed, less those that are denied.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct List {
    /// Allowed subjects, wildcards and placeholders included. `None`: all; an empty list: none.
    pub allow: Option<Vec<String>>,
    /// Denied subjects, which overrule allowed ones.
    pub deny: Vec<String>,
}

/// The bounds of the permission to reply.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ResponseLimits {
    /// Messages to each reply subject, 1 or more; 0: any number. Default 1.
    pub max: u32,
    /// Seconds from the receipt of the request; 0: no end. Default 120.
    pub expires_s: f64,
}

impl Default for ResponseLimits {
    fn default() -> Self {
        Self {
            max: 1,
            expires_s: 120.0,
        }
    }
}

impl ResponseLimits {
    /// Return the time from the receipt of a request to the end of the permission; `None`: no end.
    #[must_use]
    pub fn expires(&self) -> Option<Duration> {
        let expires = Duration::try_from_secs_f64(self.expires_s).unwrap_or(Duration::MAX);
        (!expires.is_zero()).then_some(expires)
    }
}

/// An entry of a list that is not a permission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidPermission {
    /// The key of the entry, as `publish.allow`.
    pub key: &'static str,
    /// The entry.
    pub entry: String,
    /// The fault.
    pub reason: String,
}

impl fmt::Display for InvalidPermission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}: {}", self.key, self.entry, self.reason)
    }
}

impl Error for InvalidPermission {}

/// Compiled permissions, shared by all clients that have them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Permissions {
    pub(crate) publish: Rules<Pattern>,
    pub(crate) subscribe: Rules<Entry>,
    pub(crate) responses: Option<ResponseLimits>,
    /// The names of the placeholders, by number.
    pub(crate) names: Vec<String>,
}

/// Compiled patterns that are allowed, less those that are denied.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rules<P> {
    /// `None`: all.
    pub(crate) allow: Option<Box<[P]>>,
    pub(crate) deny: Box<[P]>,
}

impl<P> Default for Rules<P> {
    fn default() -> Self {
        Self {
            allow: None,
            deny: Box::default(),
        }
    }
}

impl<P> Rules<P> {
    /// Return whether everything is allowed.
    pub(crate) fn permit_all(&self) -> bool {
        self.allow.is_none() && self.deny.is_empty()
    }
}

/// A subject to subscribe to, perhaps in a queue group only.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) subject: Pattern,
    pub(crate) queue: Option<QueueName>,
}

/// The name of a queue group, or a pattern of such names.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct QueueName {
    text: Box<[u8]>,
    /// `None`: the text is not a pattern.
    pattern: Option<Pattern>,
}

impl QueueName {
    fn new(text: &str, number_of: impl FnMut(&str) -> usize) -> Result<Self, InvalidPattern> {
        let pattern = match Pattern::new(text, number_of) {
            Err(InvalidPattern::Subject(_)) => None,
            pattern => Some(pattern?),
        };
        Ok(Self {
            text: text.as_bytes().into(),
            pattern,
        })
    }

    pub(crate) fn matches(&self, values: &[Box<[u8]>], queue: &[u8]) -> bool {
        let covers = |pattern: &Pattern| {
            router::subject::validate_subscription(queue).is_ok() && pattern.covers(values, queue)
        };
        *self.text == *queue || self.pattern.as_ref().is_some_and(covers)
    }
}

impl Permissions {
    /// Compile `lists`.
    ///
    /// Users with `responses` and no `publish.allow` may publish replies only, as in nats-server.
    ///
    /// # Errors
    /// [`InvalidPermission`] names the first entry that is not a permission.
    pub fn new(lists: &PermissionLists) -> Result<Self, InvalidPermission> {
        let mut names = Vec::new();
        let publish = compile(
            lists.publish.as_ref(),
            ["publish.allow", "publish.deny"],
            &mut names,
            |text, number_of| Pattern::new(text, number_of),
        )?;
        let subscribe = compile(
            lists.subscribe.as_ref(),
            ["subscribe.allow", "subscribe.deny"],
            &mut names,
            |text, number_of| match text.split_once([' ', '\t']) {
                Some((subject, queue)) => Ok(Entry {
                    subject: Pattern::new(subject, &mut *number_of)?,
                    queue: Some(QueueName::new(queue.trim_start(), number_of)?),
                }),
                None => Ok(Entry {
                    subject: Pattern::new(text, number_of)?,
                    queue: None,
                }),
            },
        )?;
        let mut permissions = Self {
            publish,
            subscribe,
            responses: lists.responses,
            names,
        };
        if let Some(limits) = lists.responses {
            if !(limits.expires_s >= 0.0 && limits.expires_s.is_finite()) {
                return Err(InvalidPermission {
                    key: "responses.expires_s",
                    entry: limits.expires_s.to_string(),
                    reason: "not a number of seconds, 0 or more".into(),
                });
            }
            permissions.publish.allow.get_or_insert_default();
        }
        Ok(permissions)
    }

    /// Return the names of the placeholders, each once.
    pub fn placeholders(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }
}

fn compile<P>(
    list: Option<&List>,
    [allow, deny]: [&'static str; 2],
    names: &mut Vec<String>,
    new: impl Fn(&str, &mut dyn FnMut(&str) -> usize) -> Result<P, InvalidPattern>,
) -> Result<Rules<P>, InvalidPermission> {
    let Some(list) = list else {
        return Ok(Rules::default());
    };
    let mut all = |key, entries: &[String]| {
        let compiled = entries.iter().map(|entry| {
            let mut number_of = |name: &str| number(names, name);
            new(entry.trim(), &mut number_of).map_err(|error| InvalidPermission {
                key,
                entry: entry.clone(),
                reason: error.to_string(),
            })
        });
        compiled.collect::<Result<Box<[P]>, _>>()
    };
    Ok(Rules {
        allow: list
            .allow
            .as_ref()
            .map(|entries| all(allow, entries))
            .transpose()?,
        deny: all(deny, &list.deny)?,
    })
}

/// Return the number of a placeholder, a new one if the name is new.
fn number(names: &mut Vec<String>, name: &str) -> usize {
    names
        .iter()
        .position(|known| known == name)
        .unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        })
}
