import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest

from loadtest.errors import RunError, TargetError
from loadtest.scenario.target import parse_target


@pytest.mark.parametrize(
    ("url", "transport", "host", "address", "path"),
    [
        ("nats://127.0.0.1:5222", "tcp", "127.0.0.1:5222", "127.0.0.1:5222", "/"),
        ("nats://127.0.0.1", "tcp", "127.0.0.1:4222", "127.0.0.1:4222", "/"),
        ("nats://127.0.0.1/", "tcp", "127.0.0.1:4222", "127.0.0.1:4222", "/"),
        ("ws://127.0.0.1:8080/", "ws", "127.0.0.1:8080", "127.0.0.1:8080", "/"),
        ("ws://127.0.0.1", "ws", "127.0.0.1:80", "127.0.0.1:80", "/"),
        ("ws://127.0.0.1:9/a/b?c=d", "ws", "127.0.0.1:9", "127.0.0.1:9", "/a/b?c=d"),
        ("ws://localhost:9", "ws", "localhost:9", "127.0.0.1:9", "/"),
        ("http://127.0.0.1:9/byte?x", "rest", "127.0.0.1:9", "127.0.0.1:9", "/byte?x"),
        ("http://localhost", "rest", "localhost:80", "127.0.0.1:80", "/"),
        ("nats://[::1]:7", "tcp", "[::1]:7", "[::1]:7", "/"),
    ],
)
def test_a_target_has_transport_host_and_numeric_address(url, transport, host, address, path):
    target = parse_target(url)
    assert (target.transport, target.host, target.address, target.path) == (transport, host, address, path)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:4222",
        "https://127.0.0.1",
        "wss://127.0.0.1",
        "nats://",
        "nats://:4222",
        "nats://127.0.0.1:x",
        "nats://127.0.0.1:0",
        "nats://127.0.0.1:65536",
        "nats://127.0.0.1/path",
        "nats://user:secret@127.0.0.1",
        "ws://127.0.0.1/#fragment",
        "nats://[::1",
        "nats://no.such.host.invalid",
        "nats://a..b:4222",
    ],
)
def test_an_unusable_target_is_one_line_that_names_it(url):
    with pytest.raises(TargetError) as raised:
        parse_target(url)
    assert str(raised.value).startswith(f'target "{url}": ')
    assert "\n" not in str(raised.value)


def test_reachable_means_that_a_connection_is_accepted():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = parse_target(f"ws://127.0.0.1:{listener.getsockname()[1]}")
        target.require_reachable()
    with pytest.raises(RunError, match=f"{target.url} is unreachable: Connection refused"):
        target.require_reachable()


@pytest.mark.parametrize(("words", "speaks"), [(b"INFO {}", True), (b"HTTP/1.1 400", False), (b"IN", False)])
def test_a_nats_server_speaks_first(words, speaks):
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as other:
        target = parse_target(f"nats://127.0.0.1:{listener.getsockname()[1]}")

        def serve():
            connection, _ = listener.accept()
            with connection:
                connection.sendall(words)

        serving = other.submit(serve)
        with nullcontext() if speaks else pytest.raises(RunError, match="does not speak the NATS protocol"):
            target.require_reachable()
        serving.result()
