"""Drivers: forbidden system calls, and a lack of descriptors or memory."""

from __future__ import annotations

import http.client
import json
import resource
import socket
import sys
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import pytest
from servers import StartError

from tests.conftest import require_driver
from tests.servers import Broker, wait_until
from tests.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: Runs its arguments as a command that may not call io_uring_setup: seccomp(2) answers with EPERM.
WITHOUT_IO_URING = """
import ctypes, os, struct, sys

class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

LOAD_NUMBER, IF_EQUAL, RETURN = 0x20, 0x15, 0x06
IO_URING_SETUP, ALLOW, FAIL, EPERM = 425, 0x7FFF0000, 0x00050000, 1
steps = [(LOAD_NUMBER, 0, 0, 0), (IF_EQUAL, 0, 1, IO_URING_SETUP), (RETURN, 0, 0, FAIL | EPERM),
         (RETURN, 0, 0, ALLOW)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = Program(len(steps), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) == 0, ctypes.get_errno()
os.execv(sys.argv[1], sys.argv[1:])
"""
FORBIDDEN = (sys.executable, "-c", WITHOUT_IO_URING)


def driver_lines(broker: Broker) -> list[str]:
    """Return the lines of the log about the driver."""
    return [line for line in broker.log().splitlines() if " kind=driver " in line]


def test_auto_takes_io_uring(start_broker: Callable[..., Broker]) -> None:
    require_driver("uring")
    broker = start_broker()
    assert broker.varz()["driver"] == "uring"
    line = wait_until(lambda: driver_lines(broker))[0]
    assert " driver=uring " in line
    assert " reason=" not in line


def test_epoll_is_used_if_io_uring_is_forbidden(start_broker: Callable[..., Broker]) -> None:
    """AgentEvent in one line; `--shards` makes no difference to that."""
    broker = start_broker(prefix=FORBIDDEN, shards=2)
    assert broker.varz()["driver"] == "epoll"
    lines = wait_until(lambda: driver_lines(broker))
    assert len(lines) == 1, lines
    assert " level=info " in lines[0]
    assert " driver=epoll " in lines[0]
    assert ' reason="no io_uring: ' in lines[0]
    with closing(Wire(broker)) as wire:
        wire.handshake()


@pytest.mark.process
def test_io_uring_by_name_is_refused_if_it_is_forbidden(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="driver: the kernel permits no uring here"):
        Broker.start(tmp_path, prefix=FORBIDDEN, driver="uring")


def test_accepting_pauses_while_there_are_no_descriptors(start_broker: Callable[..., Broker]) -> None:
    """Who is connected is served meanwhile, who connects waits, and nothing spins.

    With io_uring connections hold no descriptors: what runs out there are the slots of the rings' tables,
    which the reactor's own tests use up.
    """
    broker = start_broker(driver="epoll", shards=1)
    monitor = http.client.HTTPConnection(*broker.monitor)

    def failures() -> int:
        monitor.request("GET", "/varz")
        counters: dict[str, Any] = json.load(monitor.getresponse())
        return int(counters["accept_failures"])

    pid = broker.process.pid
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    with closing(monitor), closing(Wire(broker)) as early:
        early.handshake()
        assert failures() == 0
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        began = time.monotonic()
        with closing(Wire(broker)) as late:
            wait_until(lambda: failures() >= 3, what="attempts to accept")
            pauses = (time.monotonic() - began) / 0.1
            assert failures() <= 2 * pauses + 2
            early.ping()
            late.socket.setblocking(False)
            with pytest.raises(BlockingIOError):
                late.socket.recv(1, socket.MSG_PEEK)
            late.socket.setblocking(True)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
            late.handshake()
            early.ping()


@pytest.mark.parametrize("driver", ["epoll", "uring"])
def test_clients_with_the_largest_backlogs_are_closed_at_the_memory_limit(
    start_broker: Callable[..., Broker], driver: str
) -> None:
    """Clients that do not read are ended at the bound of memory, and all others are served."""
    require_driver(driver)
    # What the broker holds without clients differs between drivers.
    idle = start_broker(driver=driver, shards=1).varz()["held_memory"]
    broker = start_broker(driver=driver, shards=1, max_memory=idle + (16 << 20))
    with ExitStack() as stack:
        other = stack.enter_context(closing(Wire(broker)))
        other.handshake()
        slow = [stack.enter_context(closing(Wire(broker))) for _ in range(4)]
        for client in slow:
            client.handshake()
            client.send(b"SUB flood 1\r\nPING\r\n")
            client.expect(b"PONG\r\n")
        # Below the size from which on outputs hold a message together.
        payload = bytes(1 << 13)
        flood = b"PUB flood %d\r\n%b\r\n" % (len(payload), payload) * 32

        def has_ended_one() -> bool:
            other.send(flood)
            other.ping()
            return broker.varz()["closed"]["no_memory"] >= 1

        wait_until(has_ended_one, what="the end of a client that holds most")
        with closing(Wire(broker)) as new:
            new.handshake()
        varz = broker.varz()
        assert varz["held_memory"] < varz["max_memory"] + (2 << 20)
        assert varz["conservation"]["dropped"]["no_memory"] > 0


@pytest.mark.parametrize("driver", ["epoll", "uring"])
def test_a_large_message_is_kept_once_for_all_receivers(
    start_broker: Callable[..., Broker], driver: str
) -> None:
    """Receivers that do not read hold a large message together."""
    require_driver(driver)
    broker = start_broker(driver=driver, shards=2)
    with ExitStack() as stack:
        slow = [stack.enter_context(closing(Wire(broker))) for _ in range(8)]
        for client in slow:
            client.handshake()
            client.send(b"SUB flood 1\r\nPING\r\n")
            client.expect(b"PONG\r\n")
        publisher = stack.enter_context(closing(Wire(broker)))
        publisher.handshake()
        before = broker.varz()
        payload = bytes(range(256)) * 4096
        messages = 24
        for _ in range(messages):
            publisher.send(b"PUB flood %d\r\n%b\r\n" % (len(payload), payload))
        publisher.ping()
        wait_until(lambda: broker.varz()["pending_bytes"] > 4 * messages * len(payload), what="a backlog")
        held = broker.varz()["held_memory"] - before["held_memory"]
        assert held < (messages + 8) * len(payload)
        for client in slow:
            for _ in range(messages):
                client.expect(b"MSG flood 1 %d\r\n%b\r\n" % (len(payload), payload))
        wait_until(lambda: broker.varz()["held_memory"] < before["held_memory"] + len(payload), what="memory")
