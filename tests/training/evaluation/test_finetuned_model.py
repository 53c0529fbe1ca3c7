"""A fine-tuned model is saved and loaded: on rows of published data, transformers has the same logits and labels."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from torch import Tensor

from orchestration.config import load_task
from preprocessing.errors import BadInput
from preprocessing.tokenization import ByteLevelBPE, WordPiece, train
from tests.training.parity import hf
from training.evaluation import EvaluatedModel, FinetunedModel, check_savable, fit_labels, score_finetuned
from training.evaluation.finetune_trial import finetune_task
from training.evaluation.scoring import encode_items
from training.evaluation.tasks import (
    Classification,
    ExtractiveQA,
    LabeledTask,
    Regression,
    TaskItem,
    TokenClassification,
)
from training.finetuning import Tuning, outputs
from training.formats import auto_class
from training.losses import MaskedTokens, NextToken
from training.model import Model
from training.model_spec import ModelSpec
from training.specs import Decoder, Encoder, LearnedPositions

LENGTH: Final = 64
SIZE: Final = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2}
TUNING: Final = Tuning(learning_rate=3e-3, batch_size=8, max_steps=4)
FILES: Final = {  # a task, and the directory of its files in the shared data
    "cola": "glue",
    "sst2": "glue",
    "rte": "glue",
    "stsb": "glue",
    "wnut17": ".",
    "race_halves": ".",
    "squad1_halves": ".",
}


def model_of(kind: str, texts: Sequence[str]) -> EvaluatedModel:
    """A small random model with a vocabulary of these texts."""
    vocab = train(WordPiece(vocab_size=900) if kind == "encoder" else ByteLevelBPE(vocab_size=400), texts)
    positions = LearnedPositions(max_position_embeddings=LENGTH)
    if kind == "encoder":
        spec = ModelSpec(
            model=Encoder(**SIZE, position_embedding=positions), losses=(MaskedTokens(),), vocab_size=vocab.size
        )
    else:
        spec = ModelSpec(
            model=Decoder(**SIZE, position_embedding=positions), losses=(NextToken(),), vocab_size=vocab.size
        )
    model = Model(spec.model, spec.losses, spec.vocab_size, seed=0)
    return EvaluatedModel(spec, {name: weight.detach() for name, weight in model.named_parameters()}, vocab)


def words_of(value: Any) -> Iterator[str]:
    """The texts of an item."""
    if isinstance(value, str):
        yield value
    else:
        for part in value:
            yield from words_of(part)


def save_finetuned(
    net: EvaluatedModel, task: LabeledTask, items: Sequence[TaskItem], folder: Path
) -> tuple[FinetunedModel, Any, Any]:
    """Fine-tune for a few steps and save; return the model, the fitted task and the result."""
    kept: list[Any] = []
    result = finetune_task(
        net, task, {"train": items, "dev": items}, TUNING, length=LENGTH, save=lambda *found: kept.extend(found)
    )
    model, fitted, same = kept
    assert same == result
    model.save(folder)
    return model, fitted, result


def their_logits(kind: str, net: Any, tokenizer: Any, item: TaskItem) -> Tensor:
    """The logits of transformers for one item, whose texts its own tokenizer encodes."""
    cut: dict[str, Any] = {"truncation": True, "max_length": LENGTH, "return_tensors": "pt"}
    with torch.no_grad():
        if kind == "option_choice":
            context, question, options = item.texts
            pairs = [f"{question} {option}".strip() for option in options]
            batch = tokenizer([context] * len(options), pairs, padding=True, **cut)
            return net(**{key: value[None] for key, value in batch.items()}).logits
        if kind == "token_tag":
            return net(**tokenizer(list(item.texts[0]), is_split_into_words=True, **cut)).logits[0]
        return net(**tokenizer(*item.texts, **cut)).logits


@pytest.mark.one_in(3)
@pytest.mark.shared
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "kind"), [*((name, "encoder") for name in FILES), ("sst2", "decoder"), ("stsb", "decoder")]
)
def test_logits_on_published_rows_are_those_of_transformers(name: str, kind: str, shared: Path, tmp_path: Path) -> None:
    file = load_task(name)
    items = file.items("dev", shared / "downstream" / FILES[name])[0][:24]
    task: Any = file.task
    net = model_of(kind, [text for item in items for text in words_of(item.texts)])
    model, fitted, result = save_finetuned(net, task, items, tmp_path / "model")
    again = score_finetuned(FinetunedModel.load(tmp_path / "model"), fitted, {"dev": items}, length=LENGTH)
    if kind == "encoder":
        assert again.scores == result.scores
        assert again.predictions == result.predictions
    assert again.scores["dev"] == pytest.approx(result.scores["dev"], abs=1e-5)

    config = hf().AutoConfig.from_pretrained(tmp_path / "model")
    theirs = getattr(hf(), auto_class(config.architectures[0])).from_pretrained(tmp_path / "model").eval()
    tokenizer = hf().AutoTokenizer.from_pretrained(tmp_path / "model")
    head = task.targets()[0].kind
    encoded = encode_items(fitted, items, model.vocab, LENGTH)
    ours = model.build()
    for number, example in enumerate(encoded.examples[:12]):
        ((_, heads),) = outputs(ours, [example], torch.device("cpu"))
        if head == "answer_span":  # windows of one context are cut by Sesame: the same IDs
            ids = torch.from_numpy(example[0]["input_ids"])[None].long()
            types = torch.from_numpy(example[0]["token_type_ids"])[None].long()
            with torch.no_grad():
                found = theirs(input_ids=ids, token_type_ids=types)
            expected = torch.stack([found.start_logits, found.end_logits], -1)
        else:
            expected = their_logits(head, theirs, tokenizer, items[encoded.item_of[number]])
        mine = heads[head]
        if head == "token_tag":
            expected = expected[torch.from_numpy(np.flatnonzero(example[0]["labels"] >= 0))]
        torch.testing.assert_close(mine.reshape(expected.shape), expected, atol=1e-5, rtol=1e-5)
    if head == "row_label" and len(items[0].texts) == 1:
        answers = hf().pipeline("text-classification", model=theirs, tokenizer=tokenizer)
        shown = [answer["label"] for answer in answers([item.texts[0] for item in items], truncation=True)]
        assert shown == list(result.predictions["dev"])


TASK: Final = Classification(text="t", label="l", labels=("no", "yes"), metrics=("f1", "accuracy"))


@pytest.mark.parametrize(
    ("labels", "expected", "positive", "note"),
    [
        (("no", "yes"), ("no", "yes"), "", ""),
        (("YES", "No"), ("yes", "no"), "yes", ""),
        (("maybe", "yes", "no"), ("maybe", "yes", "no"), "yes", ""),
        (("LABEL_0", "LABEL_1"), ("no", "yes"), "", "labels match by number: LABEL_0 is no, LABEL_1 is yes"),
    ],
)
def test_labels_match_by_name_or_by_number(
    labels: tuple[str, ...], expected: tuple[str, ...], positive: str, note: str
) -> None:
    task, actual = fit_labels(TASK, "row_label", labels, Path("m"))
    assert (task.labels, task.positive_label, actual) == (expected, positive, note)


def test_labels_that_differ_only_in_case_match_exactly() -> None:
    task = replace(TASK, labels=("A", "a"), metrics=("accuracy",))
    for labels in (("A", "a"), ("a", "A")):
        assert fit_labels(task, "row_label", labels, Path("m"))[0].labels == labels
    with pytest.raises(BadInput, match=r"invalid labels of m/config\.json: got a, a, expected no, yes"):
        fit_labels(TASK, "row_label", ("a", "a"), Path("m"))


def test_other_labels_and_other_heads_are_refused() -> None:
    with pytest.raises(BadInput, match=r"labels of m/config\.json: got a, b, expected no, yes as in the task"):
        fit_labels(TASK, "row_label", ("a", "b"), Path("m"))
    with pytest.raises(BadInput, match=r"classification, with the head row_label, expected .* the head answer_span"):
        fit_labels(TASK, "answer_span", (), Path("m"))
    numbered = replace(TASK, labels=("0", "1"))
    assert fit_labels(numbered, "row_label", ("NEGATIVE", "POSITIVE"), Path("m"))[1] == (
        "labels match by number: NEGATIVE is 0, POSITIVE is 1"
    )


@pytest.mark.parametrize(
    ("task", "more", "message"),
    [
        (TASK, {"features": "last_four"}, "last_four of a frozen model"),
        (TASK, {"added": True}, "adds the states of both orders"),
        (ExtractiveQA(squad_version=2, no_answer_loss_weight=0.5), {}, r"a second head \(no_answer\)"),
    ],
)
def test_a_model_without_an_equal_class_is_refused_before_training(
    task: LabeledTask, more: dict[str, Any], message: str
) -> None:
    spec = ModelSpec(
        model=Encoder(**SIZE, position_embedding=LearnedPositions(max_position_embeddings=40)),
        losses=(MaskedTokens(),),
        vocab_size=50,
    )
    with pytest.raises(BadInput, match=message) as refused:
        check_savable(spec, 0, task, **more)
    assert "\n" not in str(refused.value)


def test_the_threshold_of_unanswerable_questions_is_saved_with_the_task(tmp_path: Path) -> None:
    items = [
        TaskItem(f"a:{n}", ("what is it", "it is a film"), (str(n), ["film"] if n % 2 else [], [8] if n % 2 else []))
        for n in range(8)
    ]
    net = model_of("encoder", ["what is it", "it is a film"] * 9)
    _, fitted, result = save_finetuned(net, ExtractiveQA(squad_version=2), items, tmp_path / "model")
    assert fitted.null_score_diff_threshold is not None
    again = score_finetuned(FinetunedModel.load(tmp_path / "model"), fitted, {"dev": items}, length=LENGTH)
    assert again.scores == result.scores


@pytest.mark.parametrize(
    ("task", "golds"),
    [
        (TASK, (0, 1)),
        (Regression(text="t", label="score", min_value=0, max_value=5), (1.5, 2.5)),
        (TokenClassification(labels=("O", "B-X"), metrics=("accuracy",)), (["O", "O"], ["O", "B-X"])),
    ],
)
def test_a_reloaded_model_gives_the_same_predictions(task: Any, golds: tuple[Any, Any], tmp_path: Path) -> None:
    texts = (("a", "film"),) if isinstance(golds[0], list) else ("a film",)
    items = [TaskItem(f"a:{n}", texts, golds[n % 2]) for n in range(8)]
    net = model_of("encoder", ["a film", "is it"] * 9)
    _, _, result = save_finetuned(net, task, items, tmp_path / "model")
    again = score_finetuned(FinetunedModel.load(tmp_path / "model"), task, {"dev": items}, length=LENGTH)
    assert (again.scores, again.predictions) == (result.scores, result.predictions)
