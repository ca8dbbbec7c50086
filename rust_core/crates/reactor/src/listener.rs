//! Listening sockets that several shards share with SO_REUSEPORT.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::sockopt;

use crate::socket::{self, Mode};

/// Connections that may wait to be accepted; the kernel caps it at net.core.somaxconn.
const BACKLOG: i32 = 65_535;

/// An address could not be listened on.
#[derive(Debug)]
pub struct ListenError {
    /// The address asked for.
    pub address: SocketAddr,
    /// The kernel's reason.
    pub source: io::Error,
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot listen on {}: {}", self.address, self.source)
    }
}

impl std::error::Error for ListenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// A port held for the shards of one process.
///
/// SO_REUSEPORT alone would let a second server of the same user take half of the connections
/// without a word. The port is therefore bound without it first, which fails if the port is taken,
/// and only then opened to the sockets of the shards. Drop it when all shards listen.
pub struct Reservation {
    address: SocketAddr,
    _socket: OwnedFd,
}

impl Reservation {
    /// Reserve `address`; port 0 takes a free port.
    ///
    /// # Errors
    /// The address is in use, not local, or not permitted.
    pub fn new(address: SocketAddr) -> Result<Self, ListenError> {
        Self::bind(address).map_err(|source| ListenError { address, source })
    }

    fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = socket::open(address, Mode::NonBlocking)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        rustix::net::bind(&socket, &address)?;
        sockopt::set_socket_reuseport(&socket, true)?;
        let address = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
        Ok(Self {
            address,
            _socket: socket,
        })
    }

    /// Return the address, with the port that was taken.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Open one shard's listening socket on an address reserved by its process.
pub(crate) fn listen(address: SocketAddr, mode: Mode) -> Result<OwnedFd, ListenError> {
    let open_listener = || -> io::Result<OwnedFd> {
        let socket = socket::open(address, mode)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        sockopt::set_socket_reuseport(&socket, true)?;
        // Accepted sockets inherit it.
        sockopt::set_tcp_nodelay(&socket, true)?;
        rustix::net::bind(&socket, &address)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(socket)
    };
    open_listener().map_err(|source| ListenError { address, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    #[test]
    fn shards_share_a_reserved_port_and_others_do_not() {
        let reservation = Reservation::new(loopback()).expect("reserve");
        let address = reservation.address();
        assert_ne!(address.port(), 0);
        let first = listen(address, Mode::NonBlocking).expect("first shard");
        let _second = listen(address, Mode::NonBlocking).expect("second shard");
        drop(reservation);
        let taken = Reservation::new(address).err().expect("taken");
        assert_eq!(taken.source.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(taken.address, address);
        let plain = std::net::TcpListener::bind(address).expect_err("taken");
        assert_eq!(plain.kind(), io::ErrorKind::AddrInUse);
        drop(first);
    }

    #[test]
    fn who_waits_to_be_accepted_is_counted() {
        use std::os::fd::AsRawFd;
        let reservation = Reservation::new(loopback()).expect("reserve");
        let listener = listen(reservation.address(), Mode::NonBlocking).expect("listen");
        let queue = || socket::accept_queue(listener.as_raw_fd());
        assert_eq!(queue(), 0);
        let clients: Vec<_> = (0..3)
            .map(|_| std::net::TcpStream::connect(reservation.address()).expect("connect"))
            .collect();
        assert_eq!(queue(), 3);
        rustix::net::accept(&listener).expect("accept");
        assert_eq!(queue(), 2);
        assert_eq!(
            socket::accept_queue(clients[0].as_raw_fd()),
            0,
            "no listener"
        );
    }
}
