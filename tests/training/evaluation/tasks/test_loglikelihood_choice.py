"""Likelihood tasks: requests, prompts, ties, means over subsets, and invalid files."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from preprocessing.errors import BadInput
from training.evaluation.files import JsonlFormat, LineBlockFormat, Records, TsvFormat
from training.evaluation.likelihood import LogP, NGramLikelihood, Request, fit
from training.evaluation.tasks import Kinds, question_of, restore_answer, restore_item, restore_kind, show_answer
from training.evaluation.tasks.labeled_task import TaskItem
from training.evaluation.tasks.loglikelihood_choice import METRICS, LikelihoodChoice, LoglikelihoodChoice, interval
from training.evaluation.tasks.split import SplitRecords

FILES = {
    "dev": SplitRecords(paths=("dev.jsonl",), format=JsonlFormat()),
    "train": SplitRecords(paths=("train.jsonl",), format=JsonlFormat()),
}


def items(task: LoglikelihoodChoice, folder: Path, *records: Any, split: str = "dev") -> list[TaskItem]:
    """Write these records to a file of the task, and return their items."""
    (folder / f"{split}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return task.items(FILES[split].records(folder), {})


def by_length(requests: Sequence[Request]) -> list[LogP]:
    """A model that gives short continuations a high probability."""
    return [LogP(-float(len(each.continuation)), 1 + each.continuation.count(" "), False) for each in requests]


BOOLQ = LoglikelihoodChoice(
    context="{passage}\nQuestion: {question}?\nAnswer:",
    choices=("no", "yes"),
    label="answer",
    labels=("False", "True"),
    unconditional_context="Answer:",
    metrics=("accuracy", "accuracy_unconditional"),
)
RAIN = {"passage": "It rains.", "question": "is it dry", "answer": False}
SNOW = {"passage": "It snows.", "question": "is it cold", "answer": True}


def test_the_prompt_is_filled_in_and_combined_with_each_choice(tmp_path: Path) -> None:
    asked = BOOLQ.make_requests(items(BOOLQ, tmp_path, RAIN))
    text = "It rains.\nQuestion: is it dry?\nAnswer:"
    assert asked.requests == [(text, " no"), (text, " yes"), ("Answer:", " no"), ("Answer:", " yes")]
    assert (asked.at, asked.alone_at, asked.prompts) == ([(0, 1)], [(2, 3)], [""])


def test_accuracy_is_reported_with_majority_and_chance(tmp_path: Path) -> None:
    found = items(BOOLQ, tmp_path, RAIN, RAIN | {"passage": "It pours."}, SNOW)
    chosen = BOOLQ.score_choices(BOOLQ.make_requests(found), by_length)
    scores = BOOLQ.scores(found, chosen)
    assert [each["answer"] for each in BOOLQ.predictions(found, chosen)] == ["no", "no", "no"]
    assert BOOLQ.predictions(found, chosen)[0]["nats"] == [-3.0, -4.0]
    assert scores["accuracy"] == pytest.approx(2 / 3)
    assert (scores["majority"], scores["chance"], scores["ties"]) == (pytest.approx(2 / 3), 0.5, 0.0)
    # after "Answer:" the model gives the same scores, so that their difference is zero
    assert (scores["accuracy_unconditional"], scores["ties_unconditional"]) == (0.5, 1.0)


def test_examples_come_from_train_and_do_not_depend_on_the_other_items(tmp_path: Path) -> None:
    task = LoglikelihoodChoice(context="{q}", choices=("{a}",), num_fewshot=2, fewshot_delimiter="; ", fewshot_seed=3)
    train = items(task, tmp_path, *({"q": f"{n}+1=", "a": str(n + 1)} for n in range(9)), split="train")
    found = items(task, tmp_path, *({"q": f"{n}+1=", "a": str(n + 1)} for n in range(5, 12)))
    asked = task.make_requests(found, train)
    for item, prompt, request in zip(found, asked.prompts, asked.requests, strict=True):
        parts = prompt.split("; ")[:-1]
        assert len(set(parts)) == 2
        assert set(parts) <= {f"{n}+1= {n + 1}" for n in range(9)}
        # the item is not one of its own examples
        assert item.texts[0].contexts[0] not in [part.split(" ")[0] for part in parts]
        assert request == Request(prompt + item.texts[0].contexts[0], item.texts[0].continuations[0])
    assert task.make_requests(found[::-1][:3], train).prompts == asked.prompts[::-1][:3]
    assert len(set(asked.prompts)) > 1


def test_too_few_examples_are_refused_in_one_line(tmp_path: Path) -> None:
    task = LoglikelihoodChoice(context="{q}", choices=("{a}",), num_fewshot=2)
    train = items(task, tmp_path, {"q": "1", "a": "2"}, split="train")
    with pytest.raises(
        BadInput, match=r"dev.jsonl:1: too few examples: got 1 that differ from the question, expected 2"
    ):
        task.make_requests(items(task, tmp_path, {"q": "5", "a": "2"}), train)


BLIMP = LoglikelihoodChoice(
    choices=("{good}", "{bad}"),
    subset="{UID}",
    metrics=("accuracy", "macro_accuracy", "accuracy_token", "accuracy_character", "accuracy_byte"),
)


def pair(good: str, bad: str, uid: str = "one") -> dict[str, str]:
    return {"good": good, "bad": bad, "UID": uid}


def test_minimal_pairs_are_whole_sentences_after_a_space_and_the_first_is_correct(tmp_path: Path) -> None:
    asked = BLIMP.make_requests(items(BLIMP, tmp_path, pair("Cats sleep.", "Cats sleeps.")))
    assert asked.requests == [("", " Cats sleep."), ("", " Cats sleeps.")]


def test_a_tie_counts_one_half_and_is_reported(tmp_path: Path) -> None:
    """A model with equal scores for all choices gets 1/2 at any position of the correct choice. With arg max it would
    get 1."""
    found = items(BLIMP, tmp_path, pair("a b", "a c"), pair("a", "a b"), pair("a b", "a"), pair("same", "same"))
    scores = BLIMP.scores(found, BLIMP.score_choices(BLIMP.make_requests(found), by_length))
    assert (scores["accuracy"], scores["ties"]) == (0.5, 0.5)
    assert "majority" not in scores  # the correct choice is always the first one


def test_the_macro_average_has_an_interval_over_the_subsets(tmp_path: Path) -> None:
    records = [pair("a", "a b", f"s{n}") for n in range(10)] + [pair("a b", "a", f"s{n}") for n in range(10, 20)]
    records += [pair("a", "a b", "s0")] * 80  # one large subset does not change the macro average
    found = items(BLIMP, tmp_path, *records)
    chosen = BLIMP.score_choices(BLIMP.make_requests(found), by_length)
    scores = BLIMP.scores(found, chosen)
    assert (scores["accuracy"], scores["macro_accuracy"]) == (0.9, 0.5)
    # the mean of 20 coin flips has a standard deviation of .1118
    assert scores["macro_low"] == pytest.approx(0.5 - 1.96 * 0.1118, abs=0.04)
    assert scores["macro_high"] == pytest.approx(0.5 + 1.96 * 0.1118, abs=0.04)
    assert (scores["accuracy_of_s0"], scores["accuracy_of_s10"]) == (1.0, 0.0)
    assert scores == BLIMP.scores(found, chosen)


def test_categories_have_their_accuracy_and_a_mean(tmp_path: Path) -> None:
    task = replace(BLIMP, metrics=("macro_accuracy",), category="{term}")
    right, wrong = {"good": "a", "bad": "a b"}, {"good": "a b", "bad": "a"}
    records = [right | {"UID": "s0"}, right | {"UID": "s0"}, wrong | {"UID": "s1"}, wrong | {"UID": "s2"}]
    found = items(task, tmp_path, *(one | {"term": "b" if one["UID"] == "s2" else "a"} for one in records))
    scores = task.scores(found, task.score_choices(task.make_requests(found), by_length))
    assert (scores["accuracy_in_a"], scores["accuracy_in_b"]) == (pytest.approx(2 / 3), 0.0)
    assert scores["accuracy_by_area"] == pytest.approx(1 / 3)
    assert scores["macro_accuracy"] == pytest.approx(1 / 3)  # of three subsets
    assert scores["chance"] == 0.5  # it used to be missing if no other accuracy was requested
    (none,) = items(BLIMP, tmp_path, pair("a", "a b"))
    assert "accuracy_by_area" not in BLIMP.scores([none], BLIMP.score_choices(BLIMP.make_requests([none]), by_length))


def test_normalization_changes_the_chosen_option(tmp_path: Path) -> None:
    found = items(BLIMP, tmp_path, pair("aaaa bbbb", "c"))
    chosen = [LikelihoodChoice((LogP(-8.0, 8, False), LogP(-2.0, 1, False)))]
    scores = BLIMP.scores(found, chosen)
    assert (scores["accuracy"], scores["accuracy_token"], scores["accuracy_character"]) == (0.0, 1.0, 1.0)
    (prediction,) = replace(BLIMP, metrics=("accuracy_token",)).predictions(found, chosen)
    assert prediction == {"answer": "aaaa bbbb", "nats": [-8.0, -2.0], "tokens": [8, 1]}


def test_bits_per_byte_and_margin_by_hand(tmp_path: Path) -> None:
    """Two questions with choices of 4 and 1 bytes; the first one is correct in both."""
    found = items(BLIMP, tmp_path, pair("aaaa", "c"), pair("bbbb", "d"))
    chosen = [
        LikelihoodChoice((LogP(-8.0, 2, False), LogP(-9.0, 1, False))),
        LikelihoodChoice((LogP(-4.0, 4, False), LogP(-1.0, 1, False))),
    ]
    plain = replace(BLIMP, metrics=("accuracy",))
    scores = plain.scores(found, chosen)
    assert scores["bits_per_byte"] == pytest.approx((8 / 4 + 4 / 4) / 2 / math.log(2))
    assert scores["margin"] == pytest.approx((1.0 - 3.0) / 2)
    by_token = replace(BLIMP, metrics=("accuracy_token", "accuracy"))
    assert by_token.scores(found, chosen)["margin"] == pytest.approx(((-4 + 9) + (-1 + 1)) / 2)
    assert any("in nats per token" in note for note in by_token.notes(found, chosen, NGRAM))


def test_stored_predictions_give_the_same_scores(tmp_path: Path) -> None:
    """What an evaluation stores is enough for all metrics of the task."""
    task = replace(BLIMP, metrics=("accuracy", "accuracy_token", "accuracy_character", "accuracy_byte", "perplexity"))
    found = items(task, tmp_path, pair("aaaa bbbb", "c"), pair("the cat", "a dog"))
    chosen = [
        LikelihoodChoice((LogP(-8.0, 8, False), LogP(-2.0, 1, True))),
        LikelihoodChoice((LogP(-3.0, 2, True), LogP(-3.0, 2, False))),
    ]
    stored = json.loads(json.dumps(task.predictions(found, chosen)))
    kind = restore_kind(Kinds, json.loads(json.dumps(asdict(task))))
    questions = json.loads(json.dumps([question_of(task, item) for item in found]))
    restored = [restore_item(kind, question) for question in questions]
    assert restored == found
    answers = [restore_answer(kind, prediction) for prediction in stored]
    assert kind.scores(restored, answers) == task.scores(found, chosen)
    shown = [show_answer(kind, *pair) for pair in zip(questions, stored, strict=True)]
    assert [one.correct for one in shown] == [False, False]  # the second is a tie
    assert (shown[0].answer, shown[0].gold, shown[0].margin) == ("c", "aaaa bbbb", -6.0)


def test_the_last_word_is_correct_if_all_of_its_tokens_are(tmp_path: Path) -> None:
    task = LoglikelihoodChoice(context="{context}", choices=("{continuation}",), metrics=("last_word", "perplexity"))
    found = items(task, tmp_path, *({"context": "I like", "continuation": word} for word in ("signs", "cats")))
    chosen = [LikelihoodChoice((LogP(-1.0, 2, True),)), LikelihoodChoice((LogP(-3.0, 1, False, cut=4),))]
    assert task.make_requests(found).requests[0] == Request("I like", " signs")
    bits = (1 / len("signs") + 3 / len("cats")) / 2 / math.log(2)
    means = {"last_word": 0.5, "perplexity": pytest.approx(math.exp(2.0)), "bits_per_byte": pytest.approx(bits)}
    assert task.scores(found, chosen) == means | {"cut": 1.0}


def test_last_token_metrics_differ_from_last_word_metrics(tmp_path: Path) -> None:
    """As in GPT-2's paper: the other tokens of the word are given."""
    task = LoglikelihoodChoice(
        context="{context}",
        choices=("{continuation}",),
        metrics=("last_word", "perplexity", "last_token", "last_token_perplexity"),
    )
    found = items(task, tmp_path, *({"context": "I like", "continuation": word} for word in ("signs", "cats")))
    chosen = [
        LikelihoodChoice((LogP(-3.0, 2, False, last_nats=-1.0, last_greedy=True),)),
        LikelihoodChoice((LogP(-3.0, 1, False, last_nats=-3.0),)),
    ]
    scores = task.scores(found, chosen)
    assert (scores["last_word"], scores["last_token"]) == (0.0, 0.5)
    assert scores["perplexity"] == pytest.approx(math.exp(3.0))
    assert scores["last_token_perplexity"] == pytest.approx(math.exp(2.0))
    last = {"last_nats": [-1.0], "last_greedy": [True]}
    assert task.predictions(found, chosen)[0] == {"answer": "signs", "nats": [-3.0], "greedy": False} | last
    actual = task.notes(found, chosen, NGramLikelihood(fit(np.array([1]), np.array([True]), 3), None))  # type: ignore[arg-type]
    assert [line.partition(":")[0] for line in actual[1:]] == [
        "last_word",
        "perplexity",
        "last_token, last_token_perplexity",
        "bits_per_byte",
    ]


