"""The notebooks: stripped in the repository, run top to bottom on their data, rendered into the docs."""

from __future__ import annotations

import base64
import importlib.util
import io
import json
import re
from typing import TYPE_CHECKING

import nbformat
import pytest
from PIL import Image

from loadtest import load_capacity, load_run
from tests.servers import ROOT

if TYPE_CHECKING:
    from types import ModuleType

HERE = ROOT / "notebooks"
NOTEBOOKS = sorted(HERE.glob("*.ipynb"))
PAGES = ROOT / "docs" / "notebooks"
MOST_BYTES = 300_000
#: Folders of machines, in a command, a path or a message.
MACHINE_PATH = re.compile(r"(?<![\w:/.])/(?:home|root|tmp|work|opt|usr|var|mnt|srv|Users)/")
LEAST_COLOURS = 20


def read(path):
    return nbformat.read(path, as_version=4)


def words_of(text):
    return re.sub(r"\s+", " ", text).strip()


def code_of(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.fixture(scope="module")
def render() -> ModuleType:
    spec = importlib.util.spec_from_file_location("render", HERE / "render.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def own_profile(tmp_path, monkeypatch):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))


def test_there_is_a_notebook_for_each_question():
    assert [path.stem for path in NOTEBOOKS] == [
        "01_single_run",
        "02_capacity",
        "03_transports",
        "04_against_peers",
        "05_million",
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stripped(path):
    notebook = read(path)
    nbformat.validate(notebook)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert notebook.metadata.language_info == {"name": "python"}
    for cell in notebook.cells:
        assert cell.metadata == {}
    for cell in code_of(notebook):
        assert cell.outputs == []
        assert cell.execution_count is None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_use_public_names_only(path):
    lines = [line for cell in code_of(read(path)) for line in cell.source.splitlines()]
    imports = [line for line in lines if re.match(r"\s*(import|from)\s", line)]
    assert any(line.startswith("from loadtest import ") for line in imports)
    assert not [line for line in imports if "loadtest." in line or "subjectbus" in line]


@pytest.mark.process
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run_completely_and_show_output(path, render):
    notebook = read(path)
    render.execute(notebook)
    outputs = [output for cell in code_of(notebook) for output in cell.outputs]
    assert [
        output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"
    ] == []
    drawings = [output.data["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    assert len(drawings) >= 2
    for drawing in drawings:
        image = Image.open(io.BytesIO(base64.b64decode(drawing))).convert("RGB")
        assert len(image.getcolors(1 << 24)) > LEAST_COLOURS, "a blank drawing"
    said = "".join(
        output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in outputs
    )
    assert said
    assert not MACHINE_PATH.search(said)
    page = words_of((PAGES / f"{path.stem}.md").read_text(encoding="utf-8"))
    for output in outputs:
        assert words_of(output.get("text", "")) in page, "run `make notebooks`"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_page_of_a_notebook_is_up_to_date(path):
    page = (PAGES / f"{path.stem}.md").read_text(encoding="utf-8")
    for cell in read(path).cells:
        assert words_of(cell.source) in words_of(page), "run `make notebooks`"
    shown = set(re.findall(r"!\[png\]\((.*?)\)", page))
    assert shown == {
        f"{path.stem}_files/{drawing.name}" for drawing in (PAGES / f"{path.stem}_files").iterdir()
    }
    assert len(shown) >= 2
    assert not MACHINE_PATH.search(page)


@pytest.mark.parametrize("path", sorted((HERE / "data").iterdir()), ids=lambda path: path.name)
def test_the_data_is_small_and_has_no_paths_of_a_machine(path):
    files = [file for file in path.rglob("*") if file.is_file()]
    assert {file.name for file in files} <= {"result.json", "capacity.json"}
    assert sum(file.stat().st_size for file in files) < MOST_BYTES
    for file in files:
        assert not MACHINE_PATH.search(file.read_text(encoding="utf-8")), file
        content = json.loads(file.read_text(encoding="utf-8"))
        assert {host["name"] for host in content.get("hosts", [])} <= {"this machine"}
        load = load_run if file.name == "result.json" else load_capacity
        assert load(file.parent)
