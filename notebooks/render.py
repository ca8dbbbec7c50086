"""Runs the notebooks and writes them, with what they show, to docs/notebooks: `make notebooks`."""

import re
import shutil
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbconvert import MarkdownExporter
from traitlets.config import Config

HERE = Path(__file__).resolve().parent
OUT = HERE.parent / "docs" / "notebooks"
TIMEOUT_S = 100


def main() -> None:
    """All notebooks, or those that are named."""
    OUT.mkdir(parents=True, exist_ok=True)
    chosen = [Path(name) for name in sys.argv[1:]] or sorted(HERE.glob("*.ipynb"))
    for path in chosen:
        print(render(path), flush=True)


def render(path: Path) -> Path:
    """Runs a notebook top to bottom; its page, with the drawings in a folder beside it."""
    notebook = nbformat.read(path, as_version=4)
    execute(notebook)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            # Plain text reads as well as a table of HTML, and its changes can be reviewed.
            output.get("data", {}).pop("text/html", None)
    drawings = f"{path.stem}_files"
    exporter = MarkdownExporter()
    body, resources = exporter.from_notebook_node(
        notebook, {"unique_key": path.stem, "output_files_dir": drawings}
    )
    shutil.rmtree(OUT / drawings, ignore_errors=True)
    for name, content in resources["outputs"].items():
        (OUT / name).parent.mkdir(exist_ok=True)
        (OUT / name).write_bytes(content)
    page = OUT / f"{path.stem}.md"
    page.write_text(_tidy(body, path), encoding="utf-8")
    return page


def execute(notebook: nbformat.NotebookNode) -> None:
    """Runs every cell in the notebooks' folder; CellExecutionError where one fails."""
    resources = {"metadata": {"path": str(HERE)}}
    with tempfile.TemporaryDirectory() as folder:
        # Over sockets of the file system: no port is open while it runs.
        config = Config(KernelManager={"transport": "ipc", "ip": f"{folder}/kernel"})
        NotebookClient(notebook, config=config, timeout=TIMEOUT_S, resources=resources).execute()


def _tidy(body: str, path: Path) -> str:
    """Where the page comes from, and no blank line twice, none at a line's end."""
    body = re.sub(r"[ \t]+$", "", body, flags=re.MULTILINE)
    body = re.sub(r"\n{3,}", "\n\n", body).strip()
    return f"<!-- made by `make notebooks` from notebooks/{path.name} -->\n\n{body}\n"


if __name__ == "__main__":
    main()
