"""Report of the same requests over several transports: tables, chart, and sentences about them."""

from collections.abc import Iterator, Sequence

import msgspec

from loadtest.report.charts.svg import SERIES, Axis, Canvas, Chart, Key, linear
from loadtest.report.document import ABSENT, Block, Reach, Records, Section, Table, Text
from loadtest.result.metrics import number_text, transport_metrics
from loadtest.result.paths import flatten
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
"""Largest difference, as a share, of times that the text calls equal."""
_SHORT = {"rest-new": "REST, a connection each", "rest": "REST, kept", "ws": "WebSocket", "tcp": "TCP"}
_FILLS = ("fill", "fill-opacity:.3;fill", "fill-opacity:0;fill")
"""Filled, light and empty bars, which differ even without colours."""
_GROUP = 0.8
"""Share of the distance between two transports that bars fill."""
CALLS = 2_000_000
"""Number of calls of each published run."""


def sections(result: Result) -> list[Section]:
    """Return the sections of the report; they replace the sections of a report of one load."""
    runs = result.transports or []
    reference, environment = result.reference, result.environment
    machine = f"{environment.get('cpu_model', ABSENT)}, {environment.get('cores', ABSENT)} hardware threads"
    notes = f"Published: {reference.name}; {reference.hardware}. This run: {machine}."
    shown = [Text(text, reach=Reach.TERMINAL) for text in findings(runs)]
    chart = draw_times(runs, reference.label)
    blocks: list[Block] = [*shown, *([chart] if chart else []), *tables(runs)]
    blocks += [Text(explain(result), reach=Reach.TERMINAL), Text(notes, is_note=True)]
    return [Section("Transports side by side", blocks)]


def to_records(runs: Sequence[TransportRun]) -> Records:
    """Return a row for each run with all its values in result.json."""
    rows = [dict(flatten(msgspec.to_builtins(run))) for run in runs]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return Records(names, [[row.get(name) for name in names] for row in rows])


def tables(runs: Sequence[TransportRun]) -> list[Table]:
    """Return a table for each number of callers with a column for each transport."""
    return [
        Table(
            ["measure", *(TITLES[run.transport] for run in chosen)],
            [[name, *texts] for name, texts in _rows(chosen)],
            title="One caller" if count == 1 else f"{count:,} callers",
            reach=Reach.TERMINAL,
        )
        for count in sorted({run.outstanding for run in runs})
        if (chosen := [run for run in runs if run.outstanding == count])
    ]


def _rows(runs: Sequence[TransportRun]) -> Iterator[tuple[str, list[str]]]:
    """Yield a row for each metric; the rows after the total time compare it with the published run."""
    for entries in zip(*map(transport_metrics, runs), strict=True):
        metric = entries[0][0]
        yield metric.title, [metric.text(value) for _, value in entries]
        if metric.path == "total_s":
            yield f"s for {CALLS:,} calls at that rate", [number_text(scaled_s(run), 1) for run in runs]
            published = [number_text(published_s(run.transport), 1) for run in runs]
            yield f"s for {CALLS:,} calls, published 2014", published


def scaled_s(run: TransportRun) -> float | None:
    """Return the seconds that `CALLS` calls take at the run's rate; None without a rate."""
    return CALLS / run.calls_per_s if run.calls_per_s else None


def published_s(transport: str) -> float | None:
    """Return the published seconds for `CALLS` calls; None if the transport was not published."""
    return PUBLISHED_TRANSPORTS_S.get(transport)


def findings(runs: Sequence[TransportRun]) -> list[str]:
    """Return sentences that compare the transports."""
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
        cost = f"a connection for each call takes {_times(new, rest)} of kept connections"
        if new.server_cpu_us_per_call and rest.server_cpu_us_per_call:
            more = new.server_cpu_us_per_call - rest.server_cpu_us_per_call
            cost += f", and {more:,.1f} µs more of the server's CPU"
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
    """Return a sentence that compares time, bytes and processor time of two transports."""
    ratio = ws.calls_per_s / rest.calls_per_s
    if abs(ratio - 1.0) < _ALIKE:
        text = "REST with connections kept is as quick as WebSocket"
        linked = "; it takes "
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
            f"{rest.server_cpu_us_per_call:,.1f} µs of the server's CPU against "
            f"{ws.server_cpu_us_per_call:,.1f}"
        )
    return text + (linked + " and ".join(costs) if costs else "") + "."


def _times(slower: TransportRun, faster: TransportRun) -> str:
    return f"{faster.calls_per_s / slower.calls_per_s:.2f} times the time"


def _name(run: TransportRun) -> str:
    return _NAMES.get(run.transport, TITLES[run.transport])


def explain(result: Result) -> str:
    """Return the meaning of the figures, as a paragraph."""
    return (
        "Closed loop: each caller sends its next request when the answer to the last one has arrived. "
        "Latency is service time, including connecting. Bytes are counted exactly, on the callers' sockets, "
        "without TCP and IP. CPU is the time of whole processes, including the kernel's part. Payloads: "
        f"{result.scenario['request_bytes']} bytes out, {result.scenario['reply_bytes']} bytes back. "
        "Both ends are on one machine, so the figures do not show what bytes cost on a slow network."
    )


def draw_times(runs: Sequence[TransportRun], label: str) -> Chart | None:
    """Draw bars for each transport: one for each number of callers, and one for the published run `label`."""
    names = list(dict.fromkeys(run.transport for run in runs if run.calls_per_s))
    if not names:
        return None
    columns = [
        (
            "one caller" if callers == 1 else f"{callers:,} callers",
            {run.transport: scaled_s(run) for run in runs if run.outstanding == callers},
        )
        for callers in sorted({run.outstanding for run in runs})
    ]
    columns.append((f"published {label}", {name: published_s(name) for name in names}))
    highest = max(value or 0.0 for _, values in columns for value in values.values())
    places = [(float(place), _SHORT[name]) for place, name in enumerate(names)]
    canvas = Canvas(Axis(-0.5, len(names) - 0.5, "", ticks=places), linear([highest], "seconds"), 250)
    width = _GROUP / len(columns)
    for number, (column, values) in enumerate(columns):
        colour = f"var(--series-{number % SERIES + 1})"
        css = f"stroke:{colour};stroke-width:1.6;{_FILLS[number % len(_FILLS)]}:{colour}"
        for place, name in enumerate(names):
            if value := values.get(name):
                left = place - _GROUP / 2 + number * width
                what = f"{TITLES[name]}, {column}: {number_text(value, 1)} s"
                canvas.fill([(left + 0.04 * width, left + 0.96 * width, 0.0, value)], css, what)
                canvas.write(left + width / 2, value, number_text(value))
        canvas.keys.append(Key(column, css, is_filled=True))
    rows = [[TITLES[name], *(number_text(values.get(name), 1) for _, values in columns)] for name in names]
    table = Table(["transport", *(name for name, _ in columns)], rows)
    return canvas.finish("transport-time", f"Seconds for {CALLS:,} calls, by transport", table)
