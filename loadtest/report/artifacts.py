"""The result folder: what a run leaves behind."""

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

from jinja2 import TemplateError
from msgspec import MsgspecError

from loadtest.errors import RunError, ScenarioError, ThresholdError
from loadtest.report.html import render_report
from loadtest.report.markdown import to_markdown
from loadtest.result.documents import encode_document, replace_file
from loadtest.result.histogram import Histogram, LoggedInterval, write_hgrm, write_hlog
from loadtest.result.schema import Result, read_result

_NS_PER_US = 1000
_LATENCY_TAG = "latency"
_UNUSABLE = (
    LookupError,
    TypeError,
    ValueError,
    ArithmeticError,
    AttributeError,
    MsgspecError,
    TemplateError,
)
"""What rendering raises over values that it cannot cope with."""
_File = tuple[str, bytes]
"""Its name and content."""


def write_folder(result: Result, logged: Sequence[LoggedInterval], folder: Path) -> None:
    """Writes every file, the result first, each of them whole or not at all.

    Raises:
        RunError: The disk does not take one of them; those before it are there.
    """
    _write(chain(_recorded(result, logged), _rendered(result)), folder)


def render_again(folder: Path) -> Result:
    """Makes everything that follows from an existing folder's result anew; nothing before all of it is made.

    Raises:
        ScenarioError: There is no result of this version, or it has what no run writes.
        RunError: The disk does not take a file; the earlier one stays.
    """
    result = read_result(folder)
    with blaming(folder / "result.json"):
        files = list(_rendered(result))
    _write(files, folder)
    return result


@contextmanager
def blaming(file: Path) -> Iterator[None]:
    """While a document that was read is used: what that cannot cope with is the file's fault.

    Raises:
        ScenarioError: A value of the free tables, a time, a threshold or a histogram is none of a run's.
    """
    try:
        yield
    except (*_UNUSABLE, ThresholdError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else error
        raise ScenarioError(f"{file}: cannot be rendered: {what}") from error


def _recorded(result: Result, logged: Sequence[LoggedInterval]) -> Iterator[_File]:
    """What only the run itself can tell."""
    yield "result.json", encode_document(result)
    if result.transports is None:
        hlog = io.StringIO()
        write_hlog(hlog, _LATENCY_TAG, datetime.fromisoformat(result.started), logged)
        yield "latency.hlog", hlog.getvalue().encode("ascii")
    yield "environment.json", encode_document(result.environment)


def _rendered(result: Result) -> Iterator[_File]:
    """What follows from the result."""
    latency = result.latency_us
    if latency is not None and result.histograms is not None:
        hgrm = io.StringIO()
        write_hgrm(
            hgrm,
            Histogram.merged([result.histograms.latency]),
            mean_ns=latency.mean * _NS_PER_US,
            stddev_ns=latency.stddev * _NS_PER_US,
            max_ns=round(latency.max * _NS_PER_US),
        )
        yield "latency.hgrm", hgrm.getvalue().encode("ascii")
    if find_spec("pyarrow") is not None:  # of the extra `analysis`
        from loadtest.report.tabular import encode_timeline  # noqa: PLC0415

        yield "timeline.parquet", encode_timeline(result)
    yield "report.md", to_markdown(result).encode()
    yield "report.html", render_report(result).encode()


def _write(files: Iterable[_File], folder: Path) -> None:
    whole: list[str] = []
    for name, content in files:
        try:
            replace_file(folder / name, content)
        except OSError as error:
            there = f"only {', '.join(whole)} could be written" if whole else "nothing could be written"
            raise RunError(f"result folder {folder}: {name}: {error.strerror}; {there}") from error
        whole.append(name)
