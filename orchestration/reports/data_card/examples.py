"""Training samples of a corpus, decoded: what each objective of the family masks and predicts.

`sesame inspect` shows the rows of a run; here there is no run yet, and nothing of torch is needed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from orchestration.config import Recipe, list_names, load
from orchestration.reports import describe
from preprocessing.errors import BadInput
from preprocessing.rows import ExampleDataset
from preprocessing.schema import IGNORE, Row
from preprocessing.shards import TokenStore
from preprocessing.tokenization import ShownToken, Vocab, shown_text, shown_tokens

_LENGTH: Final = 96  # most tokens of an example
_TRIED: Final = 8  # rows, of which the longest is shown


@dataclass(frozen=True)
class CardExample:
    """A row as the model gets it under one recipe; without tokens where the corpus gives no such row."""

    recipe: str
    said: str  # the objective in words
    tokens: tuple[ShownToken, ...] = ()
    note: str = ""


def examples(store: TokenStore, vocab: Vocab, own: Recipe) -> Iterator[CardExample]:
    """A row of `own`, then one of each other kind of objective in the family that reads such a vocabulary.

    Rows are planned on the first shard only, so that a card costs little on a large corpus.
    """
    first, shown = replace(store, shards=store.shards[:1], groups=()), []
    for recipe in (own, *map(load, list_names("recipes"))):
        kinds = (recipe.data.packing.kind, recipe.masking.kind, recipe.objective.kind)
        fits = recipe.data.tokenizer.kind == vocab.kind and _has_specials(recipe, vocab)
        if recipe is own or (fits and kinds not in shown):
            shown.append(kinds)
            yield _example(first, vocab, recipe)


def _has_specials(recipe: Recipe, vocab: Vocab) -> bool:
    needed = {*recipe.data.packing.specials, *recipe.objective.specials}
    has = vocab.specials.keys() | ({"sentinel"} if vocab.sentinels else set())
    return needed <= has


def _example(store: TokenStore, vocab: Vocab, recipe: Recipe) -> CardExample:
    """The longest of the first rows; a note instead where there is none."""
    masking = f"{recipe.masking.describe()} ({recipe.objective.describe()})"
    said = f"{recipe.data.packing.describe()}; masking: {masking}; predicts: {' + '.join(describe.losses(recipe))}"
    try:
        rows = ExampleDataset(store, vocab, recipe.sampling, min(_LENGTH, recipe.phases[0].seq_length))
        found = [rows.row(0, sample) for sample in range(min(_TRIED, rows.count(0)))]
    except BadInput as error:
        reason = str(error).replace(f"{store.folder}: ", "").replace(f"{store.folder}/", "")
        return CardExample(recipe.name, said, note=f"The first shard of this corpus gives no such sequence: {reason}.")
    row = max(found, key=lambda row: len(row["input_ids"]))  # the first of the longest
    is_causal = recipe.model.attention_mask == "causal"
    return CardExample(recipe.name, said, tuple(_tokens(row, vocab, is_causal)), _note(row, vocab, recipe))


def _note(row: Row, vocab: Vocab, recipe: Recipe) -> str:
    """Facts about a row that its tokens do not show."""
    if "source_input_ids" in row:
        return f"The target: {shown_text(vocab, [label for label in row['labels'].tolist() if label != IGNORE])}"
    if recipe.model.attention_mask == "causal":
        return "Each token is predicted from those before it."
    label = int(row["next_sentence_label"]) if "next_sentence_label" in row else IGNORE
    means = "" if label == IGNORE else recipe.data.packing.label_means[label]
    return " ".join(part for part in (means, attention_mask(row)) if part)


def _tokens(row: Row, vocab: Vocab, is_causal: bool) -> list[ShownToken]:
    """The tokens of a row; those of a causal row are its labels, and the labels of a source are its target."""
    ids_S = row.get("source_input_ids", row["input_ids"])
    return shown_tokens(vocab, ids_S.tolist(), () if is_causal else row["labels"].tolist())


def attention_mask(row: Row) -> str:
    """The attention mask of a row in words, where it has its own; "" where it has none.

    >>> attention_mask({"rank": np.array([0, 0, 3]), "reach": np.array([0, 0, 3])})
    'The first 2 tokens attend to each other; each later token attends to those before it.'
    """
    if "rank" not in row:
        return ""
    rank_S, reach_S = row["rank"], row["reach"]
    if (rank_S != reach_S).any():
        return f"Tokens are predicted in a random order, in {len(np.unique(rank_S))} steps."
    num_first = int((rank_S == rank_S[0]).sum())
    if num_first == len(rank_S):
        return "Each token attends to all tokens."
    if rank_S[0] > rank_S[-1]:
        return "Each token attends to those after it."
    if num_first > 1:
        return f"The first {num_first} tokens attend to each other; each later token attends to those before it."
    return "Each token attends to those before it."
