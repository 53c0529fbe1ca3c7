"""The stages of a job and their state. Directories are named after the causes of their content.

A stage is a directory `<name>-<hash>`; the hash covers everything that its content depends on. The stage is done when
its `stage.json` exists, which is written last, by a rename. So no stage runs twice or mixes with another. A stage with
other causes (an edited recipe, a changed text) has another directory; the old one stays, and a message names it.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from orchestration.config import Recipe, compute_digest, flatten
from orchestration.jobs import part_code
from pipeline.spec import Corpus
from preprocessing.errors import BadInput
from preprocessing.files import parse_json, read_object, write_atomic
from preprocessing.tokenization import TokenizerSpec, vocab_from_file
from training.run import CHECKPOINTS, steps

MARK = "stage.json"
CODE = "code.json"  # digests of the source files of its parts when it started
# keys of a corpus that the text does not depend on: boundaries are computed when text is encoded
_MARKS = ("sentence_boundaries", "word_segmentation")
COMMITS = {  # other files without which a stage is not done; to repair a stage, delete this file first
    "text": "text.json",
    "vocab": "specials.json",
    "corpus": "manifest.json",
}


def keep_names(changed: Sequence[str], before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The causes by their own names."""
    return list(changed)


@dataclass(frozen=True)
class JobStage:
    """A directory, and everything that its content depends on as plain JSON values."""

    name: Literal["text", "vocab", "corpus", "rows", "run", "scores", "table"]
    parent: Path
    label: str
    causes: dict[str, Any]
    code: Mapping[str, str] = field(default_factory=dict)
    # from the changed causes, and all causes before and now: the names by which users know them
    name_causes: Callable[[Sequence[str], Mapping[str, Any], Mapping[str, Any]], list[str]] = field(
        default=keep_names, compare=False, repr=False
    )

    @property
    def hash(self) -> str:
        return compute_digest(self.causes)

    @property
    def folder(self) -> Path:
        return self.parent / f"{self.label}-{self.hash[:8]}"

    @property
    def state(self) -> Literal["done", "begun", "due"]:
        if all((self.folder / name).is_file() for name in (MARK, COMMITS.get(self.name, MARK))):
            return "done"
        return "begun" if self.folder.is_dir() else "due"

    @property
    def has_saved(self) -> bool:
        """Whether the directory has results that a later attempt continues from; a run has none before its first
        checkpoint."""
        if self.name != "run":
            return self.state != "due"
        return self.state == "done" or bool(steps(self.folder / CHECKPOINTS))

    def begin(self, anew: bool = False) -> None:
        """Store the digests of the code, unless the directory has results of earlier code; `anew` replaces them."""
        if anew or not self.has_saved or not (self.folder / CODE).is_file():
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomic(self.folder / CODE, json.dumps(dict(self.code), indent=1).encode())

    def finish(self) -> None:
        """Mark the stage as done. This is the last file that is written."""
        self.begin()
        mark = {"stage": self.name, "hash": self.hash, "causes": self.causes}
        write_atomic(self.folder / MARK, json.dumps(mark, indent=1).encode())

    def find_changed_code(self) -> list[str]:
        """Source files that have changed since the directory was started; [] if it has no results; CODE itself if it
        is damaged."""
        if not self.has_saved:
            return []
        try:
            before = dict(parse_json((self.folder / CODE).read_bytes()))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except (ValueError, TypeError):
            return [CODE]
        return part_code.find_changed_parts(before, self.code)

    def find_others(self) -> list[tuple[Path, list[str]]]:
        """Finished directories with the same label, and their causes that differ from this stage."""
        others = []
        for mark in sorted(self.parent.glob(f"{self.label}-*/{MARK}")):
            if mark.parent != self.folder:
                try:
                    causes = read_object(mark, "", causes=dict)["causes"]
                except BadInput:  # another command for that stage reports the damage
                    continue
                before, now = dict(flatten(causes)), dict(flatten(self.causes))
                changed = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
                others.append((mark.parent, self.name_causes(changed, causes, self.causes)))
        return others

    def find_reweighted(self) -> list[Path]:
        """Finished corpora with the same shards, whose mixtures have other weights."""
        return [
            folder for folder, changed in self.find_others() if all(name.startswith("weights.") for name in changed)
        ]

    def describe(self) -> Iterator[str]:
        """The planned action, changed source files, and older directories with their differences.

        Scores have many stages, so the line about older directories is left out; `other_values` prints it once for all.
        """
        words = {"done": "done, skipped", "begun": "incomplete, resumes", "due": "to do"}[self.state]
        yield f"{self.name}: {words} ({self.folder})"
        if code := self.find_changed_code():
            files = ", ".join(code)
            yield f"{self.name}: made by different code ({files} changed since); to make it again, delete its directory"
        if self.name != "scores" and (line := other_values([self])):
            yield line


def other_values(due: Sequence[JobStage]) -> str:
    """A line about finished directories with the labels of `due` and their differences; "" if there are none."""
    folders = {stage.folder for stage in due}
    changed_by_folder = {
        folder: changed for stage in due if stage.state != "done" for folder, changed in stage.find_others()
    }
    changed_by_folder = {folder: changed for folder, changed in changed_by_folder.items() if folder not in folders}
    if not changed_by_folder:
        return ""
    values = list(dict.fromkeys(value for changed in changed_by_folder.values() for value in changed))
    named = ", ".join(values[:4]) + " ..." * (len(values) > 4)
    which, kept = f"{len(changed_by_folder):,} directories were", "they are kept"
    if len(changed_by_folder) == 1:
        which, kept = f"{next(iter(changed_by_folder)).name} was", "it is kept"
    return f"{due[0].name}: {which} made earlier with other values of {named}; {kept}"


