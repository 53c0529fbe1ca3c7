"""The training sequences of any step, decoded; masked tokens are marked, with their labels."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rich.console import Group
from rich.text import Text

from orchestration.reports.data_card import attention_mask
from preprocessing.errors import BadInput
from preprocessing.schema import IGNORE, Batch
from preprocessing.shards import TokenStore
from preprocessing.tokenization import ShownToken, Vocab, display_tokens, legend
from training.data import open_loader
from training.run import Run

PREDICTED, LABEL, SPECIAL, QUIET = "reverse", "bold green", "magenta", "dim"


@dataclass(frozen=True)
class DecodedExample:
    """A sequence as the model reads it: its tokens, and the label of each predicted position ("" elsewhere).

    `tokens`, `labels` and `source` have the tokens as written in the vocabulary; `shown` has readable text.
    """

    step: int
    number: int  # index of the sequence in its batch
    tokens: list[str]
    labels: list[str]
    shown: list[ShownToken]
    is_causal: bool
    pair_label: int | None = None
    pair_label_means: str = ""
    source: list[str] | None = None  # input of the encoder, if `tokens` is the input of a decoder
    shown_source: tuple[ShownToken, ...] = ()
    attention_mask: str = ""  # description of the attention mask, if each sequence has its own

    def plain(self) -> dict[str, Any]:
        """The values for JSON."""
        values = {"step": self.step, "row": self.number, "tokens": self.tokens, "labels": self.labels}
        optional = {
            "next_sentence_label": self.pair_label,
            "source": self.source,
            "attention_mask": self.attention_mask or None,
        }
        return values | {name: value for name, value in optional.items() if value is not None}


def decode_examples(run: Run, step: int, count: int) -> list[DecodedExample]:
    """The first `count` sequences of the batch of `step`, from the arrays that the workers read.

    The number of workers does not change them.
    """
    if not 0 <= step < run.steps:
        raise BadInput(f"invalid step: got {step}, expected a step from 0 to {run.steps - 1}; give a step of this run")
    machine = replace(run.engine, padding="unpadded", dataloader_num_workers=0)
    loader = open_loader(replace(run, engine=machine), rank=0, world=1)
    vocab = Vocab.load(TokenStore.open(run.corpus, "train", verify=False).vocab_dir)
    rows = (row for batch in loader.at(step) for row in _split_batch(batch))
    causal = run.model.attention_mask == "causal"
    examples = [_decode(step, number, row, vocab, causal) for number, row in zip(range(count), rows, strict=False)]
    means = run.sampling.packing.label_means
    return [one if one.pair_label is None else replace(one, pair_label_means=means[one.pair_label]) for one in examples]


def _split_batch(batch: Batch) -> Iterator[dict[str, Any]]:
    """The sequences of an unpadded batch: input_ids [S], targets [S] (-1 if not predicted), and optional columns."""
    target_T = np.full(len(batch["input_ids"]), -1)
    target_T[batch["targets_at"]] = batch["targets"]
    source_end_B = np.cumsum(batch.get("source_lengths", ()), dtype=np.int64)
    for number, (first, length) in enumerate(zip(batch["first_at"], batch["lengths"], strict=True)):
        here = slice(int(first), int(first) + int(length))
        row: dict[str, Any] = {name: batch[name][here] for name in ("input_ids", "rank", "reach") if name in batch}
        if "next_sentence_label" in batch:
            row["next_sentence_label"] = batch["next_sentence_label"][number]
        if "source_input_ids" in batch:
            end = int(source_end_B[number])
            row["source_input_ids"] = batch["source_input_ids"][end - int(batch["source_lengths"][number]) : end]
        yield row | {"targets": target_T[here]}


def _decode(step: int, number: int, row: dict[str, Any], vocab: Vocab, is_causal: bool) -> DecodedExample:
    ids, targets = row["input_ids"].tolist(), row["targets"].tolist()
    source = row["source_input_ids"].tolist() if "source_input_ids" in row else None
    if source is not None:
        shown = display_tokens(vocab, [target for target in targets if target >= 0])
    else:
        shown = display_tokens(vocab, ids, () if is_causal else targets)
    return DecodedExample(
        step=step,
        number=number,
        tokens=[vocab.piece(token) for token in ids],
        labels=["" if target < 0 else vocab.piece(target) for target in targets],
        shown=shown,
        is_causal=is_causal,
        pair_label=_label(row),
        source=None if source is None else [vocab.piece(token) for token in source],
        shown_source=() if source is None else tuple(display_tokens(vocab, source)),
        attention_mask=attention_mask(row),
    )


def _label(row: dict[str, Any]) -> int | None:
    """The label of a sentence pair; None if the sequence has no label to predict."""
    label = int(row.get("next_sentence_label", IGNORE))
    return None if label == IGNORE else label


def render_examples(examples: list[DecodedExample]) -> Group:
    """The sequences as text, then a legend; the label of a predicted token follows it in parentheses."""
    tokens = [token for sample in examples for token in (*sample.shown_source, *sample.shown)]
    labels = "token(label): a predicted token and its label" if any(token.label for token in tokens) else ""
    key = "; ".join(part for part in (labels, legend(tokens)) if part)
    return Group(*(_format_example(sample) for sample in examples), *([Text(key, QUIET)] if key else []))


def _format_example(sample: DecodedExample) -> Text:
    predicted = sum(label != "" for label in sample.labels)
    head = f"step {sample.step}, sequence {sample.number}: {len(sample.tokens)} tokens, {predicted} predicted"
    pair = f"sentence-pair label {sample.pair_label}: {sample.pair_label_means}" if sample.pair_label_means else ""
    text = Text("".join(f"{line}\n" for line in (head, pair, sample.attention_mask) if line), QUIET)
    if sample.source is not None:
        text.append("source: ").append_text(_tokens(sample.shown_source)).append("\n")
        return text.append("target: ", QUIET).append_text(_tokens(sample.shown, LABEL)).append("\n")
    return text.append_text(_tokens(sample.shown)).append("\n")


def _tokens(tokens: Iterable[ShownToken], style: str = "") -> Text:
    text = Text()
    for token in tokens:
        text.append(token.before, style)
        text.append(token.text, PREDICTED if token.label else SPECIAL if token.is_special else style)
        if token.label:
            text.append(f"({token.label})", LABEL)
    return text
