"""The first ten losses of fine-tuning are those of transformers with the same weights, for each kind of head."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from preprocessing.schema import IGNORE, Row
from tests.training.parity import hf
from training.engines.local import LocalEngine
from training.finetuning import (
    AnswerSpan,
    NoAnswer,
    OptionChoice,
    OwnText,
    RowLabel,
    RowValue,
    Target,
    TaskModel,
    TokenTag,
    Tuning,
    orders,
    tune,
)
from training.formats import bert
from training.optim import rate
from training.specs import Encoder, Learned, Machine

TRUNK = Encoder(layers=2, width=32, heads=2, dropout=0.0, attention_dropout=0.0, positions=Learned(max=40), norm="post")
VOCAB, EXAMPLES, OPTIONS = 60, 48, 4
TUNING = Tuning(peak=3e-3, batch=8, steps=10, warmup=0.2, decay=0.01, clip=1.0, eps=1e-8)
HEADS = {  # target, class of transformers, names of its own layers
    "sst2": (RowLabel(classes=2, dropout=0.0), "BertForSequenceClassification", "classify"),
    "stsb": (RowValue(dropout=0.0), "BertForSequenceClassification", "regress"),
    "squad": (AnswerSpan(), "BertForQuestionAnswering", "ends"),
    "ner": (TokenTag(classes=5, dropout=0.0), "BertForTokenClassification", "classify"),
    "race": (OptionChoice(dropout=0.0), "BertForMultipleChoice", "rate"),
}


def rows(rng: np.random.Generator, task: str) -> list[Row]:
    """The rows of an example, with all columns that a task may have.

    Those of squad are equally long: the softmax of transformers goes over padding too, and ours over the row alone.
    """
    found = []
    right = rng.integers(OPTIONS)
    for option in range(OPTIONS if task == "race" else 1):
        length = 32 if task == "squad" else int(rng.integers(6, 33))
        start, stop = sorted(rng.integers(1, length, 2).tolist())
        labels = np.where(rng.random(length) < 0.5, rng.integers(0, 5, length), IGNORE)
        found.append(
            {
                "ids": rng.integers(5, VOCAB, length).astype(np.int32),
                "segments": (np.arange(length) > length // 2).astype(np.int8),
                "labels": labels.astype(np.int32),
                "label": np.int64(rng.integers(2)),
                "value": np.float32(rng.random() * 5),
                "start": np.int64(start),
                "stop": np.int64(stop),
                "option": np.int64(option),
                "right": np.int64(right),
            }
        )
    return found


def padded(given: Sequence[Row], width: int) -> dict[str, Tensor]:
    """Rows as transformers takes them."""
    ids = torch.zeros(len(given), width, dtype=torch.int64)
    mask, segments, labels = torch.zeros_like(ids), torch.zeros_like(ids), torch.full_like(ids, IGNORE)
    for number, row in enumerate(given):
        length = len(row["ids"])
        ids[number, :length] = torch.from_numpy(row["ids"])
        segments[number, :length] = torch.from_numpy(row["segments"])
        labels[number, :length] = torch.from_numpy(row["labels"])
        mask[number, :length] = 1
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments, "token_labels": labels}


def theirs(task: str, examples: Sequence[Sequence[Row]]) -> dict[str, Tensor]:
    """A batch of a class of transformers, with its labels."""
    flat = [row for example in examples for row in example]
    batch = padded(flat, max(len(row["ids"]) for row in flat))
    tags = batch.pop("token_labels")
    if task == "race":
        batch = {name: column.view(len(examples), OPTIONS, -1) for name, column in batch.items()}
        return batch | {"labels": torch.tensor([example[0]["right"] for example in examples])}
    if task == "squad":
        ends = {"start_positions": "start", "end_positions": "stop"}
        return batch | {name: torch.tensor([int(row[of]) for row in flat]) for name, of in ends.items()}
    of = {"sst2": "label", "stsb": "value"}
    return batch | {"labels": tags if task == "ner" else torch.tensor([row[of[task]] for row in flat])}


def oracle(task: str, model: TaskModel, layer: str, name: str) -> Any:
    """The net of transformers with the weights of ours."""
    labels = {"sst2": 2, "stsb": 1, "squad": 2, "ner": 5, "race": 1}[task]
    spec = bert_spec()
    config = hf().BertConfig(**bert.config(spec, vocab=None), vocab_size=VOCAB, num_labels=labels)  # type: ignore[arg-type]
    config.problem_type = "regression" if task == "stsb" else None
    config._attn_implementation = "eager"
    net = getattr(hf(), name)(config)
    state = dict(model.named_parameters())
    ours = {key: tensor for key, tensor in state.items() if key.startswith("trunk.")}
    tensors = dict(bert.theirs(ours, spec))
    kind = model.targets[0].kind
    last = "qa_outputs" if task == "squad" else "classifier"
    for suffix in ("weight", "bias"):
        tensors[f"{last}.{suffix}"] = state[f"heads.{kind}.{layer}.{suffix}"]
        if f"heads.{kind}.summary.pooler.{suffix}" in state:
            tensors[f"bert.pooler.dense.{suffix}"] = state[f"heads.{kind}.summary.pooler.{suffix}"]
    missing, unexpected = net.load_state_dict({key: x.detach().clone() for key, x in tensors.items()}, strict=False)
    assert not unexpected
    assert not [key for key in missing if "position_ids" not in key]
    return net.train()


def bert_spec() -> Any:
    from training.losses import MaskedTokens
    from training.model import ModelSpec

    return ModelSpec(trunk=TRUNK, losses=(MaskedTokens(),), vocab_size=VOCAB)


def their_losses(net: Any, task: str, examples: Sequence[Sequence[Row]]) -> list[float]:
    """Ten updates of a plain loop with torch's AdamW."""
    optim = TUNING.optim(TUNING.steps)
    named = dict(net.named_parameters())
    groups = [
        {"params": [x for x in named.values() if x.ndim > 1], "weight_decay": TUNING.decay},
        {"params": [x for x in named.values() if x.ndim == 1], "weight_decay": 0.0},
    ]
    adam = torch.optim.AdamW(groups, lr=TUNING.peak, betas=(0.9, TUNING.beta2), eps=TUNING.eps)
    losses = []
    for step, index_N in enumerate(orders(len(examples), TUNING.batch, TUNING.steps, TUNING.seed)):
        loss = net(**theirs(task, [examples[i] for i in index_N])).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), TUNING.clip)
        for group in adam.param_groups:
            group["lr"] = rate(optim, step, TUNING.steps)
        adam.step()
        adam.zero_grad()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("task", HEADS)