class JobPlan(NamedTuple):
    """The stages of a job in order; each depends on the stages before it."""

    text: JobStage
    vocab: JobStage
    corpus: JobStage
    run: JobStage


class CorpusPlan(NamedTuple):
    """The stages of a corpus, which do not depend on the rest of a recipe."""

    text: JobStage
    vocab: JobStage
    corpus: JobStage


def plan(recipe: Recipe, corpus: Corpus, inputs: str, out: Path) -> JobPlan:
    """The stages of `recipe` on `corpus` below the directory `out`; `inputs` is the fingerprint of the text."""
    made = plan_corpus(recipe.data.tokenizer, corpus, plan_text(corpus, inputs, out), out)
    return JobPlan(*made, _plan_run(recipe, made.corpus, out))


def plan_linked(recipe: Recipe, corpus: JobStage, out: Path) -> JobPlan:
    """The stages of `recipe` on a finished corpus of an object store: the first three are the directory of its link."""
    return JobPlan(corpus, corpus, corpus, _plan_run(recipe, corpus, out))


def _plan_run(recipe: Recipe, corpus: JobStage, out: Path) -> JobStage:
    of_run = part_code.compute_digests(recipe.sampling, recipe.losses, recipe.model, recipe.optimizer)
    causes = {"recipe": _plain(recipe.science), "corpus": corpus.hash}
    return JobStage("run", out / "runs", recipe.name, causes, of_run)


def plan_text(corpus: Corpus, inputs: str, out: Path) -> JobStage:
    """The stage of the cleaned documents of `corpus`; `inputs` is the fingerprint of the text."""
    spec = _plain(corpus.causes)
    del spec["clean"]["max_unreadable_ratio"]  # controls whether a text is made, not its content

    for name in _MARKS:
        del spec[name]
    for group in spec["mixture"]:  # the text does not depend on the weights
        del group["weight"]
        group.pop("epochs", None)
    spec.pop("mixture_sampling_alpha", None)
    if not spec["mixture"]:
        del spec["mixture"]
    code = part_code.compute_digests(corpus)
    return JobStage("text", out / "text", corpus.name, {"corpus": spec, "inputs": inputs}, code)


def plan_corpus(tokenizer: TokenizerSpec, corpus: Corpus, text: JobStage, out: Path) -> CorpusPlan:
    """The stages of a corpus with the token IDs of `tokenizer`, after the stage of its documents."""
    of_vocab = part_code.compute_digests(tokenizer)
    label = f"{tokenizer.kind}_{corpus.name}"
    causes: dict[str, Any] = {"text": text.hash, "vocab": _plain(asdict(tokenizer))}
    if tokenizer.path:  # the content of the file may change at the same path
        causes["file"] = vocab_from_file(tokenizer).hash
    pieces = JobStage("vocab", out / "vocab", label, causes, of_vocab)
    marks = {name: getattr(corpus, name) for name in _MARKS}
    weights = corpus.weight_causes
    causes = {"text": text.hash, "vocab": pieces.hash, "marks": marks} | ({"weights": weights} if weights else {})
    return CorpusPlan(text, pieces, JobStage("corpus", out / "corpora", corpus.name, causes, {**text.code, **of_vocab}))


def is_cleaned_alike(text: JobStage, corpus: Corpus) -> bool:
    """Whether the filters and lists of a corpus are those of its text stage: a file may change while a command runs."""
    clean = _plain(corpus.clean.causes)
    return all(clean[name] == value for name, value in text.causes["corpus"]["clean"].items())


def rows(recipe: Recipe, corpus: JobStage, out: Path) -> dict[int, JobStage]:
    """The stages of static training sequences on a corpus, by sequence length. Raises BadInput if the corpus is a
    mixture."""
    if "weights" in corpus.causes:
        raise BadInput(
            f"corpus {corpus.label} is a mixture, and static training sequences ignore its weights; leave "
            "--materialize out, or use a corpus file without `mixture`"
        )
    sampling = _plain(asdict(recipe.sampling))
    del sampling["shuffle_window_shards"]  # changes the order of sequences, not their content
    causes = {"corpus": corpus.hash, "sampling": sampling}
    code = part_code.compute_digests(recipe.sampling)
    return {
        length: JobStage("rows", out / "rows", f"{recipe.name}_{length}", causes | {"length": length}, code)
        for length in sorted({phase.seq_length for phase in recipe.phases})
    }


def measures(run: JobStage, table: str, asked: dict[str, Any]) -> JobStage:
    """The stage with the measures of one run for a table, stored inside the directory of the run."""
    return JobStage("scores", run.folder / "scores", table, {"run": run.hash, "asked": asked})


def table(name: str, about: str, cells: Sequence[JobStage], out: Path) -> JobStage:
    """The stage of a table. `cells` are the stages of its measures, and `about` is the hash of its definition."""
    return JobStage("table", out / "tables", name, {"about": about, "cells": [cell.hash for cell in cells]})


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    """The value as JSON returns it: tuples become lists, so that it equals a value loaded from disk."""
    return json.loads(json.dumps(value))
