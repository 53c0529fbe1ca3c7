"""The page of questions: text is never markup, the page loads nothing, and it is bounded."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from orchestration.reports import AnswerPage, questions_page
from orchestration.reports.questions_page import page as page_module
from training.evaluation.tasks import Classification, LoglikelihoodChoice, question_of, show_answer
from training.evaluation.tasks.labeled_task import TaskItem
from training.evaluation.tasks.loglikelihood_choice import LikelihoodOptions

HOSTILE = "<script>alert(1)</script><img src=x onerror=y> & \" ' \u202e {{ braces }}"
SST = Classification(text="a", label="b", labels=("0", "1"))
PIQA = LoglikelihoodChoice(choices=("{a}", "{b}"))


class Tags(HTMLParser):
    """Counts tags, and collects attributes and visible text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def labels_page(count: int, *models: str, text: str = "a film") -> AnswerPage:
    questions = [question_of(SST, TaskItem(f"dev.tsv:{n}", (f"{text} {n}",), n % 2)) for n in range(count)]
    return AnswerPage("sst2", questions, {name: (SST, [str(at)] * count) for at, name in enumerate(models)})


def choice(nats: list[float]) -> AnswerPage:
    options = LikelihoodOptions(("To sit,",) * 2, (" use a chair.", " use a cloud."), ("use a chair.", "use a cloud."))
    question = question_of(PIQA, TaskItem("piqa.jsonl:1", (options,), 0))
    return AnswerPage("piqa", [question], {"gpt2": (PIQA, [{"answer": "use a chair.", "nats": nats}])})


def test_text_of_questions_never_acts_as_markup() -> None:
    html = questions_page(HOSTILE, [labels_page(2, "gpt2", text=HOSTILE)])
    found = Tags(html)
    assert (found.tags.count("script"), found.tags.count("img")) == (1, 0)
    assert "\u202e" not in html
    assert any("<script>alert(1)</script>" in text for text in found.text)
    script = html[html.rindex("<script>") :]
    assert "innerHTML" not in script
    assert "alert" not in script


def test_the_page_loads_nothing() -> None:
    html = questions_page("Questions", [labels_page(2, "gpt2")])
    names = {name for name, _ in Tags(html).attributes}
    assert not names & {"src", "href", "onclick", "action"}
    assert not re.search(r"https?:|@import|url\(|fetch\(", html)
    assert "default-src 'none'" in html


def test_each_control_has_a_label_and_the_result_is_announced() -> None:
    html = questions_page("Questions", [labels_page(2, "gpt2")])
    controls = re.findall(r"<label[^>]*>[a-z]+ <(?:select|input) id=\"(\w+)\"", html)
    assert controls == ["task", "outcome", "order", "search"]
    assert 'role="status" aria-live="polite"' in html
    assert '<html lang="en">' in html


def test_a_page_is_bounded_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "MOST", 10)
    html = questions_page("Questions", [labels_page(100, "gpt2")])
    assert html.count("<article") == 10
    assert "at most 10 questions of a task" in html
    assert "50 of 100 (50.0 %)" in html
    long = questions_page("Questions", [labels_page(1, "gpt2", text="x" * 5_000)])
    assert "... (3,502 characters left out)" in long


def test_likelihoods_are_bars_and_the_margin_is_shown() -> None:
    html = questions_page("Questions", [choice([-1.0, -1.0 - 1.0986123])])
    assert 'style="width:75.0%"' in html
    assert 'style="width:25.0%"' in html
    assert "-1.000 nats, 75.0 %" in html
    assert "margin +1.099" in html
    assert 'data-margin="1.09861"' in html


def test_two_models_are_side_by_side_and_flips_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "MOST", 4)
    same = labels_page(50, "one", "two")
    kind, predictions = same.models["one"]
    pages = AnswerPage("sst2", same.questions, {"one": (kind, predictions), "two": (kind, ["1", "1", *["0"] * 48])})
    html = questions_page("Questions", [pages])
    assert html.count('data-outcome="right wrong"') == html.count('data-outcome="wrong right"') == 1
    assert "flips: only one model is right" in html
    with pytest.raises(ValueError, match="different models"):
        questions_page("Questions", [same, choice([-1.0, -2.0])])


def test_the_page_names_the_seed_of_its_answers() -> None:
    """The table has the median over three seeds, the page the answers of one of them."""
    several = replace(labels_page(4, "gpt2"), trial="seed 0, one of 3 seeds")
    html = questions_page("Questions", [several])
    assert "<td>seed 0, one of 3 seeds</td>" in html
    assert "the table of scores has the median over all seeds" in html
    assert "answers of" not in questions_page("Questions", [labels_page(4, "gpt2")])


def test_a_task_with_damaged_values_is_named_and_others_are_shown() -> None:
    damaged = AnswerPage("copa", [{"place": "x:1", "gold": 0}], {"gpt2": (PIQA, [{"answer": "a", "nats": [-1.0]}])})
    html = questions_page("Questions", [labels_page(2, "gpt2"), damaged], ["squad1"])
    assert "values of their questions are missing: squad1, copa (&#39;texts&#39;)" in html
    assert html.count("<article") == 2


@pytest.mark.parametrize(
    ("question", "prediction", "correct"),
    [
        ({"texts": ["a"], "gold": "1"}, "1", True),
        ({"texts": ["a"], "gold": "1"}, "0", False),
        ({"texts": ["a"], "gold": None}, "0", None),
        ({"texts": ["a"], "gold": 2.5}, 2.4, None),
        ({"texts": [["a", "b"]], "gold": ["O", "B-X"]}, ["O", "B-X"], True),
        ({"texts": ["a ___ b"], "gold": "x"}, {"answer": "y", "choices": ["y", "x"], "correct": False}, False),
        ({"texts": ["a"], "gold": ["x", "y"]}, "y", True),
        ({"texts": ["a"], "gold": "x"}, {"left_out": "too long"}, None),
    ],
)
def test_answers_are_right_wrong_or_neither(question: dict[str, Any], prediction: Any, correct: bool | None) -> None:
    assert show_answer(None, question, prediction).correct is correct
