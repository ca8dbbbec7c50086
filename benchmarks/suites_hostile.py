"""Damage that one client can do to the others; a suite like those in `suites`."""

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
"""Takes a `Setup`, and sizes as keyword arguments; the first line of its docstring describes it."""

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
    """Attack a broker of each driver; the worst of all rounds beside the bar of each figure."""
    attacks, drivers = list(attacks), list(drivers)
    rows = []
    for name in attacks:
        for driver in drivers:
            findings = []
            for number in range(rounds):
                say(f"round {number + 1}: attack {name}, {driver}")
                findings.append(carry_out(ATTACKS[name], Setup(driver), sizes or {}))
            rows += [_row(name, driver, finding) for finding in worst(findings)]
    how_many = f"worst of {rounds} rounds" if rounds > 1 else "figures of one round"
    return [
        "## What one client can do to the others",
        "",
        (
            "The attacker has raw sockets; each attack begins with a broker of its own. A wait is that of a "
            "witness, another client of the same shard in a process of its own on the load's core, which "
            "always waits for a message that it has sent to itself. Its p99 is that of a message sent at a "
            "random moment of the attack; quiet is its longest wait in the second before, when only the "
            f"witness was connected. Shown are the {how_many}."
        ),
        "",
        *(f"- `{name}`: {description(ATTACKS[name])}" for name in attacks),
        "",
        *table(["attack", "driver", "figure", "value", "bar", "holds", "beside"], rows),
    ]


def carry_out(attack: Attack, setup: Setup, sizes: Mapping[str, float]) -> list[Finding]:
    """Carry out one attack, with those of the sizes that it has; a failure is its only finding then."""
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
