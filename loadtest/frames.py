"""Result folders as pandas frames: `load_run` for a run, `load_capacity` for a capacity search.

pandas comes with the extra `analysis`: `pip install '.[analysis]'` in a checkout. The end of a column's name
is its unit: `_us` microseconds, `_s` seconds, `_percent`, `_bytes`, `_bps` bits per second, `_per_s`. A
column without a unit is a count. NaN means that the run has no such value.
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
_STEPS_PER_DECADE = 20
"""Equal steps of the share above a percentile within a factor of ten, such as from 10 % to 1 %."""
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
"""The parts of a result that a summary has, by the name of their field in the result."""
_RENAMED = {
    "rate": "rate_per_s",
    "requested_rate": "requested_rate_per_s",
    "achieved_rate": "achieved_rate_per_s",
    "broker_cpu": "broker_cpu_percent",
    "broker_mem": "broker_rss_bytes",
}
"""Column names for fields whose own names lack the unit."""


@dataclass(frozen=True)
class Run:
    """One result folder. Each frame is made at first use and then kept."""

    folder: Path
    result: Result
    """The typed content of `result.json`."""

    @cached_property
    def summary(self) -> pd.DataFrame:
        """One row for the run, so that `pandas.concat` puts several runs below each other.

        The index `run` is the folder's name. Columns: `scenario`, `started`, `duration_s`, `error`, `holds`,
        `conservation_holds`, and the requested, achieved and used amounts: `requested_rate_per_s`,
        `achieved_received`, `latency_p99_us`, `server_rss_bytes`, ...
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
        """Latency by percentile, from the histograms of the whole run; index `percentile`, 0 to 100.

        Columns: `one_in` (one request in so many took longer: the value for a logarithmic axis), `latency_us`
        from the planned send time, `service_us` from the actual send time. The ranges 0 to 90, 90 to 99, 99
        to 99.9 and so on have eighteen rows each, as far as there are enough replies to tell the rows apart.
        The percentiles 50, 95, 99 and 99.9 are among them.
        """
        columns = ["percentile", "one_in", "latency_us", "service_us"]
        histograms, latency = self.result.histograms, self.result.latency_us
        if histograms is None or latency is None:
            return _frame([], columns, "percentile")
        steps = _percentiles(latency.count)
        latencies = _percentile_values(histograms.latency, latency, steps)
        services: Sequence[float | None] = [None] * len(steps)
        if histograms.service is not None and self.result.service_us is not None:
            services = _percentile_values(histograms.service, self.result.service_us, steps)
        rows = [
            {
                "percentile": float(step),
                "one_in": float(100 / (100 - step)) if step < 100 else float(latency.count),  # noqa: PLR2004
                "latency_us": latency_us,
                "service_us": service_us,
            }
            for step, latency_us, service_us in zip(steps, latencies, services, strict=True)
        ]
        return _frame(rows, columns, "percentile")

    @cached_property
    def timeline(self) -> pd.DataFrame:
        """The whole run second by second; index `t_s`, seconds since the run began.

        Connect phase and warm-up are included. Columns: the fields of `loadtest.result.schema.Sample`, and
        the broker's own counters as `broker_...`. Counts are totals since the start of the run.
        """
        fields = [name for name in Sample.__struct_fields__ if name != "broker"]
        rows = [
            {name: getattr(sample, name) for name in fields} | _flatten("broker", BrokerSample, sample.broker)
            for sample in self.result.timeline
        ]
        return _frame(rows, [*fields, *_flatten("broker", BrokerSample, None)], "t_s")

    @cached_property
    def intervals(self) -> pd.DataFrame:
        """The measured phase second by second; index `start_s`, seconds since the phase began.

        Columns: the fields of `loadtest.result.schema.Interval`, `sent_per_s` and `received_per_s`.
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
        """Load of each machine of the run; index `host` and `t_s`, seconds since the run began.

        Columns: the fields of `loadtest.result.schema.HostSample`.
        """
        rows = [
            {"host": host.name, **structs.asdict(sample)}
            for host in self.result.hosts
            for sample in host.samples
        ]
        return _frame(rows, ["host", *HostSample.__struct_fields__], ["host", "t_s"])

    @cached_property
    def heatmap(self) -> pd.DataFrame:
        """Number of replies by time and latency; empty if no reply was measured.

        The index `start_s` is in seconds since the measured phase began. The columns `at_least_us` are the
        lower ends of the ranges of latencies; each range ends at the next column's value.
        """
        pandas = _import_pandas("Run.heatmap")
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
        """One row for each run of a comparison of transports; empty for other results.

        Index `transport` and `callers`. Columns: `calls`, `calls_per_s`, `latency_p99_us`,
        `wire_out_bytes_per_call`, ...
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
    """The result folder of a capacity search."""

    folder: Path
    search: Capacity
    """The typed content of `capacity.json`."""

    @cached_property
    def probes(self) -> pd.DataFrame:
        """One row for each run of the search, in the order of the runs; index `number`, from 1.

        Columns: the fields of `loadtest.result.capacity.Probe`, with the reasons joined into one text and the
        latency in columns of its own: `rate_per_s`, `verdict`, `achieved_rate_per_s`, `latency_p99_us`, ...
        """
        fields = [name for name in Probe.__struct_fields__ if name not in ("objectives", "latency_us")]
        columns = [_RENAMED.get(name, name) for name in fields] + list(_flatten("latency_us", Latency, None))
        rows = [
            {_RENAMED.get(name, name): getattr(probe, name) for name in fields}
            | {"reasons": "; ".join(probe.reasons)}
            | _flatten("latency_us", Latency, probe.latency_us)
            for probe in self.search.probes
        ]
        return _frame(rows, columns, "number")

    def run(self, number: int) -> Run:
        """Return the result folder of the probe `number`.

        Raises:
            KeyError: The search has no probe with this number.
            ResultError: The probe's folder does not exist any more, or cannot be used.
        """
        return load_run(self.folder / str(self.probes.loc[number, "folder"]))


