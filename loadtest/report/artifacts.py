"""The result folder: what a run leaves behind."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from loadtest.errors import RunError, ScenarioError
from loadtest.report.html import write_report
from loadtest.report.transports import to_markdown
from loadtest.result.histogram import Histogram, LoggedInterval, write_hgrm, write_hlog
from loadtest.result.schema import Result, read_result, write_result

_NS_PER_US = 1000
_LATENCY_TAG = "latency"


def default_folder(scenario: str) -> Path:
    """`results/<scenario>-<UTC time>` under the current folder."""
    return Path("results") / f"{scenario}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"


def create_folder(folder: Path) -> None:
    """Makes the folder before the run, so that a run never ends without a place for its result.

    Raises:
        ScenarioError: It cannot be made, or holds a result already.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ScenarioError(f"result folder {folder}: {error.strerror}") from error
    if (folder / "result.json").exists():
        raise ScenarioError(f"result folder {folder}: holds a result already")


def discard_empty(folder: Path) -> None:
    """Removes the folder of a run that never began; one that holds anything stays."""
    with suppress(OSError):
        folder.rmdir()


def write_folder(result: Result, logged: Sequence[LoggedInterval], folder: Path) -> None:
    """Writes every file; RunError when the disk does not take them."""
    try:
        write_result(result, folder)
        environment = msgspec.json.format(msgspec.json.encode(result.environment), indent=2)
        (folder / "environment.json").write_bytes(environment + b"\n")
        if result.transports is None:
            with (folder / "latency.hlog").open("w", encoding="ascii") as file:
                write_hlog(file, _LATENCY_TAG, datetime.fromisoformat(result.started), logged)
        _write_rendered(result, folder)
    except OSError as error:
        raise RunError(f"result folder {folder}: {error.strerror}") from error


def render_again(folder: Path) -> Result:
    """Writes the report and latency.hgrm of an existing result folder anew."""
    result = read_result(folder)
    try:
        _write_rendered(result, folder)
    except OSError as error:
        raise RunError(f"result folder {folder}: {error.strerror}") from error
    return result


def _write_rendered(result: Result, folder: Path) -> None:
    latency = result.latency_us
    if latency is not None and result.histograms is not None:
        with (folder / "latency.hgrm").open("w", encoding="ascii") as file:
            write_hgrm(
                file,
                Histogram.merged([result.histograms.latency]),
                mean_ns=latency.mean * _NS_PER_US,
                stddev_ns=latency.stddev * _NS_PER_US,
                max_ns=round(latency.max * _NS_PER_US),
            )
    if result.transports is not None:
        (folder / "report.md").write_text(to_markdown(result), encoding="utf-8")
    write_report(result, folder)
