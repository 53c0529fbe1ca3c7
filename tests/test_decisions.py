"""The records of decisions: their form, their links, and the pages generated from them and from recipes."""

import re
from pathlib import Path

from orchestration.reports.doc_pages import (
    DECISIONS,
    DEVIATIONS,
    DIFFERS,
    INDEX,
    RECIPES,
    UNSTATED,
    decisions,
    decisions_index,
    deviations,
    deviations_page,
)
from tests.for_all import for_all

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / DECISIONS).glob("[0-9]*.md"))
MOST_WORDS = 150
HEADINGS = ["Context", "Decision", "Consequences"]
STATUS = re.compile(r"accepted|rejected|superseded by \[(\d{4})\]\((\1-[a-z0-9-]+\.md)\)")
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)+\.(?:py|md|yaml|toml|json|tsv|sh|ipynb))`")

each = for_all(FILES, name=lambda path: path.stem)


def fields(path: Path) -> dict[str, str]:
    return dict(re.findall(r"^- (\w+): (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE))


def test_numbers_have_no_gaps() -> None:
    assert [path.name[:4] for path in FILES] == [f"{number:04d}" for number in range(1, len(FILES) + 1)]
    assert not [path for path in (ROOT / DECISIONS).iterdir() if path not in FILES and path != ROOT / INDEX]


def test_titles_are_unique_and_dates_in_order() -> None:
    found = decisions(ROOT)
    assert len({one.title for one in found}) == len(found)
    assert [one.date for one in found] == sorted(one.date for one in found)


@each
def test_a_decision_has_its_parts_in_order_and_at_most_150_words(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    head, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    title, *rest = [line for line in head.splitlines() if line]
    assert title.startswith("# ")
    assert rest[0] == f"- Date: {fields(path)['Date']}"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", fields(path)["Date"])
    assert rest[1] == f"- Status: {fields(path)['Status']}"
    assert [line.partition(":")[0] for line in rest[2:]] in ([], ["- Supersedes"])
    assert [section.partition("\n")[0] for section in sections] == HEADINGS
    assert all(section.partition("\n")[2].strip() for section in sections)
    assert len(text.split()) <= MOST_WORDS


@each
def test_a_title_is_an_imperative_sentence(path: Path) -> None:
    """Check this partly: no article, gerund or participle comes first, and rejected decisions begin with "Do not"."""
    title = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
    first = title.split()[0]
    assert re.fullmatch(r"[A-Z][a-z]+(-[a-z]+)?", first)
    assert first not in {"The", "A", "An"}
    assert not first.endswith(("ing", "ed"))
    assert not title.endswith(".")
    assert title.startswith("Do not ") == (fields(path)["Status"] == "rejected")


@each
def test_a_status_is_known_and_superseded_decisions_link_both_ways(path: Path) -> None:
    known = fields(path)
    status = STATUS.fullmatch(known["Status"])
    assert status, known["Status"]
    if status[1]:
        successor = path.with_name(status[2])
        assert fields(successor)["Supersedes"] == f"[{path.name[:4]}]({path.name})"
        assert fields(successor)["Date"] >= known["Date"]
    if earlier := known.get("Supersedes"):
        link = LINK.fullmatch(earlier)
        assert link
        assert fields(path.with_name(link[1]))["Status"] == f"superseded by [{path.name[:4]}]({path.name})"


@for_all([*FILES, ROOT / INDEX, ROOT / DEVIATIONS, ROOT / "DESIGN.md"], name=lambda path: path.stem)
def test_links_and_paths_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for link in LINK.findall(text):
        assert "://" in link or (path.parent / link).is_file(), link
    for named in PATH.findall(text):
        assert (ROOT / named).is_file(), named


def test_generated_pages_are_up_to_date() -> None:
    """`python -m docs.generate` writes them."""
    assert (ROOT / INDEX).read_text(encoding="utf-8") == decisions_index(ROOT)
    assert (ROOT / DEVIATIONS).read_text(encoding="utf-8") == deviations_page()


def test_each_marked_comment_of_a_recipe_is_on_the_page() -> None:
    marked = re.compile(rf"# (?:{DIFFERS}|{UNSTATED})\b")
    written = sum(len(marked.findall(path.read_text(encoding="utf-8"))) for path in RECIPES.glob("*.yaml"))
    assert written == len(deviations()) > 0


def test_comments_of_recipes_that_name_the_paper_have_one_of_the_two_marks() -> None:
    almost = re.compile(rf"# (?!(?:{DIFFERS}|{UNSTATED}): )(?=differs from|not in the paper)", re.IGNORECASE)
    assert not [path.name for path in RECIPES.glob("*.yaml") if almost.search(path.read_text(encoding="utf-8"))]
