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
from preprocessing.tokenization import ShownToken, Vocab, legend, shown_tokens
from training.data import open_loader
from training.run import Run

PREDICTED, LABEL, SPECIAL, QUIET = "reverse", "bold green", "magenta", "dim"


@dataclass(frozen=True)
class DecodedExample:
    """A sequence as the model gets it: its tokens, and the label at each predicted position ("" elsewhere).

    `tokens`, `labels` and `source` are the tokens as the vocabulary writes them; `shown` are those for people.
    """

    step: int
    number: int  # of the row in its batch
    tokens: list[str]
    labels: list[str]
    shown: list[ShownToken]
    is_causal: bool
    pair_label: int | None = None
    pair_label_means: str = ""
    source: list[str] | None = None  # input of the encoder, if the tokens are those of a decoder
    shown_source: tuple[ShownToken, ...] = ()
    attention_mask: str = ""  # the attention mask in words, where rows have their own

    def plain(self) -> dict[str, Any]:
        """As JSON tells it."""
        kept = {"step": self.step, "row": self.number, "tokens": self.tokens, "labels": self.labels}
        more = {
            "next_sentence_label": self.pair_label,
            "source": self.source,
            "attention_mask": self.attention_mask or None,
        }
        return kept | {name: value for name, value in more.items() if value is not None}


def decode_examples(run: Run, step: int, num_rows: int) -> list[DecodedExample]:
    """The first rows of the batch of `step`: the very arrays that the workers get, however many they are."""
    if not 0 <= step < run.steps:
        raise BadInput(f"--step is {step}, this run has the steps 0 to {run.steps - 1}")
    machine = replace(run.engine, padding="unpadded", dataloader_num_workers=0)
    loader = open_loader(replace(run, engine=machine), rank=0, world=1)
    vocab = Vocab.load(TokenStore.open(run.corpus, "train", verify=False).vocab_dir)
    rows = (row for batch in loader.at(step) for row in _rows(batch))
    causal = run.model.attention_mask == "causal"
    found = [_sample(step, number, row, vocab, causal) for number, row in zip(range(num_rows), rows, strict=False)]
    means = run.sampling.packing.label_means
    return [one if one.pair_label is None else replace(one, pair_label_means=means[one.pair_label]) for one in found]


def _rows(batch: Batch) -> Iterator[dict[str, Any]]:
    """The rows of an unpadded batch: ids [S], targets [S] (-1 where nothing is predicted), and what else they have."""
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


def _sample(step: int, number: int, row: dict[str, Any], vocab: Vocab, is_causal: bool) -> DecodedExample:
    ids, targets = row["input_ids"].tolist(), row["targets"].tolist()
    source = row["source_input_ids"].tolist() if "source_input_ids" in row else None
    if source is not None:
        shown = shown_tokens(vocab, [target for target in targets if target >= 0])
    else:
        shown = shown_tokens(vocab, ids, () if is_causal else targets)
    return DecodedExample(
        step=step,
        number=number,
        tokens=[vocab.piece(token) for token in ids],
        labels=["" if target < 0 else vocab.piece(target) for target in targets],
        shown=shown,
        is_causal=is_causal,
        pair_label=_label(row),
        source=None if source is None else [vocab.piece(token) for token in source],
        shown_source=() if source is None else tuple(shown_tokens(vocab, source)),
        attention_mask=attention_mask(row),
    )


def _label(row: dict[str, Any]) -> int | None:
    """Of a pair, None where it has none or none is predicted."""
    label = int(row.get("next_sentence_label", IGNORE))
    return None if label == IGNORE else label


def render_examples(found: list[DecodedExample]) -> Group:
    """The samples as text, then a legend; a predicted token is followed by its label."""
    tokens = [token for sample in found for token in (*sample.shown_source, *sample.shown)]
    labels = "token(label): a predicted token and its label" if any(token.label for token in tokens) else ""
    said = "; ".join(part for part in (labels, legend(tokens)) if part)
    return Group(*(_shown(sample) for sample in found), *([Text(said, QUIET)] if said else []))


def _shown(sample: DecodedExample) -> Text:
    predicted = sum(label != "" for label in sample.labels)
    head = f"step {sample.step}, row {sample.number}: {len(sample.tokens)} tokens, {predicted} predicted"
    pair = f"pair label {sample.pair_label}: {sample.pair_label_means}" if sample.pair_label_means else ""
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
