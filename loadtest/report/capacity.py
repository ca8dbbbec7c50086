"""A search for the capacity, rendered: report.html, report.md and the terminal's table."""

from pathlib import Path

from rich.console import Console as Terminal

from loadtest.report import markdown_parts as parts
from loadtest.report.canvas import Table, figure_text
from loadtest.report.capacity_charts import draw_achieved, draw_latency
from loadtest.report.grids import draw_grid
from loadtest.report.pages import csv_text, render_page, write_pages
from loadtest.report.reproduce import command_line
from loadtest.result.capacity import Capacity, Probe

_US_PER_MS = 1e3
_COLUMNS = (
    "probe", "requested/s", "achieved/s", "of what was planned", "p50, ms", "p99, ms", "p99.9, ms",
    "broker CPU, %", "load CPU, %", "verdict",
)  # fmt: skip
_COUNTED = (
    "rate", "requested_rate", "achieved_rate", "achieved_share", "sent", "received", "timed_out", "errors",
    "max_send_lag_us", "server_cpu_percent", "load_cpu_percent",
)  # fmt: skip
_LATENCIES = ("mean", "p50", "p90", "p95", "p99", "p99_9", "p99_99", "max")
_SHORT = ("probe", "requested/s", "achieved/s", "p50, ms", "p99, ms", "verdict")
"""Of these, what a terminal has room for."""


def write_capacity(capacity: Capacity, folder: Path) -> None:
    """Writes report.html and report.md of the search; RunError when the disk does not take them."""
    write_pages(folder, html=render_capacity(capacity), markdown=to_markdown(capacity))


def render_capacity(capacity: Capacity) -> str:
    """The search's report.html."""
    return render_page(
        "capacity.html.j2",
        capacity=capacity,
        name=capacity.scenario["name"],
        headline=_headline(capacity),
        charts=[chart for chart in (draw_latency(capacity), draw_achieved(capacity)) if chart],
        probes=tabulate(capacity),
        failures=_failures(capacity),
        conditions=_conditions(capacity),
    )


def to_markdown(capacity: Capacity) -> str:
    """The search as Markdown."""
    failures = _failures(capacity)
    return parts.document(
        [
            [f"# Capacity of {parts.plain(capacity.scenario['name'])}"],
            [f"{parts.paragraph(capacity.explanation)}."],
            parts.table(Table(("", "per second"), _headline(capacity))),
            ["## Probes"],
            parts.table(tabulate(capacity)),
            ["## Why probes failed"] if failures else [],
            parts.bullets(failures),
            ["## Conditions"],
            parts.bullets(f"{name}: {text}" for name, text in _conditions(capacity)),
        ]
    )


def to_csv(capacity: Capacity) -> str:
    """A line for each probe: bare numbers, latencies in microseconds."""
    columns = [
        "probe",
        "folder",
        "purpose",
        "verdict",
        *_COUNTED,
        *(f"latency_{name}_us" for name in _LATENCIES),
    ]
    rows = [
        [probe.number, probe.folder, probe.purpose, probe.verdict]
        + [getattr(probe, name) for name in _COUNTED]
        + [getattr(probe.latency_us, name, None) for name in _LATENCIES]
        for probe in capacity.probes
    ]
    return csv_text(columns, rows)


def show_capacity(capacity: Capacity, folder: Path, terminal: Terminal) -> None:
    """The probes as a table, what was found, and where everything is."""
    rows = [[row[_COLUMNS.index(column)] for column in _SHORT] for row in tabulate(capacity).rows]
    title = f"capacity of {capacity.scenario['name']}"
    terminal.print(draw_grid(Table(_SHORT, rows), terminal, title=title, wraps=False))
    for text in (f"capacity: {capacity.explanation}", f"result folder: {folder}"):
        terminal.print(text, highlight=False, markup=False, soft_wrap=True)


def tabulate(capacity: Capacity) -> Table:
    """A row for each probe, in their order."""
    return Table(_COLUMNS, [_row(probe) for probe in capacity.probes])


def _row(probe: Probe) -> list[str]:
    latency = probe.latency_us
    texts = [
        figure_text(getattr(latency, name) / _US_PER_MS if latency else None)
        for name in ("p50", "p99", "p99_9")
    ]
    return [
        str(probe.number),
        figure_text(probe.requested_rate),
        figure_text(probe.achieved_rate),
        f"{100 * probe.achieved_share:.1f} %",
        *texts,
        figure_text(probe.server_cpu_percent),
        figure_text(probe.load_cpu_percent),
        probe.verdict,
    ]


def _headline(capacity: Capacity) -> list[tuple[str, str]]:
    return [
        ("highest rate that holds", figure_text(capacity.capacity)),
        ("achieved there", figure_text(capacity.capacity_achieved)),
        ("lowest rate that fails above it", figure_text(capacity.fails_at)),
    ]


def _failures(capacity: Capacity) -> list[str]:
    return [
        f"probe {probe.number}, {probe.rate:,.10g}/s ({probe.verdict}): {'; '.join(probe.reasons)}"
        for probe in capacity.probes
        if probe.reasons
    ]


def _conditions(capacity: Capacity) -> list[tuple[str, str]]:
    """What was searched for, and where."""
    environment = capacity.environment
    bound = "no bound" if capacity.to_rate is None else f"{capacity.to_rate:,.10g}/s"
    always = f"{100 * capacity.least_share:g} % of the planned answered in time; all messages accounted for"
    machine = f"{environment.get('cpu_model', '-')}, {environment.get('cores', '-')} hardware threads"
    return [
        *_units(capacity),
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
        ("kernel", str(environment.get("kernel", "-"))),
        ("started", capacity.started),
        ("command", command_line(capacity.command) or "-"),
    ]


def _units(capacity: Capacity) -> list[tuple[str, str]]:
    """Where the scenario's rate is not what was requested in all: of a broadcast, or with a profile."""
    if capacity.scenario.get("workload") == "broadcast":
        return [("rates", "of the search: messages published; requested and achieved: deliveries")]
    if any(probe.requested_rate != probe.rate for probe in capacity.probes):
        return [("rates", "of the search: what the profile's factors multiply; requested: the mean of that")]
    return []
