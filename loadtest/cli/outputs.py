"""What a command leaves for continuous integration: a JUnit file, annotations and a job summary of GitHub."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

import click

from loadtest.ci import github
from loadtest.ci.cases import Outcome, Suite, failed_suite, suite_of, with_error
from loadtest.ci.junit import to_junit
from loadtest.errors import RunError
from loadtest.report.artifacts import write_text
from subjectbus import SubjectbusError, UsageError
from subjectbus.printable import echo

junit_option = click.option(
    "--junit",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the verdicts as JUnit XML: a test case for each threshold and check.",
)


class Outputs:
    """Writes the verdicts of one command, whatever came of it."""

    def __init__(self, junit: Path | None) -> None:
        """Check that the file can be written, before anything is started; UsageError if it cannot."""
        self._junit = junit
        if junit is not None:
            _require_writable(junit)

    def write(self, outcome: Outcome) -> None:
        """Write the verdicts of an outcome; RunError if the disk does not take the JUnit file."""
        self._write(suite_of(outcome))

    @contextmanager
    def on_failure(self, name: str) -> Iterator[None]:
        """Write the verdicts if what is done inside fails, then let the error go on.

        Args:
            name: What the command is about, in case it has no partial result.
        """
        try:
            yield
        except SubjectbusError as error:
            self._write_failure(error.result if isinstance(error, RunError) else None, name, str(error))
            raise
        except KeyboardInterrupt:
            self._write_failure(None, name, "interrupted")
            raise

    def _write_failure(self, outcome: Outcome | None, name: str, error: str) -> None:
        suite = failed_suite(name, error) if outcome is None else with_error(suite_of(outcome), error)
        try:
            self._write(suite)
        except RunError as failure:
            echo(f"--junit: {failure}", err=True)

    def _write(self, suite: Suite) -> None:
        if os.environ.get("GITHUB_ACTIONS") == "true":
            _tell_github(suite)
        if self._junit is not None:
            write_text(self._junit, to_junit(suite))


def _require_writable(file: Path) -> None:
    if file.is_dir():
        raise UsageError(f"--junit {file}: is a folder")
    try:
        with TemporaryFile(dir=file.parent):
            pass
    except OSError as error:
        raise UsageError(f"--junit {file}: {error.strerror}") from error


def _tell_github(suite: Suite) -> None:
    """Annotate the step with each failure, and add a section to the job's summary."""
    for line in github.annotations(suite):
        echo(line, err=True)
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    # A summary that cannot be written is no reason to fail a run that went well.
    with suppress(OSError), Path(path).open("a", encoding="utf-8") as file:
        file.write(github.summary(suite))
