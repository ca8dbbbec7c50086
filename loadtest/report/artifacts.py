"""The files of result folders, and what can be made of a folder again."""

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from loadtest.errors import RunError
from loadtest.report import capacity, html, markdown, repeated, run
from loadtest.report.document import Document, Records
from loadtest.result import capacity as capacity_result
from loadtest.result import repeated as repeated_result
from loadtest.result.documents import as_document_error, encode_document, replace_file
from loadtest.result.histogram import Histogram, LoggedInterval, write_hgrm, write_hlog
from loadtest.result.schema import Result, read_result

_NS_PER_US = 1000
_LATENCY_TAG = "latency"
_File = tuple[str, bytes]
"""Name and content of a file."""


@dataclass(frozen=True)
class _Kind:
    """A kind of result folder: its main file, and what is made of it."""

    file: str
    read: Callable[[Path], Any]
    to_document: Callable[[Any], Document]
    to_records: Callable[[Any], Records]


_RUN = _Kind("result.json", read_result, run.to_document, run.to_records)
_EXPERIMENTS = (
    _Kind(capacity_result.FILE, capacity_result.read_capacity, capacity.to_document, capacity.to_records),
    _Kind(repeated_result.FILE, repeated_result.read_repeated, repeated.to_document, repeated.to_records),
)


def write_folder(result: Result, logged: Sequence[LoggedInterval], folder: Path) -> None:
    """Write every file of a run's folder, the result first, each of them whole or not at all.

    Raises:
        RunError: The disk does not take one of the files; those before it are there.
    """
    _write(chain(_recorded(result, logged), _rendered(result)), folder)


def write_pages(document: Document, folder: Path) -> None:
    """Write `report.md` and `report.html`, once both are made; RunError if the disk does not take them."""
    _write(list(_pages(document)), folder)


def render_again(folder: Path) -> None:
    """Make all files anew that follow from the folder's result; write nothing before all of them are made.

    Raises:
        ResultError: The folder has no result of this version, or a value in it that no run writes.
        RunError: The disk does not take a file; the earlier one stays.
    """
    kind = _kind_of(folder)
    result = kind.read(folder)
    with as_document_error(folder / kind.file):
        files = list(_rendered(result) if kind is _RUN else _pages(kind.to_document(result)))
    _write(files, folder)


def to_text(folder: Path, form: Literal["markdown", "csv"]) -> str:
    """Return the report of a folder as text; ResultError as from `render_again`."""
    kind = _kind_of(folder)
    result = kind.read(folder)
    with as_document_error(folder / kind.file):
        return (
            kind.to_records(result).to_csv() if form == "csv" else markdown.render(kind.to_document(result))
        )


def read_outcome(folder: Path) -> Result | repeated_result.Repeated | capacity_result.Capacity:
    """Return the result of a folder, of whatever kind; ResultError as from `render_again`."""
    outcome: Result | repeated_result.Repeated | capacity_result.Capacity = _kind_of(folder).read(folder)
    return outcome


def write_text(path: Path, text: str) -> None:
    """Write a file, whole or not at all; RunError if the disk does not take it."""
    try:
        replace_file(path, text.encode())
    except OSError as error:
        raise RunError(f"{path}: {error.strerror}") from error


def _kind_of(folder: Path) -> _Kind:
    return next((kind for kind in _EXPERIMENTS if (folder / kind.file).exists()), _RUN)


def _recorded(result: Result, logged: Sequence[LoggedInterval]) -> Iterator[_File]:
    """Yield the files that only the run itself can make."""
    yield "result.json", encode_document(result)
    if result.transports is None:
        hlog = io.StringIO()
        write_hlog(hlog, _LATENCY_TAG, datetime.fromisoformat(result.started), logged)
        yield "latency.hlog", hlog.getvalue().encode("ascii")
    yield "environment.json", encode_document(result.environment)


def _rendered(result: Result) -> Iterator[_File]:
    """Yield the files that follow from the result."""
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
        from loadtest.report.parquet import encode_timeline  # noqa: PLC0415

        yield "timeline.parquet", encode_timeline(result)
    yield from _pages(run.to_document(result))


def _pages(document: Document) -> Iterator[_File]:
    yield "report.md", markdown.render(document).encode()
    yield "report.html", html.render(document).encode()


def _write(files: Iterable[_File], folder: Path) -> None:
    whole: list[str] = []
    for name, content in files:
        try:
            replace_file(folder / name, content)
        except OSError as error:
            there = f"only {', '.join(whole)} could be written" if whole else "nothing could be written"
            raise RunError(f"result folder {folder}: {name}: {error.strerror}; {there}") from error
        whole.append(name)
