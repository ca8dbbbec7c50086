"""Documents as self-contained pages that open offline."""

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

import jinja2
from markupsafe import Markup

from loadtest.report.document import Document, Reach

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.PackageLoader("loadtest.report", "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
_SCRIPT = files("loadtest.report").joinpath("templates", "charts.js").read_text(encoding="utf-8")
_SCRIPT_HASH = b64encode(sha256(_SCRIPT.encode()).digest()).decode()


def render(document: Document) -> str:
    """Return the document as a page."""
    head, *sections = document.within(Reach.PAGE)
    page = _ENVIRONMENT.get_template("page.html.j2")
    return page.render(
        title=document.title,
        head=head[1],
        sections=sections,
        has_charts=any(block.kind == "Chart" for _, blocks in sections for block in blocks),
        script=Markup(_SCRIPT),  # noqa: S704 - the program's own, and the only one that the page allows
        script_hash=_SCRIPT_HASH,
    )
