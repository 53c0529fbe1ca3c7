"""Decodes training sequences of a corpus, to show what each objective masks and predicts.

`sesame inspect` shows the sequences of a run. This module needs no run and does not import torch.
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
from preprocessing.tokenization import ShownToken, Vocab, display_text, display_tokens
from training.specs import list_blends

_LENGTH: Final = 96  # maximum number of tokens of an example
_NUM_TRIED: Final = 8  # sequences; the longest of them is shown


@dataclass(frozen=True)
class CardExample:
    """A sequence as a recipe builds it for the model; without tokens if the corpus has no such sequence."""

    recipe: str
    description: str  # packing, masking and losses, as text
    tokens: tuple[ShownToken, ...] = ()
    note: str = ""


def examples(store: TokenStore, vocab: Vocab, corpus_recipe: Recipe | None) -> Iterator[CardExample]:
    """A sequence of `corpus_recipe`, then one for each other objective of a shipped recipe that fits the vocabulary.

    A corpus without a recipe has only the latter. Sequences come from the first shard only, so that the card of a large
    corpus is cheap.
    """
    first, shown = replace(store, shards=store.shards[:1], groups=()), []
    for recipe in (*([corpus_recipe] if corpus_recipe else []), *map(load, list_names("recipes"))):
        kinds = (recipe.data.packing.kind, recipe.masking.kind, recipe.objective.kind)
        fits = recipe.data.tokenizer.kind == vocab.kind and _has_specials(recipe, vocab)
        if recipe is corpus_recipe or (fits and kinds not in shown):
            shown.append(kinds)
            yield _example(first, vocab, recipe)


def _has_specials(recipe: Recipe, vocab: Vocab) -> bool:
    """Whether the vocabulary has the special tokens that the recipe needs."""
    needed = {*recipe.data.packing.specials, *recipe.objective.specials}
    has = vocab.specials.keys() | ({"sentinel"} if vocab.sentinels else set())
    return needed <= has


def _example(store: TokenStore, vocab: Vocab, recipe: Recipe) -> CardExample:
    """The longest of the first sequences; if there are none, an example with a note."""
    masking = f"{recipe.masking.describe()} ({recipe.objective.describe()})"
    description = (
        f"{recipe.data.packing.describe()}; masking: {masking}; predicts: {' + '.join(describe.losses(recipe))}"
    )
    try:
        blends = list_blends(sorted(store.manifest.mixture), recipe.mixed_phases[:1], recipe.phases[0].seq_length)
        rows = ExampleDataset(store, vocab, recipe.sampling, min(_LENGTH, recipe.phases[0].seq_length), blends)
        tried = [rows.row(0, sample) for sample in range(min(_NUM_TRIED, rows.count(0)))]
    except BadInput as error:
        reason = str(error).replace(f"{store.folder}: ", "").replace(f"{store.folder}/", "")
        return CardExample(
            recipe.name, description, note=f"The first shard of this corpus has no such sequence: {reason}."
        )
    row = max(tried, key=lambda row: len(row["input_ids"]))  # if several are equally long, the first
    is_causal = recipe.model.attention_mask == "causal"
    return CardExample(recipe.name, description, tuple(_tokens(row, vocab, is_causal)), _note(row, vocab, recipe))


def _note(row: Row, vocab: Vocab, recipe: Recipe) -> str:
    """Facts about a sequence that its tokens do not show."""
    if "source_input_ids" in row:
        return f"Target: {display_text(vocab, [label for label in row['labels'].tolist() if label != IGNORE])}"
    if recipe.model.attention_mask == "causal":
        return "Each token is predicted from those before it."
    label = int(row["next_sentence_label"]) if "next_sentence_label" in row else IGNORE
    means = "" if label == IGNORE else recipe.data.packing.label_means[label]
    return " ".join(part for part in (means, attention_mask(row)) if part)


def _tokens(row: Row, vocab: Vocab, is_causal: bool) -> list[ShownToken]:
    """The tokens of a sequence, or of its source if it has one; with labels unless the model is causal."""
    ids_S = row.get("source_input_ids", row["input_ids"])
    return display_tokens(vocab, ids_S.tolist(), () if is_causal else row["labels"].tolist())


def attention_mask(row: Row) -> str:
    """A description of the attention mask of a sequence; "" if the sequence has no mask of its own.

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
