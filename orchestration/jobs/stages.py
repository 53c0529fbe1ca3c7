"""What a job is made of, and what of it is done. Folders are named after the causes of their content.

A stage is a folder `<name>-<hash>`, the hash being that of everything its content depends on, and is done when its
`stage.json` is there: written last, by rename. So no stage is done twice, none is mixed up with another, and a stage of
other causes (an edited recipe, a changed text) has a folder of its own, which stays and is named.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from orchestration.config import Recipe, compute_digest, flatten
from orchestration.jobs import part_code
from pipeline.spec import Corpus
from preprocessing.errors import BadInput
from preprocessing.files import parse_json, read_object, write_atomic
from preprocessing.tokenization import vocab_from_file

MARK = "stage.json"
CODE = "code.json"  # digests of the files of its parts, as they were when it began
COMMITS = {  # what else a stage is not done without: mending it begins with deleting that
    "text": "text.json",
    "vocab": "specials.json",
    "corpus": "manifest.json",
}


@dataclass(frozen=True)
class JobStage:
    """A folder and all that its content depends on, as plain JSON values."""

    name: Literal["text", "vocab", "corpus", "rows", "run", "scores", "table"]
    parent: Path
    label: str
    causes: dict[str, Any]
    code: Mapping[str, str] = field(default_factory=dict)

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

    def begin(self, anew: bool = False) -> None:
        """Remember the code that it is made by, unless it has begun before; `anew` forgets what was before."""
        if anew or not (self.folder / CODE).is_file():
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomic(self.folder / CODE, json.dumps(dict(self.code), indent=1).encode())

    def finish(self) -> None:
        """Mark it as done: the last thing that is written."""
        self.begin()
        mark = {"stage": self.name, "hash": self.hash, "causes": self.causes}
        write_atomic(self.folder / MARK, json.dumps(mark, indent=1).encode())

    def changed_code(self) -> list[str]:
        """Files of its parts whose code is not what it was when the folder began; none where there is no folder.

        The record itself, where that is damaged.
        """
        try:
            before = dict(parse_json((self.folder / CODE).read_bytes()))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except (ValueError, TypeError):
            return [CODE]
        return part_code.find_changed_parts(before, self.code)

    def others(self) -> list[tuple[Path, list[str]]]:
        """Done folders of the same label, and which of their causes are not those of this stage."""
        found = []
        for mark in sorted(self.parent.glob(f"{self.label}-*/{MARK}")):
            if mark.parent != self.folder:
                try:
                    causes = read_object(mark, "", causes=dict)["causes"]
                except BadInput:  # whoever asks for that stage itself is told
                    continue
                before, now = dict(flatten(causes)), dict(flatten(self.causes))
                changed = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
                found.append((mark.parent, changed))
        return found

    def said(self) -> Iterator[str]:
        """What is to become of it; whether its code has changed; which older folders there are, and what differs:
        of scores, of which there are many, `other_values` says it once for all."""
        words = {"done": "done, skipped", "begun": "begun, goes on", "due": "to do"}[self.state]
        yield f"{self.name}: {words} ({self.folder})"
        if code := self.changed_code():
            files = ", ".join(code)
            yield f"{self.name}: made by other code ({files} changed since); to make it anew, delete its folder"
        if self.name != "scores" and (line := other_values([self])):
            yield line


def other_values(due: Sequence[JobStage]) -> str:
    """A line about done folders beside those that are due, and what differs; "" where there are none."""
    mine = {stage.folder for stage in due}
    found = {folder: changed for stage in due if stage.state != "done" for folder, changed in stage.others()}
    found = {folder: changed for folder, changed in found.items() if folder not in mine}
    if not found:
        return ""
    values = list(dict.fromkeys(value for changed in found.values() for value in changed))
    named = ", ".join(values[:4]) + " ..." * (len(values) > 4)
    who, stays = f"{len(found):,} earlier ones have", "they stay as they are"
    if len(found) == 1:
        who, stays = f"{next(iter(found)).name} has", "it stays as it is"
    return f"{due[0].name}: {who} other values of {named}; {stays}"


class JobPlan(NamedTuple):
    """The stages of a job, in order; each depends on those before it."""

    text: JobStage
    vocab: JobStage
    corpus: JobStage
    run: JobStage


def plan(recipe: Recipe, corpus: Corpus, inputs: str, out: Path) -> JobPlan:
    """The stages of `recipe` on `corpus` under the folder `out`; `inputs` is the fingerprint of the text itself."""
    spec, vocab = _plain(asdict(corpus)), _plain(asdict(recipe.data.tokenizer))
    spec["clean"] = _plain(corpus.clean.causes)
    del spec["clean"]["max_unreadable_ratio"]  # decides whether a text is made, not what is in it
    marks = {
        name: spec.pop(name) for name in ("sentence_boundaries", "word_segmentation")
    }  # these are found when text is encoded
    weights = {group["name"]: group.pop("weight") for group in spec["mixture"]}  # other weights, the same shards
    if not weights:
        del spec["mixture"]
    of_text, of_vocab = part_code.compute_digests(corpus), part_code.compute_digests(recipe.data.tokenizer)
    of_run = part_code.compute_digests(recipe.sampling, recipe.losses, recipe.model, recipe.optimizer)
    text = JobStage("text", out / "text", corpus.name, {"corpus": spec, "inputs": inputs}, of_text)
    label, causes = f"{recipe.data.tokenizer.kind}_{corpus.name}", {"text": text.hash, "vocab": vocab}
    if recipe.data.tokenizer.path:  # another file may come to lie at the same path
        causes["file"] = vocab_from_file(recipe.data.tokenizer).hash
    pieces = JobStage("vocab", out / "vocab", label, causes, of_vocab)
    causes = {"text": text.hash, "vocab": pieces.hash, "marks": marks} | ({"weights": weights} if weights else {})
    shards = JobStage("corpus", out / "corpora", corpus.name, causes, of_text | of_vocab)
    causes = {"recipe": _plain(recipe.science), "corpus": shards.hash}
    return JobPlan(text, pieces, shards, JobStage("run", out / "runs", recipe.name, causes, of_run))


def rows(recipe: Recipe, corpus: JobStage, out: Path) -> dict[int, JobStage]:
    """The static rows of `recipe` on a corpus, for each length of its phases; BadInput where that is a mixture."""
    if "weights" in corpus.causes:
        raise BadInput(
            f"corpus {corpus.label} is a mixture, and finished rows say nothing of its weights; leave --materialize "
            f"out, or "
            "take a corpus file without `mixture`"
        )
    causes = {"corpus": corpus.hash, "sampling": _plain(asdict(recipe.sampling))}
    code = part_code.compute_digests(recipe.sampling)
    return {
        length: JobStage("rows", out / "rows", f"{recipe.name}_{length}", causes | {"length": length}, code)
        for length in sorted({phase.seq_length for phase in recipe.phases})
    }


def measures(run: JobStage, table: str, asked: dict[str, Any]) -> JobStage:
    """What a table asks of a run, kept inside of its folder."""
    return JobStage("scores", run.folder / "scores", table, {"run": run.hash, "asked": asked})


def table(name: str, about: str, cells: Sequence[JobStage], out: Path) -> JobStage:
    """A table of the measures of these cells; `about` is the hash of what it makes of them."""
    return JobStage("table", out / "tables", name, {"about": about, "cells": [cell.hash for cell in cells]})


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    """As JSON gives it back: tuples are lists, so that what is compared with a mark on disk looks the same."""
    return json.loads(json.dumps(value))