NGRAM = NGramLikelihood(fit(np.array([1]), np.array([True]), 3), None)  # type: ignore[arg-type]


def test_a_note_says_that_labels_may_count_from_1(tmp_path: Path) -> None:
    task = LoglikelihoodChoice(context="{q}", choices=("{o}",), label="gold")
    rows = [{"q": f"x{n}", "o": [*"abcd"], "gold": 1 + n % 3} for n in range(6)]
    message = (
        "choice 0 is correct in none of 6 questions: if the file counts choices from 1, set `labels` accordingly, as "
        '["1", "2"]'
    )

    def notes(task: LoglikelihoodChoice, *rows: Any) -> list[str]:
        found = items(task, tmp_path, *rows)
        return task.notes(found, task.score_choices(task.make_requests(found), by_length), NGRAM)

    assert notes(task, *rows)[-1] == message
    assert notes(replace(task, labels=("0", "1", "2", "3")), *rows)[-1] == message
    for other in (
        notes(task, *rows, rows[0] | {"gold": 0}),
        notes(task, *rows[:2]),  # too few questions for the note
        notes(replace(task, labels=("1", "2", "3", "4")), *rows),
    ):
        assert message not in other
        assert len(other) == 4


def test_a_task_without_labels_notes_that_the_first_choice_is_correct(tmp_path: Path) -> None:
    first = "the task has no `label`: the first choice of each question is the correct one"
    found = items(BLIMP, tmp_path, pair("a", "a b"))
    assert first in BLIMP.notes(found, BLIMP.score_choices(BLIMP.make_requests(found), by_length), NGRAM)
    one = LoglikelihoodChoice(context="{q}", choices=("{o}",), metrics=("last_word",))
    found = items(one, tmp_path, {"q": "x", "o": "y"})
    assert first not in one.notes(found, one.score_choices(one.make_requests(found), by_length), NGRAM)


