"""Run the benchmarks: server on one core, load on another, medians of several rounds.

`make bench` runs them all and writes a dated record with properties of the machine to docs/benchmarks.
"""

import argparse
import fcntl
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from measure import LOAD_CPU, SERVER_CPU, machine_facts, machine_stalls, say
from servers import ROOT
from suites import SUITES, Suite
from suites_hostile import ATTACKS, DRIVERS, hostile, parameters


def main() -> None:
    """Run the suites one after the other; write the record after each."""
    arguments = parse_arguments()
    of_hostile = partial(hostile, drivers=arguments.drivers, attacks=arguments.attacks, sizes=arguments.sizes)
    suites: dict[str, Suite] = {**SUITES, "hostile": of_hostile}
    lock = ROOT / ".cache" / "benchmark.lock"
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w") as held:
        # Two benchmarks at the same time would disturb each other.
        fcntl.flock(held, fcntl.LOCK_EX)
        sections = [f"# Benchmarks, {datetime.now(UTC):%Y-%m-%d}"]
        if arguments.record:
            sections.append(conditions(arguments.rounds, machine_stalls()))
        for name in arguments.suites:
            sections.append("\n".join(suites[name](arguments.rounds)))
            print(sections[-1] + "\n", flush=True)
            if arguments.record:
                write(arguments, sections)


def write(arguments: argparse.Namespace, sections: list[str]) -> None:
    """Write the results so far, so that they are kept if a later suite fails."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / f"{datetime.now(UTC):%Y-%m-%d}-{arguments.name}.md"
    path.write_text("\n\n".join(sections) + "\n", encoding="utf-8")
    say(f"written to {path}")


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--suite", action="append", choices=list(SUITES), dest="suites", help="suite to run; default: all"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--name", default="benchmarks", help="name of the record, after its date")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks")
    parser.add_argument("--no-record", action="store_false", dest="record", help="print the tables only")
    of_hostile = parser.add_argument_group("suite hostile")
    of_hostile.add_argument(
        "--attack",
        action="append",
        choices=list(ATTACKS),
        dest="attacks",
        help="attack to carry out; default: all",
    )
    of_hostile.add_argument(
        "--driver",
        action="append",
        choices=DRIVERS,
        dest="drivers",
        help="driver of the broker; default: each",
    )
    of_hostile.add_argument(
        "--size", action="append", default=[], dest="sizes", metavar="NAME=N", type=parse_size,
        help="size of an attack, such as connections=1000000 for drain and mass-leave",
    )  # fmt: skip
    arguments = parser.parse_args()
    arguments.suites = arguments.suites or list(SUITES)
    arguments.attacks = arguments.attacks or list(ATTACKS)
    arguments.drivers = arguments.drivers or list(DRIVERS)
    arguments.sizes = dict(arguments.sizes)
    known = {name for attack in arguments.attacks for name in parameters(ATTACKS[attack])}
    if unknown := arguments.sizes.keys() - known:
        parser.error(
            f"--size {min(unknown)}: these attacks do not have this size (choose from "
            f"{', '.join(sorted(known))})"
        )
    return arguments


def parse_size(text: str) -> tuple[str, float]:
    """Parse a size of the form NAME=N."""
    name, _, number = text.partition("=")
    try:
        return name, int(number) if number.isdigit() else float(number)
    except ValueError:
        raise argparse.ArgumentTypeError(f'"{text}" is not a NAME=N with a number') from None


def conditions(rounds: int, stalls: str) -> str:
    """Return the paragraphs that describe how the results were measured."""
    return (
        f"Server on core {SERVER_CPU}, providers and users on core {LOAD_CPU}; loopback; 32-byte requests, "
        "256-byte replies, 16 providers unless stated otherwise. "
        f"Medians of {rounds} round{'s' if rounds > 1 else ''}, in which the alternatives run in turn; a "
        "million connections are measured once. CPU time is the time of whole processes, user and system. "
        "Growth is the growth of the server's resident memory since before the first connection. "
        "Connections/s count from the first attempt to the last confirmed subscription. "
        "Made by `make bench`.\n\n"
        f"Machine: {', '.join(machine_facts())}. {stalls}"
    )


if __name__ == "__main__":
    main()
