//! Local addresses to connect from: one address has too few ports for very many connections to one
//! server.

use std::net::{IpAddr, Ipv4Addr};

use crate::error::EngineError;
use crate::target::Target;

/// Most loopback connections from one source address. One address has 28,232 ephemeral ports by
/// default, but the kernel's search for a free one is slow long before that number, with ports in
/// TIME_WAIT from earlier runs included.
const CONNECTIONS_PER_LOOPBACK: u32 = 2_000;

/// Ephemeral ports of one address by default, see ip(7).
const DEFAULT_PORTS: u32 = 60_999 - 32_768 + 1;

/// Local addresses of an engine's connections.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sources {
    /// The kernel's choice.
    Any,
    /// These in turn.
    Given(Box<[IpAddr]>),
    /// Addresses of 127.0.0.0/8, all of which are local, with this many connections each.
    Loopback(u32),
}

impl Sources {
    /// Choose enough addresses for `connections` connections, or return an error with the needed
    /// number.
    pub(crate) fn new(target: &Target, connections: u32) -> Result<Self, EngineError> {
        let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
        let ports = range.ok().and_then(|range| parse_ports(&range));
        Self::with_ports(target, connections, ports.unwrap_or(DEFAULT_PORTS))
    }

    fn with_ports(target: &Target, connections: u32, ports: u32) -> Result<Self, EngineError> {
        let is_loopback = matches!(target.address.ip(), IpAddr::V4(ip) if ip.is_loopback());
        if is_loopback && target.sources.is_empty() {
            return Ok(Self::Loopback(CONNECTIONS_PER_LOOPBACK.min(ports)));
        }
        let needed = connections.div_ceil(ports);
        let given = (target.sources.len() as u32).max(1);
        if needed > given {
            return Err(EngineError::Addresses {
                needed,
                given,
                ports,
            });
        }
        Ok(match target.sources.as_slice() {
            [] => Self::Any,
            sources => Self::Given(sources.into()),
        })
    }

    /// Return the address for the connection with this number; `None` leaves the choice to the
    /// kernel.
    pub(crate) fn of(&self, number: u32) -> Option<IpAddr> {
        match self {
            Self::Any => None,
            Self::Given(addresses) => addresses.get(number as usize % addresses.len()).copied(),
            Self::Loopback(each) => {
                let first = u32::from(Ipv4Addr::LOCALHOST);
                let most = u32::from(Ipv4Addr::new(0, 255, 255, 254)) - 1;
                let block = number / each;
                (block > 0).then(|| Ipv4Addr::from(first + block % most).into())
            }
        }
    }
}

/// Return the number of ports in a range, given as its first and last port.
fn parse_ports(range: &str) -> Option<u32> {
    let mut ends = range.split_whitespace().map(str::parse::<u32>);
    let (first, last) = (ends.next()?.ok()?, ends.next()?.ok()?);
    (last + 1).checked_sub(first).filter(|ports| *ports > 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::target::Transport;

    fn target(address: &str, sources: &[&str]) -> Target {
        Target {
            transport: Transport::Tcp,
            address: address.parse().unwrap(),
            host: String::new(),
            path: String::new(),
            sources: sources.iter().map(|text| text.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn loopback_connections_are_spread_over_source_addresses() {
        let local = Sources::with_ports(&target("127.0.0.1:4222", &[]), 2_000_000, 28_232).unwrap();
        let text = |number| local.of(number).map(|ip| ip.to_string());
        assert_eq!(text(0), None);
        assert_eq!(text(1_999), None);
        assert_eq!(text(2_000).as_deref(), Some("127.0.0.2"));
        assert_eq!(text(1_000_000).as_deref(), Some("127.0.1.245"));
        assert!(local.of(u32::MAX).unwrap().is_loopback());
    }

    #[test]
    fn given_addresses_take_turns() {
        let given = ["192.0.2.1", "192.0.2.2"];
        let sources = Sources::with_ports(&target("192.0.2.9:1", &given), 200, 100).unwrap();
        assert_eq!(sources.of(0).unwrap().to_string(), "192.0.2.1");
        assert_eq!(sources.of(3).unwrap().to_string(), "192.0.2.2");
        let loopback = target("127.0.0.1:1", &["127.0.0.5"]);
        let sources = Sources::with_ports(&loopback, 1, 100).unwrap();
        assert_eq!(sources.of(7).unwrap().to_string(), "127.0.0.5");
    }

    #[test]
    fn too_few_ports_are_said_with_the_number_of_addresses() {
        for (address, sources, given) in [
            ("192.0.2.9:1", &[][..], 1),
            ("[::1]:1", &[], 1),
            ("192.0.2.9:1", &["192.0.2.1", "192.0.2.2"], 2),
        ] {
            let refused = Sources::with_ports(&target(address, sources), 1_000_000, 28_232);
            let error = refused.unwrap_err();
            let expected = EngineError::Addresses {
                needed: 36,
                given,
                ports: 28_232,
            };
            assert_eq!(error, expected);
            assert!(error.to_string().contains("36 source addresses"), "{error}");
        }
        let enough = Sources::with_ports(&target("192.0.2.9:1", &[]), 28_232, 28_232);
        assert_eq!(enough, Ok(Sources::Any));
    }

    #[test]
    fn port_ranges_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_ports("32768\t60999\n"), Some(28_232));
        assert_eq!(parse_ports("1024 1024"), Some(1));
        assert_eq!(parse_ports("2 1"), None);
        assert_eq!(parse_ports("nonsense"), None);
    }
}
