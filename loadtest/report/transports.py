"""The same requests over several transports: the tables, and what they say in words."""

from collections.abc import Callable, Iterator, Sequence

from loadtest.result.reference import PUBLISHED_TRANSPORTS_S
from loadtest.result.schema import Result, TransportRun

TITLES = {
    "rest-new": "REST, a connection for each call",
    "rest": "REST, connections kept",
    "ws": "WebSocket",
    "tcp": "TCP",
}
_NAMES = {"rest-new": "REST with a connection for each call", "rest": "REST with connections kept"}
_ALIKE = 0.1
"""Times that differ by less than this share are called alike."""
CALLS = 2_000_000
"""As many as the published runs made."""
_ABSENT = "-"


def tables(runs: Sequence[TransportRun]) -> list[tuple[str, list[str], list[list[str]]]]:
    """For each number of callers a title, the columns' names (the transports) and the rows of texts."""
    callers = sorted({run.outstanding for run in runs})
    return [
        (
            "One caller" if count == 1 else f"{count:,} callers",
            ["", *(TITLES[run.transport] for run in chosen)],
            [[name, *texts] for name, texts in _rows(chosen)],
        )
        for count in callers
        if (chosen := [run for run in runs if run.outstanding == count])
    ]


def _rows(runs: Sequence[TransportRun]) -> Iterator[tuple[str, list[str]]]:
    def texts(value: Callable[[TransportRun], float | None], decimals: int = 0) -> list[str]:
        values = (value(run) for run in runs)
        return [_ABSENT if one is None else f"{one:,.{decimals}f}" for one in values]

    def latency(name: str) -> Callable[[TransportRun], float | None]:
        return lambda run: getattr(run.latency_us, name) if run.latency_us else None

    def wire(name: str) -> Callable[[TransportRun], float | None]:
        return lambda run: getattr(run.wire, name) if run.wire else None

    yield "calls", texts(lambda run: run.calls)
    yield "total time, s", texts(lambda run: run.total_s, 1)
    yield f"s for {CALLS:,} calls at that rate", texts(scaled_s, 1)
    yield f"s for {CALLS:,} calls, published 2014", texts(lambda run: published_s(run.transport), 1)
    yield "calls/s", texts(lambda run: run.calls_per_s)
    for name, label in (("mean", "mean"), ("p50", "p50"), ("p99", "p99"), ("p99_9", "p99.9"), ("max", "max")):
        yield f"latency {label}, us", texts(latency(name))
    yield "payload, bytes/call", texts(wire("payload"))
    yield "on the wire, bytes/call", texts(wire("total"), 1)
    yield "of these out", texts(wire("out"), 1)
    yield "of these in", texts(wire("in_"), 1)
    yield "request heads, bytes/call", texts(wire("head_out"), 1)
    yield "response heads, bytes/call", texts(wire("head_in"), 1)
    yield "server CPU, us/call", texts(lambda run: run.server_cpu_us_per_call, 1)
    yield "client CPU, us/call", texts(lambda run: run.client_cpu_us_per_call, 1)
    yield "connections opened, warm-up included", texts(lambda run: run.connections_opened)
    yield "errors, timeouts", texts(lambda run: run.errors + run.timed_out)


def scaled_s(run: TransportRun) -> float | None:
    """Seconds that `CALLS` take at the run's rate; None without one."""
    return CALLS / run.calls_per_s if run.calls_per_s else None


def published_s(transport: str) -> float | None:
    """What was published for as many calls; None where nothing was."""
    return PUBLISHED_TRANSPORTS_S.get(transport)


def findings(runs: Sequence[TransportRun]) -> list[str]:
    """What the figures say, as sentences."""
    said = []
    for count in sorted({run.outstanding for run in runs}):
        by_transport = {run.transport: run for run in runs if run.outstanding == count and run.calls_per_s}
        who = "With one caller" if count == 1 else f"With {count:,} callers"
        said += [f"{who} {text}" for text in _findings(by_transport)]
    return said


def _findings(runs: dict[str, TransportRun]) -> Iterator[str]:
    if len(runs) < 2:  # noqa: PLR2004 - one cannot be compared
        return
    order = sorted(runs.values(), key=lambda run: run.calls_per_s, reverse=True)
    rates = ", ".join(f"{_name(run)} {run.calls_per_s:,.0f}" for run in order)
    yield f"calls/s are: {rates}."
    ws, rest, new = (runs.get(name) for name in ("ws", "rest", "rest-new"))
    if ws and rest:
        yield _compare_kept(rest, ws)
    if rest and new:
        cost = f"a connection for each call takes {_times(new, rest)} of what kept connections take"
        if new.server_cpu_us_per_call and rest.server_cpu_us_per_call:
            more = new.server_cpu_us_per_call - rest.server_cpu_us_per_call
            cost += f", and {more:,.1f} us more of the server's CPU"
        yield f"{cost}."
    if ws and new and (tcp := runs.get("tcp")):
        published = PUBLISHED_TRANSPORTS_S
        yield (
            f"REST with a connection for each call takes {_times(new, ws)} of WebSocket's and "
            f"{_times(new, tcp)} of TCP's; published in 2014, of REST: "
            f"{published['rest-new'] / published['ws']:.2f} times and "
            f"{published['rest-new'] / published['tcp']:.2f} times."
        )


def _compare_kept(rest: TransportRun, ws: TransportRun) -> str:
    """Where time does not tell the two apart, bytes and processor time do."""
    ratio = ws.calls_per_s / rest.calls_per_s
    if abs(ratio - 1.0) < _ALIKE:
        text = "REST with connections kept is as quick as WebSocket"
        linked = "; what tells them apart is "
    else:
        text = f"REST with connections kept takes {_times(rest, ws)} of WebSocket's"
        linked = "; besides, it takes "
    costs = []
    if rest.wire and ws.wire:
        costs.append(
            f"{rest.wire.total:,.0f} bytes on the wire for each call against {ws.wire.total:,.0f}, "
            f"{rest.wire.heads:,.0f} of them heads"
        )
    if rest.server_cpu_us_per_call and ws.server_cpu_us_per_call:
        costs.append(
            f"{rest.server_cpu_us_per_call:,.1f} us of the server's CPU against "
            f"{ws.server_cpu_us_per_call:,.1f}"
        )
    return text + (linked + " and ".join(costs) if costs else "") + "."


def _times(slower: TransportRun, faster: TransportRun) -> str:
    return f"{faster.calls_per_s / slower.calls_per_s:.2f} times the time"


def _name(run: TransportRun) -> str:
    return _NAMES.get(run.transport, TITLES[run.transport])


def explain(result: Result) -> str:
    """What the figures mean."""
    return (
        "Closed loop: each caller sends its next request when the answer to the last one is there, and "
        "latency is service time, connecting included. Bytes are those of the callers' sockets, without TCP "
        "and IP, and exactly counted; CPU is that of whole processes, the kernel's part included. Payloads: "
        f"{result.scenario['request_bytes']} bytes out, {result.scenario['reply_bytes']} bytes back. "
        "Both ends are on one machine: no network shows what bytes cost on a slow one."
    )
