"""Files of a command for continuous integration: JUnit XML, GitHub's annotations and job summary."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile

import click

from loadtest.ci import github
from loadtest.ci.cases import Outcome, Suite, failed_suite, suite_of, with_error
from loadtest.ci.junit import to_junit
from loadtest.errors import RunError
from loadtest.report.artifacts import write_text
from loadtest.result.documents import without_links
from subjectbus import SubjectbusError, UsageError
from subjectbus.printable import echo

junit_option = click.option(
    "--junit",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the verdicts as JUnit XML: a test case for each threshold and check.",
)


class Outputs:
    """Writer of the verdicts of one command, whether it succeeds or fails."""

    def __init__(self, junit: Path | None) -> None:
        """Check that the JUnit file can be written, before anything is started.

        Raises:
            UsageError: The file cannot be written.
        """
        self._junit = junit
        if junit is not None:
            require_writable("--junit", junit)

    def write(self, outcome: Outcome, folder: Path | None = None, *, prints_failures: bool = False) -> None:
        """Write the verdicts of an outcome.

        Args:
            outcome: The outcome.
            folder: Its result folder, which tells apart several runs of one scenario. None for a comparison.
            prints_failures: Whether each failure is also a line on standard error.

        Raises:
            RunError: The JUnit file cannot be written.
        """
        suite = suite_of(outcome)
        if folder is not None:
            suite = replace(suite, folder=str(folder))
        # GitHub's annotations are such lines already.
        if prints_failures and not _is_on_github():
            for case in suite.failed:
                echo(f"{case.group} fails: {case.line}", err=True)
        self._write(suite)

    @contextmanager
    def on_failure(self, name: str) -> Iterator[None]:
        """Write the verdicts if the block raises an error, and raise the error again.

        Args:
            name: Name of the suite, used if there is no partial result.
        """
        try:
            yield
        except SubjectbusError as error:
            self._write_failure(error.result if isinstance(error, RunError) else None, name, str(error))
            raise
        except KeyboardInterrupt:
            self._write_failure(None, name, "interrupted")
            raise
        except Exception as error:
            # Else an earlier file would be taken for the verdicts of this command.
            self._write_failure(None, name, f"internal: {type(error).__name__}: {error}")
            raise

    def _write_failure(self, outcome: Outcome | None, name: str, error: str) -> None:
        suite = failed_suite(name, error) if outcome is None else with_error(suite_of(outcome), error)
        try:
            self._write(suite)
        except RunError as failure:
            echo(f"--junit: {failure}", err=True)

    def _write(self, suite: Suite) -> None:
        if _is_on_github():
            _tell_github(suite)
        if self._junit is not None:
            write_text(self._junit, to_junit(suite))


def require_writable(option: str, file: Path) -> None:
    """Check that the file that an option names can be written; leave it as it is.

    Raises:
        UsageError: The file cannot be written.
    """
    try:
        if file.is_dir():
            raise UsageError(f"{option} {file}: is a folder")
        if file.exists() and not file.is_file():
            # Opening it might wait for the reader of a pipe.
            if not os.access(file, os.W_OK):
                raise UsageError(f"{option} {file}: {os.strerror(errno.EACCES)}")
            return
        with TemporaryFile(dir=without_links(file).parent):
            pass
    except OSError as error:
        raise UsageError(f"{option} {file}: {error.strerror}") from error


def _is_on_github() -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true"


def _tell_github(suite: Suite) -> None:
    """Annotate the step with each failure, and add a section to the job's summary."""
    for line in github.annotations(suite):
        echo(line, err=True)
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    # A run that succeeded does not fail because its summary cannot be written.
    with suppress(OSError), Path(path).open("a", encoding="utf-8") as file:
        file.write(github.summary(suite))
