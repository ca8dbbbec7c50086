"""Attacks on a shard's turn: few bytes cause much work, for which all other clients of the shard wait."""

import itertools

from hostile.client import Client, connect_line, get
from hostile.finding import Finding
from hostile.setup import Setup, wait_until
from hostile.witness import Witness, watch

_LONG = 4000
"""Length of a long subject or SID, in bytes, which a control line may have."""
_CLEANUP_S = 120.0
_UNLIMITED = {
    "max_subscriptions": 0,
    "max_subject_tokens": 64,
    "max_subject_wildcards": 64,
    "max_subject_length": 4096,
    "max_sid_length": 4096,
}
"""Settings with which the broker accepts work that its defaults refuse."""


def _carry_out(witness: Witness, attacker: Client, what: str, operations: bytes) -> None:
    """Carry out operations of the attacker in one window of the witness."""
    with witness.during(what) as window:
        problem = attacker.carry_out(operations)
        if problem:
            window.remarks.append(f"attacker: {problem}")


def wildcards(setup: Setup, tokens: int = 16, publishes: int = 300) -> list[Finding]:
    """Subscribe to all patterns of `tokens` letters and wildcards, then publish past all of them."""
    patterns = (".".join(pattern) for pattern in itertools.product("a*", repeat=tokens))
    subscribe = b"".join(b"SUB %s.x %d\r\n" % (one.encode(), n) for n, one in enumerate(patterns))
    publish = b"PUB %sy 0\r\n\r\n" % (b"a." * tokens)
    with (
        setup.broker(_UNLIMITED) as broker,
        watch(setup, broker) as witness,
        Client(broker.tcp) as attacker,
    ):
        _carry_out(witness, attacker, f"{2**tokens:,} wildcard SUBs", subscribe)
        what = f"{publishes:,} PUBs of {len(publish)} bytes"
        _carry_out(witness, attacker, what, publish * publishes)
    return witness.findings()


def own_members(setup: Setup, subscriptions: int = 100_000, publishes: int = 2000) -> list[Finding]:
    """Subscribe many times to one subject with `echo:false`, then publish to it; the same with a group."""
    findings = []
    for group, kind in ((b"", "of one subject"), (b"g ", "of a queue group")):
        subscribe = b"".join(b"SUB s %s%d\r\n" % (group, n) for n in range(subscriptions))
        publish = b"PUB s 0\r\n\r\n" * publishes
        with (
            setup.broker(_UNLIMITED) as broker,
            watch(setup, broker) as witness,
            Client(broker.tcp, echo=False) as attacker,
        ):
            _carry_out(witness, attacker, f"{subscriptions:,} SUBs {kind}", subscribe)
            _carry_out(witness, attacker, f"{publishes:,} PUBs to own SUBs {kind}", publish)
        findings += witness.findings()
    return findings


def reconnect(setup: Setup, subscriptions: int = 300_000, connects: int = 1000) -> list[Finding]:
    """Send CONNECT again after many subscriptions, once and then many times."""
    subscribe = b"".join(b"SUB r.%d %d\r\n" % (n, n) for n in range(subscriptions))
    with (
        setup.broker(_UNLIMITED) as broker,
        watch(setup, broker) as witness,
        Client(broker.tcp) as attacker,
    ):
        _carry_out(witness, attacker, f"{subscriptions:,} SUBs", subscribe)
        _carry_out(witness, attacker, "first CONNECT with these", connect_line())
        _carry_out(witness, attacker, f"{connects:,} CONNECTs after these", connect_line() * connects)
    return witness.findings()


def leave(setup: Setup, subscriptions: int = 1_000_000) -> list[Finding]:
    """Make many subscriptions, then disconnect."""
    subscribe = b"".join(b"SUB l.%d %d\r\n" % (n, n) for n in range(subscriptions))
    with setup.broker(_UNLIMITED) as broker, watch(setup, broker) as witness:
        others = broker.varz()["subscriptions"]
        with Client(broker.tcp) as attacker:
            _carry_out(witness, attacker, f"{subscriptions:,} SUBs", subscribe)
        with witness.during("their client's leaving"):
            wait_until(lambda: broker.varz()["subscriptions"] == others, _CLEANUP_S, "subscriptions removed")
    return witness.findings()


def connz(setup: Setup, subjects: int = 4000) -> list[Finding]:
    """Subscribe to subjects of 4 KB that need escapes in JSON, and let the operator list them."""
    escaped = b"\x01" * (_LONG - 8)
    subscribe = b"".join(b"SUB %08d%s %d\r\n" % (n, escaped, n) for n in range(subjects))
    with (
        setup.broker(_UNLIMITED) as broker,
        watch(setup, broker) as witness,
        Client(broker.tcp) as attacker,
    ):
        _carry_out(witness, attacker, f"{subjects:,} SUBs of 4 KB", subscribe)
        with witness.during("/connz?subs=1") as window:
            status, body = get(broker.monitor, "/connz?subs=1")
            window.remarks.append(f"status {status}, {len(body) / 1e6:.1f} MB")
    return witness.findings()


def long_sids(setup: Setup, subscriptions: int = 4000, publishes: int = 4) -> list[Finding]:
    """Subscribe many times with SIDs of 4 KB, then publish single bytes to all of them."""
    subscribe = b"".join(b"SUB s %08d%s\r\n" % (n, b"i" * (_LONG - 8)) for n in range(subscriptions))
    with (
        setup.broker(_UNLIMITED) as broker,
        watch(setup, broker) as witness,
        Client(broker.tcp) as attacker,
    ):
        _carry_out(witness, attacker, f"{subscriptions:,} SUBs with ids of 4 KB", subscribe)
        _carry_out(witness, attacker, f"{publishes} PUBs of one byte", b"PUB s 1\r\n.\r\n" * publishes)
    return witness.findings()
