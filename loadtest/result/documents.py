"""JSON documents of runs and experiments: read with a clear error, written whole or not at all."""

import os
import reprlib
import secrets
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from loadtest.errors import RunError, ScenarioError

Document = TypeVar("Document")


class _Versioned(msgspec.Struct):
    schema: Any = None


def read_document(path: Path, kind: type[Document], schema: int) -> Document:
    """The document; ScenarioError, in one line, when there is none, or not of this schema."""
    try:
        content = path.read_bytes()
        found = msgspec.json.decode(content, type=_Versioned).schema
        if found is None:
            raise ScenarioError(
                f"{path}: has no schema: {kind.__name__.lower()} files of this program have one"
            )
        if found != schema:
            raise ScenarioError(f"{path}: schema {reprlib.repr(found)}, this version reads {schema}")
        return msgspec.json.decode(content, type=kind)
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror}") from error
    except msgspec.ValidationError as error:
        raise ScenarioError(f"{path}: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ScenarioError(f"{path}: truncated, or no JSON: {error}") from error


def write_document(document: object, path: Path) -> None:
    """Replaces the document at once, so that a reader finds the earlier one or this, never a part.

    Raises:
        RunError: The disk does not take it; the earlier one stays.
    """
    try:
        replace_file(path, encode_document(document))
    except OSError as error:
        raise RunError(f"{path}: {error.strerror}") from error


def encode_document(document: object) -> bytes:
    """As it is written: indented, with a newline at its end."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def replace_file(path: Path, content: bytes) -> None:
    """Writes a file beside it, brings that to the disk, and puts it in its place.

    Raises:
        OSError: The disk does not take it; what was there before stays, and nothing else.
    """
    # A new file: a link that another user has put into a shared folder is not followed.
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
