"""The first ten losses of fine-tuning equal those of transformers with the same weights, for each kind of head.

Our shipped tasks read files in the formats of the data sets. A tokenizer of transformers reads the raw texts, as in the
examples of transformers, and this module numbers the labels. Thus the test covers columns, labels, truncation and
special tokens.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from torch import Tensor

from orchestration.config import load_task
from preprocessing.schema import IGNORE
from preprocessing.tokenization import ByteLevelBPE, TokenizerSpec, Vocab, WordPiece, train
from tests.training.parity import hf
from training.engines.local import LocalEngine
from training.evaluation.tasks import LabeledTask
from training.finetuning import LanguageModelTarget, NoAnswer, Target, TaskModel, Tuning, orders, train_head
from training.formats.bert import BERT
from training.formats.gpt2 import GPT2
from training.losses import MaskedTokens, NextToken
from training.model_spec import ModelSpec
from training.optimizers import rate
from training.specs import Decoder, Encoder, EngineSettings, LearnedPositions

LENGTH, COUNT = 24, 20
STILL: Final = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
}
ENCODER: Final = Encoder(**STILL, position_embedding=LearnedPositions(max_position_embeddings=40), norm_position="post")
DECODER: Final = Decoder(**STILL, position_embedding=LearnedPositions(max_position_embeddings=40), norm_position="pre")
TUNING: Final = Tuning(
    learning_rate=3e-3, batch_size=8, max_steps=10, warmup_ratio=0.2, weight_decay=0.01, max_grad_norm=1.0, eps=1e-8
)
TEXT: Final = """Ada Lovelace wrote the first program for an engine that nobody ever built . It computes the numbers of
Bernoulli ; Babbage , who had drawn the engine in London , said so in his " Passages from the Life of a Philosopher .
Her notes are three times as long as the article by Luigi Menabrea , an engineer from Turin , which she translated
from French ; they say what such an engine can do , and that it can not think . A café in Marylebone has her name ."""
WORDS: Final = TEXT.split()
TAGS: Final = ["O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC", "B-MISC", "I-MISC"]
LETTERS: Final = "ABCD"

Raw = tuple[Any, ...]
"""One example: its texts and its answer as in the file."""
Theirs = dict[str, Any]
"""A sequence as transformers takes it: `input_ids`, `token_type_ids`, and its answer as `labels` or as start and end
positions."""


def words(rng: np.random.Generator, most: int) -> list[str]:
    """Some consecutive words of the text."""
    size = int(rng.integers(2, most))
    start = int(rng.integers(len(WORDS) - size))
    return WORDS[start : start + size]


def phrase(rng: np.random.Generator, most: int) -> str:
    return " ".join(words(rng, most))


# The raw data, and its formats.


def raw_rows(task: str, rng: np.random.Generator) -> list[Raw]:
    """Examples of a task, some of them longer than LENGTH tokens."""
    if task == "sst2":
        return [(phrase(rng, 30), int(rng.integers(2))) for _ in range(COUNT)]
    if task == "stsb":
        return [(phrase(rng, 20), phrase(rng, 20), round(rng.random() * 5, 3)) for _ in range(COUNT)]
    if task == "squad1":
        starts = [TEXT.index(word) for word in rng.choice([word for word in WORDS if len(word) > 5], COUNT)]
        spans = [(start, int(start + rng.integers(3, 20))) for start in starts]
        return [(f" what is {phrase(rng, 4)} ?", TEXT, TEXT[start:stop], start) for start, stop in spans]
    if task == "conll2003":
        given = [words(rng, 30) for _ in range(COUNT)]
        return [(sentence, [str(tag) for tag in rng.choice(TAGS, len(sentence))]) for sentence in given]
    return [
        (phrase(rng, 30), phrase(rng, 6), [phrase(rng, 5) for _ in LETTERS], int(rng.integers(4))) for _ in range(COUNT)
    ]


def sst2(rows: Sequence[Raw]) -> dict[str, str]:
    return {"SST-2/train.tsv": "sentence\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows)}


def stsb(rows: Sequence[Raw]) -> dict[str, str]:
    head = ["index", "genre", "filename", "year", "old_index", "source1", "source2", "sentence1", "sentence2", "score"]
    lines = [[number, "main", "MSR", 2012, number, "none", "none", *row] for number, row in enumerate(rows)]
    return {"STS-B/train.tsv": "".join("\t".join(map(str, line)) + "\n" for line in (head, *lines))}


def squad1(rows: Sequence[Raw]) -> dict[str, str]:
    asked = [
        {"id": str(number), "question": question, "answers": [{"text": answer, "answer_start": start}]}
        for number, (question, _, answer, start) in enumerate(rows)
    ]
    articles = [{"title": "Ada", "paragraphs": [{"context": TEXT, "qas": asked}]}]
    return {"train-v1.1.json": json.dumps({"data": articles, "version": "1.1"})}


def conll2003(rows: Sequence[Raw]) -> dict[str, str]:
    sentences = ["\n".join(f"{a} NNP I-NP {b}" for a, b in zip(*row, strict=True)) for row in rows]
    return {"eng.train": "\n\n".join(["-DOCSTART- -X- -X- O", *sentences, ""])}


def race(rows: Sequence[Raw]) -> dict[str, str]:
    """One file for each article."""
    return {
        f"RACE/train/high/{number:02}.txt": json.dumps(
            {"article": article, "questions": [asked], "options": [options], "answers": [LETTERS[right]]}
        )
        for number, (article, asked, options, right) in enumerate(rows)
    }


FILES: Final[Mapping[str, Callable[[Sequence[Raw]], dict[str, str]]]] = {
    "sst2": sst2,
    "stsb": stsb,
    "squad1": squad1,
    "conll2003": conll2003,
    "race": race,
}


# The same examples by a tokenizer of transformers.


def their_rows(task: str, rows: Sequence[Raw], tokenizer: Any) -> list[list[Theirs]]:
    """The sequences of each example."""
    cut = {"truncation": True, "max_length": LENGTH}
    if task == "sst2":
        return [[{**tokenizer(text, **cut), "labels": label}] for text, label in rows]
    if task == "stsb":
        return [[{**tokenizer(first, second, **cut), "labels": score}] for first, second, score in rows]
    if task == "squad1":
        return [[window] for row in rows for window in their_windows(*row, tokenizer)]
    if task == "conll2003":
        return [[their_tags(*row, tokenizer(row[0], is_split_into_words=True, **cut))] for row in rows]
    return [
        [{**tokenizer(article, f"{asked} {option}", **cut), "labels": right} for option in options]
        for article, asked, options, right in rows
    ]


def their_windows(question: str, context: str, answer: str, start: int, tokenizer: Any) -> list[Theirs]:
    """Overlapping windows that start a third of a sequence apart. In transformers, `stride` is the overlap."""
    room = LENGTH - 3 - len(tokenizer.tokenize(question))
    more = {"truncation": "only_second", "stride": room - LENGTH // 3, "return_overflowing_tokens": True}
    found = tokenizer(question, context, max_length=LENGTH, **more)
    windows = []
    for number, (ids, types) in enumerate(zip(found["input_ids"], found["token_type_ids"], strict=True)):
        at = [found.char_to_token(number, place, 1) for place in (start, start + len(answer.rstrip()) - 1)]
        begin, end = at if None not in at else (0, 0)
        row = {"input_ids": ids, "token_type_ids": types, "start_positions": begin, "end_positions": end}
        windows.append(row)
    return windows


def their_tags(sentence: Sequence[str], tags: Sequence[str], found: Any) -> Theirs:
    """The first token of a word has its tag."""
    of = found.word_ids()
    first = [word is not None and word not in of[:at] for at, word in enumerate(of)]
    labels = [TAGS.index(tags[word]) if begins else IGNORE for begins, word in zip(first, of, strict=True)]
    return {**found, "labels": labels}


def with_end_of_text(rows: Sequence[Raw], tokenizer: Any) -> list[list[Theirs]]:
    """Sequences of GPT-2, which has no template: each ends with the end-of-text token."""
    cut = [tokenizer(text, truncation=True, max_length=LENGTH - 1)["input_ids"] for text, _ in rows]
    ended = [[*ids, tokenizer.eos_token_id] for ids in cut]
    return [[{"input_ids": ids, "labels": label}] for ids, (_, label) in zip(ended, rows, strict=True)]


def their_batch(rows: Sequence[Theirs]) -> dict[str, Tensor]:
    """Padded sequences and their labels."""
    fill = {"input_ids": 0, "token_type_ids": 0, "attention_mask": 0, "labels": IGNORE}
    width = max(len(row["input_ids"]) for row in rows)
    given = [{**row, "attention_mask": [1] * len(row["input_ids"])} for row in rows]
    return {
        name: torch.tensor(
            [
                row[name] + [fill[name]] * (width - len(row["input_ids"])) if isinstance(row[name], list) else row[name]
                for row in given
            ]
        )
        for name in given[0]
    }


def their_loss(net: Any, examples: Sequence[Sequence[Theirs]]) -> Tensor:
    """The mean over the examples. Each window is a batch, because the softmax of transformers includes padding."""
    if "start_positions" in examples[0][0]:
        return torch.stack([net(**their_batch(rows)).loss for rows in examples]).mean()
    batch = their_batch([row for rows in examples for row in rows])
    if (options := len(examples[0])) > 1:
        batch = {name: column.unflatten(0, (-1, options)) for name, column in batch.items()}
        batch["labels"] = batch["labels"][:, 0]
    return net(**batch).loss


# The models.


@cache
def vocab_of(net: str) -> Vocab:
    kinds: Mapping[str, TokenizerSpec] = {"bert": WordPiece(vocab_size=200), "gpt2": ByteLevelBPE(vocab_size=320)}
    return train(kinds[net], [TEXT] * 40)


def tokenizer_of(net: str, folder: Path) -> Any:
    """The tokenizer class of transformers, built from our vocabulary files."""
    vocab_of(net).save(folder)
    if net == "bert":
        return hf().BertTokenizer(vocab=str(folder / "vocab.txt"))
    return hf().GPT2Tokenizer(vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt"))


def spec_of(net: str) -> ModelSpec:
    size = vocab_of(net).size
    if net == "bert":
        return ModelSpec(model=ENCODER, losses=(MaskedTokens(),), vocab_size=size)
    return ModelSpec(model=DECODER, losses=(NextToken(),), vocab_size=size)


def oracle(net: str, kind: str, model: TaskModel) -> Any:
    """The model of transformers with our weights."""
    name, layer, last = CLASSES[net, kind]
    spec, format = spec_of(net), {"bert": BERT, "gpt2": GPT2}[net]
    state = dict(model.named_parameters())
    bias = state[f"heads.{kind}.{layer}.bias"]
    config = getattr(hf(), f"{name.partition('For')[0]}Config")(
        **format.config(spec, vocab=None),  # type: ignore[arg-type]
        vocab_size=spec.vocab_size,
        num_labels=len(bias),
        pad_token_id=0,
    )
    config.problem_type = "regression" if kind == "row_value" else None
    config._attn_implementation = "eager"
    their = getattr(hf(), name)(config)
    if net == "gpt2":  # its classifier has no bias
        their.score = torch.nn.Linear(their.score.in_features, len(bias))
    tensors = dict(format.theirs({key: x for key, x in state.items() if key.startswith("trunk.")}, spec))
    for suffix in ("weight", "bias"):
        tensors[f"{last}.{suffix}"] = state[f"heads.{kind}.{layer}.{suffix}"]
        if f"heads.{kind}.summary.pooler.{suffix}" in state:
            tensors[f"bert.pooler.dense.{suffix}"] = state[f"heads.{kind}.summary.pooler.{suffix}"]
    missing, unexpected = their.load_state_dict({key: x.detach().clone() for key, x in tensors.items()}, strict=False)
    assert not unexpected
    assert not [key for key in missing if "position_ids" not in key]
    return their.train()


CLASSES: Final = {  # model and target -> class of transformers, our name of the last layer, theirs
    ("bert", "row_label"): ("BertForSequenceClassification", "classify", "classifier"),
    ("bert", "row_value"): ("BertForSequenceClassification", "regress", "classifier"),
    ("bert", "answer_span"): ("BertForQuestionAnswering", "ends", "qa_outputs"),
    ("bert", "token_tag"): ("BertForTokenClassification", "classify", "classifier"),
    ("bert", "option_choice"): ("BertForMultipleChoice", "rate", "classifier"),
    ("gpt2", "row_label"): ("GPT2ForSequenceClassification", "classify", "score"),
}


def their_losses(net: Any, examples: Sequence[Sequence[Theirs]]) -> list[float]:
    """Ten updates of a plain loop with torch's AdamW."""
    optim = TUNING.optim(TUNING.max_steps)
    named = dict(net.named_parameters())
    groups = [
        {"params": [x for x in named.values() if x.ndim > 1], "weight_decay": TUNING.weight_decay},
        {"params": [x for x in named.values() if x.ndim == 1], "weight_decay": 0.0},
    ]
    adam = torch.optim.AdamW(groups, lr=TUNING.learning_rate, betas=(0.9, TUNING.beta2), eps=TUNING.eps)
    losses = []
    for step, index_N in enumerate(orders(len(examples), TUNING.batch_size, TUNING.max_steps, TUNING.seed)):
        loss = their_loss(net, [examples[i] for i in index_N])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), TUNING.max_grad_norm)
        for group in adam.param_groups:
            group["lr"] = rate(optim, step, TUNING.max_steps)
        adam.step()
        adam.zero_grad()
        losses.append(float(loss.detach()))
    return losses