def test_an_accuracy_has_a_binomial_interval(tmp_path: Path) -> None:
    scipy = pytest.importorskip("scipy.stats")
    records = [pair("a", "a b")] * 61 + [pair("a b", "a")] * 39
    found = items(BLIMP, tmp_path, *records)
    scores = BLIMP.scores(found, BLIMP.score_choices(BLIMP.make_requests(found), by_length))
    wanted = scipy.binomtest(61, 100).proportion_ci(0.95, method="wilson")
    assert (scores["accuracy_low"], scores["accuracy_high"]) == pytest.approx((wanted.low, wanted.high), abs=1e-6)
    assert interval(0.0, 0) == (0.0, 1.0)


def test_columns_of_a_split_replace_those_of_the_task(tmp_path: Path) -> None:
    """The same question in the columns of another distribution of the data set."""
    task = LoglikelihoodChoice(context="{query}Answer:", choices=("{choices}",), label="gold")
    (tmp_path / "dev.jsonl").write_text('{"goal": "open it", "sol1": "pull", "sol2": "push", "label": 1}\n')
    columns = {"context": "Question: {goal}\nAnswer:", "choices": "{sol1} || {sol2}", "label": "label"}
    (item,) = task.items(FILES["dev"].records(tmp_path), columns)
    assert task.make_requests([item]).requests == [
        Request("Question: open it\nAnswer:", " pull"),
        Request("Question: open it\nAnswer:", " push"),
    ]
    assert item.gold == 1
    with pytest.raises(BadInput, match="invalid columns of a split: got text, expected context, choices"):
        task.items(FILES["dev"].records(tmp_path), {"text": "goal"})


