"""The held-out part of a text, and the downstream tasks for which it is too small."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from orchestration.jobs.stages import JobStage
from pipeline.spec import Corpus
from preprocessing.errors import BadInput, DataError
from preprocessing.manifest import Manifest
from preprocessing.remote_corpus import read_link
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab
from training.evaluation.tasks import FEWEST_ROWS, LABELS, MORE, TASKS

log = logging.getLogger(__name__)

STAGE: Final = "checking held-out documents"  # this takes time with a large corpus
# the remedy for a corpus in a store, which refuses --holdout-ratio
_MORE_OF_LINKED: Final = "hold out more of the text where the corpus is made (test_ratio in its corpus file)"
_MANY: Final = 3  # sufficient held-out documents per labeled example, which come from only half of them
_OWN: Final = Corpus(name="own")  # has the split ratios of text that a command names


def with_split_ratios(corpus: Corpus, share: float | None, own: bool) -> Corpus:
    """`corpus` with the split ratios for text of the user: half of `share` for each split; None means 1 % in total.

    A named corpus keeps its own ratios. Raises BadInput if `share` is out of range, or is set for a named corpus.

    >>> with_split_ratios(Corpus(name="news"), 0.1, own=True).test_ratio
    0.05
    """
    if share is None:
        return replace(corpus, validation_ratio=_OWN.validation_ratio, test_ratio=_OWN.test_ratio) if own else corpus
    if not 0 <= share < 1:
        raise BadInput(f"invalid --holdout-ratio: got {share:g}, expected at least 0 and less than 1; change it")
    if not own:
        raise BadInput(
            f"--holdout-ratio works only with text from --data: corpus {corpus.name} holds out "
            f"{_percent(corpus.validation_ratio)} and {_percent(corpus.test_ratio)} itself; set validation_ratio and "
            "test_ratio in your own corpus file"
        )
    return replace(corpus, validation_ratio=share / 2, test_ratio=share / 2)


def describe_split_ratios(corpus: Corpus, own: bool, file: str = "") -> str:
    """The held-out fractions and their purpose, in one line. `file` is the corpus file of the user, if any.

    >>> describe_split_ratios(Corpus(name="news"), own=True)
    'held out of news: 0.5 % for validation, 0.5 % for downstream tasks; to change the sum, set --holdout-ratio'
    """
    others = f"to change them, set validation_ratio and test_ratio in {file or 'a corpus file of your own'}"
    remedy = "to change the sum, set --holdout-ratio" if own else others
    return (
        f"held out of {corpus.name}: {_percent(corpus.validation_ratio)} for validation, {_percent(corpus.test_ratio)} "
        f"for downstream tasks; {remedy}"
    )


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def find_too_few(corpus: Path, tasks: Sequence[str], labels: int) -> dict[str, str]:
    """The tasks for which a corpus holds out too few documents, each with the reason and the number of examples."""
    held_out_names, reasons = [task for task in tasks if task in TASKS], dict[str, str]()
    more = _MORE_OF_LINKED if read_link(corpus) else MORE
    if "test" not in Manifest.load(corpus).splits:
        return {task: f"task {task}: {corpus} has no held-out documents; {more}" for task in held_out_names}
    store = TokenStore.open(corpus, "test")
    vocab = Vocab.load(store.vocab_dir, store.manifest.vocab["hash"])
    for task in held_out_names:
        try:
            TASKS[task].make(store, vocab).require(labels)
        except DataError as error:
            reasons[task] = str(error).replace(MORE, more)
    return reasons


def select_held_out_tasks(tasks: Sequence[str]) -> list[str]:
    """The tasks among `tasks` that use held-out documents of a corpus."""
    return [task for task in tasks if task in TASKS]


def warn_of_few_documents(corpus: Corpus, num: int, tasks: Sequence[str], own: bool) -> list[str]:
    """A warning that a corpus of about `num` documents will hold out too few for any score, with a remedy; []
    otherwise.

    >>> warn_of_few_documents(Corpus(name="news"), 100_000, ["source_classification"], own=True)
    []
    """
    few = 2 if corpus.test_ratio and num >= 6 else 0  # the same rule as in pipeline/steps/plan.py
    num_held_out = max(round(corpus.test_ratio * num), few)
    # a task by sentence may have enough examples in a few documents
    affected = [task for task in select_held_out_tasks(tasks) if TASKS[task].is_by_document or not num_held_out]
    if num_held_out >= FEWEST_ROWS or not affected:
        return []
    share = min(0.5, _MANY * LABELS / max(num, 1))
    remedy = f"--holdout-ratio {2 * share:.2g}" if own and share < 0.5 else f"test_ratio: {share:.2g} in a corpus file"
    remedy = (
        f"set {remedy}, which holds out {round(share * num):,} for tasks"
        if share * num >= FEWEST_ROWS
        else "give more text"
    )
    return [
        f"no scores expected for {', '.join(affected)}: {corpus.name} has about {num:,} documents, "
        f"of which {num_held_out} are held out for tasks, but each task needs at least {FEWEST_ROWS}; {remedy}"
    ]


def tasks_without_text(corpus: JobStage, tasks: Sequence[str], labels: int = LABELS) -> list[str]:
    """The tasks for which a corpus holds out too few documents, with a warning for each; [] if the corpus does not
    exist yet."""
    reasons = find_too_few(corpus.folder, tasks, labels) if corpus.state == "done" else {}
    for reason in reasons.values():
        log.warning("no scores: %s", reason)
    return list(reasons)
