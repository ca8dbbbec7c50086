"""The report of a search for the capacity, with its charts over the rates that were tried."""

import re
from collections.abc import Sequence

from loadtest.report.charts.svg import Axis, Canvas, Chart, Style, line_style, linear, logarithmic, spanning
from loadtest.report.document import (
    ABSENT,
    Alert,
    Block,
    Bullets,
    Document,
    Fact,
    Headline,
    Links,
    Mark,
    Outcome,
    Reach,
    Records,
    Section,
    Table,
    Text,
)
from loadtest.report.run import reproduction
from loadtest.result.capacity import Capacity, Probe
from loadtest.result.metrics import LATENCY_LABELS, PERCENTILES, number_text

_US_PER_MS = 1e3
_COUNTED = (
    "rate", "requested_rate", "achieved_rate", "achieved_share", "sent", "received", "timed_out", "errors",
    "max_send_lag_us", "server_cpu_percent", "load_cpu_percent",
)  # fmt: skip
_LATENCIES = ("mean", *PERCENTILES, "max")
_ALWAYS = ("p50", "p99", "p99_9")
_LATENCY = re.compile(rf"latency_us\.(?P<name>{'|'.join(LATENCY_LABELS)})\s*<=?\s*(?P<limit>\S+)", re.ASCII)
_WIDE = 30.0
"""Ratio of the highest to the lowest rate above which the scale is logarithmic."""
_HOLDS = {"holds": True, "fails": False}


def to_document(capacity: Capacity) -> Document:
    """Return the report of a search, finished or not."""
    head: list[Block] = [
        Text(f"{capacity.started} · {capacity.target or 'own broker'}", is_note=True),
        Outcome("Capacity", f"{capacity.explanation}.", holds=None, reach=Reach.TERMINAL),
    ]
    if capacity.ending in ("running", "interrupted", "failed"):
        note = "What it had found until then is below."
        head.append(Alert("The search did not come to its end.", [], note))
    head.append(Headline(_headline(capacity)))
    charts = [chart for chart in (draw_latency(capacity), draw_achieved(capacity)) if chart]
    failures = [
        f"probe {probe.number}, {probe.rate:,.10g}/s ({probe.verdict}): {'; '.join(probe.reasons)}"
        for probe in capacity.probes
        if probe.reasons
    ]
    pages = [(probe.folder, f"./{probe.folder}/report.html") for probe in capacity.probes]
    probes: list[Block] = [
        tabulate(capacity),
        Links(
            "In the order in which they were made. Each has its own result folder:", pages, reach=Reach.PAGE
        ),
    ]
    return Document(
        f"Capacity of {capacity.scenario['name']}",
        [
            Section("Latency and throughput by rate", charts),
            Section("Probes", probes),
            Section("Why probes failed", [Bullets(failures)] if failures else []),
            Section("Conditions", [_conditions(capacity)]),
            reproduction(capacity),
        ],
        head,
    )


def to_records(capacity: Capacity) -> Records:
    """Return a row for each probe; latencies are in microseconds."""
    columns = ["probe", "folder", "purpose", "verdict", *_COUNTED]
    rows = [
        [probe.number, probe.folder, probe.purpose, probe.verdict]
        + [getattr(probe, name) for name in _COUNTED]
        + [getattr(probe.latency_us, name, None) for name in _LATENCIES]
        for probe in capacity.probes
    ]
    return Records([*columns, *(f"latency_{name}_us" for name in _LATENCIES)], rows)


def tabulate(capacity: Capacity) -> Table:
    """Return a row for each probe, in the order in which they were made."""
    columns = ["probe", "requested/s", "achieved/s", "of what was planned", "p50, ms", "p99, ms", "p99.9, ms"]
    columns += ["send lag, ms", "broker CPU, %", "load CPU, %", "verdict"]
    essential = [
        columns.index(name) for name in (*columns[:3], "p50, ms", "p99, ms", "send lag, ms", "verdict")
    ]
    rows = [_row(probe) for probe in capacity.probes]
    return Table(columns, rows, essential=essential, reach=Reach.TERMINAL)