def test_examples_without_a_train_split_are_refused(tmp_path: Path) -> None:
    task = LoglikelihoodChoice(context="{q}", choices=("{a}",), num_fewshot=2)
    with pytest.raises(BadInput, match="invalid num_fewshot: got 2, expected 0 without a split named train"):
        task.make_requests(items(task, tmp_path, {"q": "5", "a": "2"}))


def test_each_choice_may_have_its_own_context_for_one_continuation(tmp_path: Path) -> None:
    task = LoglikelihoodChoice(context="{context_options}", choices=("{continuation}",), label="gold")
    record = {"context_options": ["So Sarah", "So Maria"], "continuation": "won.", "gold": 1}
    (item,) = items(task, tmp_path, record)
    assert task.make_requests([item]).requests == [("So Sarah", " won."), ("So Maria", " won.")]
    assert item.gold == 1
    (prediction,) = task.predictions([item], [LikelihoodChoice((LogP(-2, 1, False), LogP(-1, 1, False)))])
    assert prediction["answer"] == "So Maria"


@pytest.mark.parametrize(
    ("score", "wanted"),
    [
        ("partial", [("A permit, since the town", " feared it."), ("A permit, since they", " feared it.")]),
        ("full", [("", " A permit, since the town feared it."), ("", " A permit, since they feared it.")]),
    ],
)
def test_candidates_replace_the_blank(score: Any, wanted: list[Any], tmp_path: Path) -> None:
    """The files of Winograd schemas: a sentence, the pronoun mark, the candidates, the answer."""
    (tmp_path / "wsc.txt").write_text("A permit, since [MASK]  feared it. \n[MASK]\nthe town ,they \nthey \n\n")
    blocks = SplitRecords(paths=("wsc.txt",), format=LineBlockFormat(names=("text", "pronoun", "candidates", "answer")))
    task = LoglikelihoodChoice(
        context="{text}",
        choices=("{candidates}",),
        choice_delimiter=",",
        blank="[MASK]",
        label="answer",
        score=score,
    )
    (item,) = task.items(blocks.records(tmp_path), {})
    assert task.make_requests([item]).requests == wanted
    assert item.gold == 1


