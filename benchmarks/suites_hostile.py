"""Suite that measures the damage that one client can do to others, in the form of `suites`."""

import inspect
import subprocess
from collections.abc import Callable, Iterable, Mapping

from hostile import (
    attacks_backlog,
    attacks_crowd,
    attacks_gateway,
    attacks_order,
    attacks_places,
    attacks_turn,
)
from hostile.finding import Finding, failure, worst
from hostile.setup import Setup
from measure import say, table

Attack = Callable[..., list[Finding]]
"""Function of a `Setup` and of sizes as keyword arguments; reports show the first line of its docstring."""

ATTACKS: dict[str, Attack] = {
    "wildcards": attacks_turn.wildcards,
    "own-members": attacks_turn.own_members,
    "reconnect": attacks_turn.reconnect,
    "leave": attacks_turn.leave,
    "connz": attacks_turn.connz,
    "long-sids": attacks_turn.long_sids,
    "connection-members": attacks_gateway.connection_members,
    "forged-replies": attacks_gateway.forged_replies,
    "memory": attacks_backlog.memory,
    "stall": attacks_backlog.stall,
    "idle-sockets": attacks_places.idle_sockets,
    "idle-monitor": attacks_places.idle_monitor,
    "silent-clients": attacks_places.silent_clients,
    "fence": attacks_order.fence,
    "drain": attacks_crowd.drain,
    "mass-leave": attacks_crowd.mass_leave,
}
DRIVERS = ("uring", "epoll")


def hostile(
    rounds: int,
    drivers: Iterable[str] = DRIVERS,
    attacks: Iterable[str] = tuple(ATTACKS),
    sizes: Mapping[str, float] | None = None,
) -> list[str]:
    """Attack a broker of each driver; return a table of the worst results of all rounds with their bars."""
    attacks, drivers = list(attacks), list(drivers)
    rows = []
    for name in attacks:
        for driver in drivers:
            findings = []
            for number in range(rounds):
                say(f"round {number + 1}: attack {name}, {driver}")
                findings.append(carry_out(ATTACKS[name], Setup(driver), sizes or {}))
            rows += [_row(name, driver, finding) for finding in worst(findings)]
    how_many = f"worst values of {rounds} rounds" if rounds > 1 else "values of one round"
    return [
        "## What one client can do to the others",
        "",
        (
            "The attacker uses raw sockets; each attack has a broker of its own. Waits are measured by a "
            "witness: another client of the same shard, in a process of its own on the load's core, which "
            "sends a message to itself and waits for it, repeatedly. p99 is the 99th percentile of the wait "
            "for a message sent at a random time of the attack; quiet is the longest wait in the second "
            f"before the attack, when only the witness was connected. The table shows the {how_many}."
        ),
        "",
        *(f"- `{name}`: {description(ATTACKS[name])}" for name in attacks),
        "",
        *table(["attack", "driver", "figure", "value", "bar", "holds", "beside"], rows),
    ]


def carry_out(attack: Attack, setup: Setup, sizes: Mapping[str, float]) -> list[Finding]:
    """Carry out one attack with the sizes that it knows; if it fails, return the failure as only finding."""
    known = parameters(attack)
    try:
        return attack(setup, **{key: value for key, value in sizes.items() if key in known})
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return [failure(error)]


def parameters(attack: Attack) -> list[str]:
    """Return the names of the sizes that an attack has."""
    return [name for name in inspect.signature(attack).parameters if name != "setup"]


def description(attack: Attack) -> str:
    """Return the first line of an attack's docstring."""
    return (attack.__doc__ or "").partition("\n")[0]


def _row(name: str, driver: str, finding: Finding) -> list[str]:
    holds = "" if finding.bar is None else "yes" if finding.holds else "**no**"
    return [name, driver, finding.what, finding.text, finding.bar_text, holds, finding.beside]
