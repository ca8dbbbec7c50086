"""Figures of attacks: how they are judged, merged and shown; the attacks are replaced by fakes."""

import math
import random
import sys

import pytest
import run
import suites_hostile
from hostile.finding import Finding, failure, worst
from hostile.setup import Setup
from hostile.witness import Waits

UNPINNED = Setup("epoll", None, None)


@pytest.mark.parametrize(
    ("value", "kind", "holds"),
    [
        (50, "at most", True),
        (50.1, "at most", False),
        (math.inf, "at most", False),
        (math.nan, "at most", False),
        (90, "at least", True),
        (89.9, "at least", False),
        (math.nan, "at least", False),
    ],
)
def test_a_finding_holds_if_it_is_on_the_right_side_of_its_bar(value, kind, holds):
    assert Finding("it", value, "ms", 50 if kind == "at most" else 90, kind).holds is holds


def test_a_figure_without_a_bar_holds():
    assert Finding("it", math.inf, "ms").holds


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1771.4, "1,771 ms"),
        (0.123456, "0.123 ms"),
        (20, "20 ms"),
        (math.inf, "not in time"),
        (math.nan, "failed"),
    ],
)
def test_figures_are_shown_with_unit_and_three_digits(value, text):
    assert Finding("it", value, "ms").text == text


def test_the_worst_round_counts():
    def finding(what, value, kind):
        return Finding(what, value, "", 1, kind)

    rounds = [
        [finding("wait", 3.0, "at most"), finding("rate", 80.0, "at least")],
        [finding("wait", 9.0, "at most"), finding("rate", 70.0, "at least"), finding("more", 1.0, "at most")],
        [finding("wait", math.nan, "at most"), finding("rate", 90.0, "at least")],
    ]
    found = {one.what: one.value for one in worst(rounds[:2])}
    assert found == {"wait": 9.0, "rate": 70.0, "more": 1.0}
    assert math.isnan(worst(rounds)[0].value)


def test_a_long_wait_counts_for_all_messages_that_would_have_waited():
    lengths = [0.001] * 999 + [9.001]
    waits = Waits.of(lengths)
    assert waits.longest == 9.001
    # Of ten seconds nine are one wait: at a random moment of it, 0.1 s in a hundred are left out.
    assert waits.p99 == pytest.approx(9.001 - 0.1)


def test_the_percentile_is_the_wait_at_random_moments():
    generator = random.Random(7)
    lengths = [generator.expovariate(1.0) for _ in range(300)]
    waits = []
    for _ in range(100_000):
        length = generator.choices(lengths, lengths)[0]
        waits.append(generator.random() * length)
    waits.sort()
    assert Waits.of(lengths).p99 == pytest.approx(waits[99_000], rel=0.05)


def test_without_round_trips_the_waits_are_0():
    assert Waits.of([]) == Waits(0.0, 0.0)


def test_an_attack_that_fails_is_a_finding():
    def attack(setup):
        raise ConnectionRefusedError("nobody there")

    (finding,) = suites_hostile.carry_out(attack, UNPINNED, {})
    assert finding.what == failure(ConnectionRefusedError()).what
    assert math.isnan(finding.value)
    assert not finding.holds
    assert finding.beside == "ConnectionRefusedError: nobody there"


def test_attacks_get_the_sizes_that_they_have():
    def attack(setup, connections=20, rounds=3):
        return [Finding("connections", connections, ""), Finding("rounds", rounds, "")]

    findings = suites_hostile.carry_out(attack, UNPINNED, {"connections": 7, "receivers": 9})
    assert [one.value for one in findings] == [7, 3]


def test_a_section_has_a_row_for_each_driver_and_figure(monkeypatch):
    def press(setup):
        """Press all keys at once."""
        return [Finding("wait", 60, "ms", 50, beside="quiet 1 ms"), Finding("share", 3, "")]

    monkeypatch.setattr(suites_hostile, "ATTACKS", {"press": press})
    section = suites_hostile.hostile(1, ["uring", "epoll"], ["press"])
    assert "- `press`: Press all keys at once." in section
    assert section[-4:] == [
        "| press | uring | wait | 60 ms | at most 50 ms | **no** | quiet 1 ms |",
        "| press | uring | share | 3 |  |  |  |",
        "| press | epoll | wait | 60 ms | at most 50 ms | **no** | quiet 1 ms |",
        "| press | epoll | share | 3 |  |  |  |",
    ]


@pytest.mark.parametrize("name", suites_hostile.ATTACKS)
def test_every_attack_has_a_one_line_description(name):
    line = suites_hostile.description(suites_hostile.ATTACKS[name])
    assert line.endswith(".")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--attack", "drain", "--size", "rounds=1"], "--size rounds: these attacks do not have this size"),
        (["--size", "connections"], '"connections" is not a NAME=N with a number'),
        (["--attack", "politeness"], "invalid choice: 'politeness'"),
    ],
)
def test_an_impossible_command_line_is_refused_with_a_reason(monkeypatch, capsys, arguments, complaint):
    monkeypatch.setattr(sys, "argv", ["run.py", "--suite", "hostile", *arguments])
    with pytest.raises(SystemExit) as ended:
        run.parse_arguments()
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_the_command_line_is_parsed(monkeypatch):
    words = ["--driver", "epoll", "--attack", "drain", "--size", "connections=1000", "--no-record"]
    monkeypatch.setattr(sys, "argv", ["run.py", "--suite", "hostile", *words])
    arguments = run.parse_arguments()
    assert (arguments.suites, arguments.drivers, arguments.attacks) == (["hostile"], ["epoll"], ["drain"])
    assert arguments.sizes == {"connections": 1000}
    assert not arguments.record