def load_capacity(path: str | PathLike[str]) -> CapacitySearch:
    """Return the capacity search in the folder `path`, made by `subjectbus loadtest capacity`.

    Raises:
        ResultError: The folder has no `capacity.json`, or an unusable one; the text says why.
        ModuleNotFoundError: pandas is not installed.
    """
    _import_pandas("load_capacity")
    folder = Path(path)
    return CapacitySearch(folder, read_capacity(folder))


def load_run(path: str | PathLike[str]) -> Run:
    """Return the run in the result folder `path`.

    Raises:
        ResultError: The folder has no `result.json`, or an unusable one; the text says why.
        ModuleNotFoundError: pandas is not installed.
    """
    _import_pandas("load_run")
    folder = Path(path)
    return Run(folder, read_result(folder))


def _import_pandas(caller: str) -> ModuleType:
    """Import pandas on first use: only analysis needs it.

    Raises:
        ModuleNotFoundError: pandas is not installed; the text names `caller` and the command to install it.
    """
    try:
        import pandas  # noqa: ICN001, PLC0415 - an extra
    except ModuleNotFoundError as error:
        text = f"{caller} needs pandas: pip install '.[analysis]' in a checkout of subjectbus"
        raise ModuleNotFoundError(text, name=error.name) from error
    return pandas


def _frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], index: str | list[str]) -> pd.DataFrame:
    """Return the rows as a frame with exactly these columns, even if there are no rows; None becomes NaN."""
    frame: pd.DataFrame = _import_pandas("a frame").DataFrame(list(rows), columns=list(columns))
    for name in columns:
        if frame[name].isna().all():  # a column of None would get the type object
            frame[name] = frame[name].astype(float)
    return frame.set_index(index)


def _flatten(name: str, kind: type[Struct], part: Struct | None) -> dict[str, Any]:
    """Return the columns and values of the part `name` of a result; all values are None if `part` is None."""
    row: dict[str, Any] = {}
    for field in kind.__struct_fields__:
        value = getattr(part, field, None)
        if field == "spread_us":
            row |= _flatten(f"{name}_spread_us", Spread, value)
        elif not isinstance(value, dict):
            row[_column(name, field)] = value
    return row


def _column(part: str, field: str) -> str:
    """Return the name of a column, with its unit."""
    if part == "wire":
        return "wire_calls" if field == "calls" else f"wire_{field.rstrip('_')}_bytes_per_call"
    if part.endswith("_us"):
        name = part.removesuffix("_us")
        return f"{name}_count" if field == "count" else f"{name}_{field}_us"
    return _RENAMED.get(f"{part}_{field}", f"{part}_{field}")


def _percentiles(count: int) -> list[Decimal]:
    """Return 0, 5, ... 85, 90, 90.5, ... 98.5, 99, 99.05 and so on, and 100.

    The list ends where `count` values are too few to tell the percentiles apart.
    """
    steps: list[Decimal] = []
    remaining = Decimal(100)
    while True:
        for step in range(_STEPS_PER_DECADE - 2):
            above = remaining * (_STEPS_PER_DECADE - step) / _STEPS_PER_DECADE
            if above * count < 100:  # noqa: PLR2004 - percent: less than one value is above
                return [*steps, Decimal(100)]
            steps.append(100 - above)
        remaining /= 10


def _percentile_values(encoded: str, latency: Latency, steps: Sequence[Decimal]) -> list[float]:
    """Return microseconds at each percentile of a histogram, within the exact minimum and maximum."""
    values = Histogram.merged([encoded]).values_at([str(step) for step in steps])
    return [min(max(value / _NS_PER_US, latency.min), latency.max) for value in values]
