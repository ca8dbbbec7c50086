//! Sockets: listeners that share a port, and connections from many addresses.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, connect, getsockname, listen, socket_with,
    sockopt,
};

use crate::failure::{Context, Failure};

/// Connections that may wait to be accepted; the kernel caps it at net.core.somaxconn.
const BACKLOG: i32 = 65_535;

/// Connections from one source address: the kernel's search for a free port gets slow long before
/// the ports of an address run out.
const CONNECTIONS_PER_SOURCE: u32 = 2_000;

/// How long a connection may take; loopback needs microseconds unless the kernel drops a packet.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Takes a free port for listeners that are opened later. Keep it until they are open.
pub(crate) fn reserve_port() -> Result<(SocketAddrV4, OwnedFd), Failure> {
    let socket = shared_port(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    let address = getsockname(&socket).context("ask for the port taken")?;
    let address = SocketAddrV4::try_from(address).context("read the address taken")?;
    Ok((address, socket))
}

/// One worker's listener on a port that all workers share.
pub(crate) fn listener(address: SocketAddrV4) -> Result<OwnedFd, Failure> {
    let socket = shared_port(address)?;
    // Accepted sockets inherit it.
    sockopt::set_tcp_nodelay(&socket, true).context("set TCP_NODELAY")?;
    listen(&socket, BACKLOG).context(format!("listen on {address}"))?;
    Ok(socket)
}

fn shared_port(address: SocketAddrV4) -> Result<OwnedFd, Failure> {
    let socket = open(SocketFlags::NONBLOCK)?;
    sockopt::set_socket_reuseport(&socket, true).context("set SO_REUSEPORT")?;
    bind(&socket, &address).context(format!("bind {address}"))?;
    Ok(socket)
}

fn open(flags: SocketFlags) -> Result<OwnedFd, Failure> {
    let flags = flags | SocketFlags::CLOEXEC;
    socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).context("open a socket")
}

/// How an attempt to connect ended.
pub(crate) enum Attempt {
    /// Non-blocking from now on.
    Connected(OwnedFd),
    /// For a reason that may pass.
    Failed(Errno),
}

/// The source address of connection number `index` of a run: 127.1.0.0 and up.
pub(crate) fn source(index: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(127, 1, 0, 0).to_bits() + index / CONNECTIONS_PER_SOURCE)
}

/// Connects once from `source`, with a port of the kernel's choice.
pub(crate) fn try_connect(source: Ipv4Addr, target: SocketAddrV4) -> Result<Attempt, Failure> {
    let socket = open(SocketFlags::empty())?;
    sockopt::set_tcp_nodelay(&socket, true).context("set TCP_NODELAY")?;
    // Closing resets: no port is left waiting.
    sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).context("set SO_LINGER")?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(CONNECT_TIMEOUT))
        .context("set SO_SNDTIMEO")?;
    bind_address_only(&socket).context("set IP_BIND_ADDRESS_NO_PORT")?;
    bind(&socket, &SocketAddrV4::new(source, 0)).context(format!("bind {source}"))?;
    match connect(&socket, &target) {
        Ok(()) => {}
        Err(
            errno @ (Errno::INPROGRESS
            | Errno::TIMEDOUT
            | Errno::CONNREFUSED
            | Errno::CONNRESET
            | Errno::ADDRNOTAVAIL
            | Errno::AGAIN
            | Errno::INTR),
        ) => return Ok(Attempt::Failed(errno)),
        Err(errno) => return Err(errno).context(format!("connect {source} to {target}")),
    }
    ioctl_fionbio(&socket, true).context("make a socket non-blocking")?;
    Ok(Attempt::Connected(socket))
}

/// Leaves the port to connect(2), which can take one that another address uses: see ip(7).
fn bind_address_only(socket: &OwnedFd) -> std::io::Result<()> {
    use std::os::fd::AsRawFd;
    let on: libc::c_int = 1;
    // SAFETY: the option's value is read from `on`, whose size is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}