def test_a_pronoun_is_found_by_its_offset_and_rows_without_an_answer_are_left_out(tmp_path: Path) -> None:
    lines = ["Text\tPronoun\tat\tA\tAc\tB\tBc"]
    text = "her aunt Ann saw her cat. Bo slept"
    lines += [f"{text}\ther\t17\tAnn\tTRUE\tBo\tFALSE", f"{text}\ther\t17\tAnn\tFALSE\tBo\tFALSE"]
    (tmp_path / "gap.tsv").write_text("\n".join(lines) + "\n")
    gap = SplitRecords(paths=("gap.tsv",), format=TsvFormat())
    keys: dict[str, Any] = {
        "context": "{Text}",
        "choices": ("{A}", "{B}"),
        "blank": "{Pronoun}",
        "label": "{Ac} {Bc}",
        "labels": ("TRUE FALSE", "FALSE TRUE"),
        "skip_labels": ("FALSE FALSE",),
    }
    task = LoglikelihoodChoice(**keys, blank_at="at")
    records = gap.records(tmp_path)
    (item,) = task.items(records, {})
    assert records.left_out == 1
    assert task.make_requests([item]).requests[1] == Request("her aunt Ann saw Bo", " cat. Bo slept")
    assert item.gold == 0
    with pytest.raises(BadInput, match=r"gap.tsv:2: invalid Pronoun"):
        LoglikelihoodChoice(**keys | {"label": "Pronoun"}).items(gap.records(tmp_path), {})


