"""What README and the pages of the site show, run as it stands there; see `pages` for the exceptions."""

from __future__ import annotations

import ast
import json
import re
import shlex
import shutil
import tomllib
from typing import TYPE_CHECKING

import click
import pytest
import yaml

from loadtest.cli import loadtest
from loadtest.scenario.inventory import load_inventory
from loadtest.scenario.load import load_scenario
from subjectbus.cli import cli
from subjectbus.config import load_config
from tests.conftest import skip
from tests.docs.pages import Block, blocks, pages
from tests.docs.session import Session
from tests.servers import ROOT

if TYPE_CHECKING:
    from pathlib import Path

TARGETS = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
ALL = [block for page in pages() for block in blocks(page)]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path)


@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "page", [page for page in pages() if any(block.is_run for block in blocks(page))], ids=name_of
)
def test_the_commands_and_programs_of_a_page_work(
    page: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are saved, commands and programs run, in the order of the page."""
    if shutil.which("curl") is None:
        skip("curl is not installed")
    monkeypatch.chdir(session.folder)
    with session:
        for block in blocks(page):
            if block.file is not None:
                session.save(block)
            if not block.is_run:
                continue
            if block.mark == "pytest":
                session.pytest(block)
            elif block.language in ("sh", "python"):
                session.run(block)
            else:
                check(block, session.folder)


def check(block: Block, folder: Path) -> None:
    """Check a block that is not to be run: it is read as the program reads it for which it is meant."""
    match block.language:
        case "toml" if block.file == "hosts.toml":
            key = folder / "key"
            key.touch(mode=0o600)
            file = folder / "checked.toml"
            file.write_text(block.text.replace("~/.ssh/id_ed25519", str(key)))
            load_inventory(file).require_roles(has_target=False, needs_providers=True)
        case "toml":
            file = folder / (block.file or "checked.toml")
            file.write_text(block.text)
            keys = tomllib.loads(block.text)
            if keys.keys() & {"users", "workload"}:
                load_scenario(f"./{file.name}")
            else:
                load_config(file, {})
        case "yaml":
            assert yaml.safe_load(block.text), block.place
        case "json":
            for line in block.text.splitlines():
                json.loads(line)
        case "ini":
            for line in block.commands:
                assert re.fullmatch(r"[\w.-]+ ?= ?\S.*", line), f"{block.place}: {line}"
        case "" | "text" | "nginx":
            pass
        case _:
            pytest.fail(f"{block.place}: no test knows what {block.language} is")


@pytest.mark.parametrize(
    "block",
    [block for block in ALL if block.language == "sh" and not block.is_run],
    ids=lambda block: block.place,
)
def test_the_commands_of_a_block_that_is_not_run_can_be_parsed(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for line in block.commands:
        if line.startswith("subjectbus "):
            parse(line)
        elif re.search(r"(?:^|\s)make ", line):
            target = re.search(r"make (?:[A-Z_]+=\S+ )*([a-z-]+)", line)
            assert target is not None, line
            assert target[1] in TARGETS, line


def parse(line: str) -> None:
    """Parse a command's words as click does, and load the scenario that it names."""
    words = shlex.split(re.sub(r'"\$\(.*?\)"', "1", line), comments=True)[1:]
    if words in (["--help"], ["--version"]):
        return
    command: click.Command = cli
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None, line
        command = found
    parameters = command.make_context(command.name, words).params
    if parameters.get("scenario"):
        assert load_scenario(parameters["scenario"], parameters.get("overrides", ()))


def test_every_python_block_can_be_parsed() -> None:
    programs = [block for block in ALL if block.language == "python"]
    assert programs
    for block in programs:
        ast.parse(block.text, block.place)


def test_every_mark_is_known_and_every_exception_has_a_reason() -> None:
    known = re.compile(
        r"|not run: \S.+|pytest|prints \S.*|background until (ready|subscribed)(, prints \S.*)?", re.DOTALL
    )
    assert [block.place for block in ALL if not known.fullmatch(block.mark)] == []


def test_pages_begin_with_a_command() -> None:
    """The command to type stands before the first section, but in README, and where there is none to type."""
    without = {"README.md", "docs/glossary.md"}
    late = []
    for page in pages():
        first = re.search(r"^(```\w+$|## )", page.read_text(), re.MULTILINE)
        if name_of(page) not in without and (first is None or first[1] == "## "):
            late.append(name_of(page))
    assert late == []


def test_loadtest_is_a_command() -> None:
    assert cli.get_command(click.Context(cli), "loadtest") is loadtest
