"""The comparison of instruction counts, with a compiler and benchmarks that say what the test wants."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
TARGET = "x86_64-unknown-linux-gnu"
COUNTS = {"ws::decode::one": 1_000_000, "router::lookup::literal": 2000}


def summary(name, count):
    """What the harness prints for one benchmark."""
    *path, identifier = name.split("::")
    metrics = {"Ir": {"values": {"new": count}}}
    return json.dumps(
        {
            "module_path": "::".join(["instructions", *path]),
            "id": identifier,
            "profiles": [{"data": {"total": {"metrics": metrics}}}],
        }
    )


@pytest.fixture
def compare(tmp_path):
    """Runs the script on these counts; its status and everything that it printed."""
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"rustc": "1.90.0", "target": TARGET, "instructions": COUNTS}))

    def program(name, output, status=0):
        (tmp_path / f"{name}.out").write_text(output)
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\ncat '{path}.out'\nexit {status}\n")
        path.chmod(0o755)

    def run(counts, *options, rustc="1.90.0", target=TARGET, output=None, status=0):
        program("rustc", f"rustc {rustc}\nrelease: {rustc}\nhost: {target}\n")
        program("cargo", output or "".join(summary(*item) + "\n" for item in counts.items()), status)
        done = subprocess.run(
            [sys.executable, ROOT / "benchmarks/instructions.py", "--record", record, *options],
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
            check=False,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        return done.returncode, done.stdout

    run.record = record
    return run


def test_counts_near_the_record_pass(compare):
    status, said = compare({"ws::decode::one": 1_029_000, "router::lookup::literal": 1941})
    assert status == 0
    assert "UPDATE=1" not in said


def test_a_count_above_the_record_fails_and_is_named(compare):
    status, said = compare({**COUNTS, "ws::decode::one": 1_031_000})
    assert status == 1
    assert "ws::decode::one: 1,000,000 instructions in the record, now 1,031,000 (+3.1%)" in said
    assert "make instructions UPDATE=1" in said
    assert "router::lookup::literal:" not in said


def test_a_count_below_the_record_passes_and_asks_for_an_update(compare):
    status, said = compare({**COUNTS, "router::lookup::literal": 1800})
    assert status == 0
    assert "router::lookup::literal: 2,000 instructions in the record, now 1,800 (-10.0%)" in said
    assert "make instructions UPDATE=1" in said


@pytest.mark.parametrize(("count", "expected"), [(1_140_000, 0), (1_160_000, 1)])
def test_another_compiler_is_named_and_has_a_larger_tolerance(compare, count, expected):
    status, said = compare({**COUNTS, "ws::decode::one": count}, rustc="1.91.0")
    assert status == expected
    assert "rustc 1.90.0, this is 1.91.0" in said


def test_another_target_is_not_compared(compare):
    status, said = compare({**COUNTS, "ws::decode::one": 9_000_000}, target="aarch64-unknown-linux-gnu")
    assert status == 0
    assert "cannot be compared" in said


@pytest.mark.parametrize(
    ("counts", "named"),
    [
        ({"ws::decode::one": 1_000_000}, "router::lookup::literal has not run"),
        ({**COUNTS, "ws::batch::new": 5}, "ws::batch::new is not in the record"),
    ],
)
def test_a_benchmark_that_only_one_side_has_fails(compare, counts, named):
    status, said = compare(counts)
    assert status == 1
    assert named in said


def test_an_update_rewrites_the_record(compare):
    compare.record.unlink()
    counts = {"ws::decode::one": 7}
    assert compare(counts, "--update", rustc="1.91.0")[0] == 0
    assert json.loads(compare.record.read_text()) == {
        "rustc": "1.91.0",
        "target": TARGET,
        "instructions": counts,
    }
    assert compare(counts, rustc="1.91.0")[0] == 0


@pytest.mark.parametrize(
    ("counts", "options", "named"),
    [
        (COUNTS, {"status": 3}, "cargo bench failed with status 3"),
        ({}, {"output": "no summary\n"}, "no summary"),
        ({}, {"output": "{}\n"}, "module_path"),
        ({}, {"output": "\n"}, "not a summary"),
        ({}, {"output": summary("a::b", 1) + "\n" + summary("a::b", 1)}, "two benchmarks are called a::b"),
        ({}, {}, "no benchmark has run"),
    ],
)
def test_without_counts_nothing_is_compared_or_recorded(compare, counts, options, named):
    before = compare.record.read_text()
    status, said = compare(counts, "--update", **options)
    assert status == 2
    assert said.startswith("instructions: ")
    assert named in said
    assert compare.record.read_text() == before


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rustc": "1", "target": "x", "instructions": {"a": 0}}'])
def test_an_unreadable_record_is_an_error_that_says_how_to_write_it(compare, text):
    compare.record.write_text(text)
    status, said = compare(COUNTS)
    assert status == 2
    assert str(compare.record) in said
    assert "make instructions UPDATE=1" in said
