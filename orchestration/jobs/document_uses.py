"""The steps of a run that trained on a document, and those that will."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from orchestration.jobs.find_documents import CorpusDocument, find_documents
from orchestration.jobs.run_list import summarize_run
from orchestration.progress import Report
from preprocessing.errors import BadInput
from preprocessing.files import of_kind
from preprocessing.find_rows import DocumentPlace
from training.data import open_loader
from training.document_steps import DocumentSteps, find_steps
from training.run import RUN, Run
from training.spikes import SPIKES

State = Literal["seen", "skipped", "later", "never"]
MOST_DOCUMENTS: Final = 5
_NAMED_STEPS: Final = 6  # steps that a summary names
_STAGE: Final = "finding the sequences"


class SequenceUse(NamedTuple):
    """A sequence that contains tokens of a document. Steps and rows are counted from 0, as in `sesame inspect`.

    `ranges` has start and stop of its tokens in the document. `state`: "seen" by the model; "skipped", because the
    batch of the step was skipped; "later"; or "never", because the run ended before.
    """

    step: int
    row: int
    epoch: int
    ranges: tuple[tuple[int, int], ...]
    state: State


@dataclass(frozen=True)
class DocumentUses:
    """A document of the corpus of a run, and the sequences that contain it."""

    document: CorpusDocument
    uses: tuple[SequenceUse, ...]
    steps: range  # the steps that were searched
    num_trained: int  # steps that the run has trained

    def describe(self) -> str:
        """The uses in one line; for a document that is not trained on, why."""
        found = self.document
        if found.reason:
            kept = f"; {found.kept_key} of {found.kept_source} was kept instead" if found.kept_source else ""
            kept = kept or ("; a document of a reference corpus repeats it" if found.kept_key else "")
            return f"dropped ({found.reason.replace('_', ' ')}), so no step reads it{kept}"
        if found.split != "train":
            return f"held out in the {found.split} split, so no step trains on it"
        if not self.uses:
            return f"in no sequence of the steps {self.steps.start:,} to {self.steps.stop - 1:,}"
        by_state: dict[State, list[int]] = {}
        for use in self.uses:
            by_state.setdefault(use.state, []).append(use.step)
        seen = by_state.get("seen")
        parts = [f"seen {_count_times(seen)} in {_name_steps(seen)}" if seen else "not seen yet"]
        if skipped := by_state.get("skipped"):
            parts.append(f"skipped {_count_times(skipped)} in {_name_steps(skipped)}")
        if later := by_state.get("later"):
            until = f"until step {self.steps.stop - 1:,}, next in step {later[0]:,}"
            parts.append(f"will be seen {_count_times(later)} {until}")
        if never := by_state.get("never"):
            parts.append(f"not seen {_count_times(never)}, because the run ended after {self.num_trained:,} steps")
        return "; ".join(parts)

    def plain(self) -> dict[str, Any]:
        """The values for JSON."""
        found, states = self.document, [use.state for use in self.uses]
        facts = {name: getattr(found, name) for name in ("key", "source", "split", "num_tokens", "reason", "kept_key")}
        counts = {state: states.count(state) for state in ("seen", "skipped", "later", "never")}
        return {name: value for name, value in facts.items() if value != ""} | {
            "summary": self.describe(),
            "counts": counts,
            "uses": [use._asdict() for use in self.uses],
        }


@dataclass(frozen=True)
class DocumentUsesResult:
    """The documents that a text or key names, the first of them with their uses."""

    documents: tuple[DocumentUses, ...]
    num_found: int
    note: str = ""


def find_uses(
    run: Run,
    wanted: str,
    report: Report,
    *,
    is_text: bool = False,
    steps: range | None = None,
    most: int = MOST_DOCUMENTS,
) -> DocumentUsesResult:
    """The uses of the first `most` documents that `wanted` names, a key or a piece of text, in `steps` (default: all).

    Raises BadInput if the corpus has no such document, or if the run is damaged.
    """
    steps = range(run.steps) if steps is None else steps
    if not 0 <= steps.start < steps.stop <= run.steps:
        raise BadInput(
            f"invalid steps: got {steps.start} to {steps.stop - 1}, expected steps from 0 to {run.steps - 1} in "
            "ascending order; give steps of this run"
        )
    found = find_documents(Path(run.corpus), wanted, is_text, report, run.engine.shard_cache)
    shown = found.documents[:most]
    trained = [each for each in shown if each.split == "train"]
    by_document = dict(zip(map(id, trained), _find(run, trained, steps, report), strict=True))
    num_trained, is_over = _read_progress(Path(run.folder))
    skipped = _read_skipped(run)
    return DocumentUsesResult(
        tuple(
            DocumentUses(each, _uses(by_document.get(id(each)), num_trained, is_over, skipped), steps, num_trained)
            for each in shown
        ),
        len(found.documents),
        found.note,
    )


def _find(run: Run, documents: Sequence[CorpusDocument], steps: range, report: Report) -> list[DocumentSteps]:
    if not documents:
        return []
    machine = replace(run.engine, padding="unpadded", dataloader_num_workers=0)
    loader = open_loader(replace(run, engine=machine), rank=0, world=1, trains=False)
    shards = next(iter(loader.rows_by_length.values())).store.shards
    places = [DocumentPlace(shards[each.shard], each.row) for each in documents]
    return find_steps(loader, places, steps, partial(_report_steps, report, len(steps)))


def _report_steps(report: Report, total: int, done: int) -> None:
    report({"stage": _STAGE, "done": done, "total": total})


def _uses(
    found: DocumentSteps | None, num_trained: int, is_over: bool, skipped: frozenset[int]
) -> tuple[SequenceUse, ...]:
    """One value for each sequence, with all of its ranges."""
    ranges: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    if found is not None:
        columns = (found.step_K, found.row_K, found.epoch_K, found.start_K, found.stop_K)
        for step, row, epoch, start, stop in zip(*(of_K.tolist() for of_K in columns), strict=True):
            ranges.setdefault((step, row, epoch), []).append((start, stop))
    later: State = "never" if is_over else "later"
    return tuple(
        SequenceUse(
            *place,
            tuple(of_place),
            "skipped" if place[0] in skipped else "seen" if place[0] < num_trained else later,
        )
        for place, of_place in ranges.items()
    )


def _read_progress(folder: Path) -> tuple[int, bool]:
    """The number of steps that a run has trained, by its records, and whether it is finished; 0 if it has not begun."""
    if not (folder / RUN).is_file():
        return 0, False
    found = summarize_run(folder)
    if found.problem:
        raise BadInput(found.problem)
    return found.step, found.state == "finished"


def _read_skipped(run: Run) -> frozenset[int]:
    """The steps, from 0, whose batches the run skips: those that its cluster names, and those after loss spikes."""
    path, skipped = Path(run.folder) / SPIKES, [step - 1 for step in run.skip_steps]
    if path.is_file():
        with of_kind(path, "restore it from a copy, or delete its damaged line"):
            for line in path.read_text(encoding="utf-8").splitlines():
                skipped += [int(step) - 1 for step in json.loads(line)["skipped"]]
    return frozenset(skipped)


def _count_times(steps: Sequence[int]) -> str:
    """
    >>> _count_times([3]), _count_times([3, 3])
    ('once', '2 times')
    """
    return "once" if len(steps) == 1 else f"{len(steps):,} times"


def _name_steps(steps: Iterable[int]) -> str:
    """The first steps and the last one.

    >>> _name_steps([3, 3]), _name_steps(range(1_000, 1_009))
    ('step 3', 'steps 1,000, 1,001, 1,002, 1,003, 1,004 ... 1,008')
    """
    each = [f"{step:,}" for step in dict.fromkeys(steps)]
    if len(each) > _NAMED_STEPS:
        return f"steps {', '.join(each[: _NAMED_STEPS - 1])} ... {each[-1]}"
    return f"step{'s' * (len(each) > 1)} {', '.join(each)}"
