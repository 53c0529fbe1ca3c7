"""Write the generated pages of the documentation: `python -m docs.generate`, from the root of the checkout.

It ends with 1 if a page differed from what its generator returns. `--check` compares and writes nothing.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import typer

from orchestration.cli import app
from orchestration.reports import doc_pages, reference_pages, renames_page

ROOT = Path(__file__).resolve().parents[1]


def reference() -> Mapping[str, str]:
    return reference_pages.pages(typer.main.get_command(app))


def decisions() -> Mapping[str, str]:
    """The index of the decisions, and how recipes differ from their papers."""
    return {
        doc_pages.DEVIATIONS.as_posix(): doc_pages.deviations_page(),
        doc_pages.INDEX.as_posix(): doc_pages.decisions_index(ROOT),
    }


def renames() -> Mapping[str, str]:
    return {f"{reference_pages.FOLDER}/renames.md": renames_page.renames_page()}


GENERATORS: tuple[Callable[[], Mapping[str, str]], ...] = (reference, decisions, renames)
"""Functions that return pages by their path in the checkout. Append a generator here."""


def generated() -> dict[str, str]:
    """All generated pages, by their path in the checkout."""
    made = {path: text for generator in GENERATORS for path, text in generator().items()}
    return {f"{reference_pages.FOLDER}/index.md": reference_pages.index(made), **made}


def main(words: list[str]) -> int:
    """Write the pages that differ, or with --check name them."""
    differing = []
    for path, text in generated().items():
        file = ROOT / path
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            differing.append(path)
            if "--check" not in words:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
    for path in differing:
        what = "differs from its generator" if "--check" in words else "differed from its generator and was rewritten"
        print(f"{path} {what}; run `python -m docs.generate` and commit the page", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
