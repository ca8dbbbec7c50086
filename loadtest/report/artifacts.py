"""Files of result folders: writing them, and making reports again from a folder."""

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
from loadtest.result.documents import (
    as_document_error,
    encode_document,
    has_file,
    replace_file,
    write_file,
)
from loadtest.result.histogram import Histogram, LoggedInterval, write_hgrm, write_hlog
from loadtest.result.schema import Result, read_result

_NS_PER_US = 1000
_LATENCY_TAG = "latency"
_File = tuple[str, bytes]
"""Name and content of a file."""


@dataclass(frozen=True)
class _Kind:
    """Kind of result folder: its main file, and the reports that are made from it."""

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
    """Write every file of a run's folder, the result first; no file is ever incomplete.

    Raises:
        RunError: A file cannot be written; the files before it are kept.
    """
    _write(chain(_recorded(result, logged), _rendered(result)), folder)


def write_pages(document: Document, folder: Path) -> None:
    """Write `report.md` and `report.html` after both are made.

    Raises:
        RunError: A file cannot be written.
    """
    _write(list(_pages(document)), folder)


def render_again(folder: Path) -> None:
    """Make again all files that depend on the folder's result only; write them after all are made.

    Raises:
        ResultError: The folder has no result of this version, or the result has an impossible value.
        RunError: A file cannot be written; the earlier file is kept.
    """
    kind = _kind_of(folder)
    result = kind.read(folder)
    with as_document_error(folder / kind.file):
        files = list(_rendered(result) if kind is _RUN else _pages(kind.to_document(result)))
    _write(files, folder)


def to_text(folder: Path, form: Literal["markdown", "csv"]) -> str:
    """Return the report of a folder as text.

    Raises:
        ResultError: The result cannot be used, see `render_again`.
    """
    kind = _kind_of(folder)
    result = kind.read(folder)
    with as_document_error(folder / kind.file):
        return (
            kind.to_records(result).to_csv() if form == "csv" else markdown.render(kind.to_document(result))
        )


def read_outcome(folder: Path) -> Result | repeated_result.Repeated | capacity_result.Capacity:
    """Return the result of a folder of any kind.

    Raises:
        ResultError: The result cannot be used, see `render_again`.
    """
    outcome: Result | repeated_result.Repeated | capacity_result.Capacity = _kind_of(folder).read(folder)
    return outcome


def write_text(path: Path, text: str) -> None:
    """Write a file that the user names, completely or not at all if it is a regular file.

    Raises:
        RunError: The file cannot be written.
    """
    try:
        write_file(path, text.encode())
    except OSError as error:
        raise RunError(f"{path}: {error.strerror}") from error


def _kind_of(folder: Path) -> _Kind:
    return next((kind for kind in _EXPERIMENTS if has_file(folder / kind.file)), _RUN)


def _recorded(result: Result, logged: Sequence[LoggedInterval]) -> Iterator[_File]:
    """Yield the files that only the run can make."""
    yield "result.json", encode_document(result)
    if result.transports is None:
        hlog = io.StringIO()
        write_hlog(hlog, _LATENCY_TAG, datetime.fromisoformat(result.started), logged)
        yield "latency.hlog", hlog.getvalue().encode("ascii")
    yield "environment.json", encode_document(result.environment)


def _rendered(result: Result) -> Iterator[_File]:
    """Yield the files that depend on the result only."""
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
    if find_spec("pyarrow") is not None:  # part of the extra `analysis`
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
