"""`init_checkpoint` of a recipe: the directory that it names, and the vocabulary of its weights."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from orchestration.config import Recipe
from preprocessing.errors import BadInput
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab, of_folder
from training.run import CHECKPOINTS, steps

log = logging.getLogger(__name__)

WEIGHTS: Final = ("config.json", "spec.json", "manifest.json")  # files of a transformers model, an export, a checkpoint
TOKENIZERS: Final = ("tokenizer.json", "vocab.txt", "spiece.model", "vocab.json")


def require_weights(given: str) -> None:
    """Raise BadInput unless the directory `given` has the files of a model."""
    folder = Path(given)
    if any((folder / name).is_file() for name in WEIGHTS):
        return
    if saved := steps(folder / CHECKPOINTS):
        raise BadInput(
            f"invalid init_checkpoint: got {given}, a run, expected the weights of one step; "
            f"set init_checkpoint={saved[0]}, or export the run with `sesame export {given} DIR` and set "
            "init_checkpoint=DIR"
        )
    why = "" if folder.is_dir() else " (no such directory)"
    raise BadInput(
        f"invalid init_checkpoint: got {given}{why}, expected a directory with {', '.join(WEIGHTS[:-1])} or "
        f"{WEIGHTS[-1]}; use a directory written by `sesame export` or transformers, or RUN/checkpoints/step-N"
    )


def remind_of_vocabulary(recipe: Recipe) -> list[str]:
    """A warning if the initial weights have a vocabulary and the recipe trains another one."""
    folder = Path(recipe.init_checkpoint)
    found = next((name for name in TOKENIZERS if (folder / name).is_file()), "")
    if not recipe.init_checkpoint or recipe.data.tokenizer.path or not found:
        return []
    return [
        f"init_checkpoint: the recipe trains its own vocabulary, but the weights have that of {folder / found}; set "
        f"data.tokenizer.path={folder}"
    ]


def warn_of_other_vocabulary(recipe: Recipe, corpus: Path) -> None:
    """Log a warning if tokens of the finished corpus have other IDs than in the directory of the initial weights."""
    folder = Path(recipe.init_checkpoint)
    if not recipe.init_checkpoint or not any((folder / name).is_file() for name in TOKENIZERS):
        return
    store = TokenStore.open(corpus, "train", verify=False)
    try:
        theirs = of_folder(folder)
    except BadInput as error:
        log.warning("init_checkpoint: cannot compare its vocabulary with that of the corpus: %s", error)
        return
    ours = Vocab.load(store.vocab_dir, store.manifest.vocab["hash"])
    if (equal := count_equal(_pieces(ours), _pieces(theirs))) < ours.size:
        log.warning(
            "init_checkpoint: only %s of %s tokens have the same ID in the vocabulary of %s; the other tokens start "
            "with the embeddings of unrelated tokens; set data.tokenizer.path=%s",
            *(f"{equal:,}", f"{ours.size:,}", folder, folder),
        )


def count_equal(ours: Sequence[str], theirs: Sequence[str]) -> int:
    """Number of IDs with the same token in both vocabularies.

    >>> count_equal(["[PAD]", "a", "b"], ["[PAD]", "b", "a", "c"])
    1
    """
    return sum(one == other for one, other in zip(ours, theirs, strict=False))


def _pieces(vocab: Vocab) -> list[str]:
    return [vocab.piece(id) for id in range(vocab.size)]
