"""Tasks with generated answers: items, evaluated parts of a text, scores; other tasks as text to text."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from preprocessing.errors import BadInput
from training.evaluation import metrics as measures
from training.evaluation.files import CoqaFormat, JsonlFormat, LinesFormat, Records
from training.evaluation.files.record import RecordFault
from training.evaluation.generation import BeamSearch, GenerationLimits, GreedyDecoding, SampledDecoding
from training.evaluation.tasks import (
    Classification,
    ExtractiveQA,
    Generation,
    GenerationSettings,
    LabeledTask,
    MultipleChoice,
    Regression,
    SplitRecords,
    TaskItem,
    TaskPrompt,
    TextToText,
    as_text,
    build_prompts,
    ids_of,
)
from training.evaluation.tasks.generation import METRICS

TASK = Generation(prompt="{a}\nTL;DR:", answer="{b}", metrics=("bleu", "rouge1", "coqa_f1", "exact"))


def items_of(task: Any, rows: list[dict[str, Any]], **columns: str) -> list[TaskItem]:
    return task.items(Records(rows=list(rows), places=[f"x:{n + 1}" for n in range(len(rows))]), columns)


def test_a_prompt_keeps_its_end_and_an_answer_may_be_a_list() -> None:
    (item,) = items_of(TASK, [{"a": "text", "b": ["one", "two"]}])
    assert item.texts == (TaskPrompt((), "text", "\nTL;DR:"),)
    assert item.gold == ("one", "two")
    assert TASK.target(item) == "one"
    (other,) = items_of(TASK, [{"a": "text", "c": "x"}], prompt="{a} -> {{}}", answer="the {c}!")
    assert (other.texts[0].text, other.gold) == ("text -> {}", ("the x!",))
    (without,) = items_of(TASK, [{"a": "text"}], answer="")
    assert without.gold is None
    with pytest.raises(BadInput, match="x:1: no answer for training"):
        TASK.target(without)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"a": "x"}, "x:1: missing column b; the columns are a"),
        ({"a": ["x"], "b": "y"}, "x:1: invalid a: got ['x'], expected text"),
        ({"a": "x", "b": [{}]}, "x:1: invalid b: got {}, expected text"),
    ],
)
def test_an_invalid_row_is_refused_in_one_line(row: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        items_of(TASK, [row])
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"metrics": ("bleurt",)}, "invalid metrics: got 'bleurt', expected rouge1 or"),
        ({"prompt": "{a!r}"}, "invalid prompt: got '{a!r}', expected a text with columns in braces"),
        ({"prompt": "{a"}, "invalid prompt: got '{a', expected a text with columns in braces"),
    ],
)
def test_invalid_keys_are_refused_in_one_line(keys: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("{", r"\{")):
        Generation(**{"prompt": "{a}", "answer": "{b}"} | keys)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"num_beams": 2, "top_k": 3}, "invalid num_beams: got 2, expected 1 if tokens are sampled"),
        ({"min_new_tokens": 9, "max_new_tokens": 4}, "invalid min_new_tokens: got 9, expected 0 to 4"),
        ({"label_smoothing": 1.0}, "invalid label_smoothing: got 1.0, expected a fraction of at least 0 and below 1"),
        ({"target_mask_prob": 0.0}, "invalid target_mask_prob: got 0.0, expected a fraction above 0"),
        ({"num_fewshot": -1}, "invalid num_fewshot: got -1, expected an integer of at least 0"),
    ],
)
def test_invalid_generation_settings_are_refused_in_one_line(keys: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GenerationSettings(**keys)


def test_generation_settings_give_a_method_and_limits() -> None:
    assert GenerationSettings().method() == GreedyDecoding()
    assert GenerationSettings(num_beams=4, length_penalty=2.0).method() == BeamSearch(num_beams=4, length_penalty=2.0)
    assert GenerationSettings(top_k=2).method() == SampledDecoding(top_k=2)
    assert GenerationSettings(top_p=0.9, temperature=0.7).method() == SampledDecoding(top_p=0.9, temperature=0.7)
    limits = GenerationSettings(max_new_tokens=60, min_new_tokens=10, no_repeat_ngram_size=3, force_eos=True).limits(
        [3], [0, 1]
    )
    assert (limits.no_repeat_ngram_size, limits.no_repeat_in) == (3, "new")  # n-grams of the question may be repeated
    assert replace(limits, no_repeat_ngram_size=0, no_repeat_in="row") == GenerationLimits(
        max_new_tokens=60, min_new_tokens=10, force_eos=True, ends=(3,), barred=(0, 1)
    )
    assert not GenerationSettings(force_eos=True).limits([], []).force_eos


def test_a_model_is_fine_tuned_unless_the_prompt_has_examples_or_the_task_is_zero_shot() -> None:
    assert [GenerationSettings(**keys).tunes for keys in ({}, {"num_fewshot": 1}, {"zero_shot": True})] == [
        True,
        False,
        False,
    ]  # type: ignore[arg-type]


def test_scores_equal_those_of_the_libraries_as_fractions() -> None:
    golds, texts = ["a dog runs fast", "the cat sat on the mat"], ["a dog ran fast", "the cat sat on a mat"]
    items = [TaskItem("x", (), (gold,)) for gold in golds]
    found = Generation(prompt="", answer="", metrics=tuple(METRICS)).scores(items, texts)
    assert found["bleu"] == pytest.approx(measures.bleu(golds, texts).score / 100)
    assert found["chrf"] == pytest.approx(measures.chrf(golds, texts).score / 100)
    for name, value in measures.rouge(golds, texts).items():
        assert found[name] == pytest.approx(value / 100)
    assert found["words"] == 5.0
    numbered = {"0": golds[:1], "1": golds[1:]}
    words = measures.squad1(numbered, dict(zip("01", texts, strict=True)))
    assert (found["f1"], found["exact"]) == pytest.approx((words["f1"] / 100, words["exact"] / 100))
    perfect = Generation(prompt="", answer="", metrics=tuple(METRICS)).scores(items, golds)
    assert all(value == pytest.approx(1) for name, value in perfect.items() if name != "words")


def test_metrics_of_one_library_call_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = list[str]()

    def counts(name: str) -> Any:
        real = getattr(measures, name)
        return lambda *given: [counted.append(name), real(*given)][1]

    for name in ("rouge", "squad1", "bleu"):
        monkeypatch.setattr(measures, name, counts(name))
    task = Generation(prompt="", answer="", metrics=("f1", "rouge1", "rouge2", "exact", "rougeLsum", "bleu"))
    found = task.scores([TaskItem("x", (), ("a b",))], ["a c"])
    assert list(found) == list(task.metrics)
    assert sorted(counted) == ["bleu", "rouge", "squad1"]


def test_rouge_lsum_has_one_sentence_per_line() -> None:
    """Sentences in another order lower rougeL and not rougeLsum, as in scores of summaries."""
    items = [TaskItem("x", (), ("a b c.\nd e f.",))]
    found = Generation(prompt="", answer="", metrics=("rougeL", "rougeLsum")).scores(items, ["d e f. a b c."])
    assert found["rougeLsum"] == pytest.approx(1.0)
    assert found["rougeL"] == pytest.approx(0.5)


def test_notes_contain_signatures_and_empty_texts() -> None:
    items = [TaskItem("x", (), ("a b c d",)), TaskItem("x", (), ("a",))]
    assert TASK.notes(items, ["a b c d", ""])[0].startswith("bleu: nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp")
    assert TASK.notes(items, ["a b c d", ""])[1] == "1 of 2 texts are empty"
    assert TASK.predictions(items, [" a \n", "b"]) == ["a", "b"]


ROUGE = Generation(prompt="{a}", answer="{b}", metrics=("chrf", "rouge1"))
CHINESE = "北京大学 2020 年"


def test_references_in_a_script_that_rouge_drops_are_counted() -> None:
    items = items_of(ROUGE, [{"a": "x", "b": text} for text in (CHINESE, "naïve café", "北京", "?", "so 1")])
    message = "2 of 5 references have mostly letters other than a-z and 0-9, which ROUGE drops; chrF uses all letters"
    assert ROUGE.notes(items, ["x"] * 5)[-1] == message
    assert ROUGE.notes(items[1:2], ["x"]) == [ROUGE.notes(items, ["x"] * 5)[0]]
    plain = Generation(prompt="{a}", answer="{b}", metrics=("chrf",))
    assert message not in plain.notes(items, ["x"] * 5)


def test_references_without_text_for_rouge_are_refused_when_read() -> None:
    rows = [{"a": "x", "b": "北京"}, {"a": "y", "b": "大学 。"}]
    with pytest.raises(BadInput) as caught:
        items_of(ROUGE, rows)
    assert str(caught.value) == (
        "x:1: ROUGE uses only the characters a-z and 0-9, and no gold answer has any (first: '北京'); "
        "set metrics: [chrf]"
    )
    without = Generation(prompt="{a}", answer="", metrics=("rouge1",))
    assert [item.gold for item in items_of(without, rows)] == [None, None]
    assert len(items_of(Generation(prompt="{a}", answer="{b}", metrics=("chrf",)), rows)) == 2


def test_examples_have_the_format_of_gpt2() -> None:
    """english sentence = french sentence (GPT-2 3.7)."""
    task = Generation(
        prompt="{en} =", answer="{fr}", generation=GenerationSettings(num_fewshot=2, instruction="Translate.")
    )
    rows = [{"en": f"dog {n}", "fr": f"chien {n}"} for n in range(5)]
    train, (item,) = items_of(task, rows), items_of(task, [{"en": "cat", "fr": "chat"}])
    (question,) = build_prompts(task, [item], train)
    first, *shown = question.before
    assert first == "Translate.\n"
    assert len(shown) == 2
    assert all(line in {f"dog {n} = chien {n}\n" for n in range(5)} for line in shown)
    assert question.text.endswith("\ncat =")
    assert build_prompts(task, [item, *train[:2]], train)[0] == question


def test_without_room_examples_are_left_out_first() -> None:
    def letters(text: str) -> list[int]:
        return [ord(letter) for letter in text]

    question = TaskPrompt(("ab", "cd"), "efg", "!")
    for room, wanted, cut in ((8, "abcdefg!", ""), (6, "cdefg!", "fewer examples"), (4, "efg!", "fewer examples")):
        ids, actual = ids_of(question, letters, room)
        assert ("".join(map(chr, ids)), actual) == (wanted, cut)
    assert ids_of(question, letters, 3) == (letters("ef!"), "truncated")


# Files.


def test_turns_of_a_conversation_contain_previous_turns_and_all_answers() -> None:
    story = {
        "id": "s",
        "story": "Ada wrote.",
        "questions": [{"input_text": "Who?"}, {"input_text": "What?"}],
        "answers": [{"input_text": "Ada"}, {"input_text": "she wrote"}],
        "additional_answers": {"0": [{"input_text": "Ada."}, {"input_text": "wrote"}]},
    }
    broken = story | {"answers": [{"input_text": "Ada"}]}
    first, second = [found for _, found in CoqaFormat().records(json.dumps({"data": [story]}).encode())]
    assert isinstance(first, dict)
    assert (first["history"], first["answers"]) == ("", ["Ada", "Ada."])
    assert isinstance(second, dict)
    assert second["history"] == "Q: Who?\nA: Ada\n"
    assert (second["turn"], second["answers"]) == (2, ["she wrote", "wrote"])
    for content in (json.dumps({"data": [broken]}).encode(), b"[]"):
        *_, fault = [found for _, found in CoqaFormat().records(content)]
        assert isinstance(fault, RecordFault)
        assert "invalid CoQA format" in fault.why


def test_aligned_files_are_one_record_per_line_and_may_be_outside_the_data_directory(tmp_path: Path) -> None:
    data, beside = tmp_path / "downstream", tmp_path / "text"
    data.mkdir()
    beside.mkdir()
    (beside / "train.en").write_text("dog\ncat\n")
    (beside / "train.de").write_text("Hund\nKatze\n")
    split = SplitRecords(
        paths=("x/train.en", "../text/train.en"), format=LinesFormat(), aligned_files={"de": (".en", ".de")}
    )
    assert split.is_there(data)
    records = split.records(data)
    assert [(row["text"], row["de"]) for row in records.rows] == [("dog", "Hund"), ("cat", "Katze")]
    assert records.places == ["../text/train.en:1", "../text/train.en:2"]
    for shorter in ("Hund\n", ""):
        (beside / "train.de").write_text(shorter)
        with pytest.raises(
            BadInput, match=r"aligned files must end on the same line, but end at .*; give aligned files"
        ):
            split.records(data)
    (beside / "train.de").unlink()
    with pytest.raises(BadInput, match=r"\.\./text/train\.de: no such file"):
        split.records(data)


def test_a_blank_line_in_aligned_files_drops_only_its_own_pair(tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text("dog\n\ncat\nowl\n\n")
    (tmp_path / "a.de").write_text("Hund\nKatze\n \nEule\n")
    records = SplitRecords(paths=("a.en",), format=LinesFormat(), aligned_files={"de": (".en", ".de")}).records(
        tmp_path
    )
    assert [(row["text"], row["de"]) for row in records.rows] == [("dog", "Hund"), ("owl", "Eule")]
    assert records.places == ["a.en:1", "a.en:4"]
    assert records.malformed == [
        "a.en:3: no record at a.de:3",
        "a.de:2: no record on this line of the aligned file",
    ]


# Text to text.

CLASSIFY = Classification(
    text="a", text_pair="b", label="c", labels=("no", "yes", "maybe"), metrics=("accuracy", "macro_f1")
)
KINDS: dict[str, tuple[LabeledTask, list[dict[str, Any]], list[str], list[str]]] = {
    "classification": (
        CLASSIFY,
        [{"a": "p", "b": "h", "c": "yes"}, {"a": "q", "b": "i", "c": "no"}],
        ["mine sentence1: p sentence2: h", "mine sentence1: q sentence2: i"],
        ["yes", "no"],
    ),
    "regression": (
        Regression(text="a", label="c", min_value=0, max_value=5),
        [{"a": "p", "c": "2.57"}, {"a": "q", "c": "4"}, {"a": "r", "c": "0"}],
        ["mine sentence: p", "mine sentence: q", "mine sentence: r"],
        ["2.6", "4.0", "0.0"],
    ),
    "multiple_choice": (
        MultipleChoice(context="a", question="q", choices=("x", "y"), label="c", labels=("0", "1")),
        [{"a": "p", "q": "why", "x": "one", "y": "two", "c": 1}],
        ["mine context: p question: why choice1: one choice2: two"],
        ["choice2"],
    ),
    "extractive_qa": (
        ExtractiveQA(squad_version=2),
        [
            {"id": "1", "question": "who", "context": "Ada wrote", "answers": ["Ada", "she"], "starts": [0, 0]},
            {"id": "2", "question": "why", "context": "Ada wrote", "answers": [], "starts": []},
        ],
        ["mine question: who context: Ada wrote", "mine question: why context: Ada wrote"],
        ["Ada", "unanswerable"],
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_target_text_gets_the_full_score(kind: str) -> None:
    of, rows, sources, targets = KINDS[kind]
    task = as_text(of, "mine")  # type: ignore[arg-type]
    items = items_of(task, rows)
    assert [task.question(item).text for item in items] == sources
    assert [task.target(item) for item in items] == targets
    predictions = task.predictions(items, [target.upper().replace("_", " _ ") for target in targets])
    scores = task.scores(items, predictions)
    assert scores.keys() >= set(of.metrics)
    assert all(value == pytest.approx(1, abs=0.02) for value in scores.values()), scores
    wrong = task.scores(items, task.predictions(items, ["nonsense"] * len(items)))
    if kind != "regression":
        assert wrong[of.metrics[0]] == 0
    json.dumps(predictions)


def test_a_text_that_is_not_a_label_is_wrong_and_counted() -> None:
    task = TextToText(task=CLASSIFY, label_words={"no": "nein", "yes": "ja"})
    items = items_of(task, [{"a": "p", "b": "h", "c": label} for label in ("yes", "no", "no")])
    predictions = task.predictions(items, ["ja", "no", "NEIN"])
    assert predictions == ["yes", "", "no"]
    assert task.scores(items, predictions)["accuracy"] == pytest.approx(2 / 3)
    assert task.notes(items, predictions) == ["1 of 3 texts are not one of the labels"]
    f1 = Classification(text="a", label="c", labels=("0", "1"), metrics=("f1", "matthews"))
    both = items_of(TextToText(task=f1), [{"a": "p", "c": label} for label in "1100"])
    found = TextToText(task=f1).scores(both, ["1", "", "0", ""])
    assert found["f1"] == pytest.approx(0.5)  # one of two found, and one of two predictions is wrong
    assert TextToText(task=f1).scores(both[1:], ["1", "", ""])["f1"] == pytest.approx(0.5)
    three = items_of(task, [{"a": "p", "b": "h", "c": label} for label in ("yes", "no", "maybe", "maybe")])
    macro = task.scores(three, ["yes", "no", "maybe", ""])["macro_f1"]
    assert macro == pytest.approx((1 + 1 + 2 / 3) / 3)  # of three classes, not four
    numbers = KINDS["regression"][0]
    assert as_text(numbers, "x").predictions([], ["3 . 5", "many", "nan"]) == [3.5, -1, -1]  # type: ignore[arg-type]


def test_invalid_label_words_are_refused_in_one_line() -> None:
    with pytest.raises(
        ValueError, match="invalid label_words: got 'ja', expected labels of the task: no or yes or maybe"
    ):
        TextToText(task=CLASSIFY, label_words={"ja": "yes"})
    with pytest.raises(ValueError, match="expected a different word for each label"):
        TextToText(task=CLASSIFY, label_words={"no": "yes"})
    task = TextToText(task=CLASSIFY, fields=("premise",))
    with pytest.raises(BadInput, match="expected 2 names, one per text"):
        task.question(items_of(task, [{"a": "p", "b": "h", "c": "yes"}])[0])


def test_items_of_json_lines_have_their_line_as_place(tmp_path: Path) -> None:
    (tmp_path / "dev.jsonl").write_text('{"a": "p", "b": "q"}\n\n{"a": "r", "b": "s"}\n')
    records = SplitRecords(paths=("dev.jsonl",), format=JsonlFormat()).records(tmp_path)
    assert [item.place for item in TASK.items(records, {})] == ["dev.jsonl:1", "dev.jsonl:3"]
    assert np.array_equal([len(item.gold) for item in TASK.items(records, {})], [1, 1])


def test_rouge_splits_lines_only_at_line_feeds() -> None:
    """A line separator inside a sentence used to split it into two."""
    scores = METRICS["rougeLsum"]([["a b\u2028c d\nx"]], ["c d a b\nx"])
    assert scores["rougeLsum"] == pytest.approx(3 / 5)
