"""The rows of any step as the model sees them, decoded, with masked tokens and their labels in colour."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rich.console import Group
from rich.text import Text

from orchestration.reports.data_card import attention_mask, text_of
from preprocessing.errors import BadInput
from preprocessing.schema import IGNORE, Batch
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab
from training.data import open_loader
from training.run import Run

PREDICTED, LABEL, SPECIAL, QUIET = "reverse", "bold green", "magenta", "dim"


@dataclass(frozen=True)
class DecodedExample:
    """A row as the model gets it: its tokens, and the label at each position that is predicted ("" elsewhere)."""

    step: int
    number: int  # of the row in its batch
    tokens: list[str]  # pieces
    labels: list[str]  # pieces
    texts: list[str]  # the tokens for people: joined, they are the text
    label_texts: list[str]
    special: list[bool]
    is_causal: bool
    pair_label: int | None = None
    pair_label_means: str = ""
    source: list[str] | None = None  # pieces of what an encoder reads, where the tokens are a decoder's
    source_texts: tuple[str, ...] = ()
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
    return DecodedExample(
        step=step,
        number=number,
        tokens=[vocab.piece(token) for token in ids],
        labels=["" if target < 0 else vocab.piece(target) for target in targets],
        texts=[text_of(vocab, token) for token in ids],
        label_texts=["" if target < 0 else text_of(vocab, target) for target in targets],
        special=[token in vocab.special_ids for token in ids],
        is_causal=is_causal,
        pair_label=_label(row),
        source=[vocab.piece(token) for token in row["source_input_ids"].tolist()]
        if "source_input_ids" in row
        else None,
        source_texts=tuple(text_of(vocab, token) for token in row.get("source_input_ids", np.array(())).tolist()),
        attention_mask=attention_mask(row),
    )


def _label(row: dict[str, Any]) -> int | None:
    """Of a pair, None where it has none or none is predicted."""
    label = int(row.get("next_sentence_label", IGNORE))
    return None if label == IGNORE else label


def render_examples(found: list[DecodedExample]) -> Group:
    """The samples as text; a predicted token is followed by its label, the tokens of a causal row are its labels."""
    return Group(*(_shown(sample) for sample in found))


def _shown(sample: DecodedExample) -> Text:
    predicted = sum(label != "" for label in sample.labels)
    head = f"step {sample.step}, row {sample.number}: {len(sample.tokens)} tokens, {predicted} predicted"
    pair = f"pair label {sample.pair_label}: {sample.pair_label_means}" if sample.pair_label_means else ""
    text = Text("".join(f"{line}\n" for line in (head, pair, sample.attention_mask) if line), QUIET)
    if sample.source is not None:
        text.append(f"source:{''.join(sample.source_texts)}\n").append("target:", QUIET)
        return text.append(f"{''.join(sample.label_texts)}\n", LABEL)
    for token, label, special in zip(sample.texts, sample.label_texts, sample.special, strict=True):
        is_masked = label != "" and not sample.is_causal
        text.append(" " * token.startswith(" "))
        text.append(token.removeprefix(" "), PREDICTED if is_masked else SPECIAL if special else "")
        if is_masked:
            text.append(f"({label.strip()})", LABEL)
    return text.append("\n")
