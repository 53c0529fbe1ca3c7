"""Training samples of a corpus, decoded: what each objective of the family hides in it, and what it asks for.

look.py shows the rows of a run; here there is no run yet, and nothing of torch is needed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from orchestration import family
from orchestration.recipe import Recipe, load, names
from preprocessing.errors import BadInput
from preprocessing.rows import Rows
from preprocessing.schema import IGNORE, Row
from preprocessing.shards import Store
from preprocessing.vocab import Vocab

_LENGTH: Final = 96  # most tokens of an example
_TRIED: Final = 8  # rows, of which the longest is shown
PAIRS: Final = {
    None: "",
    0: "The second segment follows the first.",
    1: "The second segment does not follow the first.",
}


class Token(NamedTuple):
    """A token for people: joined, the texts are the text; `answer` is what is asked here, "" where nothing is."""

    text: str
    answer: str
    is_special: bool


@dataclass(frozen=True)
class Example:
    """A row as the model gets it under one recipe; without tokens where the corpus gives no such row."""

    recipe: str
    said: str  # the objective in words
    tokens: tuple[Token, ...] = ()
    note: str = ""


def examples(store: Store, vocab: Vocab, own: Recipe) -> Iterator[Example]:
    """A row of `own`, then one of each other recipe of the family that asks something else and reads such a vocabulary.

    Rows are planned on the first shard only, so that a card costs little on a large corpus.
    """
    first, shown = replace(store, shards=store.shards[:1]), []
    for recipe in (own, *map(load, names("recipes"))):
        asks = (recipe.data.segment, recipe.objective)
        fits = recipe.data.vocab.kind == vocab.kind and _has_specials(recipe, vocab)
        if recipe is own or (fits and asks not in shown):
            shown.append(asks)
            yield _example(first, vocab, recipe)


def _has_specials(recipe: Recipe, vocab: Vocab) -> bool:
    needed = {*recipe.data.segment.specials, *recipe.objective.rewrite.specials}
    return needed <= vocab.specials.keys()


def _example(store: Store, vocab: Vocab, recipe: Recipe) -> Example:
    """The longest of the first rows; a note instead where there is none."""
    hidden = f"{family.say_choose(recipe.objective.choose)} ({family.say_rewrite(recipe.objective.rewrite)})"
    said = (
        f"{family.say_segment(recipe.data.segment)}; hidden: {hidden}; asked: {' + '.join(family.say_losses(recipe))}"
    )
    try:
        rows = Rows(
            store,
            vocab,
            segment=recipe.data.segment,
            choose=recipe.objective.choose,
            rewrite=recipe.objective.rewrite,
            length=min(_LENGTH, recipe.phases[0].length),
            seed=recipe.seed,
            duplicates=recipe.objective.duplicates,
            semantics=recipe.objective.semantics,
        )
        found = [rows.row(0, sample) for sample in range(min(_TRIED, rows.count(0)))]
    except BadInput:
        return Example(recipe.name, said, note="The first shard of this corpus does not give a single such row.")
    row = max(found, key=lambda row: len(row["ids"]))  # the first of the longest
    label = int(row["pair_label"]) if "pair_label" in row else None
    is_causal = recipe.trunk.visibility == "causal"
    note = "Each token is asked for from those before it." if is_causal else PAIRS[label]
    return Example(recipe.name, said, tuple(_tokens(row, vocab, is_causal)), note)


def _tokens(row: Row, vocab: Vocab, is_causal: bool) -> Iterator[Token]:
    """The tokens of a row; a causal row is its own answer."""
    labels_S = np.full(len(row["ids"]), IGNORE) if is_causal else row["labels"]
    for id, label in zip(row["ids"].tolist(), labels_S.tolist(), strict=True):
        answer = "" if label == IGNORE else text_of(vocab, label).strip()
        yield Token(text_of(vocab, id), answer, id in vocab.special_ids)


def text_of(vocab: Vocab, id: int) -> str:
    """A token as it stands in text, with a space in front where a word begins."""
    piece = vocab.piece(id)
    if id in vocab.special_ids:
        return f" {piece}"
    text = vocab.decode([id]).strip().removeprefix("##") or piece
    return f" {text}" if vocab.starts_word_V[id] else text