@pytest.mark.parametrize(
    ("keys", "record", "message"),
    [
        ({}, {"q": "x", "o": ["a", "b"], "gold": 3}, r"dev.jsonl:1: invalid gold: got '3', expected 0 or 1 or a or b"),
        ({"labels": ("A", "B")}, {"q": "x", "o": ["a", "b"], "gold": "C"}, r"invalid gold: got 'C', expected A or B"),
        ({}, {"o": ["a", "b"], "gold": 0}, r"dev.jsonl:1: missing column q; the columns are o, gold"),
        ({}, {"q": ["x", "y", "z"], "o": ["a", "b"], "gold": 0}, r"got 3 contexts and 2 choices"),
        ({}, {"q": "x", "o": [], "gold": 0}, r"got 1 contexts and 0 choices"),
        ({}, {"q": "x", "o": [None], "gold": 0}, r"invalid o: got None, expected text"),
        ({"blank": "_"}, {"q": "x", "o": ["a", "b"], "gold": 0}, r"dev.jsonl:1: no blank _ in 'x'"),
    ],
)
def test_invalid_records_are_refused_in_one_line(keys: Any, record: Any, message: str, tmp_path: Path) -> None:
    task = LoglikelihoodChoice(context="{q}", choices=("{o}",), label="gold", **keys)
    with pytest.raises(BadInput, match=message):
        items(task, tmp_path, record)


@pytest.mark.parametrize(
    ("labels", "golds"),
    [
        (["2", "1", "0"], [2, 1, 0]),  # 0 is not a text of a choice, so that these are indexes
        (["2", "1", "3"], [1, 0, 2]),  # 3 is not an index of a choice, so that these are texts
        (["2", "0", "3"], r"o:3: invalid gold: got '3', expected .*; use numbers in all rows, or texts in all"),
        (["2", "1", "1"], "o:1: ambiguous gold '2': the index of one choice and the text of another; list the labels"),
    ],
)
def test_labels_of_digits_are_all_indexes_or_all_texts_of_choices_in_a_split(labels: list[str], golds: Any) -> None:
    task = LoglikelihoodChoice(choices=("{o}",), label="gold")
    rows = [{"o": ["1", "2", "3"], "gold": label} for label in labels]
    given = Records(rows=list(rows), places=[f"o:{n + 1}" for n in range(3)])
    if isinstance(golds, str):
        with pytest.raises(BadInput, match=golds):
            task.items(given, {})
    else:
        assert [item.gold for item in task.items(given, {})] == golds


def test_listed_labels_are_not_indexes() -> None:
    task = LoglikelihoodChoice(choices=("{o}",), label="gold", labels=("1", "2", "3"))
    records = Records([{"o": ["1", "2", "3"], "gold": "2"}], ["o:1"])
    assert [item.gold for item in task.items(records, {})] == [1]


