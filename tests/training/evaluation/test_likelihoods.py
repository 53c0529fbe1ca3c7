"""Likelihood evaluation: each kind of model, repeatable scores, and the notes beside them."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from preprocessing.errors import BadInput
from tests.training.evaluation.likelihood.nets import LONG, net, vocabulary
from tests.training.evaluation.likelihood.test_others import electra
from tests.training.parity import TEXT, weights
from training.evaluation.eval_result import EvaluatedModel
from training.evaluation.files import JsonlFormat, LinesFormat, WholeFileFormat
from training.evaluation.likelihood import LikelihoodModel, Perplexity, PerplexityText, Windowing
from training.evaluation.likelihood.models import score_causal
from training.evaluation.likelihoods import evaluate_likelihoods
from training.evaluation.tasks import ContextLength, LoglikelihoodChoice, PerplexityTask, SplitRecords, TaskItem

PAIRS = [
    {"good": "The quick fox jumps.", "bad": "The quick fox jump.", "kind": "one"},
    {"good": "Pack my box!", "bad": "Pack box my!", "kind": "two"},
    {"good": "same", "bad": "same", "kind": "two"},
]
BLIMP = LoglikelihoodChoice(
    choices=("{good}", "{bad}"), subset="{kind}", metrics=("macro_accuracy", "accuracy", "accuracy_token")
)


def net_of(kind: str) -> EvaluatedModel:
    return EvaluatedModel(net(kind).spec, weights(net(kind)), vocabulary(kind))


def items_of(task: Any, folder: Path, **splits: Any) -> dict[str, list[TaskItem]]:
    found = {}
    for name, records in splits.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        found[name] = task.items(SplitRecords(paths=(f"{name}.jsonl",), format=JsonlFormat()).records(folder), {})
    return found


@pytest.mark.parametrize("kind", ["gpt2", "xl", "bert"])
def test_each_kind_of_model_is_scored_by_its_likelihood(kind: str, tmp_path: Path) -> None:
    asked = net_of(kind)
    items = items_of(BLIMP, tmp_path, test=PAIRS)
    found = evaluate_likelihoods(asked, BLIMP, items)
    assert set(found.scores["test"]) >= {"accuracy", "macro_low", "accuracy_low", "ties", "accuracy_of_two", "chance"}
    assert found.scores["test"]["ties"] == pytest.approx(1 / 3)
    assert len(found.predictions["test"]) == 3
    json.dumps(found.predictions["test"])
    assert found == evaluate_likelihoods(asked, BLIMP, items)  # a second evaluation gives the same result
    way = "pseudo-log-likelihood (within_word_l2r), special tokens not scored" if kind == "bert" else "log p"
    assert found.notes[0].startswith(f"test: {way}")
    assert found.notes[1] == (
        "test: the most likely choice by the sum over its tokens, the mean over its tokens; "
        "k equal choices count 1/k each"
    )
    whole = {"gpt2": "<|endoftext|> The quick fox jumps.", "bert": "[CLS] the quick fox jumps. [SEP]"}
    assert found.example == whole.get(kind, whole["gpt2"])


def test_likelihoods_use_the_weights_of_the_model(tmp_path: Path) -> None:
    asked, items = net_of("gpt2"), items_of(BLIMP, tmp_path, test=PAIRS)
    requests = BLIMP.make_requests(items["test"]).requests
    wanted = [each.nats for each in score_causal(net("gpt2"), asked.vocab, requests)]
    found = evaluate_likelihoods(asked, BLIMP, items).predictions["test"]
    assert [nats for each in found for nats in each["nats"]] == pytest.approx(wanted, abs=1e-4)
    random = [
        evaluate_likelihoods(replace(asked, weights=None), BLIMP, items, seed=seed).predictions["test"]
        for seed in (0, 0, 1)
    ]
    assert random[0] == random[1] != random[2]
    assert random[0] != found


def test_the_pseudo_likelihood_variant_is_that_of_the_task(tmp_path: Path) -> None:
    asked, items = net_of("bert"), items_of(BLIMP, tmp_path, test=[{**PAIRS[0], "good": "liquor jugs", "bad": "fox"}])
    both = [
        evaluate_likelihoods(asked, replace(BLIMP, pll_variant=kind), items) for kind in ("original", "within_word_l2r")
    ]
    assert both[0].predictions != both[1].predictions
    assert "(original)" in both[0].notes[0]


def test_examples_of_a_prompt_come_from_train_which_is_not_scored(tmp_path: Path) -> None:
    task = LoglikelihoodChoice(context="{q}", choices=("{a}", "{b}"), num_fewshot=2, fewshot_delimiter="; ")
    records: list[Mapping[str, str]] = [{"q": f"the {n}", "a": "fox", "b": "dog"} for n in range(6)]
    items = items_of(task, tmp_path, train=records[:3], dev=records[3:])
    found = evaluate_likelihoods(net_of("gpt2"), task, items)
    assert list(found.scores) == list(found.predictions) == ["dev"]
    first, second, question = found.example.split("; ")
    assert {first, second} < {f"the {n} fox" for n in range(3)}
    assert question == "the 3 fox"
    assert "dev: 2 examples before each question, drawn from train with seed 0" in found.notes


def test_progress_is_reported(tmp_path: Path) -> None:
    reported = list[tuple[int, float]]()
    evaluate_likelihoods(
        net_of("gpt2"), BLIMP, items_of(BLIMP, tmp_path, test=PAIRS), on_step=lambda *done: reported.append(done)
    )
    assert reported[-1] == (6, 6)


def test_electra_is_scored_by_its_generator_with_trained_and_random_weights(tmp_path: Path) -> None:
    items = items_of(BLIMP, tmp_path, test=PAIRS)
    model = electra()
    trained = evaluate_likelihoods(EvaluatedModel(model.spec, weights(model), vocabulary("bert")), BLIMP, items)
    random = evaluate_likelihoods(EvaluatedModel(model.spec, None, vocabulary("bert")), BLIMP, items)
    assert trained.predictions != random.predictions
    assert trained.notes[0] == "evaluates the generator: the discriminator does not predict tokens"
    assert evaluate_likelihoods(net_of("bert"), BLIMP, items).notes[0].startswith("test: pseudo-log-likelihood")
    uniform = electra("uniform")
    with pytest.raises(BadInput, match="cannot compute likelihoods with this model"):
        evaluate_likelihoods(EvaluatedModel(uniform.spec, weights(uniform), vocabulary("bert")), BLIMP, items)


@pytest.mark.parametrize(
    ("keys", "memory"), [({}, 0), ({"window": 8, "stride": 3}, 0), ({"window": 8, "carry_memory": True}, 64)]
)
def test_perplexity_notes_its_settings(keys: Any, memory: int, tmp_path: Path) -> None:
    task = PerplexityTask(detokenize="wikitext", line_ends=True, **keys)
    text = " = Fox = \n The fox , quick , jumps . \n"
    (tmp_path / "text.txt").write_text(text)
    items = {"test": task.items(SplitRecords(paths=("text.txt",), format=WholeFileFormat()).records(tmp_path), {})}
    found = evaluate_likelihoods(net_of("xl"), task, items)
    scores = found.scores["test"]
    assert (scores["words"], scores["bytes"]) == (len(text.split()) + 2, len(text))
    assert (scores["window"], scores["memory"]) == (keys.get("window", 1024), memory)
    (prediction,) = found.predictions["test"]
    nats_of_words = scores["words"] * math.log(scores["word_perplexity"])
    assert nats_of_words == pytest.approx(prediction["nats"])
    assert scores["bits_per_byte"] == pytest.approx(prediction["nats"] / len(text) / math.log(2))
    assert "line ends counted as words; words and bytes are counted before detokenization" in found.notes[0]
    assert found.example.endswith("= Fox =\nThe fox, quick, jumps.\n")


def test_text_that_the_vocabulary_loses_is_noted(tmp_path: Path) -> None:
    """The vocabulary has no tokens for line ends, capital letters, or characters of other scripts."""
    asked, strange = replace(net_of("gpt2"), vocab=vocabulary("bert")), "\N{CJK UNIFIED IDEOGRAPH-6F22}"
    task = PerplexityTask(line_ends=True)
    (tmp_path / "text.txt").write_text(f"The fox\n{strange} jumps\n")
    items = {"test": task.items(SplitRecords(paths=("text.txt",), format=WholeFileFormat()).records(tmp_path), {})}
    found = evaluate_likelihoods(asked, task, items)
    assert (found.scores["test"]["words"], found.scores["test"]["unknown"]) == (4, 1)
    assert "(1 unknown), 4 words" in found.notes[0]
    assert "line ends" not in found.notes[0]
    lost = (
        "test: the vocabulary has no token for 2 line ends: they are not predicted, and count as bytes, not as words",
        "test: the vocabulary is lowercase: capital letters are not predicted, but count in words and bytes",
    )
    assert found.notes[1:] == evaluate_likelihoods(asked, replace(task, line_ends=False), items).notes[1:] == lost
    assert len(evaluate_likelihoods(net_of("gpt2"), task, items).notes) == 1
    lengths = evaluate_likelihoods(asked, ContextLength(lengths=(2, 4)), items)
    assert lengths.notes[0].endswith(f"; 1 of {int(found.scores['test']['tokens'])} tokens are unknown")
    pairs = items_of(BLIMP, tmp_path, test=[PAIRS[0], {**PAIRS[1], "bad": strange}])
    for kind in ("gpt2", "bert"):
        chosen = evaluate_likelihoods(replace(net_of(kind), vocab=vocabulary("bert")), BLIMP, pairs)
        assert chosen.scores["test"]["unknown"] == 1
        assert chosen.notes[-1].startswith("test: 1 of 2 items have words or characters outside the vocabulary")


@pytest.mark.parametrize("keys", [{}, {"carry_memory": True, "window": 8}, {"line_ends": True}], ids=str)
def test_blank_texts_of_a_corpus_are_counted_and_change_no_score(keys: Any, tmp_path: Path) -> None:
    task = PerplexityTask(**keys)
    items = items_of(task, tmp_path, test=[{"text": text} for text in ("", " \n", *TEXT, "")])
    found = evaluate_likelihoods(net_of("xl"), task, items)
    blank = f"test: 3 of {len(items['test'])} texts are blank (first: test.jsonl:1) and have no words to predict"
    assert blank in found.notes
    assert found.example.lower().endswith(TEXT[0].lower())
    if not keys:
        plain = evaluate_likelihoods(
            net_of("xl"), task, items_of(task, tmp_path, test=[{"text": text} for text in TEXT])
        )
        assert found.scores["test"]["words"] == plain.scores["test"]["words"]
        assert not any("blank" in note for note in plain.notes)
        lengths = evaluate_likelihoods(net_of("xl"), ContextLength(lengths=(2, 4)), items)
        assert blank in lengths.notes
    with pytest.raises(BadInput) as caught:
        evaluate_likelihoods(net_of("xl"), task, {"test": items["test"][:2]})
    assert str(caught.value) == "test.jsonl:1: all texts are blank; give a file with text"


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_items_that_cannot_be_scored_are_left_out_and_noted(kind: str, tmp_path: Path) -> None:
    """One such item used to make the whole task fail."""
    asked = replace(net_of(kind), vocab=vocabulary("bert"))
    wrong = [{**PAIRS[0], "bad": ""}, {**PAIRS[0], "good": LONG * 2}]
    items = items_of(BLIMP, tmp_path, test=[wrong[0], *PAIRS, *wrong])
    found, others = (
        evaluate_likelihoods(asked, BLIMP, items),
        evaluate_likelihoods(asked, BLIMP, {"test": items["test"][1:4]}),
    )
    assert found.scores["test"] == {**others.scores["test"], "left_out": 3.0}
    assert found.predictions["test"][1:4] == others.predictions["test"]
    assert [list(one) for one in found.predictions["test"][:1]] == [["left_out"]]
    assert found.predictions["test"][5]["left_out"].endswith("shorten it")
    note = (
        "test: 3 of 6 items are left out, and do not count in the scores: "
        "test.jsonl:1: the continuation ' ' has no token "
    )
    assert f"{note}after '' (and 2 more), also test.jsonl:5, test.jsonl:6" in found.notes
    assert found.example == others.example
    with pytest.raises(BadInput) as caught:
        evaluate_likelihoods(asked, BLIMP, {"test": items["test"][4:]})
    message = "test.jsonl:5: the continuation ' ' has no token after ''; 1 more items cannot be scored either"
    assert str(caught.value) == message


@pytest.mark.parametrize("against", ["words", "options"])
def test_overflowing_perplexities_do_not_stop_the_task(against: str, tmp_path: Path) -> None:
    """A text without spaces is one word, whose perplexity overflows. So does that of a long choice, which every task
    computed. Both raised OverflowError, and the task had no score."""
    if against == "words":
        task: Any = PerplexityTask(text="t")
        rows: list[dict[str, Any]] = [{"t": "".join(chr(0x4E00 + 37 * n) for n in range(400))}, {"t": "so"}]
    else:
        task = LoglikelihoodChoice(choices=("{o}",), label="y", metrics=("accuracy", "perplexity"))
        rows = [{"o": ["The quick fox ", "box"], "y": 0}]
    asked = net_of("gpt2")
    found = evaluate_likelihoods(
        replace(asked, weights={name: 1_000 * weight for name, weight in (asked.weights or {}).items()}),
        task,
        items_of(task, tmp_path, test=rows),
    )
    name = "word_perplexity" if against == "words" else "perplexity"
    assert found.scores["test"][name] == math.inf
    assert len(found.scores["test"]) > 1
    if against == "words":
        assert found.by_unit["test"] == []
        assert any("bytes per word: the language seems to have no blanks between words" in note for note in found.notes)


def test_items_that_cannot_be_scored_do_not_hide_a_constant_answer(tmp_path: Path) -> None:
    """Such an item used to count as one more question, with the mean as its value. A model that chose one option for
    all other items then got no note."""
    task = LoglikelihoodChoice(context="{c}", choices=("{o}",), label="y")
    good = [{"c": f"The quick {n}", "o": ["fox", "box"], "y": n % 2} for n in range(6)]
    bad = {"c": "The", "o": [LONG * 2, "box"], "y": 0}
    whole, lacking = (
        evaluate_likelihoods(net_of("gpt2"), task, items_of(task, tmp_path, test=rows)) for rows in (good, [bad, *good])
    )
    assert lacking.by_unit == whole.by_unit
    assert len(lacking.by_unit["test"]) == 6
    assert lacking.constant == whole.constant
    assert lacking.constant["test"]


def test_an_item_with_too_few_other_examples_is_left_out_and_noted(tmp_path: Path) -> None:
    """The item is itself in train, so that one example fewer is available for its prompt."""
    task = LoglikelihoodChoice(context="{q}", choices=("{good}", "{bad}"), num_fewshot=2)
    rows = [{"q": str(number), "good": "fox", "bad": "box"} for number in range(3)]
    found = evaluate_likelihoods(net_of("gpt2"), task, items_of(task, tmp_path, test=rows, train=rows[:2]))
    assert (found.scores["test"]["left_out"], found.example.count("fox")) == (2.0, 3)
    message = (
        "2 of 3 items are left out, and do not count in the scores: "
        "test.jsonl:1: too few examples: got 1 that differ from "
    )
    assert any(note.startswith(f"test: {message}") for note in found.notes)


def test_continuations_that_share_a_token_with_their_context_are_counted(tmp_path: Path) -> None:
    """The shared token was lost, so that the choices were tied."""
    task = LoglikelihoodChoice(context="{q}", choices=("{good}", "{bad}"), target_delimiter="")
    rows = [{"q": "The quic", "good": "k fox", "bad": "k box"}, {"q": "The", "good": " fox", "bad": " box"}]
    found = evaluate_likelihoods(net_of("gpt2"), task, items_of(task, tmp_path, test=rows))
    assert found.scores["test"]["ties"] == 0
    assert found.scores["test"]["shares_token"] == 1
    message = (
        "2 of 4 continuations share a token with their context: they are scored from the last common token boundary"
    )
    assert any(note.startswith(f"test: {message}") for note in found.notes)


def test_the_perplexity_of_lines_is_that_of_all_lines_together(tmp_path: Path) -> None:
    task = PerplexityTask(metrics=("token_perplexity",))
    (tmp_path / "lines.txt").write_text("\n".join(TEXT) + "\n")
    items = task.items(SplitRecords(paths=("lines.txt",), format=LinesFormat()).records(tmp_path), {})
    both = evaluate_likelihoods(net_of("gpt2"), task, {"test": items})
    alone = [evaluate_likelihoods(net_of("gpt2"), task, {"test": [item]}).predictions["test"][0] for item in items]
    for one, wanted in zip(both.predictions["test"], alone, strict=True):
        assert one == pytest.approx(wanted)
    assert both.scores["test"]["tokens"] == sum(one["tokens"] for one in alone)


def test_perplexity_at_a_context_length_uses_windows_of_twice_the_length(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(" ".join(TEXT * 4))
    task = ContextLength(lengths=(2, 4, 8))
    items = {"test": task.items(SplitRecords(paths=("text.txt",), format=WholeFileFormat()).records(tmp_path), {})}
    found = evaluate_likelihoods(net_of("gpt2"), task, items).scores["test"]
    for length in task.lengths:
        plain = PerplexityTask(window=2 * length, stride=length, metrics=("token_perplexity",))
        wanted = evaluate_likelihoods(net_of("gpt2"), plain, items).scores["test"]["token_perplexity"]
        assert found[f"perplexity_{length}"] == pytest.approx(wanted)
    with pytest.raises(BadInput, match="window"):
        evaluate_likelihoods(net_of("gpt2"), ContextLength(lengths=(2, 1024)), items)


@pytest.mark.parametrize(("used", "effective"), [(2, 2.0), (8, 8.0), (64, 32.0)])
def test_the_effective_length_is_the_last_one_with_an_improvement(used: int, effective: float) -> None:
    task = ContextLength(lengths=(2, 4, 8, 16, 32))

    class Reads:
        """A model whose bits per token fall by 0.1 with each doubling of the context, up to `used` tokens."""

        def perplexities(self, texts: Sequence[PerplexityText], windowing: Windowing) -> list[Perplexity]:
            length = min(windowing.stride, used)
            return [Perplexity(100 * (5 - 0.1 * math.log2(length)), 100, 80, 400, *windowing[:2]) for _ in texts]

    answers = task.answers([TaskItem("x:1", ("a b",), True)], (), cast(LikelihoodModel, Reads()))
    scores = task.scores((), answers)
    assert scores["effective_length"] == effective
    assert scores["perplexity_2"] == pytest.approx(math.exp(4.9))
    assert ("the longest one tested" in task.notes((), answers, cast(LikelihoodModel, Reads()))[0]) == (used > 32)


def test_unsuitable_models_and_keys_are_refused_in_one_line(tmp_path: Path) -> None:
    items = items_of(PerplexityTask(), tmp_path, test=[{"text": "fox"}])
    with pytest.raises(BadInput, match="perplexity requires a causal language model"):
        evaluate_likelihoods(net_of("bert"), PerplexityTask(), items)
    with pytest.raises(BadInput, match="the model has no memory"):
        evaluate_likelihoods(net_of("gpt2"), PerplexityTask(carry_memory=True), items)
    with pytest.raises(BadInput, match="no text to predict"):
        evaluate_likelihoods(net_of("gpt2"), PerplexityTask(), {"test": []})
    for keys, message in (
        ({"stride": -1}, "invalid stride: got -1, expected at least 0 tokens"),
        ({"stride": 4, "carry_memory": True}, "invalid stride: got 4, expected 0 with carry_memory"),
        ({"metrics": ("accuracy",)}, "invalid metrics: got 'accuracy', expected token_perplexity or"),
    ):
        with pytest.raises(ValueError, match=message):
            PerplexityTask(**keys)  # type: ignore[arg-type]
