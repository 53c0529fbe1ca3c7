"""The family on paper: each part in words, its parameters in closed form, the difference of two recipes."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from orchestration.dotted import flat
from orchestration.recipe import Recipe
from preprocessing.choose import Choose, Entities, Ngrams, Nothing, Spans, Tokens, Words
from preprocessing.rewrite import Cloze, Rewrite
from preprocessing.segment import Packed, Segment
from preprocessing.vocab import ByteBPE, SentencePieceBPE, Unigram, VocabSpec, WordPiece
from training import meter
from training.spec import Encoder, Loss, MaskedTokens, PairLabel, Trunk


@dataclass(frozen=True)
class Node:
    """A part of the net: its name, its shape in words, and its parameters or those of its parts."""

    name: str
    shape: str = ""
    own: int = 0
    parts: tuple["Node", ...] = ()

    @property
    def parameters(self) -> int:
        return self.own + sum(part.parameters for part in self.parts)


def net(recipe: Recipe) -> Node:
    """The net of a recipe with its parameters counted in closed form (family.md B2.1); tied tables count once.

    >>> from orchestration.recipe import load
    >>> net(load("gpt2")).parameters
    124439808
    """
    trunk, vocabulary = recipe.trunk, recipe.data.vocab.size
    heads = tuple(_head(loss, trunk.width, vocabulary) for loss in recipe.objective.losses)
    return Node(recipe.name, parts=(*_trunk(trunk, vocabulary), Node("heads", parts=heads)))


def _trunk(trunk: Trunk, vocabulary: int) -> tuple[Node, ...]:
    width, inner = trunk.width, trunk.inner_width
    norm = Node("norm", f"{width}", 2 * width)
    tables = [Node("tokens", f"{vocabulary:,} x {width}", vocabulary * width)]
    tables.append(Node("positions", f"{trunk.max_positions:,} x {width}", trunk.max_positions * width))
    if trunk.segments:
        tables.append(Node("segments", f"{trunk.segments} x {width}", trunk.segments * width))
    if trunk.norm == "post":
        tables.append(norm)
    layer = {
        "attention": Node("attention", f"{trunk.heads} heads of {width // trunk.heads}", 4 * (width * width + width)),
        "forward": Node("feed-forward", f"{width} -> {inner:,} -> {width}", 2 * width * inner + inner + width),
    }
    order = (
        ("attention", "norm", "forward", "norm") if trunk.norm == "post" else ("norm", "attention", "norm", "forward")
    )
    parts = [layer.get(name, norm) for name in order]
    each = sum(part.parameters for part in parts)
    stacked = tuple(Node(part.name, part.shape, trunk.layers * part.parameters) for part in parts)
    layers = Node(f"{trunk.layers} layers", f"of {each:,}", parts=stacked)
    final = (Node("final norm", f"{width}", 2 * width),) if trunk.norm == "pre" else ()
    return (Node("embeddings", parts=tuple(tables)), layers, *final)


def _head(loss: Loss, width: int, vocabulary: int) -> Node:
    match loss:
        case MaskedTokens():
            own = width * width + width + 2 * width + vocabulary
            return Node("masked tokens", f"{width} -> {width} -> {vocabulary:,} (tied)", own)
        case PairLabel():
            return Node("pair label", f"{width} -> {width} -> 2", width * width + width + 2 * width + 2)
        case _:
            return Node("next token", f"{width} -> {vocabulary:,} (tied)")


def training_flops(recipe: Recipe) -> float:
    """Floating point operations of the whole run, as the meter counts them, with every row full."""
    asked = getattr(recipe.objective.choose, "rate", 1.0)
    total = 0.0
    for phase in recipe.phases:
        tokens = phase.batch * phase.length
        work = meter.Work(tokens=tokens, squares=tokens * phase.length, targets=round(asked * tokens))
        total += phase.steps * meter.flops(recipe.trunk, recipe.data.vocab.size, work)
    return total


def say_vocab(vocab: VocabSpec) -> str:
    match vocab:
        case WordPiece(lowercase=lowercase):
            return f"{vocab.size:,} {'lower-cased' if lowercase else 'cased'} word pieces"
        case ByteBPE():
            return f"{vocab.size:,} byte-level BPE pieces"
        case Unigram():
            return f"{vocab.size:,} unigram pieces"
        case SentencePieceBPE():
            return f"{vocab.size:,} BPE pieces of sentencepiece"


def say_segment(segment: Segment) -> str:
    match segment:
        case Packed(fill="sentences", cross_documents=crossing):
            return f"full sentences packed {'across' if crossing else 'inside'} documents"
        case Packed():
            return "running text packed end to end"
        case _:
            return "pairs of segments, half of them " + (
                "strangers" if segment.negative == "random" else "in the wrong order"
            )


def say_choose(choose: Choose) -> str:
    match choose:
        case Nothing():
            return "nothing"
        case Tokens():
            return f"{choose.rate:.0%} of the tokens"
        case Words():
            return f"{choose.rate:.0%} of the tokens, in whole words"
        case Spans():
            return f"{choose.rate:.0%} of the tokens, in spans of up to {choose.longest} words"
        case Ngrams():
            return f"{choose.rate:.0%} of the tokens, in n-grams of up to {choose.longest} words"
        case Entities():
            return f"{choose.rate:.0%} of the tokens, in whole phrases and words"


def say_rewrite(rewrite: Rewrite) -> str:
    match rewrite:
        case Cloze():
            keep = 1 - rewrite.mask - rewrite.swap
            return f"{rewrite.mask:.0%} masked, {rewrite.swap:.0%} swapped, {keep:.0%} kept, drawn per {rewrite.unit}"
        case _:
            return "each token asks for the next"


def say_trunk(trunk: Trunk) -> str:
    kind = "encoder" if isinstance(trunk, Encoder) else "decoder"
    return f"{kind}, {trunk.layers} layers, width {trunk.width:,}, {trunk.heads} heads, {trunk.norm}-norm"


def say_loss(loss: Loss, segment: Segment) -> str:
    match loss:
        case MaskedTokens():
            asked = "masked tokens"
        case PairLabel():
            asked = "sentence order" if getattr(segment, "negative", "") == "swap" else "next sentence prediction"
        case _:
            asked = "next token"
    return asked if loss.weight == 1 else f"{loss.weight:g} x {asked}"


def say_losses(recipe: Recipe) -> list[str]:
    return [say_loss(loss, recipe.data.segment) for loss in recipe.objective.losses]


TOLD_OF = (  # the keys that the sentences of an abstract speak of
    *("name", "paper", "phases", "optim.peak", "optim.warmup", "data.corpus"),
    *(f"data.vocab.{key}" for key in ("kind", "size", "lowercase")),
    *(f"data.segment.{key}" for key in ("kind", "fill", "cross_documents", "negative")),
    *("objective.losses", "objective.duplicates"),
    *(f"objective.choose.{key}" for key in ("kind", "rate", "longest")),
    *(f"objective.rewrite.{key}" for key in ("kind", "mask", "swap", "unit")),
    *(f"trunk.{key}" for key in ("kind", "layers", "width", "heads", "norm")),
)


def abstract(ours: Recipe, theirs: Recipe) -> list[str]:
    """How `theirs` differs from `ours`, said as its abstract would say it; the keys that no sentence covers come last.

    >>> from orchestration.recipe import load
    >>> abstract(load("bert_base"), load("roberta_base"))[3]
    'removes next sentence prediction'
    """
    told = [*_objective_lines(ours, theirs), *_training_lines(ours, theirs)]
    if say_trunk(ours.trunk) == say_trunk(theirs.trunk):
        told.append(f"keeps the net: {say_trunk(ours.trunk)}")
    else:
        told.append(f"builds another net: {say_trunk(theirs.trunk)}, instead of {say_trunk(ours.trunk)}")
    before, after = dict(flat(dataclasses.asdict(ours))), dict(flat(dataclasses.asdict(theirs)))
    for key, value in after.items():  # a key that is gone went with the part that a sentence has named
        if value != before.get(key) and not any(f"{key}.".startswith(f"{told_of}.") for told_of in TOLD_OF):
            told.append(f"{key}: {_shown(value)}" + (f", was {_shown(before[key])}" if key in before else ""))
    return told


def _objective_lines(ours: Recipe, theirs: Recipe) -> Iterator[str]:
    yield from _instead("trains on the text of", ours.data.corpus, theirs.data.corpus)
    yield from _instead("reads", say_vocab(ours.data.vocab), say_vocab(theirs.data.vocab))
    yield from _instead("sees", say_segment(ours.data.segment), say_segment(theirs.data.segment))
    before, after = say_losses(ours), say_losses(theirs)
    yield from (f"removes {loss}" for loss in before if loss not in after)
    yield from (f"adds {loss}" for loss in after if loss not in before)
    yield from _instead("hides", say_choose(ours.objective.choose), say_choose(theirs.objective.choose))
    yield from _instead("rewrites:", say_rewrite(ours.objective.rewrite), say_rewrite(theirs.objective.rewrite))
    fixed, now_fixed = ours.objective.duplicates, theirs.objective.duplicates
    if fixed and not now_fixed and not isinstance(theirs.objective.choose, Nothing):
        yield f"changes the masks in every epoch, instead of repeating {fixed} fixed ones"
    elif now_fixed != fixed and now_fixed:
        yield f"repeats {now_fixed} fixed masks, instead of " + (f"{fixed}" if fixed else "new ones in every epoch")


def _training_lines(ours: Recipe, theirs: Recipe) -> Iterator[str]:
    (rows, length, peak), (rows_before, length_before, peak_before) = (
        (max(phase.batch for phase in recipe.phases), _mean_length(recipe), recipe.optim.peak)
        for recipe in (theirs, ours)
    )
    if rows != rows_before:
        size = _than(rows, rows_before, "bigger", "smaller")
        yield f"trains with {size} batches: {rows:,} rows instead of {rows_before:,}"
    if length != length_before:
        size = _than(length, length_before, "longer", "shorter")
        yield f"trains on {size} rows: {_lengths(theirs)}, instead of {_lengths(ours)}"
    if ours.num_tokens != theirs.num_tokens:
        longer = _than(theirs.num_tokens, ours.num_tokens, "longer", "shorter")
        yield (
            f"trains {longer}: {brief(theirs.num_tokens)} tokens in {theirs.num_steps:,} steps, "
            f"instead of {brief(ours.num_tokens)} in {ours.num_steps:,}"
        )
    if (peak, theirs.optim.warmup) != (peak_before, ours.optim.warmup):
        yield (
            f"learns at a peak rate of {peak:g} after {theirs.optim.warmup:,} steps of warm-up, "
            f"instead of {peak_before:g} after {ours.optim.warmup:,}"
        )


def _instead(verb: str, before: str, after: str) -> list[str]:
    return [f"{verb} {after}, instead of {before}"] if before != after else []


def _than(after: float, before: float, more: str, less: str) -> str:
    return more if after > before else less


def _mean_length(recipe: Recipe) -> float:
    return sum(phase.length * phase.steps for phase in recipe.phases) / recipe.num_steps


def _lengths(recipe: Recipe) -> str:
    """The lengths of the phases in words: '512 tokens throughout', '128 tokens for 90% of the steps, then 512'."""
    first, *rest = recipe.phases
    if all(phase.length == first.length for phase in rest):
        return f"{first.length:,} tokens throughout"
    return f"{first.length:,} tokens for {first.steps / recipe.num_steps:.0%} of the steps" + "".join(
        f", then {phase.length:,}" for phase in rest
    )


def brief(number: float) -> str:
    """A large number, to two digits.

    >>> brief(2_097_152_000_000)
    '2.1e12'
    """
    return f"{number:.2g}".replace("e+", "e")


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
