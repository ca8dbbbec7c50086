"""Attack on the order that a PONG promises: messages acknowledged by another client's PONG come before it."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from hostile.client import Client
from hostile.finding import Finding
from hostile.setup import Broker, Setup

_PAIRS = 10
"""Number of publishers with a subscriber each, which together keep the shard of the many receivers busy."""
_TRIES = 64
_SHARDS = 2
_LOAD_CONNECTIONS = 8
_LOAD_PER_S = 20_000
"""Messages per second to all receivers of the load, slow enough for them to keep up."""
_PONG = b"PONG\r\n"
_SETTINGS = {"ping_interval_s": 0}
"""Settings without PINGs, which the receivers do not answer: they would be disconnected in a long run."""


def fence(
    setup: Setup, rounds: int = 2000, receivers: int = 5000, payload: int = 8, large_payload: int = 4000
) -> list[Finding]:
    """Publish, await the PONG, then let a subscriber ping: its message must come before its PONG.

    Messages of `large_payload` bytes take several turns to be delivered, and get a tenth of the rounds.
    """
    return [
        _same_shard(setup, rounds, receivers, payload),
        _same_shard(setup, max(rounds // 10, 1), receivers, large_payload),
        _other_shard(setup, rounds, payload),
    ]


def _same_shard(setup: Setup, rounds: int, receivers: int, payload: int) -> Finding:
    with setup.broker(_SETTINGS) as broker:
        host, port = broker.tcp
        with (
            setup.child("receivers", f"{host}:{port}", "fence.*", receivers) as child,
            ExitStack() as stack,
            ThreadPoolExecutor(_PAIRS) as threads,
        ):
            clients = [stack.enter_context(Client(broker.tcp)) for _ in range(2 * _PAIRS)]
            shares = [len(range(pair, rounds, _PAIRS)) for pair in range(_PAIRS)]
            payloads = [payload] * _PAIRS
            overtaken = sum(threads.map(_rounds, clients[::2], clients[1::2], shares, payloads))
            child.finish()
    what = f"same shard, {receivers:,} other receivers, {payload:,} bytes: overtaken"
    return Finding(what, overtaken, f"of {rounds:,}", 0)


def _other_shard(setup: Setup, rounds: int, payload: int) -> Finding:
    with setup.broker(_SETTINGS, shards=_SHARDS) as broker, ExitStack() as stack:
        host, port = broker.tcp
        # The load keeps both shards publishing and delivering all the time.
        load = [
            stack.enter_context(setup.child("receivers", f"{host}:{port}", "load.*", _LOAD_CONNECTIONS)),
            stack.enter_context(
                setup.child("publisher", f"{host}:{port}", "load", _LOAD_CONNECTIONS, _LOAD_PER_S)
            ),
        ]
        publisher, subscriber = (stack.enter_context(_client_on(broker, shard)) for shard in range(_SHARDS))
        overtaken = _rounds(publisher, subscriber, rounds, payload)
        for child in reversed(load):
            child.finish()
    return Finding("other shard, both under load: overtaken", overtaken, f"of {rounds:,}", 0)


def _client_on(broker: Broker, shard: int) -> Client:
    """Connect repeatedly, until the kernel chooses the listener of this shard."""
    with ExitStack() as stack:
        for _ in range(_TRIES):
            client = Client(broker.tcp)
            if broker.connection(client.cid)["shard"] == shard:
                return client
            stack.enter_context(client)
    raise ConnectionError(f"none of {_TRIES} connections came to shard {shard}")


def _rounds(publisher: Client, subscriber: Client, rounds: int, payload: int) -> int:
    """Return the number of rounds in which the subscriber's PONG came before the message."""
    subject = b"fence.%d" % subscriber.cid
    subscriber.carry_out(b"SUB %s 1\r\n" % subject)
    overtaken = 0
    for number in range(rounds):
        content = b"%0*d\r\n" % (payload, number)
        publisher.carry_out(b"PUB %s %d\r\n%s" % (subject, payload, content))
        message = b"MSG %s 1 %d\r\n%s" % (subject, payload, content)
        subscriber.send(b"PING\r\n")
        received = b""
        while len(received) < len(message) + len(_PONG):
            received += subscriber.receive()
        if received == _PONG + message:
            overtaken += 1
        elif received != message + _PONG:
            raise ConnectionError(f"round {number}: received {received!r}")
    return overtaken
