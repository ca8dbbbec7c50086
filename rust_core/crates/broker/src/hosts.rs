//! The names by which HTTP callers may address the broker.
//!
//! A page that makes its own name resolve to the broker's address (DNS rebinding) has, for a browser, the
//! broker's origin: it may read every answer. The name in `Host` is its own name still, so only names that
//! belong to this host are served.

use std::net::{Ipv4Addr, Ipv6Addr};

use protocol::http::split_authority;

/// The file in which the administrator gives names to addresses.
const HOSTS_FILE: &str = "/etc/hosts";

/// The names that are served, besides addresses and `localhost`.
#[derive(Debug, Clone, Default)]
pub(crate) struct AllowedHosts {
    /// Whether every name is served.
    all: bool,
    /// The names in lower case, without a dot at the end.
    names: Box<[Box<str>]>,
}

impl AllowedHosts {
    /// Serve the names in `listed`, or all where `"*"` is among them, and the host's `own`.
    ///
    /// # Errors
    /// A text that says which listed entry is not a name.
    pub(crate) fn new(listed: &[String], own: &[String]) -> Result<Self, String> {
        let named = || listed.iter().filter(|one| *one != "*");
        if let Some(wrong) = named().find(|one| !is_name(one)) {
            return Err(format!(
                "{wrong:?} is neither a host name like \"broker.example.org\", without scheme and port, nor \"*\""
            ));
        }
        let names = named().chain(own).map(|name| {
            let name = name.strip_suffix('.').unwrap_or(name);
            name.to_ascii_lowercase().into_boxed_str()
        });
        Ok(Self {
            all: listed.iter().any(|one| one == "*"),
            names: names.collect(),
        })
    }

    /// Return whether a request to this authority is served. Ports are not compared; HTTP/1.0 and clients without a
    /// name for the host may leave the name out.
    pub(crate) fn serves(&self, authority: &[u8]) -> bool {
        if self.all || authority.is_empty() {
            return true;
        }
        let Some((host, _)) = split_authority(authority) else {
            return false;
        };
        let host = host.strip_suffix(b".").unwrap_or(host);
        let Ok(host) = std::str::from_utf8(host) else {
            return false;
        };
        is_address(host)
            || is_localhost(host)
            || self
                .names
                .iter()
                .any(|name| name.eq_ignore_ascii_case(host))
    }
}

/// Return this host's own names: what the kernel calls it, the first part of that, and the names beside either
/// in `/etc/hosts`. The network is not asked: its answers are not the administrator's word.
pub(crate) fn own_names() -> Vec<String> {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    names_of(
        &name,
        &std::fs::read_to_string(HOSTS_FILE).unwrap_or_default(),
    )
}

fn names_of(name: &str, hosts_file: &str) -> Vec<String> {
    let short = name.split('.').next().unwrap_or_default();
    let mut names = vec![name.to_owned(), short.to_owned()];
    for line in hosts_file.lines() {
        let entry = line.split('#').next().unwrap_or_default();
        let aliases: Vec<_> = entry.split_ascii_whitespace().skip(1).collect();
        if aliases.iter().any(|alias| [name, short].contains(alias)) {
            names.extend(aliases.into_iter().map(str::to_owned));
        }
    }
    names.retain(|name| is_name(name));
    names.sort();
    names.dedup();
    names
}

fn is_address(host: &str) -> bool {
    match host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        Some(inner) => {
            // A zone (RFC 6874) says which link the address belongs to.
            let address = inner.split('%').next().unwrap_or_default();
            address.parse::<Ipv6Addr>().is_ok()
        }
        None => host.parse::<Ipv4Addr>().is_ok(),
    }
}

/// Return whether it is `localhost` or a name below, which never resolve to anything but loopback (RFC 6761).
fn is_localhost(host: &str) -> bool {
    let (host, name) = (host.as_bytes(), b"localhost");
    let Some((before, end)) = host.split_last_chunk::<9>() else {
        return false;
    };
    end.eq_ignore_ascii_case(name) && matches!(before, [] | [.., b'.'])
}

/// Return whether a text can be a host's name or address, without brackets or port.
fn is_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !text.is_empty() && text.bytes().all(is_part) || text.parse::<Ipv6Addr>().is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn hosts(listed: &[&str], own: &[&str]) -> AllowedHosts {
        let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        AllowedHosts::new(&owned(listed), &owned(own)).unwrap()
    }

    #[test]
    fn addresses_and_localhost_are_served() {
        let hosts = hosts(&[], &[]);
        for authority in [
            "",
            "127.0.0.1",
            "127.0.0.1:8080",
            "192.0.2.1:1",
            "[::1]:8080",
            "[2001:db8::1]",
            "[fe80::1%25eth0]:80",
            "localhost",
            "LocalHost:8080",
            "localhost.:80",
            "a.b.localhost",
        ] {
            assert!(hosts.serves(authority.as_bytes()), "{authority}");
        }
        for authority in [
            "evil.example",
            "evil.example:8080",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "notlocalhost",
            "u@localhost",
            "localhost:x",
            "[evil]",
            "[::1",
            "1.2.3",
            "a",
            ".",
            "\u{e9}",
        ] {
            assert!(!hosts.serves(authority.as_bytes()), "{authority}");
        }
    }

    #[test]
    fn listed_names_and_the_hosts_own_are_served() {
        let hosts = hosts(&["Broker.Example.org."], &["box"]);
        for authority in [
            "broker.example.org",
            "BROKER.example.ORG:1",
            "broker.example.org.:1",
            "Box:8080",
        ] {
            assert!(hosts.serves(authority.as_bytes()), "{authority}");
        }
        for authority in ["example.org", "a.broker.example.org", "box.evil.example"] {
            assert!(!hosts.serves(authority.as_bytes()), "{authority}");
        }
    }

    #[test]
    fn a_star_serves_every_name() {
        assert!(hosts(&["a", "*"], &[]).serves(b"evil.example:8080"));
    }

    #[test]
    fn entries_that_are_not_names() {
        for entry in ["", "https://a.b", "a:80", "a/b", "*.a.b", "a b", "[::1]"] {
            let error = AllowedHosts::new(&["b".into(), entry.into()], &[]).unwrap_err();
            assert!(error.contains(&format!("{entry:?}")), "{error}");
        }
        assert!(AllowedHosts::new(&["::1".into(), "10.0.0.1".into()], &[]).is_ok());
    }

    #[test]
    fn own_names_stand_beside_the_hosts_name() {
        let file = "127.0.0.1 localhost\n127.0.1.1\tbox.example.org box # evil\n::1 ip6-localhost\n\
            10.0.0.9 other box.backup\n# 10.0.0.1 commented box\n";
        assert_eq!(names_of("box", file), ["box", "box.example.org"]);
        assert_eq!(
            names_of("box.example.org", file),
            ["box", "box.example.org"]
        );
        assert_eq!(names_of("alone", file), ["alone"]);
        assert_eq!(names_of("(none)", ""), Vec::<String>::new());
        assert!(own_names().iter().all(|name| is_name(name)));
    }
}
