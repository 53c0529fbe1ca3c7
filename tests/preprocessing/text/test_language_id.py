"""Language identification works without a network and gives the same result on every machine."""

from pathlib import Path

import pytest

from preprocessing.text import LANGUAGES, language, language_id, nearest_code
from preprocessing.text.language_id import UNKNOWN

ENGLISH = "The treaty was signed in silence yesterday, and nobody in the capital took notice of it."
GERMAN = "Der Vertrag wurde gestern in aller Stille unterschrieben, und niemand in der Hauptstadt nahm davon Notiz."
CHINESE = "\u4eca\u5929\u5929\u6c14\u5f88\u597d\uff0c\u6211\u4eec\u53bb\u516c\u56ed\u5427\u3002"
BULGARIAN = (
    "\u0414\u043e\u0433\u043e\u0432\u043e\u0440\u044a\u0442 \u0431\u0435\u0448\u0435 "
    "\u043f\u043e\u0434\u043f\u0438\u0441\u0430\u043d \u0432\u0447\u0435\u0440\u0430 "
    "\u0432 \u043f\u044a\u043b\u043d\u0430 \u0442\u0438\u0448\u0438\u043d\u0430."
)


@pytest.mark.parametrize(("code", "text"), [("en", ENGLISH), ("de", GERMAN), ("zh", CHINESE), ("bg", BULGARIAN)])
def test_a_sentence_is_enough(code: str, text: str) -> None:
    found, probability = language(text)
    assert found == code
    assert 0.8 < probability <= 1


def test_a_text_in_two_languages_is_less_certain_than_in_one() -> None:
    found, probability = language(f"{ENGLISH} {GERMAN}")
    assert found in ("en", "de")
    assert probability < min(language(ENGLISH * 2)[1], language(GERMAN * 2)[1])


def test_the_beginning_of_a_long_text_determines_its_language() -> None:
    assert language(f"{GERMAN * 10} {ENGLISH * 50}")[0] == "de"
    assert language(GERMAN * 10) == language(GERMAN * 10 + ENGLISH)


def test_a_single_word_is_uncertain() -> None:
    assert language("Hello")[1] < 0.5


@pytest.mark.parametrize("text", ["", "1984 - 2001, 3:0", "\n\n...", "\U0001f600"])
def test_a_text_without_letters_has_no_language(text: str) -> None:
    assert language(text) == (UNKNOWN, 0.0)


@pytest.mark.parametrize("text", ["\ud800 broken", "a\x00b", "\U0010ffff letters", "x" * 100_000])
def test_any_text_has_a_probability(text: str) -> None:
    assert 0 <= language(text)[1] <= 1


def test_the_result_is_independent_of_previous_calls() -> None:
    first = language(ENGLISH)
    language(CHINESE)
    assert language(ENGLISH) == first


def test_the_listed_codes_are_those_of_the_model() -> None:
    assert {*language_id._identifier().labels, UNKNOWN} == LANGUAGES
    page = (Path(__file__).parents[3] / "docs/guides/corpora.md").read_text(encoding="utf-8")
    listed = page.partition("All codes: ")[2].partition(".")[0].replace("`", "").split()
    assert listed == sorted(LANGUAGES)


@pytest.mark.parametrize(
    ("name", "code"),
    [("EN", "en"), ("eng", "en"), (" English", "en"), ("de_DE", "de"), ("zh-Hant", "zh"), ("swe", "sv"), ("xx", "")],
)
def test_the_nearest_code_of_other_names(name: str, code: str) -> None:
    assert nearest_code(name) == code


def test_other_names_are_not_codes_and_name_one_code_each() -> None:
    assert language_id._OTHER_NAMES.keys() <= LANGUAGES
    assert not language_id._CODE_OF.keys() & LANGUAGES
    assert len(language_id._CODE_OF) == sum(map(len, language_id._OTHER_NAMES.values()))