def _row(probe: Probe) -> list[str | Mark]:
    times = [getattr(probe.latency_us, name, None) for name in ("p50", "p99", "p99_9")]
    times.append(probe.max_send_lag_us)
    return [
        str(probe.number),
        number_text(probe.requested_rate),
        number_text(probe.achieved_rate),
        f"{100 * probe.achieved_share:.1f} %",
        *(number_text(None if us is None else us / _US_PER_MS) for us in times),
        number_text(probe.server_cpu_percent, 1),
        number_text(probe.load_cpu_percent, 1),
        Mark(probe.verdict, _HOLDS.get(probe.verdict)),
    ]


def _headline(capacity: Capacity) -> list[Fact]:
    held = [
        probe for probe in capacity.probes if probe.rate == capacity.capacity and probe.verdict == "holds"
    ]
    lag = held[-1].max_send_lag_us / _US_PER_MS if held else None
    return [
        Fact("highest rate that holds, per second", number_text(capacity.capacity)),
        Fact("achieved there, per second", number_text(capacity.capacity_achieved)),
        Fact("lowest rate that fails above it, per second", number_text(capacity.fails_at)),
        Fact("send lag maximum at the highest rate, ms", number_text(lag)),
    ]


def _conditions(capacity: Capacity) -> Table:
    """Return the objectives and the bounds of the search."""
    environment = capacity.environment
    bound = "no bound" if capacity.to_rate is None else f"{capacity.to_rate:,.10g}/s"
    always = f"{100 * capacity.least_share:g} % of the planned answered in time; all messages accounted for"
    machine = f"{environment.get('cpu_model', ABSENT)}, {environment.get('cores', ABSENT)} hardware threads"
    rows = [
        ("objectives", "; ".join([*capacity.objectives, always])),
        (
            "rates",
            f"from {capacity.from_rate:,.10g}/s to {bound}, found within {100 * capacity.precision:g} %",
        ),
        (
            "each probe",
            f"{capacity.probe_s:g} s measured after {capacity.scenario['warmup_s']:g} s of warm-up",
        ),
        ("target", capacity.target or "own broker, a new one for each probe"),
        ("load machine" if capacity.target else "machine", machine),
        ("kernel", str(environment.get("kernel", ABSENT))),
        ("started", capacity.started),
    ]
    # In a broadcast or with a profile, the scenario's rate differs from the requested rate.
    if capacity.scenario.get("workload") == "broadcast":
        rows.insert(
            0, ("unit of rates", "of the search: messages published; requested and achieved: deliveries")
        )
    elif any(probe.requested_rate != probe.rate for probe in capacity.probes):
        meaning = "of the search: what the profile's factors multiply; requested: the mean of that"
        rows.insert(0, ("unit of rates", meaning))
    return Table(["condition", ""], rows, numbers=False)


def draw_latency(capacity: Capacity) -> Chart | None:
    """Draw latency against the requested rate, with the objectives that bound a latency."""
    probes = [probe for probe in _measured(capacity) if probe.latency_us is not None]
    if not probes:
        return None
    matches = [_LATENCY.fullmatch(text.strip()) for text in capacity.objectives]
    limits = [(match["name"], float(match["limit"]) / _US_PER_MS) for match in matches if match]
    names = list(dict.fromkeys([*_ALWAYS, *(name for name, _ in limits)]))
    columns = [[getattr(probe.latency_us, name) / _US_PER_MS for probe in probes] for name in names]
    values = [value for column in columns for value in column]
    canvas = _by_rate(probes, logarithmic([*values, *(limit for _, limit in limits)], "milliseconds"))
    for number, (name, column) in enumerate(zip(names, columns, strict=True)):
        _plot(canvas, probes, column, LATENCY_LABELS[name], number)
    for name, limit in limits:
        canvas.level(limit, f"objective: {LATENCY_LABELS[name]} below {limit:,.10g} ms")
    _mark(canvas, capacity, probes, [max(column) for column in zip(*columns, strict=True)])
    rows = [
        [number_text(_rate(probe)), probe.verdict, *(number_text(column[index]) for column in columns)]
        for index, probe in enumerate(probes)
    ]
    titles = ["requested per second", "verdict", *(f"{LATENCY_LABELS[name]}, ms" for name in names)]
    title = "Latency against the requested rate"
    return canvas.finish("latency-by-rate", title, Table(titles, rows), _caption(capacity))


