"""The page about the reverse proxy: nginx with its configuration in front of a broker with its own."""

from __future__ import annotations

import asyncio
import getpass
import os
import shutil
import socket
import ssl
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import nats
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from subjectbus import Server
from subjectbus.config import load_config
from tests.conftest import skip
from tests.docs.pages import DOCS, blocks
from tests.nats_client import flush
from tests.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.process

NAME = "broker.example.org"
PASSWORD = "the password"
FILES = {block.file: block.text for block in blocks(DOCS / "how-to" / "reverse-proxy.md") if block.file}
AROUND = """
daemon off; user {user}; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
    access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    include {folder}/subjectbus.conf;
}}
"""


class Proxy(NamedTuple):
    """A running nginx, and the broker behind it."""

    port: int
    folder: Path
    broker: Server

    def curl(self, path: str, *options: str) -> tuple[str, str]:
        """Status and body of a request to the proxy by the broker's public name."""
        certificate = self.folder / "subjectbus.pem"
        done = subprocess.run(
            [
                *("curl", "--silent", "--write-out", "\n%{http_code}", "--cacert", certificate),
                *("--resolve", f"{NAME}:{self.port}:127.0.0.1", *options, f"https://{NAME}:{self.port}{path}"),
            ],
            capture_output=True, text=True, timeout=30, check=True,
        )  # fmt: skip
        body, _, status = done.stdout.rpartition("\n")
        return status, body


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """Start the broker and nginx with the page's files, on free ports."""
    for command, package in (("nginx", "nginx-light"), ("openssl", "openssl"), ("curl", "curl")):
        if shutil.which(command) is None:
            skip(f"{command} is not installed (Debian: apt-get install {package})")
    folder = tmp_path_factory.mktemp("proxy")
    (folder / "broker.toml").write_text(FILES["broker.toml"].replace(":4222", ":0"))
    free = {"tcp": "127.0.0.1:0", "http": "127.0.0.1:0", "monitor": "127.0.0.1:0"}
    with (
        Server(load_config(folder / "broker.toml", free)) as broker,
        socket.create_server(("127.0.0.1", 0)) as ear,
    ):
        port = ear.getsockname()[1]
        _write_files(folder, port, broker.addresses()["http"])
        # nginx takes over a socket that listens already, as when its executable is replaced.
        process = subprocess.Popen(
            ["nginx", "-c", folder / "nginx.conf"], pass_fds=[ear.fileno()],
            env={**os.environ, "NGINX": f"{ear.fileno()};"},
        )  # fmt: skip
        try:
            found = Proxy(port, folder, broker)
            wait_until(lambda: (folder / "pid").exists() or process.poll() is not None, what="nginx")
            assert process.poll() is None, "nginx has refused its configuration: its standard error says why"
            yield found
            assert process.poll() is None
        finally:
            process.terminate()
            process.wait(20)


def _write_files(folder: Path, port: int, broker: str) -> None:
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-days", "2", "-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME},DNS:localhost"),
            *("-keyout", folder / "subjectbus.key", "-out", folder / "subjectbus.pem"),
        ],
        check=True, capture_output=True, timeout=30,
    )  # fmt: skip
    hashed = subprocess.run(
        ["openssl", "passwd", "-apr1", PASSWORD], check=True, capture_output=True, text=True, timeout=30
    )
    (folder / "subjectbus.htpasswd").write_text(f"alice:{hashed.stdout}")
    (folder / "subjectbus.htpasswd").chmod(0o644)
    folder.chmod(0o755)
    configuration = FILES["subjectbus.conf"]
    for shown, real in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("127.0.0.1:8080", broker),
        ("/etc/nginx/", f"{folder}/"),
    ):
        assert shown in configuration
        configuration = configuration.replace(shown, real)
    (folder / "subjectbus.conf").write_text(configuration)
    (folder / "nginx.conf").write_text(AROUND.format(folder=folder, user=getpass.getuser()))


