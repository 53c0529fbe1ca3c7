"""How much of a text is held out, and for which downstream tasks that is too little."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from orchestration.jobs.stages import JobStage
from pipeline.spec import Corpus
from preprocessing.errors import BadInput, DataError
from preprocessing.manifest import Manifest
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab
from training.tasks import FEWEST_ROWS, LABELS, MORE, TASKS

log = logging.getLogger(__name__)

STAGE: Final = "looking at what is held out"  # of a large corpus that takes its time
_MANY: Final = 3  # times as many documents as labelled rows are enough: of a half rows are drawn
_OWN: Final = Corpus(name="own")  # its shares are those of text that a command names


def with_split_ratios(corpus: Corpus, share: float | None, own: bool) -> Corpus:
    """`corpus` with the shares that are held out of text of one's own: half of `share` each, None for 1 % in all.

    A named corpus has its own shares. BadInput where `share` is none, or is asked of a named corpus.

    >>> with_split_ratios(Corpus(name="news"), 0.1, own=True).test_ratio
    0.05
    """
    if share is None:
        return replace(corpus, validation_ratio=_OWN.validation_ratio, test_ratio=_OWN.test_ratio) if own else corpus
    if not 0 <= share < 1:
        raise BadInput(f"--holdout-ratio is {share:g}, allowed is a share from 0 up, below 1")
    if not own:
        raise BadInput(
            f"--holdout-ratio is for text that --data names: corpus {corpus.name} holds out "
            f"{_percent(corpus.validation_ratio)} "
            f"and {_percent(corpus.test_ratio)} by itself; set validation_ratio and test_ratio in a corpus file of "
            f"your own"
        )
    return replace(corpus, validation_ratio=share / 2, test_ratio=share / 2)


def describe_split_ratios(corpus: Corpus, own: bool) -> str:
    """What is held out and what for, in one line.

    >>> describe_split_ratios(Corpus(name="news"), own=True)
    'held out of news: 0.5 % for validation, 0.5 % for downstream tasks; --holdout-ratio SHARE says otherwise'
    """
    otherwise = "--holdout-ratio SHARE" if own else "a corpus file of your own"
    return (
        f"held out of {corpus.name}: {_percent(corpus.validation_ratio)} for validation, {_percent(corpus.test_ratio)} "
        f"for "
        f"downstream tasks; {otherwise} says otherwise"
    )


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def find_too_few(corpus: Path, tasks: Sequence[str], labels: int) -> dict[str, str]:
    """The tasks for which the held-out documents of a corpus are too few, and why, with the rows that there are."""
    known, found = [task for task in tasks if task in TASKS], dict[str, str]()
    if "test" not in Manifest.load(corpus).splits:
        return {task: f"task {task}: {corpus} holds out no document for it; {MORE}" for task in known}
    store = TokenStore.open(corpus, "test")
    vocab = Vocab.load(store.vocab_dir, store.manifest.vocab["hash"])
    for task in known:
        try:
            TASKS[task].make(store, vocab).require(labels)
        except DataError as error:
            found[task] = str(error)
    return found


def held_out_tasks(tasks: Sequence[str]) -> list[str]:
    """Those of the tasks that are made of documents that a corpus holds out."""
    return [task for task in tasks if task in TASKS]


def warn_of_few_documents(corpus: Corpus, num: int, tasks: Sequence[str], own: bool) -> list[str]:
    """That a corpus of about `num` documents will hold out too few for any score, in one line that says what helps; or
    nothing.

    >>> warn_of_few_documents(Corpus(name="news"), 100_000, ["source_classification"], own=True)
    []
    """
    wanted = held_out_tasks(tasks)
    few = 2 if corpus.test_ratio and num >= 6 else 0  # as steps/plan.py holds out
    held = max(round(corpus.test_ratio * num), few)
    if held >= FEWEST_ROWS or not wanted:
        return []
    share = min(0.5, _MANY * LABELS / max(num, 1))
    helps = f"--holdout-ratio {2 * share:.2g}" if own and share < 0.5 else f"test_ratio: {share:.2g} in a corpus file"
    helps = f"{helps} holds out {round(share * num):,}" if share * num >= FEWEST_ROWS else "give more text"
    return [
        f"no scores to be expected of {', '.join(wanted)}: of about {num:,} documents of {corpus.name} {held} are held "
        f"out for downstream tasks, which need {FEWEST_ROWS} at least; {helps}"
    ]


def tasks_without_text(corpus: JobStage, tasks: Sequence[str], labels: int = LABELS) -> list[str]:
    """The tasks for which a corpus holds out too few documents, with a warning for each; none where it is not made."""
    found = find_too_few(corpus.folder, tasks, labels) if corpus.state == "done" else {}
    for reason in found.values():
        log.warning("no scores: %s", reason)
    return list(found)
