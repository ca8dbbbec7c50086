import resource
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import nats
import pytest

import subjectbus
from subjectbus import AddressError, BrokerConfig, BrokerError, ConfigError, Monitor, Server
from tests.conftest import require_driver
from tests.nats_client import flush
from tests.rings import break_rings
from tests.servers import wait_until


def config(**keys) -> BrokerConfig:
    return BrokerConfig(
        **{"tcp": "127.0.0.1:0", "http": "127.0.0.1:0", "monitor": "127.0.0.1:0", "shards": 1, **keys}
    )


def connected(server: Server) -> socket.socket:
    host, port = server.addresses()["tcp"].split(":")
    return socket.create_connection((host, int(port)), 5)


def test_a_server_serves_between_entry_and_exit():
    with Server(config()) as server:
        host, port = server.addresses()["tcp"].split(":")
        with socket.create_connection((host, int(port)), 5) as client:
            assert client.recv(4) == b"INFO"
        assert {"tcp", "http", "monitor"} == set(server.addresses())
        assert not server.wait(0.0)
    assert server.wait(0.0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), 5)


def test_the_counters_have_the_conservation_rule():
    with Server(config()) as server:
        client = connected(server)
        client.sendall(b"CONNECT {}\r\nSUB a 1\r\nPUB a 0\r\n\r\nPUB b 0\r\n\r\nPING\r\n")
        expected = {"published": 2, "matched": 1, "delivered": 1, "pending": 0}

        def is_counted():
            account = server.counters()["conservation"]
            assert not any(account["dropped"].values()), account
            return {name: account[name] for name in expected} == expected

        wait_until(is_counted, what=str(expected))
        client.close()


def test_urls_of_the_listeners():
    with Server(config(monitor=None)) as server:
        addresses = server.addresses()
        assert server.url == f"nats://{addresses['tcp']}"
        assert server.ws_url == f"ws://{addresses['http']}"
        assert server.http_url == f"http://{addresses['http']}"
        assert server.monitor_url is None
    with Server(config(tcp="0.0.0.0:0", http="[::]:0", monitor=False)) as server:
        ports = {name: address.rpartition(":")[2] for name, address in server.addresses().items()}
        assert server.url == f"nats://127.0.0.1:{ports['tcp']}"
        assert server.ws_url == f"ws://[::1]:{ports['http']}"


def test_an_embedded_broker_takes_free_ports():
    with Server() as one, Server() as other:
        assert set(one.addresses()) == {"tcp", "http", "monitor"}
        assert not set(one.addresses().values()) & set(other.addresses().values())
        assert Monitor(one.monitor_url).sample().varz.connections == 0


def test_is_running_is_true_between_start_and_end():
    server = Server(config())
    assert not server.is_running
    with pytest.raises(BrokerError, match="has not been started"):
        _ = server.url
    with server:
        assert server.is_running
    assert not server.is_running


def test_signals_are_handled_while_waiting():
    with Server(config()) as server:
        before = signal.signal(signal.SIGALRM, lambda *_: server.stop())
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            assert server.wait()
        finally:
            signal.signal(signal.SIGALRM, before)


def test_the_end_of_the_block_delivers_waiting_messages():
    with Server(config()) as server:
        client = connected(server)
        client.sendall(b"CONNECT {}\r\nSUB a 1\r\n" + b"PUB a 1000\r\n" + b"x" * 1000 + b"\r\nPING\r\n")
        wait_until(lambda: server.counters()["conservation"]["matched"] == 1)
    received = b""
    while part := client.recv(65536):
        received += part
    client.close()
    assert b"MSG a 1 1000\r\n" + b"x" * 1000 in received
    account = server.counters()["conservation"]
    assert (account["delivered"], account["pending"], sum(account["dropped"].values())) == (1, 0, 0)


async def test_clients_in_the_event_loop_can_read_at_the_end_of_an_async_block():
    received = []

    async def take(message):
        received.append(message.data)

    async with Server(config()) as server:
        client = await nats.connect(server.url, allow_reconnect=False)
        await client.subscribe("a", cb=take)
        for number in range(1000):
            await client.publish("a", b"%d" % number)
        await flush(client)
    assert received == [b"%d" % number for number in range(1000)]


def test_the_end_of_the_block_does_not_hide_an_exception(monkeypatch):
    def fail(*_arguments):
        raise BrokerError("shard 0 has failed")

    def enter_and_raise(error):
        with Server(config()) as server:
            monkeypatch.setattr(server, "drain", fail)
            try:
                if error is not None:
                    raise error
            finally:
                server.stop()

    with pytest.raises(ZeroDivisionError) as caught:
        enter_and_raise(ZeroDivisionError())
    assert caught.value.__notes__ == ["subjectbus: shard 0 has failed"]
    with pytest.raises(BrokerError):
        enter_and_raise(None)


def test_the_representation_shows_the_keys_that_were_set():
    assert repr(Server(BrokerConfig(shards=2))) == "Server(BrokerConfig(shards=2))"


def test_true_is_refused_as_an_address():
    with pytest.raises(ValueError, match="tcp: true is not an address"):
        BrokerConfig(tcp=True)


def test_a_drain_ends_the_broker():
    server = Server(config(lame_duck_grace_s=0.0, lame_duck_duration_s=0.0))
    server.start()
    server.drain()
    assert server.wait(10.0)


def test_an_address_in_use_is_named():
    with Server(config()) as server:
        taken = server.addresses()["tcp"]
        with pytest.raises(AddressError, match=f"tcp: .*{taken}: Address already in use"):
            Server(config(tcp=taken)).start()


def test_an_unusable_value_names_its_key():
    with pytest.raises(ConfigError, match="tcp"):
        Server(config(tcp="nowhere"))


def test_more_connections_than_descriptors_are_refused_with_the_number():
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with pytest.raises(ConfigError, match=f"max_connections: .*{allowed}"):
        Server(config(driver="epoll", shards=1, max_connections=allowed + 1)).start()


def test_every_call_reports_that_a_shard_has_failed():
    require_driver("uring")
    server = Server(config(driver="uring", shards=2))
    server.start()
    host, port = server.addresses()["tcp"].split(":")
    with socket.create_connection((host, int(port)), 5) as client:
        assert client.recv(4) == b"INFO"
        break_rings()

        def has_failed() -> bool:
            try:
                server.counters()
            except BrokerError:
                return True
            return False

        wait_until(has_failed)
    for call in (server.addresses, server.driver, server.drain, server.stop, lambda: server.wait(10.0)):
        with pytest.raises(BrokerError, match=r"shard \d: the driver failed: "):
            call()

    def is_refused() -> bool:
        try:
            socket.create_connection((host, int(port)), 5).close()
        except ConnectionRefusedError:
            return True
        return False

    # The kernel gives up what a broken ring holds in its own time.
    wait_until(is_refused)


@pytest.mark.process
def test_the_source_without_the_extension_says_where_to_go(tmp_path):
    source = Path(subjectbus.__file__).parent
    shutil.copytree(source, tmp_path / "subjectbus", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    command = [sys.executable, "-c", "import subjectbus"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: {tmp_path / 'subjectbus'} is the source of subjectbus")
    assert "another folder" in last