def task_of(name: str) -> LabeledTask:
    return load_task(name).task  # type: ignore[return-value]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("micro_tokens", [200, 16_384])
@pytest.mark.parametrize(("net", "name"), [*(("bert", name) for name in FILES), ("gpt2", "sst2")])
def test_the_first_ten_losses_are_those_of_transformers(net: str, name: str, micro_tokens: int, tmp_path: Path) -> None:
    raw = raw_rows(name, np.random.default_rng(0))
    for file, content in FILES[name](raw).items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(content, encoding="utf-8")
    tokenizer = tokenizer_of(net, tmp_path / "vocab")
    expected_rows = with_end_of_text(raw, tokenizer) if net == "gpt2" else their_rows(name, raw, tokenizer)

    items, task = load_task(name).items("train", tmp_path)[0], task_of(name)
    encoded = task.encode(items, vocab_of(net), LENGTH, training=True)
    assert len(items) == COUNT
    assert encoded.notes or len(encoded.examples) > COUNT  # some sequences are truncated, or have several windows
    model = TaskModel(spec_of(net).model, [still(target) for target in task.targets()], vocab_of(net).size, seed=1)
    randomize(model)
    expected = their_losses(oracle(net, model.targets[0].kind, model), expected_rows)
    losses = list[float]()
    engine = LocalEngine(model, TUNING.optim(TUNING.max_steps), EngineSettings())
    train_head(engine, encoded.examples, TUNING, micro_tokens, on_step=lambda done, loss: losses.append(loss))
    assert losses == pytest.approx(expected, abs=1e-4)
    assert len(set(losses)) == 10
    assert abs(losses[-1] - losses[0]) > 5e-3  # the losses change during training


def still(target: Target) -> Target:
    """The target without dropout."""
    return replace(target, dropout=0.0) if hasattr(target, "dropout") else target  # type: ignore[type-var]


def randomize(model: torch.nn.Module) -> None:
    """Make every tensor random: zero biases would hide an error."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(torch.empty_like(tensor).normal_(0, 0.15, generator=generator))


def test_all_heads_are_compared() -> None:
    import training.finetuning.targets as module

    kinds = {each for each in vars(module).values() if isinstance(each, type) and hasattr(each, "head")} - {Target}
    beside = {NoAnswer, LanguageModelTarget}  # additional targets: tests/training/evaluation/test_finetune_trial.py
    assert kinds == {type(target) for name in FILES for target in task_of(name).targets()} | beside
