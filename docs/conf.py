"""Configuration of Sphinx, which builds the documentation site: `make docs`."""

import sys
from pathlib import Path

from subjectbus import __version__

sys.path.insert(0, str(Path(__file__).parent))

project = "subjectbus"
version = release = __version__
copyright = "the contributors of subjectbus"  # noqa: A001 - Sphinx's name
language = "en"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "extension",
]
exclude_patterns = ["notebooks/*_files"]

# Links to headings have the form that code hosting sites use.
myst_heading_anchors = 4
myst_links_external_new_tab = False

# The Python API: signatures with short names of types, members in the order of their module.
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False

# A page loads nothing from other sites: no fonts, scripts or pictures.
html_theme = "furo"
html_title = f"subjectbus {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "footer_icons": [],
    "light_css_variables": {"color-brand-primary": "#0b5c8a", "color-brand-content": "#0b5c8a"},
    "dark_css_variables": {"color-brand-primary": "#7cc4ec", "color-brand-content": "#7cc4ec"},
}
pygments_style = "friendly"
pygments_dark_style = "github-dark"
