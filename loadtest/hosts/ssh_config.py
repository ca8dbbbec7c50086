"""The user's OpenSSH configuration, as OpenSSH itself reads it: with `Include` and `Match`."""

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import paramiko

_USED = ("hostname", "user", "identityfile", "proxyjump", "proxycommand")
"""Options that connections use."""
_DEFAULT_KEY = re.compile(r"~/\.ssh/id_\w+")
_TIMEOUT_S = 10.0
_MOST_HOPS = 16


class SSHConfigError(Exception):
    """OpenSSH refuses its configuration; the text is what it says."""


def read_ssh_config(address: str) -> paramiko.SSHConfig | None:
    """Return the options of a host, and of those that lead to it (`ProxyJump`).

    None without OpenSSH's client on this machine.

    Raises:
        SSHConfigError: OpenSSH cannot read the configuration.
    """
    ssh = shutil.which("ssh")
    if ssh is None:
        return None
    text = ""
    seen: set[str] = set()
    hops = [address]
    while hops and len(seen) < _MOST_HOPS:
        hop = hops.pop()
        if hop in seen:
            continue
        seen.add(hop)
        options = list(_options(ssh, hop))
        text += "\n".join([f"Host {hop}", *(f"{key} {value}" for key, value in options), ""])
        hops += [_name(jump) for key, value in options if key == "proxyjump" for jump in value.split(",")]
    return paramiko.SSHConfig.from_text(text)


def _options(ssh: str, address: str) -> Iterator[tuple[str, str]]:
    """Yield the options that OpenSSH would use for a host."""
    command = [ssh, "-G", *_file(), "--", address]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SSHConfigError(f"no end of `ssh -G {address}` within {_TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise SSHConfigError(lines[0] if lines else f"`ssh -G {address}` failed")
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        # Paramiko finds the default keys itself, and stumbles over those that are not there.
        if key in _USED and value != "none" and not (key == "identityfile" and _DEFAULT_KEY.fullmatch(value)):
            yield key, value


def _file() -> list[str]:
    """The option that makes OpenSSH, which looks in the home folder of its user, follow $HOME."""
    home = Path("~").expanduser()
    if home == Path(pwd.getpwuid(os.getuid()).pw_dir):
        return []
    file = home / ".ssh/config"
    return ["-F", str(file) if file.is_file() else "none"]


def _name(jump: str) -> str:
    """The host of `[ssh://][USER@]HOST[:PORT]`."""
    host = jump.removeprefix("ssh://").rpartition("@")[2]
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host if host.count(":") > 1 else host.partition(":")[0]
