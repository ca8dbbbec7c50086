//! The server that an engine connects to.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::Deserialize;

/// Protocol that carries the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// The NATS protocol over WebSocket.
    Ws,
    /// The NATS protocol over TCP.
    Tcp,
    /// HTTP on persistent connections.
    Rest,
    /// HTTP on a new connection for each request.
    RestNew,
}

impl Transport {
    /// Return whether it is HTTP.
    #[must_use]
    pub const fn is_http(self) -> bool {
        matches!(self, Self::Rest | Self::RestNew)
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ws => "ws",
            Self::Tcp => "tcp",
            Self::Rest => "rest",
            Self::RestNew => "rest-new",
        })
    }
}

/// Server to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Protocol that carries the requests.
    pub transport: Transport,
    /// The server's resolved address.
    pub address: SocketAddr,
    /// `Host` of HTTP and of the WebSocket handshake: `name` or `name:port`.
    pub host: String,
    /// Path of the WebSocket handshake. Over HTTP the path of the gateway, or of the page that is
    /// fetched.
    pub path: String,
    /// Local addresses to connect from, in turn. If empty, loopback servers get as many of
    /// 127.0.0.0/8 as are needed, and for other servers the kernel chooses.
    pub sources: Vec<IpAddr>,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.transport {
            Transport::Tcp => write!(f, "tcp://{}", self.address),
            Transport::Ws => write!(f, "ws://{}{}", self.address, self.path),
            Transport::Rest | Transport::RestNew => {
                write!(f, "http://{}{}", self.address, self.path)
            }
        }
    }
}
