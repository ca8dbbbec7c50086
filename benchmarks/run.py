"""The recorded benchmarks: server on one core, load on another, medians of several rounds.

Run with `make bench`. Writes a dated record with the machine's facts to docs/benchmarks.
"""

import argparse
import fcntl
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from measure import LOAD_CPU, ROOT, SERVER_CPU, machine_facts, machine_stalls, say
from suites import SUITES, Suite
from suites_hostile import ATTACKS, DRIVERS, hostile, parameters


def main() -> None:
    """Runs the suites one after the other, then writes the record."""
    arguments = parse_arguments()
    of_hostile = partial(hostile, drivers=arguments.drivers, attacks=arguments.attacks, sizes=arguments.sizes)
    suites: dict[str, Suite] = {**SUITES, "hostile": of_hostile}
    lock = ROOT / ".cache" / "benchmark.lock"
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w") as held:
        # Two timed runs at once would measure each other.
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
    """Writes what there is so far: a later suite that fails must not take the earlier ones with it."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / f"{datetime.now(UTC):%Y-%m-%d}-{arguments.name}.md"
    path.write_text("\n\n".join(sections) + "\n", encoding="utf-8")
    say(f"written to {path}")


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--suite", action="append", choices=list(SUITES), dest="suites", help="run this; default: all"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--name", default="benchmarks", help="of the record, after its date")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks")
    parser.add_argument("--no-record", action="store_false", dest="record", help="print the tables only")
    of_hostile = parser.add_argument_group("suite hostile")
    of_hostile.add_argument(
        "--attack", action="append", choices=list(ATTACKS), dest="attacks", help="this one; default: all"
    )
    of_hostile.add_argument(
        "--driver", action="append", choices=DRIVERS, dest="drivers", help="of the broker; default: each"
    )
    of_hostile.add_argument(
        "--size", action="append", default=[], dest="sizes", metavar="NAME=N", type=parse_size,
        help="such as connections=1000000 for drain and mass-leave, or rounds=100000 for fence",
    )  # fmt: skip
    arguments = parser.parse_args()
    arguments.suites = arguments.suites or list(SUITES)
    arguments.attacks = arguments.attacks or list(ATTACKS)
    arguments.drivers = arguments.drivers or list(DRIVERS)
    arguments.sizes = dict(arguments.sizes)
    known = {name for attack in arguments.attacks for name in parameters(ATTACKS[attack])}
    if unknown := arguments.sizes.keys() - known:
        parser.error(
            f"--size {min(unknown)}: these attacks have no such size; known: {', '.join(sorted(known))}"
        )
    return arguments


def parse_size(text: str) -> tuple[str, float]:
    """Split NAME=N."""
    name, _, number = text.partition("=")
    try:
        return name, int(number) if number.isdigit() else float(number)
    except ValueError:
        raise argparse.ArgumentTypeError(f'"{text}" is not a NAME=N with a number') from None


def conditions(rounds: int, stalls: str) -> str:
    """How everything below was measured."""
    return (
        f"Server on core {SERVER_CPU}, providers and users on core {LOAD_CPU}; loopback; 32-byte requests, "
        "256-byte replies, 16 providers unless said otherwise. "
        f"Medians of {rounds} round{'s' if rounds > 1 else ''}, what is compared in turn within each; a "
        "million connections once. CPU "
        "time is that of whole processes, the kernel's part included. Growth is what the server's resident "
        "memory grew by since before the first connection. Connections/s count from the first attempt to "
        "the last confirmed subscription. Made by `make bench`.\n\n"
        f"Machine: {', '.join(machine_facts())}. {stalls}"
    )


if __name__ == "__main__":
    main()
