"""Hosts files: one TOML table for each machine of a run, and a table with defaults for all of them.

```toml
[defaults]
user = "bench"
key = "~/.ssh/id_ed25519"

[[hosts]]
name = "a"
address = "192.0.2.1"
roles = ["broker"]
```
"""

import ipaddress
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, Struct, structs

from loadtest.errors import HostsFileError
from loadtest.scenario.cpus import parse_cpus
from subjectbus import settings
from subjectbus.errors import ConfigError, UsageError

Role = Literal["broker", "requestor", "provider"]
ROLES: tuple[Role, ...] = get_args(Role)

Count = Annotated[int, Meta(ge=1)]
_NAME_LENGTH = 40
_REQUIRED = {
    "name": 'what progress and reports call it, such as "a"',
    "address": "its name or IP address",
    "roles": f"any of {', '.join(ROLES)}",
}


class HostDefaults(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of a host that `[defaults]` may set for all hosts."""

    port: Annotated[int, Meta(ge=1, le=65535, description="Port of the OpenSSH server.")] = 22
    user: Annotated[
        str | None,
        Meta(
            description="Login name. Left out: from ~/.ssh/config, or the name of the user on this machine."
        ),
    ] = None
    key: Annotated[
        str | None,
        Meta(
            description="Path of the private key. Left out: the keys of the SSH agent and in ~/.ssh. "
            "Passwords are never asked for."
        ),
    ] = None
    known_hosts: Annotated[
        str | None,
        Meta(
            description="Path of the file with the keys of hosts. Left out: ~/.ssh/known_hosts and the file "
            "of the system."
        ),
    ] = None
    python: Annotated[
        str | None,
        Meta(
            description="Path on the host of an interpreter that has this build installed. "
            "Left out: the build is installed."
        ),
    ] = None
    data_address: Annotated[
        str | None,
        Meta(
            description="Address at which the other hosts reach the broker of this host, if not `address`; "
            "for a faster network."
        ),
    ] = None
    cpus: Annotated[
        str | None, Meta(description='Processors of the processes on this host, such as "0,2-3".')
    ] = None
    sources: Annotated[
        tuple[str, ...],
        Meta(
            description="Addresses of the host to connect from, in turn, if one address has too few ports. "
            "An address has about 28,000."
        ),
    ] = ()
    threads: Annotated[
        Annotated[int, Meta(ge=1, le=1024)] | None,
        Meta(
            description="Threads of each process on this host; for a broker, its shards. Left out: from the "
            "scenario."
        ),
    ] = None
    driver: Annotated[
        Literal["auto", "epoll", "uring"] | None,
        Meta(description="Way in which the processes on this host get events. Left out: from the scenario."),
    ] = None
    processes: Annotated[
        Count | None,
        Meta(
            description="Requestor processes on the host. Hosts without this key share the rest of the "
            "scenario's number, at least one each."
        ),
    ] = None


class HostPlan(HostDefaults, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Host of a run."""

    name: Annotated[str, Meta(description="Name in progress and reports, 1 to 40 characters.")]
    address: Annotated[
        str,
        Meta(description="Name or IP address of the OpenSSH server, or its name in ~/.ssh/config."),
    ]
    roles: Annotated[tuple[Role, ...], Meta(description="Roles of the host in a run; at least one.")]

    @property
    def broker_address(self) -> str:
        """Address at which the other hosts reach the broker of this host."""
        return self.data_address or self.address


class Inventory(Struct, frozen=True):
    """Hosts of a run, in the order of their file."""

    hosts: tuple[HostPlan, ...]
    path: Path

    def with_role(self, role: Role) -> tuple[HostPlan, ...]:
        """Return the hosts that have a role."""
        return tuple(host for host in self.hosts if role in host.roles)

    def require_roles(self, *, has_target: bool, needs_providers: bool) -> None:
        """Check that each role that the run needs has a host.

        Raises:
            HostsFileError: No host has the role.
        """
        needed: dict[Role, bool] = {
            "broker": not has_target,
            "requestor": True,
            "provider": needs_providers,
        }
        for role, is_needed in needed.items():
            if is_needed and not self.with_role(role):
                hint = ", or give a target" if role == "broker" else ""
                raise HostsFileError(
                    f'{self.path}: no host has the role "{role}": add roles = ["{role}"] to a host{hint}'
                )


def deal_processes(hosts: Sequence[HostPlan], wanted: int) -> list[int]:
    """Return the number of requestor processes of each host.

    A host with the key `processes` has that number. The other hosts share the rest of `wanted` evenly, at
    least one for each.
    """
    others = sum(host.processes is None for host in hosts)
    left = max(wanted - sum(host.processes or 0 for host in hosts), others)
    shares = iter([math.ceil((left - index) / others) for index in range(others)])
    return [next(shares) if host.processes is None else host.processes for host in hosts]


def load_inventory(path: Path) -> Inventory:
    """Return the hosts of a TOML file.

    Paths in the file may begin with ~. Relative paths start at the folder of the file.

    Raises:
        HostsFileError: The file cannot be read, or a key or value cannot be used. The text is one line that
            names the file and the key.
    """
    try:
        document = settings.read_toml(path)
        return Inventory(_parse(document, path), path)
    except ConfigError as error:
        raise HostsFileError(str(error)) from error


def _parse(document: dict[str, Any], path: Path) -> tuple[HostPlan, ...]:
    _refuse_unknown(document, ("defaults", "hosts"), str(path))
    defaults = document.get("defaults", {})
    if not isinstance(defaults, dict):
        raise ConfigError(f"{path}: defaults: expected a table [defaults]")
    for key in _REQUIRED.keys() & defaults.keys():
        raise ConfigError(f"{path}: defaults: {key} belongs to each host, in [[hosts]]")
    _refuse_unknown(defaults, HostDefaults.__struct_fields__, f"{path}: defaults")
    settings.convert(HostDefaults, defaults, f"{path}: defaults")
    tables = document.get("hosts")
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(f"{path}: hosts: expected tables [[hosts]], one for each host")
    hosts = tuple(_host(table, defaults, path, index) for index, table in enumerate(tables, 1))
    _refuse_duplicates(hosts, path, "name", lambda host: host.name)
    _refuse_duplicates(
        hosts, path, "address and port", lambda host: f"{host.address.casefold()} port {host.port}"
    )
    return hosts


def _host(table: dict[str, Any], defaults: dict[str, Any], path: Path, index: int) -> HostPlan:
    name = table.get("name")
    where = f"{path}: hosts[{index}]" + (f' "{name}"' if isinstance(name, str) else "")
    _refuse_unknown(table, HostPlan.__struct_fields__, where)
    for key, meaning in _REQUIRED.items():
        if key not in table:
            raise ConfigError(f"{where}: {key}: missing ({meaning})")
    _refuse_unknown_roles(table["roles"], where)
    host = settings.convert(HostPlan, {**defaults, **table}, where)
    fault = _find_fault(host)
    if fault is not None:
        raise ConfigError(f"{where}: {fault}")
    paths = {key: _local_path(getattr(host, key), path, f"{where}: {key}") for key in ("key", "known_hosts")}
    return structs.replace(host, **paths)


def _refuse_unknown(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    for key in table:
        if key not in known:
            hint = settings.suggestion(key, known) or f" (known: {', '.join(sorted(known))})"
            raise ConfigError(f'{where}: unknown key "{key}"{hint}')


def _refuse_unknown_roles(roles: object, where: str) -> None:
    choices = f"choose from {', '.join(ROLES)}"
    if not isinstance(roles, list) or not roles:
        raise ConfigError(f'{where}: roles: expected a list such as ["requestor"] ({choices})')
    for role in roles:
        if role not in ROLES:
            raise ConfigError(f"{where}: roles: invalid role {role!r} ({choices})")
    if len(set(roles)) < len(roles):
        raise ConfigError(f"{where}: roles: a role is listed twice: {', '.join(roles)}")


def _refuse_duplicates(
    hosts: Iterable[HostPlan], path: Path, what: str, key: Callable[[HostPlan], str]
) -> None:
    seen: dict[str, int] = {}
    for index, host in enumerate(hosts, 1):
        first = seen.setdefault(key(host), index)
        if first != index:
            raise ConfigError(
                f"{path}: hosts[{index}]: the {what} {key(host)} is already used by hosts[{first}]"
            )


def _find_fault(host: HostPlan) -> str | None:
    """Return the first fault that the types do not exclude, as "key: fault"; None without a fault."""
    name, address = host.name, host.address
    faults = (
        (
            not name or len(name) > _NAME_LENGTH or not name.isprintable() or " " in name or "/" in name,
            f"name: expected 1 to {_NAME_LENGTH} characters without space and /, got {name!r}",
        ),
        *(
            (
                getattr(host, key) == "",
                f"{key}: the text must not be empty; leave the key out for its default",
            )
            for key in ("user", "python")
        ),
        ("@" in address, f'address: the user has a key of its own, user = "{address.partition("@")[0]}"'),
        (
            address.count(":") == 1,
            f"address: the port has a key of its own, port = {address.rpartition(':')[2]}",
        ),
        (not _is_address(address), f"address: expected a host's name or IP address, got {address!r}"),
        (
            host.data_address is not None and not _is_address(host.data_address),
            f"data_address: expected a host's name or IP address without a port, got {host.data_address!r}",
        ),
        (
            host.cpus is not None and not _is_cpu_list(host.cpus),
            f"cpus: expected numbers and ranges such as 0,2-3, got {host.cpus!r}",
        ),
        *((not _is_ip(source), f"sources: expected IP addresses, got {source!r}") for source in host.sources),
        (len(set(host.sources)) < len(host.sources), "sources: an address is listed twice"),
    )
    return next((text for is_fault, text in faults if is_fault), None)


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_address(text: str) -> bool:
    if _is_ip(text):
        return not ipaddress.ip_address(text).is_unspecified
    # Characters with a meaning for a shell are refused, since a ProxyCommand in ssh_config runs in a shell.
    return re.fullmatch(r"\w[\w.+-]*", text) is not None


def _is_cpu_list(text: str) -> bool:
    try:
        parse_cpus(text, allow_any=True)
    except UsageError:
        return False
    return True


def _local_path(text: str | None, hosts_file: Path, where: str) -> str | None:
    """Return the path with ~ expanded.

    Raises:
        ConfigError: The file cannot be read.
    """
    if text is None:
        return None
    try:
        path = hosts_file.parent / Path(text).expanduser()
        with path.open("rb"):
            return str(path)
    except RuntimeError as error:  # ~name of an unknown user
        raise ConfigError(f"{where}: {text}: {error}") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{where}: cannot read {text}: {reason}") from error
