"""Count the instructions of frequently run functions and compare the counts with the record beside this file.

Run with `make instructions`. The counts come from valgrind's callgrind, through the benchmarks in
rust_core/crates/*/benches. With the same compiler they differ by less than 1 % between runs, because of hash
seeds.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORD = Path(__file__).with_suffix(".json")
UPDATE = "make instructions UPDATE=1"

#: Largest change from the record, as a fraction: without glibc's AVX2 and ERMS variants it is up to 1.4 %.
TOLERANCE = 0.03
#: Largest change if the record was made with another compiler. Two releases changed counts by up to 5.4 %.
TOLERANCE_OTHER_COMPILER = 0.15

BENCHMARKS = [
    "cargo", "bench", "--locked", "-p", "subjectbus-protocol", "-p", "subjectbus-router",
    "--bench", "instructions", "--",
    "--output-format=json", "--parallel=auto", "--callgrind-args=--cache-sim=no",
]  # fmt: skip


class InstructionsError(Exception):
    """A failure to take or compare the counts."""


@dataclass(frozen=True)
class Counts:
    """Number of instructions of each benchmark, and the compiler that made the code."""

    rustc: str
    target: str
    instructions: dict[str, int]


def main() -> int:
    """Take the counts, then compare or record them; return 0 if no count is too high."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--update", action="store_true", help="write the new counts to the record")
    parser.add_argument("--record", type=Path, default=RECORD, help="file of the record")
    arguments = parser.parse_args()
    path: Path = arguments.record
    try:
        record = None if arguments.update else read_record(path)
        counts = take_counts()
    except InstructionsError as error:
        print(f"instructions: {error}", file=sys.stderr)
        return 2
    if record is None:
        path.write_text(json.dumps(asdict(counts), indent=2) + "\n", encoding="utf-8")
        print(f"{len(counts.instructions)} counts written to {path}")
        return 0
    return compare(record, counts)


def read_record(path: Path) -> Counts:
    """Read the record.

    Raises:
        InstructionsError: The file is missing or broken.
    """
    try:
        record = Counts(**json.loads(path.read_text(encoding="utf-8")))
        valid = all(type(count) is int and count > 0 for count in record.instructions.values())
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InstructionsError(f"{path} cannot be read ({error}); {UPDATE} writes it") from error
    if not valid:
        raise InstructionsError(f"{path} has a count that is not a positive number; {UPDATE} writes it")
    return record


def take_counts() -> Counts:
    """Run the benchmarks and return their counts.

    Raises:
        InstructionsError: The benchmarks cannot be run, or print something else than summaries.
    """
    version = dict(line.partition(": ")[::2] for line in run(["rustc", "-vV"]).splitlines())
    instructions: dict[str, int] = {}
    for line in run(BENCHMARKS).splitlines():
        try:
            name, count = parse_summary(line)
        except (ValueError, LookupError, TypeError) as error:
            raise InstructionsError(f"not a summary of a benchmark ({error!r}): {line[:200]}") from error
        if name in instructions:
            raise InstructionsError(f"two benchmarks are called {name}")
        instructions[name] = count
    if not instructions:
        raise InstructionsError("no benchmark has run")
    return Counts(version["release"], version["host"], instructions)


def run(command: list[str]) -> str:
    """Run a command and return its standard output.

    Raises:
        InstructionsError: The command cannot be started, or fails.
    """
    try:
        done = subprocess.run(command, cwd=ROOT / "rust_core", check=False, stdout=subprocess.PIPE, text=True)
    except OSError as error:
        raise InstructionsError(f"{command[0]} cannot be started: {error}") from error
    if done.returncode != 0:
        raise InstructionsError(f"{' '.join(command[:2])} failed with status {done.returncode}")
    return done.stdout


def parse_summary(line: str) -> tuple[str, int]:
    """Return name and count of a benchmark from its summary, which has the schema of gungraun 0.20."""
    summary = json.loads(line)
    # The first part is the name of the file, which is the same in each crate.
    _, *path = summary["module_path"].split("::")
    (profile,) = summary["profiles"]
    count = profile["data"]["total"]["metrics"]["Ir"]["values"]["new"]
    return "::".join([*path, summary["id"]]), int(count)


def compare(record: Counts, counts: Counts) -> int:
    """Print each count with its change; return 1 if a count is too high or is missing on one side."""
    if record.target != counts.target:
        print(f"The record was made on {record.target}, so counts of {counts.target} cannot be compared.")
        return 0
    tolerance = TOLERANCE
    if record.rustc != counts.rustc:
        tolerance = TOLERANCE_OTHER_COMPILER
        print(f"The record was taken with rustc {record.rustc}, this is {counts.rustc}: ", end="")
        print(f"changes up to {tolerance:.0%} are allowed instead of {TOLERANCE:.0%}.")
    too_high, too_low, unmatched = [], [], []
    for name in dict.fromkeys([*record.instructions, *counts.instructions]):
        old, new = record.instructions.get(name), counts.instructions.get(name)
        if old is None or new is None:
            unmatched.append(f"{name} {'has not run' if new is None else 'is not in the record'}")
            continue
        change = new / old - 1
        print(f"{name:45}{old:>11,}{new:>11,}{change:>+10.1%}")
        text = f"{name}: {old:,} instructions in the record, now {new:,} ({change:+.1%})"
        if change > tolerance:
            too_high.append(text)
        elif change < -tolerance:
            too_low.append(text)
    explain("More instructions than the record allows", too_high, "If that is intended")
    explain("Fewer instructions than in the record", too_low, "To keep that")
    explain("Benchmarks and record do not match", unmatched, "If that is intended")
    return 1 if too_high or unmatched else 0


def explain(title: str, findings: list[str], update_if: str) -> None:
    """Print the findings and the command that updates the record; print nothing if there are none."""
    if findings:
        print(f"\n{title}:", *findings, f"{update_if}: {UPDATE}", sep="\n  ")


if __name__ == "__main__":
    sys.exit(main())