def draw_achieved(capacity: Capacity) -> Chart | None:
    """Draw the achieved rate against the requested rate."""
    probes = _measured(capacity)
    if not probes:
        return None
    rates, achieved = [_rate(probe) for probe in probes], [probe.achieved_rate for probe in probes]
    ends = [min(rates), max(rates)]
    scale = logarithmic if _is_wide(rates) else linear
    canvas = _by_rate(probes, scale([*rates, *achieved], "achieved per second"))
    canvas.line("all that was requested", [(end, end) for end in ends], Style("ink", "2 2", 1), dots=False)
    _plot(canvas, probes, achieved, "achieved", 0)
    _mark(canvas, capacity, probes, achieved)
    rows = [
        [
            number_text(_rate(probe)),
            number_text(probe.achieved_rate),
            f"{100 * probe.achieved_share:.2f} %",
            probe.verdict,
        ]
        for probe in probes
    ]
    table = Table(["requested per second", "achieved per second", "of what was planned", "verdict"], rows)
    return canvas.finish("achieved-by-rate", "Achieved against requested rate", table, _caption(capacity))


def _measured(capacity: Capacity) -> list[Probe]:
    """Return the probes that say something about their rate, the lowest rate first."""
    probes = [probe for probe in capacity.probes if probe.verdict != "unfinished"]
    return sorted(probes, key=lambda probe: (_rate(probe), probe.number))


def _rate(probe: Probe) -> float:
    return probe.requested_rate or 0.0


def _is_wide(rates: Sequence[float]) -> bool:
    return max(rates) > _WIDE * min(rates)


def _by_rate(probes: Sequence[Probe], y: Axis) -> Canvas:
    rates = [_rate(probe) for probe in probes]
    x = logarithmic if _is_wide(rates) else spanning
    return Canvas(x(rates, "requested per second"), y, 300)


def _plot(canvas: Canvas, probes: Sequence[Probe], values: Sequence[float], label: str, number: int) -> None:
    """Draw a line through the decisive last probe of each rate, and dots for earlier probes."""
    points = [(_rate(probe), value) for probe, value in zip(probes, values, strict=True)]
    last = dict(points)
    canvas.line(label, list(last.items()), line_style(number))
    canvas.dots("", [(rate, value) for rate, value in points if last[rate] != value], line_style(number))


def _mark(canvas: Canvas, capacity: Capacity, probes: Sequence[Probe], heights: Sequence[float]) -> None:
    """Cross out the probes that fail, and mark the highest rate that holds."""
    points = [
        (_rate(probe), height)
        for probe, height in zip(probes, heights, strict=True)
        if probe.verdict == "fails"
    ]
    if points:
        canvas.crosses("fails", points)
    held = [probe.requested_rate for probe in capacity.probes if probe.rate == capacity.capacity]
    if held and held[0] and canvas.x.low <= held[0] <= canvas.x.high:
        canvas.upright(held[0], "highest that holds")


def _caption(capacity: Capacity) -> str:
    return (
        f"A point is one run of {capacity.probe_s:g} s, crossed out if it fails; lines go through the "
        "last run at each rate. Latency runs from the planned send time: beyond the capacity it grows with "
        "the length of the run."
    )
