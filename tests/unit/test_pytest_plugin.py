"""The fixtures that subjectbus brings to pytest, used by a project of its own."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.process


def run(folder: Path, tests: str) -> str:
    (folder / "test_project.py").write_text(textwrap.dedent(tests))
    (folder / "pytest.ini").touch()
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:schemathesis", "-q"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    return done.stdout


def test_a_test_has_a_broker_of_the_session_or_of_its_own(tmp_path):
    report = run(
        tmp_path,
        """
        import socket

        import pytest
        import subjectbus

        shared = []


        @pytest.fixture(scope="session")
        def subjectbus_config():
            return subjectbus.BrokerConfig(server_name="orders", monitor=None)


        def greeting(server):
            host, port = server.addresses()["tcp"].split(":")
            with socket.create_connection((host, int(port)), 5) as client:
                return client.recv(65536)


        @pytest.mark.parametrize("time", range(2))
        def test_shared(subjectbus_server, time):
            shared.append(subjectbus_server.url)
            assert b'"server_name":"orders"' in greeting(subjectbus_server)


        def test_own(subjectbus_server, subjectbus_own_server):
            assert subjectbus_server.url == shared[0] == shared[1] != subjectbus_own_server.url
            subjectbus_own_server.stop()
            assert subjectbus_own_server.wait(10.0)
        """,
    )
    assert "3 passed" in report, report


def test_messages_that_are_not_accounted_for_fail_the_session(tmp_path):
    report = run(
        tmp_path,
        """
        def test_lost(subjectbus_own_server, monkeypatch):
            account = {"matched": 5, "delivered": 3, "dropped": {"slow_consumer": 1}, "pending": 0}
            subjectbus_own_server.counters = lambda: {"conservation": account}
        """,
    )
    assert "1 passed, 1 error" in report, report
    said = "5 messages had a receiver, but 3 were delivered, 1 were dropped and 0 are pending"
    assert said in " ".join(report.split()), report
