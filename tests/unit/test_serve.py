import re
import resource
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager

import pytest

from subjectbus import limits
from subjectbus.errors import LimitError
from tests.conftest import require_driver
from tests.servers import ROOT

pytestmark = pytest.mark.process

COMMAND = [sys.executable, "-P", "-m", "subjectbus", "serve"]
ANY = ["--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--monitor", "127.0.0.1:0"]


@contextmanager
def serving(*flags: str):
    process = subprocess.Popen(
        [*COMMAND, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_the_ready_line_names_listeners_that_accept_and_sigterm_drains():
    with serving(*ANY, "--lame-duck-grace-s", "0", "--lame-duck-duration-s", "0") as process:
        line = process.stdout.readline()
        match = re.fullmatch(
            r"ready tcp=127\.0\.0\.1:(\d+) http=127\.0\.0\.1:(\d+) monitor=127\.0\.0\.1:(\d+)\n", line
        )
        assert match, line
        for port in match.groups():
            socket.create_connection(("127.0.0.1", int(port)), 5).close()
        assert urllib.request.urlopen(f"http://127.0.0.1:{match[3]}/varz", timeout=5).status == 200
        process.send_signal(signal.SIGTERM)
        said, logged = process.communicate(timeout=20)
    assert process.returncode == 0
    assert said == ""
    assert " kind=draining reason=SIGTERM " in logged


def test_a_second_signal_ends_the_broker_at_once():
    with serving(*ANY, "--lame-duck-grace-s", "100") as process:
        match = re.search(r"tcp=127\.0\.0\.1:(\d+)", process.stdout.readline())
        # Without a client the drain would be over at once.
        with socket.create_connection(("127.0.0.1", int(match[1])), 5) as client:
            assert client.recv(5) == b"INFO "
            process.send_signal(signal.SIGINT)
            assert any(" kind=draining reason=SIGINT " in line for line in process.stderr)
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 128 + signal.SIGTERM


def test_a_shard_that_fails_ends_the_broker_with_a_one_line_reason():
    require_driver("uring")
    command = [sys.executable, "-P", str(ROOT / "tests" / "rings.py"), "serve"]
    with subprocess.Popen(
        [*command, *ANY, "--driver", "uring", "--shards", "2"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            match = re.search(r"tcp=127\.0\.0\.1:(\d+)", process.stdout.readline())
            with socket.create_connection(("127.0.0.1", int(match[1])), 5) as client:
                assert client.recv(5) == b"INFO "
                said, logged = process.communicate("now\n", timeout=20)
        finally:
            process.kill()
    assert process.returncode == 1
    assert said == ""
    assert re.search(r' level=error kind=shard_failed failed_shard=\d reason="the driver failed: ', logged)
    assert "Traceback" not in logged


def test_a_listener_can_be_switched_off():
    with serving(*ANY, "--http", "", "--monitor", "") as process:
        assert re.fullmatch(r"ready tcp=127\.0\.0\.1:\d+\n", process.stdout.readline())


@pytest.mark.parametrize("listener", ["tcp", "http", "monitor"])
def test_a_port_in_use_is_named(listener):
    with socket.create_server(("127.0.0.1", 0)) as holder:
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        ended = subprocess.run(
            [*COMMAND, *ANY, f"--{listener}", address],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1
    assert ended.stderr.startswith(f"subjectbus: error: {listener}: ")
    assert f"{address}: Address already in use" in ended.stderr


def test_the_soft_descriptor_limit_is_raised_to_the_hard_one():
    code = (
        "import resource; from subjectbus import limits;"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1];"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard));"
        "assert limits.raise_descriptor_limit() == hard;"
        "assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True)


def test_too_few_descriptors_are_reported_with_both_numbers(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 20_000))
    limits.require_descriptors("the broker", 20_000 - limits.DESCRIPTOR_MARGIN)
    with pytest.raises(LimitError, match=r"the broker needs 20001 open files, but the hard limit is 20000"):
        limits.require_descriptors("the broker", 20_001 - limits.DESCRIPTOR_MARGIN)


def test_without_a_limit_any_number_of_connections_is_allowed(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, resource.RLIM_INFINITY))
    limits.require_descriptors("the broker", 10**12)
