"""The container image, built of a wheel and run: small, without compilers, not as root, healthy.

No registry is asked: a Debian with Python, made by debootstrap, stands for the base image.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import skip
from tests.packaging.conftest import run
from tests.servers import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.process,
    pytest.mark.wheel,
    pytest.mark.timeout(1200),
    pytest.mark.xdist_group("packaging"),
]

BASE = "docker.io/library/python:3.13-slim"
#: As `FROM scratch` wants it; pip takes the dependencies' wheels from beside ours.
BASE_FILE = "FROM scratch\nCOPY . /\nENV PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels\n"
SUITE = "bookworm"
#: Runs the image's command, asks its health check until it is well, and stops it.
LIFE = """
"$@" >&2 &
broker=$!
for attempt in $(seq 300); do eval "$HEALTH" 2>/dev/null && echo healthy && break; sleep 0.1; done
id -u
kill -TERM $broker
wait $broker
echo "status $?"
"""


class Builder:
    """buildah with a store of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        store = ("--root", directory / "store", "--runroot", directory / "run")
        self.command: tuple[str | Path, ...] = ("buildah", *store, "--storage-driver", "overlay")

    def __call__(self, *arguments: str | Path) -> str:
        return run(*self.command, *arguments, cwd=self.directory)

    def build(self, name: str, file: Path, context: Path) -> None:
        options = ("--isolation", "chroot", "--format", "docker", "--pull-never", "--quiet")
        self("bud", *options, "--tag", name, "--file", file, context)


@pytest.fixture(scope="module")
def builder(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Builder:
    """A store with the image `subjectbus`."""
    for command in ("buildah", "debootstrap", "unshare", "ip"):
        if shutil.which(command) is None:
            skip(f"{command} is not installed (Debian: apt-get install buildah debootstrap iproute2)")
    if os.getuid():
        pytest.skip("building an image without a container engine needs root")
    directory = tmp_path_factory.mktemp("image")
    builder = Builder(directory)
    base = directory / "base"
    packages = "python3,python3-pip,python3-venv"
    run("debootstrap", "--variant=minbase", f"--include={packages}", SUITE, base, cwd=directory)
    (base / "usr/bin/python").symlink_to("python3")
    (directory / "Base").write_text(BASE_FILE)
    builder.build(BASE, directory / "Base", base)
    shutil.rmtree(base)
    context = directory / "context"
    shutil.copytree(ROOT / "docs", context / "docs")
    shutil.copy(ROOT / ".dockerignore", context)
    fill(context / "dist", wheel)
    builder.build("subjectbus", context / "docs/operations/Containerfile", context)
    return builder


def fill(dist: Path, wheel: Path) -> None:
    """Put the wheel, named as `make wheels` names it, and what it needs into the folder."""
    dist.mkdir()
    shutil.copy(wheel, dist / wheel.name.replace("-linux_", "-manylinux_2_28_"))
    options = ("--quiet", "--only-binary=:all:", "--dest", dist, "--python-version", "3.11")
    run("python", "-m", "pip", "download", *options, wheel, cwd=dist)
    (dist / wheel.name).unlink(missing_ok=True)


def configuration(builder: Builder) -> dict[str, Any]:
    """Return the configuration of the image."""
    described = json.loads(builder("inspect", "--type", "image", "subjectbus"))
    config: dict[str, Any] = described["Docker"]["config"]
    return config


def in_container(builder: Builder, *command: str, network: bool = True) -> str:
    """Run a command in a new container; return its output."""
    container = builder("from", "--pull-never", "subjectbus").split()[-1]
    outside = () if network else ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
    try:
        options = ("--isolation", "chroot", container, "--")
        return run(*outside, *builder.command, "run", *options, *command, cwd=builder.directory)
    finally:
        builder("rm", container)


def test_the_image_is_healthy_and_drains_as_an_ordinary_user(builder: Builder) -> None:
    """With its own command and health check, on its own ports, in a network of its own."""
    config = configuration(builder)
    assert config["Healthcheck"]["Test"][0] == "CMD"
    health = shlex.join(config["Healthcheck"]["Test"][1:])
    script = f"HEALTH={shlex.quote(health)}\n{LIFE}"
    output = in_container(
        builder, "sh", "-c", script, "sh", *config["Entrypoint"], *config["Cmd"], network=False
    )
    lines = output.splitlines()
    assert [line for line in lines if line in ("healthy", "10001", "status 0")] == [
        "healthy",
        "10001",
        "status 0",
    ], output
    assert any(line.startswith("ready tcp=0.0.0.0:4222") for line in lines)


def test_the_image_is_small_and_has_no_compiler(builder: Builder) -> None:
    kilobytes = int(in_container(builder, "du", "-sk", "/opt/subjectbus").split()[0])
    assert kilobytes < 45_000
    tools = "for tool in cc gcc c++ rustc cargo make ld; do command -v $tool; done; true"
    assert in_container(builder, "sh", "-c", tools) == ""
    listed = in_container(
        builder, "sh", "-c", "ls /opt/subjectbus/lib/python3*/site-packages; ls /wheels; true"
    )
    assert "subjectbus" in listed
    assert "numpy" not in listed
    assert ".whl" not in listed
