"""Run the notebooks and write them with their output to docs/notebooks: `make notebooks`."""

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
    """Render the notebooks that the command line names, or all of them."""
    OUT.mkdir(parents=True, exist_ok=True)
    chosen = [Path(name) for name in sys.argv[1:]] or sorted(HERE.glob("*.ipynb"))
    for path in chosen:
        print(render(path), flush=True)


def render(path: Path) -> Path:
    """Run a notebook and return the path of its page; charts are in a folder beside the page."""
    notebook = nbformat.read(path, as_version=4)
    execute(notebook)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            # Plain text is as readable as an HTML table, and its changes can be reviewed.
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
    """Run all cells of a notebook, with the notebooks' folder as the current folder.

    Raises:
        CellExecutionError: A cell failed.
    """
    resources = {"metadata": {"path": str(HERE)}}
    with tempfile.TemporaryDirectory() as folder:
        # The kernel is reached over Unix sockets, so that no port is open.
        config = Config(KernelManager={"transport": "ipc", "ip": f"{folder}/kernel"})
        NotebookClient(notebook, config=config, timeout=TIMEOUT_S, resources=resources).execute()


def _tidy(body: str, path: Path) -> str:
    """Return a page with a comment on its origin, without repeated blank lines and trailing spaces."""
    body = re.sub(r"[ \t]+$", "", body, flags=re.MULTILINE)
    body = re.sub(r"\n{3,}", "\n\n", body).strip()
    return f"<!-- made by `make notebooks` from notebooks/{path.name} -->\n\n{body}\n"


if __name__ == "__main__":
    main()
