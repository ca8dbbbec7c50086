"""JSON documents of runs and experiments: errors when reading name the file, writing is atomic."""

import os
import reprlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from loadtest.errors import ResultError, RunError, ThresholdError

Document = TypeVar("Document")

_VALUE_ERRORS = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, msgspec.MsgspecError)
"""Errors that code raises when it uses a value of a damaged document."""


class _Versioned(msgspec.Struct):
    schema: Any = None


def read_document(path: Path, kind: type[Document], schema: int) -> Document:
    """Read a document and return it as a `kind`.

    Raises:
        ResultError: The file cannot be read, is not JSON, is of another schema, or has a value of a wrong
            type. The text is one line.
    """
    try:
        content = path.read_bytes()
        found = msgspec.json.decode(content, type=_Versioned).schema
        if found is None:
            raise ResultError(
                f'{path}: has no key "schema", so it is not a {kind.__name__.lower()} file of this program'
            )
        if found != schema:
            raise ResultError(
                f"{path}: has schema {reprlib.repr(found)}, but this version reads schema {schema} "
                "(use the version of subjectbus that wrote it)"
            )
        return msgspec.json.decode(content, type=kind)
    except OSError as error:
        raise ResultError(f"{path}: {error.strerror}") from error
    except msgspec.ValidationError as error:
        raise ResultError(f"{path}: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ResultError(f"{path}: truncated or not JSON: {error}") from error


@contextmanager
def as_document_error(file: Path) -> Iterator[None]:
    """Turn an error in the block into an error about the file, whose values the block uses.

    Raises:
        ResultError: A value of the document cannot be used: in a table of free keys, a time, a threshold or a
            histogram.
    """
    try:
        yield
    except (*_VALUE_ERRORS, ThresholdError) as error:
        what = f"missing key {error}" if isinstance(error, KeyError) else error
        raise ResultError(f"{file}: cannot be rendered: {what}") from error


def write_document(document: object, path: Path) -> None:
    """Write the document in place of an earlier one; a reader finds either of them whole, never a part.

    Raises:
        RunError: The file cannot be written; the earlier document remains.
    """
    try:
        replace_file(path, encode_document(document))
    except OSError as error:
        raise RunError(f"{path}: {error.strerror}") from error


def has_file(path: Path) -> bool:
    """Return whether there is a file at a path; False for a path that cannot be looked up."""
    try:
        return path.exists()
    except OSError:  # a name that is too long, or a folder without permission
        return False


def encode_document(document: object) -> bytes:
    """Return the JSON text of a document: indented by two spaces, with a newline at its end."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def without_links(path: Path) -> Path:
    """Return the path with its links followed; links that form a circle stay, for which `resolve` raises."""
    return Path(os.path.realpath(path))


def write_file(path: Path, content: bytes) -> None:
    """Write the content to a file of the user's choice, of whatever kind the file is.

    The target of a link is replaced and the link stays. A device or a pipe is written into.

    Raises:
        OSError: The content cannot be written.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            file.write(content)
    else:
        replace_file(without_links(path), content)


def replace_file(path: Path, content: bytes) -> None:
    """Write the content to a temporary file, flush it to the disk and rename it to the path.

    Raises:
        OSError: The content cannot be written; an earlier file remains, the temporary one is removed.
    """
    # The unguessable name and mode "x" ensure that a link made by another user is not followed.
    whole = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        with whole.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        whole.replace(path)
    except OSError:
        whole.unlink(missing_ok=True)
        raise
