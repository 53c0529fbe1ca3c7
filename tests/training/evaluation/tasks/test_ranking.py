"""Competing pairs: which are trained on, which is correct, and the prediction for a pair without a competitor."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from preprocessing.errors import BadInput
from preprocessing.tokenization import Vocab, WordPiece, train
from training.evaluation import EvaluatedModel
from training.evaluation.files import TsvFormat
from training.evaluation.finetune_trial import finetune_task
from training.evaluation.tasks import Ranking, SplitRecords, TaskItem
from training.finetuning import Tuning
from training.losses import MaskedTokens
from training.model_spec import ModelSpec
from training.specs import Encoder, LearnedPositions

WORDS = ("ape", "bee", "cat", "dog", "elk", "fox")
TASK = Ranking(text="a", text_pair="b", label="c", labels=("0", "1"))


@pytest.fixture(scope="module")
def vocab() -> Vocab:
    return train(WordPiece(vocab_size=60), [" ".join(WORDS)] * 30)


def item(premise: str, sentence: str, gold: int | None) -> TaskItem:
    return TaskItem("x:1", (premise, sentence), gold)


ROWS = [
    # one premise with a competing pair, one without
    item("ape", "bee", 1), item("cat", "dog", 0), item("ape", "fox", 0),
    item("elk", "bee", 1), item("elk", "fox", 1),  # both are correct, so that neither is preferred
]  # fmt: skip


def test_groups_with_exactly_one_correct_pair_are_trained_on(vocab: Vocab) -> None:
    encoded = TASK.encode(ROWS, vocab, 32, training=True)
    assert encoded.stands_for == [[0, 2]]
    assert [(int(row["option"]), int(row["right"])) for row in encoded.examples[0]] == [(0, 0), (1, 0)]
    assert encoded.notes == ["3 of 5 pairs are left out: they have no competing pair, or not exactly one is correct"]
    longer = [item("ape", "bee cat", 1), item("ape", "fox", 0)]
    assert TASK.encode(longer, vocab, 5, training=True).notes == ["1 of 2 sequences are truncated to 5 tokens"]
    with pytest.raises(BadInput, match="no group of pairs to rank"):
        TASK.encode(ROWS[1:2], vocab, 32, training=True)


def test_every_pair_is_predicted_within_its_group(vocab: Vocab) -> None:
    encoded = TASK.encode(ROWS, vocab, 32, training=False)
    assert encoded.stands_for == [[0, 2], [1], [3, 4]]
    logits = torch.tensor([[0.0, 2.0], [1.5, -torch.inf], [-1.0, -2.0]])
    actual = TASK.predictions(ROWS, encoded, [([0, 1, 2], {"option_choice": logits})])
    assert actual == ["0", "1", "1", "1", "0"]  # the second has no competitor, and its score is above the mean
    low = TASK.predictions(
        ROWS, encoded, [([2], {"option_choice": logits[:1]}), ([0, 1], {"option_choice": -logits[:2]})]
    )
    assert low == ["1", "0", "0", "0", "1"]
    assert TASK.scores(ROWS, actual) == {"accuracy": 0.2}


def test_a_model_learns_the_correct_sentence(vocab: Vocab) -> None:
    rng = np.random.default_rng(0)

    def rows(count: int) -> list[TaskItem]:
        found = []
        for _ in range(count):
            premise = " ".join(rng.permutation(WORDS))
            good, bad = rng.permutation(3)[0], rng.permutation(3)[0] + 3
            found += [item(premise, WORDS[good], 1), item(premise, WORDS[bad], 0)]
        return found

    trunk = Encoder(
        num_hidden_layers=1,
        hidden_size=32,
        num_attention_heads=2,
        position_embedding=LearnedPositions(max_position_embeddings=32),
        hidden_dropout=0.0,
        init_std=0.1,
    )
    spec = ModelSpec(model=trunk, losses=(MaskedTokens(),), vocab_size=vocab.size)
    found = finetune_task(
        EvaluatedModel(spec, None, vocab),
        TASK,
        {"train": rows(64), "dev": rows(20)},
        Tuning(learning_rate=3e-3, batch_size=8, max_steps=60),
        length=32,
    )
    assert found.scores["dev"]["accuracy"] == 1.0


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"labels": ("1", "1")}, "two, wrong and right"),
        ({"text_pair": ""}, "invalid text_pair: got '', expected a column"),
    ],
)
def test_invalid_keys_are_refused_in_one_line(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Ranking(**{"text": "a", "text_pair": "b", "label": "c", "labels": ("0", "1")} | keys)


def test_a_label_out_of_range_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text("a\tb\tc\nape\tbee\t2\n")
    records = SplitRecords(paths=("dev.tsv",), format=TsvFormat()).records(tmp_path)
    with pytest.raises(BadInput, match=r"dev.tsv:2: invalid c: got '2', expected 0 or 1"):
        TASK.items(records, {})
