"""Settings of the documentation site: `make docs` builds it with Sphinx, MyST and furo into build/docs.

The pages are CommonMark and read well as files. No page loads anything from another host: tests/test_docs.py checks
that.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent

project = "Sesame"
author = "the Sesame contributors"
project_copyright = author
version = release = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["**/_*"]
myst_heading_anchors = 4  # `page.md#a-heading`, as a forge names the anchors
myst_enable_extensions: list[str] = []  # CommonMark and tables only

suppress_warnings = ["misc.highlighting_failure"]  # a console block may have a command of several lines

html_theme = "furo"
html_title = f"Sesame {version}"
html_baseurl = ""
html_static_path = ["_static"]
html_css_files = ["wide.css"]  # tables and code blocks of 120 columns fit
html_show_sphinx = False
html_copy_source = False
html_theme_options: dict[str, Any] = {"top_of_page_buttons": []}

TOCTREES = {"decisions/README": "[0-9]*", "results/index": "*"}
"""Patterns of the pages below a page that has no toctree of its own, so that it reads well on a forge."""

_LINK = re.compile(r"(?<!!)\[([^\[\]]*)\]\((\.\.?/[^)#\s]*)(#[^)\s]*)?\)")


def adapt(app: Any, docname: str, content: list[str]) -> None:
    """Serve a file outside of docs/ as a download; show a link to a directory as its text; add a hidden toctree.

    On a forge such links open the file or the directory; the site has no page for them.
    """
    folder = (HERE / docname).parent

    def outside(match: re.Match[str]) -> str:
        target = (folder / match[2]).resolve()
        if target.is_relative_to(HERE):
            return match[0]
        return f"[{match[1]}](path:{match[2]})" if target.is_file() else match[1]

    content[0] = _LINK.sub(outside, content[0])
    if docname in TOCTREES:
        content[0] += f"\n```{{toctree}}\n:hidden:\n:glob:\n\n{TOCTREES[docname]}\n```\n"


def setup(app: Any) -> dict[str, bool]:
    app.connect("source-read", adapt)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
