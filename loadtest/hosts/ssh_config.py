"""Options of the user's OpenSSH configuration, read with `ssh -G`, which follows `Include` and `Match`."""

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import paramiko

_USED = ("hostname", "user", "identityfile", "proxyjump", "proxycommand")
"""Options of the OpenSSH configuration that connections use, in lower case."""
_DEFAULT_KEY = re.compile(r"~/\.ssh/id_\w+")
_TIMEOUT_S = 10.0
_MAX_HOPS = 16


class SSHConfigError(Exception):
    """OpenSSH cannot read its configuration; the text is OpenSSH's message."""


def read_ssh_config(address: str) -> paramiko.SSHConfig | None:
    """Return the options of a host and of the hosts that its `ProxyJump` names.

    Returns:
        The options, or None if this machine has no OpenSSH client.

    Raises:
        SSHConfigError: OpenSSH cannot read the configuration.
    """
    ssh = shutil.which("ssh")
    if ssh is None:
        return None
    text = ""
    seen: set[str] = set()
    hops = [address]
    while hops and len(seen) < _MAX_HOPS:
        hop = hops.pop()
        if hop in seen:
            continue
        seen.add(hop)
        options = list(_options(ssh, hop))
        text += "\n".join([f"Host {hop}", *(f"{key} {value}" for key, value in options), ""])
        hops += [
            _jump_host(jump) for key, value in options if key == "proxyjump" for jump in value.split(",")
        ]
    return paramiko.SSHConfig.from_text(text)


def _options(ssh: str, address: str) -> Iterator[tuple[str, str]]:
    """Yield the options that OpenSSH would use for a host."""
    command = [ssh, "-G", *_config_option(), "--", address]
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
        raise SSHConfigError(f"`ssh -G {address}` did not end within {_TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise SSHConfigError(lines[0] if lines else f"`ssh -G {address}` failed")
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        # Paramiko finds the default keys itself, and fails on listed keys that do not exist.
        if key in _USED and value != "none" and not (key == "identityfile" and _DEFAULT_KEY.fullmatch(value)):
            yield key, value


def _config_option() -> list[str]:
    """Return the option that makes OpenSSH read the configuration in $HOME.

    Without it, OpenSSH looks in the home folder of the password database.
    """
    home = Path("~").expanduser()
    if home == Path(pwd.getpwuid(os.getuid()).pw_dir):
        return []
    file = home / ".ssh/config"
    return ["-F", str(file) if file.is_file() else "none"]


def _jump_host(jump: str) -> str:
    """Return HOST of a jump `[ssh://][USER@]HOST[:PORT]`."""
    host = jump.removeprefix("ssh://").rpartition("@")[2]
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host if host.count(":") > 1 else host.partition(":")[0]
