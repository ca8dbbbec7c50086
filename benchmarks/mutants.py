"""Break the broker on purpose, one fault at a time, and count the seeds until the simulation finds the fault.

Each mutant is one replacement in a copy of the sources. A simulation that misses a mutant is too weak.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
CORE = ROOT / "rust_core"
CRATES = Path("crates")


@dataclass(frozen=True)
class Mutant:
    """Fault: in `file`, relative to `rust_core/crates`, the only occurrence of `old` becomes `new`."""

    name: str
    file: str
    old: str
    new: str


MUTANTS = [
    Mutant(
        "a message dropped",
        "broker/src/publishing.rs",
        "        let message = owned.message();\n        let receivers = receivers.as_slice();\n",
        "        let message = owned.message();\n        let receivers = receivers.as_slice();\n"
        "        if message.payload.len() % 61 == 60 {\n            return;\n        }\n",
    ),
    Mutant(
        "a message delivered twice",
        "broker/src/outbound.rs",
        "            encode::encode_msg(out, sid, message);\n        }),\n",
        "            encode::encode_msg(out, sid, message);\n"
        "            if message.payload.len() % 61 == 60 {\n"
        "                encode::encode_msg(out, sid, message);\n            }\n        }),\n",
    ),
    Mutant(
        "a message delivered out of order",
        "reactor/src/mail.rs",
        "            self.outgoing[shard].push(mail);\n",
        "            let at = self.outgoing[shard].len() / 2;\n"
        "            self.outgoing[shard].insert(at, mail);\n",
    ),
    Mutant(
        "a wake-up forgotten",
        "reactor/src/mailbox.rs",
        "        queue.mail.extend(batch.drain(..));\n        self.wake(shard, queue);\n",
        "        let is_forgotten = batch.len() == 2;\n        queue.mail.extend(batch.drain(..));\n"
        "        if !is_forgotten {\n            self.wake(shard, queue);\n        }\n",
    ),
    Mutant(
        "a place not given back",
        "broker/src/admission/mod.rs",
        "            Stage::Introduced => {\n                self.placed -= 1;\n"
        "                self.places.give_back();\n",
        "            Stage::Introduced => {\n                self.placed -= 1;\n"
        "                if id.slot() != 5 {\n                    self.places.give_back();\n"
        "                }\n",
    ),
]


def find(mutant: Mutant, copy: Path, seeds: int) -> tuple[int | None, str]:
    """Return the seed that finds the mutant, or None if none of them does, and a description."""
    source = copy / CRATES / mutant.file
    text = source.read_text()
    if text.count(mutant.old) != 1:
        sys.exit(
            f"mutants.py: {mutant.name}: {mutant.file} has the text to replace {text.count(mutant.old)} "
            "times, expected 1"
        )
    source.write_text(text.replace(mutant.old, mutant.new))
    try:
        command = ["cargo", "run", "--quiet", "--locked", "-p", "subjectbus-simulation", "--"]
        environment = os.environ | {
            "CARGO_TARGET_DIR": str(CORE / "target" / "mutants"),
            "RUST_BACKTRACE": "0",
        }
        done = subprocess.run(
            [*command, "--seeds", str(seeds)],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        source.write_text(text)
    found = re.search(r"^seed (\d+): (.*)", done.stdout, re.MULTILINE)
    if found:
        return int(found[1]), found[2]
    if "passed, 0 failed" not in done.stdout:
        sys.exit(f"mutants.py: {mutant.name}: the simulation did not run:\n{done.stdout}{done.stderr}")
    return None, "not found"


def main() -> None:
    """Try all mutants; the exit status is 1 if one is not found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="seeds that each mutant is tried with")
    arguments = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "rust_core"
        shutil.copytree(CORE, copy, ignore=shutil.ignore_patterns("target", "artifacts", "corpus"))
        for mutant in MUTANTS:
            seed, what = find(mutant, copy, arguments.seeds)
            missed += seed is None
            place = "not found" if seed is None else f"found by seed {seed}"
            print(f"{mutant.name}: {place}: {what}", flush=True)
    print(f"mutants: {len(MUTANTS) - missed} passed, {missed} failed")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
