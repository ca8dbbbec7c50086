"""Result folders as pandas frames, for notebooks: `load_run`, and `load_capacity` for a search's folder.

pandas is an extra, `pip install 'subjectbus[analysis]'`. Units are in the columns' names: `_us` microseconds,
`_s` seconds, `_percent`, `_bytes`, `_bps` bits per second, `_per_s`; a name without one is a count. NaN
stands where a run has no such figure.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from loadtest.result.broker_view import BrokerSample
from loadtest.result.capacity import Capacity, Probe, read_capacity
from loadtest.result.histogram import Histogram
from loadtest.result.schema import (
    Achieved,
    BroadcastFigures,
    Heatmap,
    HostSample,
    Interval,
    Latency,
    Load,
    Requested,
    Result,
    Sample,
    Server,
    Spread,
    Sweep,
    Wire,
    read_result,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike
    from types import ModuleType

    import pandas as pd

_NS_PER_US = 1000
_STEPS_PER_NINE = 20
_PARTS: dict[str, type[Struct]] = {
    "requested": Requested,
    "achieved": Achieved,
    "latency_us": Latency,
    "service_us": Latency,
    "server": Server,
    "load": Load,
    "sweep": Sweep,
    "wire": Wire,
    "broadcast": BroadcastFigures,
}
"""What of a result is in a summary, by the name of its field."""
_RENAMED = {
    "rate": "rate_per_s",
    "requested_rate": "requested_rate_per_s",
    "achieved_rate": "achieved_rate_per_s",
    "broker_cpu": "broker_cpu_percent",
    "broker_mem": "broker_rss_bytes",
}
"""Columns whose fields do not say their unit."""


@dataclass(frozen=True)
class Run:
    """One result folder; each frame is made when it is first asked for."""

    folder: Path
    result: Result
    """Everything that `result.json` has, typed."""

    @cached_property
    def summary(self) -> pd.DataFrame:
        """One row, indexed by the folder's name as `run`, so that `pandas.concat` sets runs side by side.

        Columns: `scenario`, `started`, `duration_s`, `error`, `holds`, and what is asked for, achieved and
        used: `requested_rate_per_s`, `achieved_received`, `latency_p99_us`, `server_rss_bytes`, ...
        """
        result = self.result
        row: dict[str, Any] = {
            "run": self.folder.resolve().name,
            "scenario": str(result.scenario.get("name", "")),
            "started": result.started,
            "duration_s": result.duration_s,
            "error": result.error,
            "holds": result.holds,
            "conservation_holds": result.conservation.holds,
        }
        for name, kind in _PARTS.items():
            row |= _flatten(name, kind, getattr(result, name))
        return _frame([row], list(row), "run")

    @cached_property
    def percentiles(self) -> pd.DataFrame:
        """Latency by percentile, of the whole run's histograms; index `percentile`, 0 to 100.

        Columns: `one_in`, one in so many took longer (what to draw on a logarithmic axis), `latency_us` from
        the planned send time, `service_us` from the actual one. Every nine has eighteen rows, 50, 95, 99 and
        99.9 among them, as far as there are enough replies to tell them apart.
        """
        columns = ["percentile", "one_in", "latency_us", "service_us"]
        histograms, latency = self.result.histograms, self.result.latency_us
        if histograms is None or latency is None:
            return _frame([], columns, "percentile")
        steps = _percentiles(latency.count)
        ours = _values(histograms.latency, latency, steps)
        service: Sequence[float | None] = [None] * len(steps)
        if histograms.service is not None and self.result.service_us is not None:
            service = _values(histograms.service, self.result.service_us, steps)
        rows = [
            {
                "percentile": float(step),
                "one_in": float(100 / (100 - step)) if step < 100 else float(latency.count),  # noqa: PLR2004
                "latency_us": first,
                "service_us": second,
            }
            for step, first, second in zip(steps, ours, service, strict=True)
        ]
        return _frame(rows, columns, "percentile")

    @cached_property
    def timeline(self) -> pd.DataFrame:
        """The whole run, second by second, connecting and warm-up included; index `t_s`, since it began.

        Columns: those of `loadtest.result.schema.Sample`, and the broker's own counters, `broker_...`. Counts
        are totals since the beginning.
        """
        own = [name for name in Sample.__struct_fields__ if name != "broker"]
        rows = [
            {name: getattr(sample, name) for name in own} | _flatten("broker", BrokerSample, sample.broker)
            for sample in self.result.timeline
        ]
        return _frame(rows, [*own, *_flatten("broker", BrokerSample, None)], "t_s")

    @cached_property
    def intervals(self) -> pd.DataFrame:
        """The measured phase, second by second; index `start_s`, since it began.

        Columns: those of `loadtest.result.schema.Interval`, and `sent_per_s`, `received_per_s`.
        """
        frame = _frame(
            [structs.asdict(interval) for interval in self.result.intervals],
            list(Interval.__struct_fields__),
            "start_s",
        )
        length_s = frame["end_s"] - frame.index
        for name in ("sent", "received"):
            frame[f"{name}_per_s"] = frame[name] / length_s
        return frame

    @cached_property
    def hosts(self) -> pd.DataFrame:
        """What each machine of the run did; index `host` and `t_s`, seconds since the run began.

        Columns: those of `loadtest.result.schema.HostSample`.
        """
        rows = [
            {"host": host.name, **structs.asdict(sample)}
            for host in self.result.hosts
            for sample in host.samples
        ]
        return _frame(rows, ["host", *HostSample.__struct_fields__], ["host", "t_s"])

    @cached_property
    def heatmap(self) -> pd.DataFrame:
        """How many replies of which time took how long; empty where none were measured.

        Index `start_s`, since the measured phase began; columns `at_least_us`, the lower end of each range of
        latencies, which ends where the next one begins.
        """
        pandas = _pandas("Run.heatmap")
        heatmap = self.result.heatmap or Heatmap(starts_s=[], end_s=0.0, edges_us=[], counts=[])
        height = len(heatmap.counts[0]) if heatmap.counts else 0
        frame: pd.DataFrame = pandas.DataFrame(
            heatmap.counts,
            index=pandas.Index(heatmap.starts_s, name="start_s", dtype=float),
            columns=pandas.Index(heatmap.edges_us[:height], name="at_least_us", dtype=float),
            dtype="int64",
        )
        return frame

    @cached_property
    def transports(self) -> pd.DataFrame:
        """Of a comparison of transports, a run a row; index `transport` and `callers`, else empty.

        Columns: `calls`, `calls_per_s`, `latency_p99_us`, `wire_out_bytes_per_call`, ...
        """
        rows = []
        for run in self.result.transports or []:
            row: dict[str, Any] = {"transport": run.transport, "callers": run.outstanding}
            for name in ("calls", "errors", "timed_out", "total_s", "calls_per_s", "connections_opened"):
                row[name] = getattr(run, name)
            row |= {name: getattr(run, name) for name in ("server_cpu_us_per_call", "client_cpu_us_per_call")}
            rows.append(
                row | _flatten("latency_us", Latency, run.latency_us) | _flatten("wire", Wire, run.wire)
            )
        return _frame(rows, list(rows[0]) if rows else ["transport", "callers"], ["transport", "callers"])


@dataclass(frozen=True)
class CapacitySearch:
    """The folder of a search for the capacity."""

    folder: Path
    search: Capacity
    """Everything that `capacity.json` has, typed."""

    @cached_property
    def probes(self) -> pd.DataFrame:
        """A run of the search a row, in their order; index `number`.

        Columns: those of `loadtest.result.capacity.Probe`, the reasons as one text, and the latency's:
        `rate_per_s`, `verdict`, `achieved_rate_per_s`, `latency_p99_us`, ...
        """
        own = [name for name in Probe.__struct_fields__ if name not in ("objectives", "latency_us")]
        columns = [_RENAMED.get(name, name) for name in own] + list(_flatten("latency_us", Latency, None))
        rows = [
            {_RENAMED.get(name, name): getattr(probe, name) for name in own}
            | {"reasons": "; ".join(probe.reasons)}
            | _flatten("latency_us", Latency, probe.latency_us)
            for probe in self.search.probes
        ]
        return _frame(rows, columns, "number")

    def run(self, number: int) -> Run:
        """The result folder of a probe.

        Raises:
            KeyError: There is no probe of this number.
            ScenarioError: Its folder is not there any more, or cannot be used.
        """
        return load_run(self.folder / str(self.probes.loc[number, "folder"]))


def load_capacity(path: str | PathLike[str]) -> CapacitySearch:
    """The folder `path` that `subjectbus loadtest capacity` made.

    Raises:
        ScenarioError: It is none, or its `capacity.json` cannot be used; the text says why.
        ModuleNotFoundError: pandas is not installed.
    """
    _pandas("load_capacity")
    folder = Path(path)
    return CapacitySearch(folder, read_capacity(folder))


def load_run(path: str | PathLike[str]) -> Run:
    """The result folder `path`.

    Raises:
        ScenarioError: It is none, or its `result.json` cannot be used; the text says why.
        ModuleNotFoundError: pandas is not installed.
    """
    _pandas("load_run")
    folder = Path(path)
    return Run(folder, read_result(folder))


def _pandas(who: str) -> ModuleType:
    """The package, which nothing but analysis needs."""
    try:
        import pandas  # noqa: ICN001, PLC0415 - an extra
    except ModuleNotFoundError as error:
        text = f"{who} needs pandas: pip install 'subjectbus[analysis]'"
        raise ModuleNotFoundError(text, name=error.name) from error
    return pandas


def _frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], index: str | list[str]) -> pd.DataFrame:
    """The rows with exactly these columns, whether there are any rows or not; None is NaN."""
    frame: pd.DataFrame = _pandas("a frame").DataFrame(list(rows), columns=list(columns))
    for name in columns:
        if frame[name].isna().all():  # else a column of None would be of objects
            frame[name] = frame[name].astype(float)
    return frame.set_index(index)


def _flatten(name: str, kind: type[Struct], part: Struct | None) -> dict[str, Any]:
    """Columns and values of the part `name` of a result; None in all of them without one."""
    row: dict[str, Any] = {}
    for field in kind.__struct_fields__:
        value = getattr(part, field, None)
        if field == "spread_us":
            row |= _flatten(f"{name}_spread_us", Spread, value)
        elif not isinstance(value, dict):
            row[_column(name, field)] = value
    return row


def _column(part: str, field: str) -> str:
    """A column's name, with its unit."""
    if part == "wire":
        return "wire_calls" if field == "calls" else f"wire_{field.rstrip('_')}_bytes_per_call"
    if part.endswith("_us"):
        name = part.removesuffix("_us")
        return f"{name}_count" if field == "count" else f"{name}_{field}_us"
    return _RENAMED.get(f"{part}_{field}", f"{part}_{field}")


def _percentiles(count: int) -> list[Decimal]:
    """0, 5, ... 85, 90, 90.5, ... 98.5, 99, 99.05 and so on, as far as `count` values differ, and 100."""
    steps: list[Decimal] = []
    rest = Decimal(100)
    while True:
        for step in range(_STEPS_PER_NINE - 2):
            beyond = rest * (_STEPS_PER_NINE - step) / _STEPS_PER_NINE
            if beyond * count < 100:  # noqa: PLR2004 - percent: less than one value is beyond
                return [*steps, Decimal(100)]
            steps.append(100 - beyond)
        rest /= 10


def _values(encoded: str, latency: Latency, steps: Sequence[Decimal]) -> list[float]:
    """Microseconds at each percentile, within the exact extremes, as `result.json` has them."""
    values = Histogram.merged([encoded]).values_at([str(step) for step in steps])
    return [min(max(value / _NS_PER_US, latency.min), latency.max) for value in values]