def test_unlabeled_items_have_no_score_and_are_no_examples() -> None:
    """A submission split lacks the label column; its first choices are not the correct ones."""
    task = LoglikelihoodChoice(context="{q}", choices=("{o}",), label="gold", num_fewshot=1)
    rows = [{"q": str(n), "o": ["a", "b"], "gold": 1} for n in range(2)]
    records = Records(rows=list(rows), places=["x:1", "x:2"])
    known, unknown = task.items(records, {}), task.items(records, {"label": ""})
    assert [[item.gold for item in found] for found in (known, unknown)] == [[1, 1], [None, None]]
    assert [item.gold for item in BLIMP.items(Records([pair("a", "b")], ["x:1"]), {"label": ""})] == [0]
    answers = task.score_choices(task.make_requests([*known, *unknown], known), by_length)
    assert [one["answer"] for one in task.predictions(unknown, answers[2:])] == ["a", "a"]
    assert task.scores([*known, *unknown], answers) == task.scores(known, answers[:2])
    with pytest.raises(BadInput, match="too few examples: got 0 that differ from the question, expected 1"):
        task.make_requests(known, unknown)


def test_a_list_as_label_is_refused() -> None:
    with pytest.raises(BadInput, match=r"x:1: invalid gold: got \['a', 'b'\], expected text"):
        LoglikelihoodChoice(choices=("{o}",), label="gold").items(
            Records([{"o": ["a", "b"], "gold": ["a", "b"]}], ["x:1"]), {}
        )


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"choices": ()}, "invalid choices: got"),
        ({"context": "{q"}, "invalid context: got '{q', expected a text with columns in braces"),
        ({"context": "{q!r}"}, "invalid context: got"),
        ({"choices": ("a", "}")}, "invalid choices 1: got"),
        ({"metrics": ("f1",)}, "metrics: got 'f1'"),
        ({"metrics": ("macro_accuracy",)}, "subset: got ''"),
        ({"num_fewshot": -1}, "num_fewshot: got -1"),
        ({"blank_at": "at"}, "blank_at: got 'at'"),
    ],
)
def test_invalid_keys_are_refused_in_one_line(keys: Any, message: str) -> None:
    given: dict[str, Any] = {"choices": ("{o}",)}
    with pytest.raises(ValueError, match=message):
        LoglikelihoodChoice(**given | keys)


def test_every_metric_has_a_score(tmp_path: Path) -> None:
    task = LoglikelihoodChoice(choices=("{good}", "{bad}"), subset="{UID}", metrics=METRICS)
    found = items(task, tmp_path, pair("a", "a b"))
    assert set(METRICS) <= set(task.scores(found, task.score_choices(task.make_requests(found), by_length)))


@pytest.mark.parametrize(
    ("metrics", "guesses"),
    [
        (("accuracy", "perplexity"), {"majority": 0.75, "chance": 0.5}),
        (("perplexity", "accuracy"), {}),
        (("last_word", "accuracy"), {}),
        (("macro_accuracy", "accuracy"), {"majority": 0.5, "chance": 0.5}),
    ],
)
def test_majority_and_chance_are_those_of_the_first_metric(metrics: tuple[str, ...], guesses: dict[str, float]) -> None:
    """A perplexity used to be reported beside the accuracy of the majority answer, as if this were the majority's
    perplexity."""
    task = LoglikelihoodChoice(choices=("{o}",), label="y", subset="{s}", metrics=metrics)
    rows = [{"o": ["a", "b"], "y": 0, "s": "one"}] * 3 + [{"o": ["a", "b"], "y": 1, "s": "two"}]
    items = task.items(Records(rows=list(rows), places=[f"o:{n}" for n in range(4)]), {})
    found = task.scores(items, [LikelihoodChoice((LogP(-1.0, 1, True), LogP(-2.0, 1, False)))] * 4)
    assert {name: found[name] for name in ("majority", "chance") if name in found} == guesses
