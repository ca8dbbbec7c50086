//! Permissions read as plainly as they are written: the oracle of tests, and nothing else.

use crate::permissions::{List, PermissionLists};
use fastrand::Rng;

/// Return whether `user` may publish to `subject`.
pub(crate) fn may_publish(lists: &PermissionLists, user: &str, subject: &str) -> bool {
    let list = lists.publish.clone().unwrap_or_default();
    let allow = list.allow.or(lists.responses.map(|_| Vec::new()));
    let any = |entries: &[String]| {
        entries
            .iter()
            .any(|entry| matches(&fill(entry, user), subject))
    };
    allow.is_none_or(|allow| any(&allow)) && !any(&list.deny)
}

/// Return whether `user` may subscribe to `subject`, in a queue group or alone.
pub(crate) fn may_subscribe(
    lists: &PermissionLists,
    user: &str,
    subject: &str,
    queue: Option<&str>,
) -> bool {
    let list = lists.subscribe.clone().unwrap_or_default();
    let allowed = list.allow.as_ref().is_none_or(|allow| {
        let found = concerning(allow, user, |entry| covers(entry, subject));
        let grouped: Vec<_> = found
            .iter()
            .filter_map(|(_, group)| group.as_deref())
            .collect();
        match queue {
            Some(queue) if !grouped.is_empty() => grouped.iter().any(|group| names(group, queue)),
            _ => found.iter().any(|(_, group)| group.is_none()),
        }
    });
    allowed && may_receive(lists, user, subject, queue)
}

/// Return whether no denied subject matches.
pub(crate) fn may_receive(
    lists: &PermissionLists,
    user: &str,
    subject: &str,
    queue: Option<&str>,
) -> bool {
    let List { deny, .. } = lists.subscribe.clone().unwrap_or_default();
    let found = concerning(&deny, user, |entry| matches(entry, subject));
    !found.iter().any(|(_, group)| match (group, queue) {
        (None, _) => true,
        (Some(group), Some(queue)) => names(group, queue),
        (Some(_), None) => false,
    })
}

/// Return random lists over a small alphabet.
pub(crate) fn random_lists(rng: &mut Rng) -> PermissionLists {
    let mut entries = |grouped: bool| -> Vec<String> {
        (0..rng.usize(..4))
            .map(|_| {
                let subject = random_tokens(rng, &["a", "b", "*", ">", "{user}", "x{user}"]);
                let group = rng
                    .choice(["", "", " q", " q.*", " r", " {user}"])
                    .expect("some");
                format!("{subject}{}", if grouped { group } else { "" })
            })
            .collect()
    };
    let [publish, subscribe] = [false, true].map(|grouped| List {
        allow: Some(entries(grouped)).filter(|allow| !allow.is_empty()),
        deny: entries(grouped),
    });
    PermissionLists {
        publish: rng.bool().then_some(publish),
        subscribe: (rng.u8(..8) > 0).then_some(subscribe),
        responses: None,
    }
}

/// Return a random subject over the alphabet of [`random_lists`].
pub(crate) fn random_subject(rng: &mut Rng, wildcards: bool) -> String {
    let tokens = ["a", "b", "xa", "c", "*", ">"];
    random_tokens(rng, &tokens[..if wildcards { 6 } else { 4 }])
}

fn random_tokens(rng: &mut Rng, alphabet: &[&str]) -> String {
    let mut tokens = Vec::new();
    for _ in 0..=rng.usize(..3) {
        let token = *rng.choice(alphabet).expect("some");
        tokens.push(token);
        if token == ">" {
            break;
        }
    }
    tokens.join(".")
}

fn fill(entry: &str, user: &str) -> String {
    entry.replace("{user}", user)
}

/// Return subject and queue group of the entries for whose subject `is_wanted` holds.
fn concerning(
    entries: &[String],
    user: &str,
    is_wanted: impl Fn(&str) -> bool,
) -> Vec<(String, Option<String>)> {
    let filled = entries.iter().map(|entry| fill(entry, user));
    let split = filled.map(|entry| match entry.split_once(' ') {
        Some((subject, group)) => (subject.to_owned(), Some(group.to_owned())),
        None => (entry, None),
    });
    split.filter(|(subject, _)| is_wanted(subject)).collect()
}

fn names(group: &str, queue: &str) -> bool {
    group == queue || covers(group, queue)
}

/// Return whether the pattern matches the text, whose wildcards are literal.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<&str>, Vec<&str>) =
        (pattern.split('.').collect(), text.split('.').collect());
    let (tail, pattern) = match pattern.split_last() {
        Some((&">", tokens)) => (true, tokens.to_vec()),
        _ => (false, pattern),
    };
    let fits = if tail {
        text.len() > pattern.len()
    } else {
        text.len() == pattern.len()
    };
    fits && pattern
        .iter()
        .zip(&text)
        .all(|(one, other)| *one == "*" || one == other)
}

fn covers(pattern: &str, text: &str) -> bool {
    let is_tail = |text: &str| text == ">" || text.ends_with(".>");
    matches(pattern, text) && (is_tail(pattern) || !is_tail(text))
}
