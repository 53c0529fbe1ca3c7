"""What tests/test_docs.py does not check: the length of the README, a target of make, and a claim of all pages."""

import json
import subprocess
from pathlib import Path

from tests import pages
from tests.pages import ROOT

README = ROOT / "README.md"


def test_make_eval_takes_a_recipe_or_the_folder_of_a_run(tmp_path: Path) -> None:
    """A run knows its scale; with --scale beside its folder the command refused."""

    def said(recipe: str) -> str:
        return subprocess.run(
            ["make", "-n", "eval", f"RECIPE={recipe}"], cwd=ROOT, capture_output=True, text=True
        ).stdout

    assert "sesame eval gpt2 --scale tiny" in said("gpt2")
    assert f"sesame eval {tmp_path}" in said(str(tmp_path))
    assert "--scale" not in said(str(tmp_path))


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 200


def test_no_page_calls_a_gain_surer_than_its_test_does() -> None:
    """They said that a gain was "beyond the seeds", which it was in one case of eight without any effect."""
    notebook = json.loads((ROOT / "docs" / "sesame.ipynb").read_text(encoding="utf-8"))
    found = ["".join(cell["source"]) for cell in notebook["cells"]]
    found += [page.read_text(encoding="utf-8") for page in pages.pages()]
    assert not [page for page in found if "beyond the seeds" in page]
    assert any("the p of a two-sided paired t test over the same seeds" in " ".join(page.split()) for page in found)
