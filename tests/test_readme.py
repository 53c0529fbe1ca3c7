"""Checks that tests/test_docs.py lacks: the length of the README, a target of make, and a claim of all pages."""

import json
import subprocess
from pathlib import Path

from tests import pages
from tests.pages import ROOT

README = ROOT / "README.md"


def test_make_eval_accepts_a_recipe_or_the_directory_of_a_run(tmp_path: Path) -> None:
    """`sesame eval` refuses `--scale` with the directory of a run, because the run already has a scale."""

    def printed(recipe: str) -> str:
        return subprocess.run(
            ["make", "-n", "eval", f"RECIPE={recipe}"], cwd=ROOT, capture_output=True, text=True
        ).stdout

    assert "sesame eval gpt2 --scale tiny" in printed("gpt2")
    assert f"sesame eval {tmp_path}" in printed(str(tmp_path))
    assert "--scale" not in printed(str(tmp_path))


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 200


def test_no_page_calls_a_gain_certain_without_a_significance_test() -> None:
    """Pages used to call a gain "beyond the seeds"; without a true effect, one case in eight met that criterion."""
    notebook = json.loads((ROOT / "docs" / "sesame.ipynb").read_text(encoding="utf-8"))
    found = ["".join(cell["source"]) for cell in notebook["cells"]]
    found += [page.read_text(encoding="utf-8") for page in pages.pages()]
    assert not [page for page in found if "beyond the seeds" in page]
    assert any("the p of a two-sided paired t test over the same seeds" in " ".join(page.split()) for page in found)
