import resource
import socket

import pytest

from subjectbus import AddressError, BrokerConfig, BrokerError, ConfigError, Server
from tests.conftest import require_driver
from tests.rings import break_rings
from tests.servers import wait_until


def config(**keys) -> BrokerConfig:
    return BrokerConfig(
        **{"tcp": "127.0.0.1:0", "http": "127.0.0.1:0", "monitor": "127.0.0.1:0", "shards": 1, **keys}
    )


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
        account = server.counters()["conservation"]
    assert account["matched"] == account["delivered"] + sum(account["dropped"].values()) + account["pending"]


def test_a_drain_ends_it():
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


def test_every_call_says_that_a_shard_has_failed():
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
