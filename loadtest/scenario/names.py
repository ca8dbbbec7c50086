"""Names of hosts, and the addresses that they resolve to."""

import socket


def resolve(host: str, port: int | None = None) -> tuple[socket.AddressFamily, str]:
    """Return the family and the numeric address of a host, IPv4 before IPv6.

    Raises:
        OSError: The host is not known, or has a name that no host can have.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise socket.gaierror(socket.EAI_NONAME, "not the name of a host") from error
    family, _, _, _, sockaddr = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return family, str(sockaddr[0])