@pytest.mark.parametrize("micro_tokens", [200, 16_384])
def test_the_first_ten_losses_are_those_of_transformers(task: str, micro_tokens: int) -> None:
    rng = np.random.default_rng(0)
    target, name, layer = HEADS[task]
    examples = [rows(rng, task) for _ in range(EXAMPLES)]
    model = TaskModel(TRUNK, [target], VOCAB, seed=1)
    randomise(model)
    expected = their_losses(oracle(task, model, layer, name), task, examples)
    losses = list[float]()
    engine = LocalEngine(model, TUNING.optim(TUNING.steps), Machine())
    tune(engine, examples, TUNING, micro_tokens, on_step=lambda done, loss: losses.append(loss))
    assert losses == pytest.approx(expected, abs=1e-4)
    assert len(set(losses)) == 10
    assert abs(losses[-1] - losses[0]) > 5e-3  # they move, and together


def randomise(model: torch.nn.Module) -> None:
    """Every tensor random: zero biases would hide a mistake."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(torch.empty_like(tensor).normal_(0, 0.05, generator=generator))


def test_the_heads_are_all_there_are() -> None:
    import training.finetuning.targets as module

    kinds = {each for each in vars(module).values() if isinstance(each, type) and hasattr(each, "head")} - {Target}
    beside = {NoAnswer, OwnText}  # heads that stand beside another one: test_beside.py
    assert kinds == {type(target) for target, *_ in HEADS.values()} | beside
