"""What docs/loadtest shows can be done: commands parse, files load, snippets run, links lead somewhere."""

import re
import shlex
import subprocess
import sys

import click
import pytest

from loadtest.cli import loadtest
from loadtest.plan.inventory import load_inventory
from loadtest.plan.scenario import load_scenario
from loadtest.result.capacity import FILE
from loadtest.result.documents import write_document
from loadtest.result.schema import write_result
from tests.loadtest import samples
from tests.loadtest.test_frames import probe, search
from tests.servers import ROOT

FOLDER = ROOT / "docs" / "loadtest"
PAGES = sorted([*FOLDER.glob("*.md"), *(ROOT / "docs" / "notebooks").glob("*.md")])
COMMAND = "subjectbus loadtest "


def blocks(page, language):
    return re.findall(
        rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )


def commands():
    """Each command of the pages, without what the shell would add."""
    for page in [ROOT / "README.md", *sorted(FOLDER.glob("*.md"))]:
        for block in blocks(page, "sh"):
            lines = re.sub(r"\\\n\s*", " ", block).splitlines()
            for line in lines:
                if line.startswith(COMMAND):
                    yield pytest.param(line.removeprefix(COMMAND), id=f"{page.name}: {line}")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the files that the guide shows."""
    monkeypatch.chdir(tmp_path)
    named = [block for block in blocks(FOLDER / "index.md", "toml") if block.startswith("# ")]
    for block in named:
        (tmp_path / block.splitlines()[0].removeprefix("# ")).write_text(block)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hosts.toml", "mine.toml"]
    return tmp_path


@pytest.mark.parametrize("line", list(commands()))
def test_a_command_is_one(folder, line):
    words = shlex.split(re.sub(r'"\$\(.*?\)"', "1", line), comments=True)
    command = loadtest
    while isinstance(command, click.Group):
        command = command.get_command(click.Context(command), words.pop(0))
    parameters = command.make_context(command.name, words).params
    if parameters.get("scenario"):
        assert load_scenario(parameters["scenario"], parameters["overrides"])


def test_the_files_of_the_guide_are_usable(folder):
    scenario = load_scenario("./mine.toml")
    assert scenario.transport == "rest"
    key = folder / "key"
    key.touch(mode=0o600)
    hosts = folder / "hosts.toml"
    hosts.write_text(hosts.read_text().replace("~/.ssh/id_ed25519", str(key)))
    load_inventory(hosts).require_roles(has_target=False, needs_providers=True)


def test_the_profile_of_the_guide_is_usable(folder):
    (profile,) = (block for block in blocks(FOLDER / "index.md", "toml") if block.startswith("[profile]"))
    (folder / "profiled.toml").write_text((folder / "mine.toml").read_text() + profile)
    assert load_scenario("./profiled.toml").profile.to == 2.0


def test_the_snippets_run(tmp_path):
    result = samples.result()
    for name in ("first", "capacity/probe-1"):
        (tmp_path / "results" / name).mkdir(parents=True)
        write_result(result, tmp_path / "results" / name)
    write_document(
        search([probe(1, 100.0, "holds", latency_us=result.latency_us)]),
        tmp_path / "results" / "capacity" / FILE,
    )
    snippets = blocks(FOLDER / "api.md", "python")
    assert len(snippets) == 2
    for snippet in snippets:
        subprocess.run(
            [sys.executable, "-c", snippet], cwd=tmp_path, timeout=60, check=True, stdout=subprocess.DEVNULL
        )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text(encoding="utf-8")):
        target, _, anchor = link.partition("#")
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", found.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {heading.lower().replace(" ", "-") for heading in headings}, link
