//! Origins of pages: which of them may use the gateway, and which may open WebSocket connections.
//!
//! Browsers let any page send simple requests and open WebSocket connections to any address, loopback
//! included, and only withhold the answers to requests. So a server has to look at the origin that they name
//! (the Fetch standard's CORS protocol; RFC 6455 section 10.2).

use protocol::http::split_authority;

/// The scheme of a listener without TLS.
const SCHEME: &str = "http";

/// The place that a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The address that it is sent to, or no page at all.
    Same,
    /// A page of another origin that is let in.
    Allowed,
    /// A page of another origin.
    Foreign,
}

/// The origins whose pages are let in, besides the one that a request is sent to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Origins {
    /// Whether every origin is let in.
    all: bool,
    /// The origins in their canonical form.
    list: Box<[Box<str>]>,
}

impl Origins {
    /// Read a list of origins, or of `"*"` for all.
    ///
    /// # Errors
    /// A text that says which entry is not an origin.
    pub(crate) fn new(list: &[String]) -> Result<Self, String> {
        let (all, named): (Vec<_>, Vec<_>) = list.iter().partition(|one| *one == "*");
        let read = |one: &&String| {
            let fault =
                || format!("{one:?} is neither an origin like \"https://example.org\" nor \"*\"");
            canonical(one).map(String::into_boxed_str).ok_or_else(fault)
        };
        Ok(Self {
            all: !all.is_empty(),
            list: named.iter().map(read).collect::<Result<_, _>>()?,
        })
    }

    /// Tell where a request comes from that names this origin, and is sent to this authority.
    pub(crate) fn source(&self, origin: &[u8], authority: &[u8]) -> Source {
        let text = |bytes| std::str::from_utf8(bytes).ok();
        if self.all && text(origin).is_some() {
            return Source::Allowed;
        }
        let Some(origin) = text(origin).and_then(canonical) else {
            return Source::Foreign;
        };
        if self.list.iter().any(|one| **one == origin) {
            return Source::Allowed;
        }
        let own =
            text(authority).and_then(|authority| canonical(&format!("{SCHEME}://{authority}")));
        if own == Some(origin) {
            Source::Same
        } else {
            Source::Foreign
        }
    }

    /// Return whether pages that do not name their origin are let in.
    pub(crate) fn takes_all(&self) -> bool {
        self.all
    }
}

/// Return an origin in the one form in which equal origins are equal texts: in lower case, without the port
/// that its scheme has anyway. `None` if it is not an origin, as `null` is not.
fn canonical(origin: &str) -> Option<String> {
    let (scheme, authority) = origin.split_once("://")?;
    let (host, port) = split_authority(authority.as_bytes())?;
    let host = std::str::from_utf8(host).ok()?;
    let is_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()+,;=:[]".contains(&byte);
    let is_sound = !scheme.is_empty() && scheme.bytes().all(is_scheme) && host.bytes().all(is_host);
    if !is_sound || host.is_empty() {
        return None;
    }
    let scheme = scheme.to_ascii_lowercase();
    let usual = match scheme.as_str() {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    };
    let host = host.to_ascii_lowercase();
    Some(match port.filter(|port| Some(*port) != usual) {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn source(list: &[&str], origin: &str, authority: &str) -> Source {
        let list: Vec<_> = list.iter().map(ToString::to_string).collect();
        let origins = Origins::new(&list).unwrap();
        origins.source(origin.as_bytes(), authority.as_bytes())
    }

    #[test]
    fn the_same_origin_has_scheme_host_and_port() {
        for (origin, authority) in [
            ("http://h:8080", "h:8080"),
            ("http://h:8080", "H:8080"),
            ("HTTP://H", "h:80"),
            ("http://h:80", "h"),
            ("http://h", "h:"),
            ("http://[::1]:8080", "[::1]:8080"),
            ("http://127.0.0.1", "127.0.0.1"),
        ] {
            assert_eq!(
                source(&[], origin, authority),
                Source::Same,
                "{origin} {authority}"
            );
        }
        for (origin, authority) in [
            ("https://h:8080", "h:8080"),
            ("https://h", "h:443"),
            ("https://h", "h"),
            ("http://h:8081", "h:8080"),
            ("http://h", "h:8080"),
            ("http://h.evil", "h"),
            ("http://evil", "h"),
            ("http://u@h", "h"),
            ("http://h/", "h"),
            ("http://h,http://h", "h"),
            ("h", "h"),
            ("null", "null"),
            ("", ""),
            ("http://", ""),
            ("\u{e9}", "\u{e9}"),
        ] {
            assert_eq!(
                source(&[], origin, authority),
                Source::Foreign,
                "{origin} {authority}"
            );
        }
    }

    #[test]
    fn listed_origins_are_let_in() {
        let list = [
            "https://Good.example:443",
            "http://10.0.0.1:3000",
            "app://-",
        ];
        for origin in [
            "https://good.example",
            "https://good.example:443",
            "http://10.0.0.1:3000",
            "app://-",
        ] {
            assert_eq!(source(&list, origin, "h"), Source::Allowed, "{origin}");
        }
        for origin in [
            "http://good.example",
            "https://good.example:444",
            "https://good.example.evil",
            "https://sub.good.example",
            "null",
        ] {
            assert_eq!(source(&list, origin, "h"), Source::Foreign, "{origin}");
        }
        for origin in ["https://evil.example", "null", "\u{e9}"] {
            assert_eq!(source(&["*"], origin, "h"), Source::Allowed, "{origin}");
        }
        let all = Origins::new(&["*".into()]).unwrap();
        assert_eq!(
            all.source(b"\xff", b"h"),
            Source::Foreign,
            "no text for the answer"
        );
    }

    #[test]
    fn entries_that_are_not_origins() {
        for entry in [
            "",
            "a.b",
            "https://",
            "https://a/b",
            "https://*.b",
            "https://a b",
            "https://a:x",
            "://a",
            "https://u@a",
            "null",
        ] {
            let error = Origins::new(&["*".into(), entry.into()]).unwrap_err();
            assert!(error.contains(&format!("{entry:?}")), "{error}");
        }
    }
}
