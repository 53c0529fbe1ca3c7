"""The page of a step and of documents: it has the values of the terminal, and text never becomes markup."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from orchestration.terminal import html_page
from orchestration.terminal.documents import StoredDocument, read_documents
from orchestration.terminal.html_page import render_documents_page, render_frame, render_step, write_page
from orchestration.terminal.inspect import InspectedStep, inspect_step, render_examples
from preprocessing.errors import BadInput
from preprocessing.tokenization import ShownToken
from tests.training.corpora import gpt, mini_corpus, mini_run, two_sided
from training.run import Run

EVIL = '<script>alert("x")</script>&amp;'
VOID = {"meta", "rect"}


class Page(HTMLParser):
    """The text in each element with the class or tag of interest, after a check that all elements are closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open, self.tags, self.text = list[str](), list[str](), ""
        self.chips: list[tuple[str, str, str]] = []  # class, text and label
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "i":
            self.chips.append((dict(attributes).get("class") or "", "", ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:  # <rect> of SVG has an end tag if it has a title
            assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data if "style" not in self.open else ""
        if "i" in self.open:
            kind, text, label = self.chips[-1]
            self.chips[-1] = (kind, text, label + data) if self.open[-1] == "sub" else (kind, text + data, label)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mini_corpus(tmp_path_factory.mktemp("page") / "corpus")


@pytest.fixture(scope="module")
def run(corpus: Path) -> Run:
    return mini_run(corpus, corpus / "run")


@pytest.fixture(scope="module")
def step(run: Run) -> InspectedStep:
    return inspect_step(run, 3, range(100))


def shown(step: InspectedStep) -> str:
    console = Console(width=100_000, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(render_examples(step.examples))
    return console.export_text()


def test_a_page_has_the_tokens_labels_and_documents_of_the_terminal(step: InspectedStep) -> None:
    assert len(step.examples) == len(step.lengths) == 9
    page = Page(render_step(step, "a title"))
    legend_chips = next(number for number, chip in enumerate(page.chips) if chip[1] == "[CLS]")
    tokens = [(token.text, token.label) for one in step.examples for token in one.shown]
    assert [(text, label) for _, text, label in page.chips[legend_chips:]] == tokens
    kinds = [kind for kind, *_ in page.chips[legend_chips:]]
    names = {"m": "mask", "r": "random", "k": "kept"}
    assert [names.get(kind, "") for kind in kinds] == [change for one in step.examples for change in one.changes]
    terminal = shown(step)
    for one in step.examples:
        assert 0 < one.num_predicted == step.num_predicted[one.number]
        for line in (f"sequence {one.number}", one.pair_label_means, *map(str, one.documents)):
            assert line in page.text
            assert line in terminal


def test_a_document_of_a_token_has_this_token(run: Run, step: InspectedStep, corpus: Path) -> None:
    text = {each.key: each.text.split() for each in read_documents(corpus, 0, 60)}
    for one in step.examples:
        assert [number < 0 for number in one.document_of] == [token in ("[CLS]", "[SEP]") for token in one.tokens]
        for number, document in enumerate(one.documents):
            words = text[document.key]
            assert document.num_tokens == len(words)
            places = [place for place, of in enumerate(one.document_of) if of == number]
            assert len(places) == document.stop - document.start
            for place, word in zip(places, words[document.start : document.stop], strict=True):
                assert (one.labels[place] or one.tokens[place]) == word


def test_a_replaced_token_is_named_by_its_replacement(step: InspectedStep) -> None:
    found = {(change, token == "[MASK]", token == label) for one in step.examples
             for token, label, change in zip(one.tokens, one.labels, one.changes, strict=True) if label}  # fmt: skip
    assert found <= {("mask", True, False), ("random", False, False), ("kept", False, True)}
    assert ("mask", True, False) in found


def test_text_never_becomes_markup_and_the_page_needs_no_other_file(step: InspectedStep) -> None:
    tags = set(Page(render_step(step, "title")).tags)
    one = step.examples[0]
    shown = [ShownToken(" ", EVIL, EVIL, number == 0) for number in range(len(one.shown))]
    documents = tuple(replace(each, source=f"{EVIL}\u202e") for each in one.documents)
    page = render_step(replace(step, examples=[replace(one, shown=shown, documents=documents)]), EVIL)
    assert set(Page(page).tags) <= tags
    assert EVIL in Page(page).text
    assert "\u202e" not in page
    assert "\\u202e" in page
    for outside in ("<script", "http:", "https:", "url(", "@import", "src="):
        assert outside not in page
    frame = render_frame(page)
    assert re.fullmatch(r'<iframe srcdoc="[^"]*" style="[^"]*"></iframe>', frame, re.DOTALL)


def test_pages_of_equal_steps_are_equal_and_describe_the_whole_batch(run: Run, step: InspectedStep) -> None:
    two = inspect_step(run, 3, range(1, 3))
    assert two.examples == step.examples[1:3]
    assert render_step(two, "t") == render_step(inspect_step(run, 3, range(1, 3)), "t")
    page = Page(render_step(two, "t")).text
    assert f"9 sequences · {sum(step.lengths):,} tokens" in page
    assert f"tokens per sequence: {min(step.lengths)} to {max(step.lengths)}, mean" in page
    assert f"{100 * sum(step.lengths) / (9 * 48):.1f} % of the tokens of full sequences of 48" in page
    with pytest.raises(BadInput, match=r"^invalid row: got 9, expected a row from 0 to 8; give one of step 3$"):
        inspect_step(run, 3, range(9, 10))


def test_a_decoder_has_no_labels_and_documents_without_a_separator_between_them(corpus: Path, tmp_path: Path) -> None:
    run = gpt(mini_run(corpus, tmp_path))
    found = inspect_step(run, 0, range(4))
    page = Page(render_step(found, "t"))
    assert not [label for _, _, label in page.chips if label]
    assert all(set(one.changes) == {""} for one in found.examples)
    assert page.tags.count("u") >= sum(len(one.documents) - 1 for one in found.examples)
    assert "predicted (" in page.text


def test_the_source_of_an_encoder_decoder_is_on_the_page(corpus: Path, tmp_path: Path) -> None:
    found = inspect_step(two_sided(mini_run(corpus, tmp_path)), 0, range(2))
    page = Page(render_step(found, "t")).text
    assert page.count("source: ") == page.count("target: ") == 2
    assert all(one.documents and not one.document_of for one in found.examples)
    assert found.is_two_sided
    source, target = sum(found.source_lengths), sum(found.target_lengths)
    assert (source + target, len(found.lengths)) == (sum(found.lengths), 9)
    assert [len(one.source or ()) for one in found.examples] == list(found.source_lengths[:2])
    assert [len(one.tokens) for one in found.examples] == list(found.target_lengths[:2])
    assert f"{source:,} of source and {target:,} of target · {(source + target) / 9:.1f} tokens per sequence" in page
    percent = [100 * part / whole for part, whole in zip(found.num_predicted, found.target_lengths, strict=True)]
    assert f"{sum(found.num_predicted):,} predicted ({100 * sum(found.num_predicted) / target:.1f} %)" in page
    assert f"{found.num_predicted[0]:,} predicted ({percent[0]:.1f} %)" in page
    assert len(set(percent)) == 1  # each token of the target
    assert f"predicted tokens in percent: {percent[0]:.4g} in each" in page
    assert "of full sequences" not in page


def test_documents_have_a_line_for_each_sentence(corpus: Path) -> None:
    documents = read_documents(corpus, 0, 3)
    page = Page(render_documents_page(documents, "t"))
    assert page.tags.count("li") == sum(len(each.sentences) for each in documents) > 3
    assert [text for _, text, _ in page.chips] == [word for each in documents for word in each.text.split()]
    text = StoredDocument("ab" * 16, "test", 7, EVIL, {"url": EVIL}, f"{EVIL}\nanother line")
    page = Page(render_documents_page([text], "t"))
    assert page.text.count(EVIL) == 3
    assert "script" not in page.tags


def test_a_page_has_a_default_name_in_a_directory(tmp_path: Path) -> None:
    assert write_page("x", tmp_path, "step.html") == tmp_path / "step.html"
    assert write_page("y", tmp_path / "mine.html", "step.html").read_text() == "y"
    with pytest.raises(BadInput, match=r"^--html .*no/a\.html: its directory does not exist; create it first$"):
        write_page("x", tmp_path / "no" / "a.html", "step.html")
    closed = tmp_path / "closed"
    closed.mkdir()
    with pytest.MonkeyPatch.context() as patch:

        def refuse(path: Path, content: bytes) -> None:
            raise PermissionError(13, "Permission denied", str(path))

        patch.setattr(html_page, "write_atomic", refuse)  # the user of the tests may be root
        with pytest.raises(
            BadInput, match=r"^--html .*closed/a\.html: cannot be written \(Permission denied\); use another"
        ):
            write_page("x", closed / "a.html", "step.html")
