"""The attacks themselves, small, on real brokers: each is carried out and gives all of its figures.

What the figures are is not judged here: a small attack hurts nobody, and times are the machine's.
"""

import math
from functools import partial

import pytest
import suites_hostile
from hostile import attacks_gateway, client
from hostile.setup import Setup
from hostile.witness import watch
from servers import StartError

from tests.conftest import require_driver
from tests.servers import wait_until

pytestmark = pytest.mark.process

SMALL = {
    "wildcards": {"tokens": 4, "publishes": 3},
    "own-members": {"subscriptions": 50, "publishes": 3},
    "reconnect": {"subscriptions": 50, "connects": 3},
    "leave": {"subscriptions": 50},
    "connz": {"subjects": 5},
    "long-sids": {"subscriptions": 5, "publishes": 2},
    "connection-members": {"head_bytes": 1200, "duration_s": 0.2},
    "forged-replies": {"requests": 3},
    "memory": {"receivers": 2, "messages": 3, "duration_s": 0.5},
    "stall": {"quiet_s": 0.5, "attack_s": 0.5, "high_rate": 30_000},
    "idle-sockets": {"sockets": 20, "max_connections": 100, "duration_s": 0.5},
    "idle-monitor": {"few": 2, "many": 4, "duration_s": 0.5},
    "silent-clients": {"places": 2, "deadline_s": 0.2, "slack_s": 0.3},
    "fence": {"rounds": 10, "receivers": 20},
    "drain": {"connections": 50, "grace_s": 0.1, "duration_s": 0.5},
    "mass-leave": {"connections": 50},
}


#: Attacks that are carried out differently on the two drivers; the others know only sockets.
DRIVEN = ("idle-sockets", "drain")


def make_setup(driver="epoll"):
    """Return a function that makes a setup; nothing is pinned, because a test may have one processor."""
    require_driver(driver)
    return Setup(driver, None, None, quiet_s=0.1, settle_s=0.0)


@pytest.fixture
def setup():
    return make_setup()


@pytest.mark.parametrize(
    ("name", "driver"),
    [*((name, "epoll") for name in suites_hostile.ATTACKS), *((name, "uring") for name in DRIVEN)],
)
def test_an_attack_is_carried_out(name, driver):
    setup = make_setup(driver)
    findings = suites_hostile.carry_out(suites_hostile.ATTACKS[name], setup, SMALL[name])
    assert findings
    assert not [one for one in findings if math.isnan(one.value)], findings
    assert any(one.bar is not None for one in findings)
    assert len({one.what for one in findings}) == len(findings)


def test_refusals_are_reported(setup):
    with setup.broker({"max_subscriptions": 1}) as broker, client.Client(broker.tcp) as attacker:
        assert attacker.carry_out(b"SUB a 1\r\n") == ""
        assert attacker.carry_out(b"SUB a 2\r\n") == "-ERR 'maximum subscriptions exceeded'"
        # A line that is no operation ends the connection.
        assert attacker.carry_out(b"SIT a 3\r\n").startswith("-ERR ")
        assert "closed the connection" in attacker.carry_out(b"")


def test_a_disconnected_witness_has_an_infinite_wait():
    # It has a second to notice, before it is told to end.
    setup = Setup("epoll", None, None, quiet_s=0.1, settle_s=1.0)
    with setup.broker() as broker:
        with watch(setup, broker) as witness, witness.during("its end"):
            broker.process.kill()
            broker.process.wait()
        (finding,) = witness.findings()
    assert math.isinf(finding.value)
    assert not finding.holds
    assert "the witness was disconnected" in finding.beside
    (finding,) = witness.findings(may_be_closed=True)
    assert math.isfinite(finding.value)


def test_a_witness_counts_every_round_trip(setup):
    with setup.broker() as broker:
        before = broker.varz()["in_msgs"]
        with watch(setup, broker) as witness, witness.during("nothing") as window:
            pass
        published = broker.varz()["in_msgs"] - before
    assert len(witness._lengths) == published
    assert 0 < witness.waits(window).p99 <= witness.waits(window).longest


def test_a_wait_for_service_ends_with_the_time_or_the_reason(setup):
    with setup.broker({"max_connections": 1}) as broker:
        waited_s, _ = client.seconds_until_served(broker.tcp, 10.0)
        assert math.isfinite(waited_s)
        wait_until(lambda: broker.varz()["connections"] == 0)
        with client.Client(broker.tcp):
            waited_s, said = client.seconds_until_served(broker.tcp, 0.2)
            assert math.isinf(waited_s)
            assert said == "-ERR 'maximum connections exceeded'"
        waited_s, _ = client.seconds_until_healthy(broker.monitor, 10.0)
        assert math.isfinite(waited_s)
    waited_s, said = client.seconds_until_healthy(broker.monitor, 0.1)
    assert math.isinf(waited_s)
    assert "refused" in said


def test_reply_subjects_are_guessed_from_a_known_one():
    guesses = attacks_gateway._guesses(b"_INBOX.0123456789abcdef.0-5-0-a")
    assert b"_INBOX.0123456789abcdef.0-7-1-c" in guesses
    assert len(set(guesses)) == len(guesses)
    guesses = attacks_gateway._guesses(b"_INBOX.0123456789abcdef.0-5-0-a-feed")
    assert b"_INBOX.0123456789abcdef.0-7-1-c-feed" in guesses
    guesses = attacks_gateway._guesses(b"_INBOX.0123456789abcdef")
    assert b"_INBOX.0123456789abc000" in guesses


def test_a_broker_that_does_not_start_reports_the_reason(setup):
    start = partial(setup.broker, {"max_connections": "many"})
    with pytest.raises(StartError, match="max_connections"), start():
        pass
