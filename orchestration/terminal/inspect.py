"""The training sequences of any step, decoded; masked tokens are marked, with their labels.

`inspect_step` makes the values that `render_examples` shows on a terminal, and html_page.py on a page.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np
from rich.console import Group
from rich.text import Text

from orchestration.reports.data_card import attention_mask
from preprocessing.errors import BadInput
from preprocessing.rows import ExampleDataset
from preprocessing.schema import IGNORE, Batch
from preprocessing.tokenization import ShownToken, display_tokens, legend
from training.data import open_loader
from training.run import Run

PREDICTED, LABEL, SPECIAL, QUIET = "reverse", "bold green", "magenta", "dim"
_NAMED_DOCUMENTS: Final = 4

Change = Literal["", "mask", "random", "kept", "predicted"]
"""The input at a predicted position: the mask token, a random token, the token itself; "predicted": not shown there."""


@dataclass(frozen=True)
class ExampleDocument:
    """Tokens [start, stop) of a document that a sequence contains."""

    key: str
    source: str
    start: int
    stop: int
    num_tokens: int  # of the whole document
    group: str = ""  # of a mixture

    def __str__(self) -> str:
        """
        >>> str(ExampleDocument("c0ffee0123456789", "a.txt", 0, 60, 100, group="web"))
        'web: a.txt, key c0ffee012345, tokens 0-59 of 100'
        """
        source = f"{self.group}: {self.source}" if self.group else self.source
        return f"{source}, key {self.key[:12]}, tokens {self.start:,}-{self.stop - 1:,} of {self.num_tokens:,}"


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
    changes: tuple[Change, ...] = ()  # of each token of `shown`; () if `tokens` is the input of a decoder
    segments: tuple[int, ...] = ()  # token type of each token
    documents: tuple[ExampleDocument, ...] = ()  # in the order of the sequence
    document_of: tuple[int, ...] = ()  # for each token the index in `documents`, -1 if special; () if tokens moved

    @property
    def num_predicted(self) -> int:
        return sum(label != "" for label in self.labels)

    def plain(self) -> dict[str, Any]:
        """The values for JSON."""
        values = {"step": self.step, "row": self.number, "tokens": self.tokens, "labels": self.labels}
        optional = {
            "next_sentence_label": self.pair_label,
            "source": self.source,
            "attention_mask": self.attention_mask or None,
            "changes": self.changes or None,
            "segments": self.segments or None,
            "documents": [asdict(each) for each in self.documents] or None,
        }
        return values | {name: value for name, value in optional.items() if value is not None}


@dataclass(frozen=True)
class InspectedStep:
    """Some sequences of the batch of a step, and counts of all of its sequences."""

    step: int
    num_steps: int
    seq_length: int
    lengths: tuple[int, ...]  # tokens of each sequence of the batch; of source and target together
    num_predicted: tuple[int, ...]  # of each sequence
    examples: list[DecodedExample] = field(default_factory=list)
    source_lengths: tuple[int, ...] = ()  # tokens of each source; () if sequences have none

    @property
    def is_two_sided(self) -> bool:
        """Whether the sequences have a source."""
        return bool(self.source_lengths)

    @property
    def target_lengths(self) -> tuple[int, ...]:
        """The tokens of each sequence without its source."""
        sources = self.source_lengths or (0,) * len(self.lengths)
        return tuple(length - source for length, source in zip(self.lengths, sources, strict=True))

    @property
    def fill(self) -> float:
        """The tokens of the batch as a fraction of those of as many full sequences.

        It says nothing about two-sided sequences: their targets are much shorter than seq_length.
        """
        return sum(self.lengths) / max(1, len(self.lengths) * self.seq_length)


def decode_examples(run: Run, step: int, count: int) -> list[DecodedExample]:
    """The first `count` sequences of the batch of `step`."""
    return inspect_step(run, step, range(count)).examples


def inspect_step(run: Run, step: int, numbers: range) -> InspectedStep:
    """The sequences of the batch of `step` with these numbers, as far as there are any, and the sizes of all.

    They come from the arrays that the workers read; the number of workers does not change them. Raises BadInput if the
    run has no such step, or if its batch has no sequence with the first number.
    """
    if not 0 <= step < run.steps:
        raise BadInput(f"invalid step: got {step}, expected a step from 0 to {run.steps - 1}; give a step of this run")
    machine = replace(run.engine, padding="unpadded", dataloader_num_workers=0)
    loader = open_loader(replace(run, engine=machine), rank=0, world=1, trains=False)
    length = loader.phase_of(step).seq_length
    dataset, addresses = loader.rows_by_length[length], loader.addresses(step)
    if numbers.start >= len(addresses):
        raise BadInput(
            f"invalid row: got {numbers.start}, expected a row from 0 to {len(addresses) - 1}; give one of step {step}"
        )
    rows = [row for batch in loader.at(step) for row in _split_batch(batch)]
    decode = _Decoder(run, dataset)
    return InspectedStep(
        step,
        run.steps,
        length,
        tuple(len(row["input_ids"]) + len(row.get("source_input_ids", ())) for row in rows),
        tuple(int((row["targets"] >= 0).sum()) for row in rows),
        [decode(step, number, rows[number], addresses[number]) for number in numbers if number < len(rows)],
        tuple(len(row["source_input_ids"]) for row in rows if "source_input_ids" in row),
    )


def _split_batch(batch: Batch) -> Iterator[dict[str, Any]]:
    """The sequences of an unpadded batch: input_ids [S], targets [S] (-1 if not predicted), and optional columns."""
    target_T = np.full(len(batch["input_ids"]), -1)
    target_T[batch["targets_at"]] = batch["targets"]
    source_end_B = np.cumsum(batch.get("source_lengths", ()), dtype=np.int64)
    for number, (first, length) in enumerate(zip(batch["first_at"], batch["lengths"], strict=True)):
        here = slice(int(first), int(first) + int(length))
        row: dict[str, Any] = {
            name: batch[name][here] for name in ("input_ids", "token_type_ids", "rank", "reach") if name in batch
        }
        if "next_sentence_label" in batch:
            row["next_sentence_label"] = batch["next_sentence_label"][number]
        if "source_input_ids" in batch:
            end = int(source_end_B[number])
            row["source_input_ids"] = batch["source_input_ids"][end - int(batch["source_lengths"][number]) : end]
        yield row | {"targets": target_T[here]}


class _Decoder:
    """Decodes the sequences of a run."""

    def __init__(self, run: Run, dataset: ExampleDataset) -> None:
        self._dataset, self._vocab = dataset, dataset.vocab
        self._is_causal = run.model.attention_mask == "causal"
        self._means = run.sampling.packing.label_means
        mixture = dataset.store.manifest.mixture
        self._group_of_shard = {shard: name for name, group in mixture.items() for shard in group.shards}
        objective = run.sampling.objective
        self._hides, self._lookahead = objective.attention == "queries", objective.lookahead

    def __call__(self, step: int, number: int, row: dict[str, Any], address: tuple[int, int]) -> DecodedExample:
        vocab, ids, targets = self._vocab, row["input_ids"].tolist(), row["targets"].tolist()
        source = row["source_input_ids"].tolist() if "source_input_ids" in row else None
        if source is not None:
            shown = display_tokens(vocab, [target for target in targets if target >= 0])
        else:
            shown = display_tokens(vocab, ids, () if self._is_causal else targets)
        spans, document_S = self._dataset.documents_of(*address)
        has_moved = source is not None or len(document_S) - self._lookahead != len(ids)
        label = _label(row)
        return DecodedExample(
            step=step,
            number=number,
            tokens=[vocab.piece(token) for token in ids],
            labels=["" if target < 0 else vocab.piece(target) for target in targets],
            shown=shown,
            is_causal=self._is_causal,
            pair_label=label,
            pair_label_means="" if label is None else self._means[label],
            source=None if source is None else [vocab.piece(token) for token in source],
            shown_source=() if source is None else tuple(display_tokens(vocab, source)),
            attention_mask=attention_mask(row),
            changes=() if source is not None else tuple(map(self._name_change, ids, targets)),
            segments=tuple(row["token_type_ids"].tolist()) if source is None else (),
            documents=tuple(
                ExampleDocument(
                    span.shard.key(span.document).hex(),
                    span.shard.source(span.document),
                    span.start,
                    span.stop,
                    int(span.shard.num_tokens_N[span.document]),
                    self._group_of_shard.get(span.shard.path.name, ""),
                )
                for span in spans
            ),
            document_of=() if has_moved else tuple(document_S[: len(ids)].tolist()),
        )

    def _name_change(self, id: int, target: int) -> Change:
        if target < 0 or self._is_causal:
            return ""
        if self._hides:
            return "predicted"
        return "kept" if id == target else "mask" if id == self._vocab.mask else "random"


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
    head = (
        f"step {sample.step}, sequence {sample.number}: {len(sample.tokens)} tokens, {sample.num_predicted} predicted"
    )
    pair = f"sentence-pair label {sample.pair_label}: {sample.pair_label_means}" if sample.pair_label_means else ""
    lines = (head, pair, sample.attention_mask, *list_documents(sample))
    text = Text("".join(f"{line}\n" for line in lines if line), QUIET)
    if sample.source is not None:
        text.append("source: ").append_text(_tokens(sample.shown_source)).append("\n")
        return text.append("target: ", QUIET).append_text(_tokens(sample.shown, LABEL)).append("\n")
    return text.append_text(_tokens(sample.shown)).append("\n")


def list_documents(sample: DecodedExample) -> list[str]:
    """The first documents of a sequence, one per line, and the number of the others."""
    lines = [str(each) for each in sample.documents[:_NAMED_DOCUMENTS]]
    more = len(sample.documents) - len(lines)
    return [*lines, f"and {more} more documents"] if more > 0 else lines


def _tokens(tokens: Iterable[ShownToken], style: str = "") -> Text:
    text = Text()
    for token in tokens:
        text.append(token.before, style)
        text.append(token.text, PREDICTED if token.label else SPECIAL if token.is_special else style)
        if token.label:
            text.append(f"({token.label})", LABEL)
    return text