def test_a_request_needs_the_password(proxy: Proxy) -> None:
    publish = ("/v1/publish/news.today", "--data-binary", "it works")
    assert proxy.curl(*publish)[0] == "401"
    assert proxy.curl(*publish, "--user", "alice:wrong")[0] == "401"
    assert proxy.curl(*publish, "--user", f"alice:{PASSWORD}") == ("202", "")


def test_the_broker_knows_its_public_name_and_no_other(proxy: Proxy) -> None:
    signed_in = ("--user", f"alice:{PASSWORD}", "--data-binary", "x")
    status, _ = proxy.curl("/v1/publish/news", *signed_in, "--header", "Host: evil.example")
    assert status == "421"


@pytest.mark.parametrize(
    ("origin", "status"),
    [(f"https://{NAME}", "202"), ("https://app.example.org", "202"), ("https://evil.example", "403")],
)
def test_pages_of_the_listed_origins_may_use_the_gateway(proxy: Proxy, origin: str, status: str) -> None:
    signed_in = ("--user", f"alice:{PASSWORD}", "--data-binary", "x")
    assert proxy.curl("/v1/publish/news", *signed_in, "--header", f"Origin: {origin}")[0] == status


def trusting(proxy: Proxy) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=proxy.folder / "subjectbus.pem")


@pytest.mark.parametrize(
    ("origin", "user", "status"),
    [
        ("https://app.example.org", "alice", 101),
        ("https://evil.example", "alice", 403),
        ("https://app.example.org", "bob", 401),
    ],
)
def test_pages_of_the_listed_origins_may_connect(proxy: Proxy, origin: str, user: str, status: int) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), 10) as stream:
        refused = 101
        try:
            with connect(
                f"wss://{user}:{PASSWORD.replace(' ', '%20')}@{NAME}:{proxy.port}/", sock=stream,
                ssl=trusting(proxy), origin=origin, compression=None,
            ) as client:  # fmt: skip
                assert b"INFO" in client.recv(timeout=10)
        except InvalidStatus as error:
            refused = error.response.status_code
    assert refused == status


async def test_the_client_of_the_page_publishes(proxy: Proxy) -> None:
    assert proxy.broker.url is not None
    receiver = await nats.connect(proxy.broker.url)
    news = await receiver.subscribe("news.today")
    await flush(receiver)
    (proxy.folder / "client.py").write_text(FILES["client.py"])
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "client.py", f"wss://localhost:{proxy.port}", "alice", PASSWORD],
        cwd=proxy.folder, env={**os.environ, "SSL_CERT_FILE": str(proxy.folder / "subjectbus.pem")},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (await news.next_msg(timeout=10)).data == b"it works"
    await receiver.close()


async def test_events_arrive_one_by_one(proxy: Proxy) -> None:
    """An event is there while the stream goes on: the proxy keeps nothing back."""
    assert proxy.broker.url is not None
    before = proxy.broker.counters()["subscriptions"]
    url = f"https://{NAME}:{proxy.port}/v1/subscribe/news.%3E"
    stream = subprocess.Popen(  # noqa: ASYNC220 - started, not waited for
        [
            *("curl", "--silent", "--no-buffer", "--cacert", proxy.folder / "subjectbus.pem", "--user"),
            *(f"alice:{PASSWORD}", "--resolve", f"{NAME}:{proxy.port}:127.0.0.1", url),
        ],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        wait_until(lambda: proxy.broker.counters()["subscriptions"] > before, what="a stream")
        client = await nats.connect(proxy.broker.url)
        await client.publish("news.today", b"it works")
        await flush(client)
        assert stream.stdout is not None
        data = next(line for line in stream.stdout if line.startswith(b"data: "))
        assert data == b"data: it works\n"
        assert stream.poll() is None
        await client.close()
    finally:
        stream.kill()
        stream.communicate()
