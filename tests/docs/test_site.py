"""The built site: no warning, all names and pages, nothing from elsewhere, links that lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

import click
import pytest
from markdown_it import MarkdownIt
from myst_parser.slugs import github_slugify

import loadtest
import subjectbus
from subjectbus.cli import cli
from subjectbus.errors import SubjectbusError
from tests.docs.pages import DOCS, pages
from tests.servers import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("site")]

BY_HAND = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
LOADED = {("script", "src"), ("link", "href"), ("img", "src"), ("source", "src"), ("iframe", "src")}


class Link(NamedTuple):
    """A link of a page; `is_loaded` if a browser fetches it by itself."""

    page: Path
    target: str
    is_loaded: bool


class Page(HTMLParser):
    """The links and anchors of an HTML page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.links: list[Link] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name in ("href", "src"):
                self.links.append(Link(self.path, value, (tag, name) in LOADED))
            if name == "id" or (tag, name) == ("a", "name"):
                self.anchors.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it: a warning is an error."""
    folder = tmp_path_factory.mktemp("docs")
    done = subprocess.run(
        [
            # -P: the checkout has sources without the built extension.
            *(sys.executable, "-P", "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"),
            *("--doctree-dir", folder / "doctrees", DOCS, folder / "site"),
        ],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def found(site: Path) -> dict[Path, Page]:
    """The pages of the site, by their path."""
    return {path: Page(path) for path in site.rglob("*.html")}


def test_every_page_is_built(site: Path, found: dict[Path, Page]) -> None:
    made = {path.relative_to(site).with_suffix(".md") for path in found}
    written = {path.relative_to(DOCS) for path in DOCS.rglob("*.md")}
    assert written <= made
    assert {path.name for path in (site / "schemas").iterdir()} == {
        *(f"{name}.schema.json" for name in ("broker", "hosts", "result", "scenario")),
        "openapi.json",
    }


def test_links_within_the_site_have_a_target(site: Path, found: dict[Path, Page]) -> None:
    wrong = []
    links = [link for page in found.values() for link in page.links if not urlsplit(link.target).scheme]
    assert len(links) > len(found)
    for link in links:
        url = urlsplit(link.target)
        target = (link.page.parent / unquote(url.path)).resolve() if url.path else link.page
        anchors = found[target].anchors if target in found else {url.fragment}
        if url.netloc or not target.is_file() or unquote(url.fragment) not in anchors | {""}:
            wrong.append(link)
    assert wrong == []
    assert all(path.is_relative_to(site) for path in found)


def test_links_to_other_sites_are_complete_urls(found: dict[Path, Page]) -> None:
    others = {link.target for page in found.values() for link in page.links if urlsplit(link.target).scheme}
    others = {target for target in others if not target.startswith("data:")}
    assert others
    assert [target for target in others if not re.fullmatch(r"https://[\w.-]+(/\S*)?", target)] == []


def test_pages_load_nothing_from_other_sites(site: Path, found: dict[Path, Page]) -> None:
    """No font, script or picture: the site can be read without a network."""
    loaded = [link.target for page in found.values() for link in page.links if link.is_loaded]
    assert loaded
    assert [target for target in loaded if urlsplit(target).netloc] == []
    sheets = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert sheets
    for sheet in sheets:
        assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^)\"']+", sheet) == []


def test_the_python_reference_has_every_public_name(site: Path, found: dict[Path, Page]) -> None:
    anchors = found[site / "reference" / "python.html"].anchors
    text = (site / "reference" / "python.html").read_text(encoding="utf-8")
    for module in (subjectbus, loadtest):
        for name in module.__all__:
            is_error = name.endswith("Error")
            if name.startswith("__"):
                continue
            shown = (
                f'<span class="pre">{name}</span>' in text
                if is_error
                else f"{module.__name__}.{name}" in anchors
            )
            assert shown, f"{module.__name__}.{name}"


def test_the_page_of_exit_statuses_lists_the_statuses_of_all_errors() -> None:
    def statuses(error: type[SubjectbusError]) -> set[int]:
        return {error.exit_status}.union(*(statuses(kind) for kind in error.__subclasses__()))

    page = (DOCS / "reference" / "exit-status.md").read_text(encoding="utf-8")
    listed = {int(status) for status in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    columns = {int(status) for status in re.findall(r"\b\d+\b", page.split("| Command |")[1].splitlines()[0])}
    assert loadtest.HostError.exit_status in statuses(SubjectbusError)
    assert statuses(SubjectbusError) <= listed | columns
    commands = {name for name in cli.list_commands(click.Context(cli)) if name != "config"}
    assert {word for word in commands if f"`{word}" not in page} == set()


@cache
def headings(path: Path) -> set[str]:
    """The anchors of a Markdown file's headings."""
    tokens = MarkdownIt().parse(path.read_text(encoding="utf-8"))
    texts = [after.content for token, after in pairwise(tokens) if token.type == "heading_open"]
    return {github_slugify(re.sub(r"[`*]|\]\([^)]*\)|\[", "", text)) for text in texts}


def targets(path: Path) -> Iterator[str]:
    """The targets of all links and pictures of a Markdown file."""
    for token in MarkdownIt("gfm-like", {"linkify": False}).parse(path.read_text(encoding="utf-8")):
        for child in token.children or []:
            target = child.attrs.get("href") or child.attrs.get("src")
            if target:
                yield str(target)


@pytest.mark.parametrize("page", [*BY_HAND, *pages()[1:]], ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_in_the_source_files_have_a_target(page: Path) -> None:
    """As people follow them who read the files and not the site."""
    for target in targets(page):
        url = urlsplit(target)
        if url.scheme:
            continue
        file = (page.parent / unquote(url.path)).resolve() if url.path else page
        assert file.exists(), target
        if url.fragment and file.suffix == ".md":
            assert url.fragment in headings(file), target
