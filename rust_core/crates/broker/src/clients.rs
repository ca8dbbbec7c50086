//! The accounts that clients give of themselves in `CONNECT`, kept once for all that give the same.

use std::collections::HashSet;
use std::sync::Arc;

use protocol::nats::ConnectOptions;

/// Name, language and version of a client, as it gives them.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ClientInfo {
    pub(crate) name: Box<str>,
    pub(crate) lang: Box<str>,
    pub(crate) version: Box<str>,
}

/// Longest text that is kept, in bytes; what is longer is cut.
const MAX_TEXT: usize = 128;
/// Different ones that are remembered to be shared; when there are more, it begins anew.
const MAX_SHARED: usize = 1024;

impl ClientInfo {
    fn of(options: &ConnectOptions) -> Self {
        let name = options.name.as_deref().unwrap_or_default();
        Self {
            name: cut(name).into(),
            lang: cut(&options.lang).into(),
            version: cut(&options.version).into(),
        }
    }

    fn is_empty(&self) -> bool {
        self.name.is_empty() && self.lang.is_empty() && self.version.is_empty()
    }
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The accounts of one shard's clients. A million clients of one program share one of them.
#[derive(Default)]
pub(crate) struct Clients(HashSet<Arc<ClientInfo>>);

impl Clients {
    /// Return a client's account of itself, which others may share; `None` when it is empty.
    pub(crate) fn share(&mut self, options: &ConnectOptions) -> Option<Arc<ClientInfo>> {
        let info = ClientInfo::of(options);
        if info.is_empty() {
            return None;
        }
        if let Some(shared) = self.0.get(&info) {
            return Some(Arc::clone(shared));
        }
        let info = Arc::new(info);
        if self.0.len() >= MAX_SHARED {
            // Not looked for one by one: clients may all be called differently.
            self.0.clear();
        }
        self.0.insert(Arc::clone(&info));
        Some(info)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn options(name: &str) -> ConnectOptions {
        ConnectOptions {
            name: Some(name.into()),
            lang: "rust".into(),
            ..Default::default()
        }
    }

    #[test]
    fn the_same_is_kept_once() {
        let mut clients = Clients::default();
        let first = clients.share(&options("a")).unwrap();
        let second = clients.share(&options("a")).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!(
            (&*first.name, &*first.lang, &*first.version),
            ("a", "rust", "")
        );
        assert_eq!(clients.share(&ConnectOptions::default()), None);
    }

    #[test]
    fn names_are_bounded_in_number_and_length() {
        let mut clients = Clients::default();
        let all: Vec<_> = (0..3 * MAX_SHARED)
            .map(|n| clients.share(&options(&n.to_string())).unwrap())
            .collect();
        assert_eq!(&*all[2000].name, "2000");
        assert!(clients.0.len() <= MAX_SHARED);
        drop(all);
        let long = clients.share(&options(&"\u{e9}".repeat(MAX_TEXT))).unwrap();
        assert_eq!(long.name.len(), MAX_TEXT);
    }
}
