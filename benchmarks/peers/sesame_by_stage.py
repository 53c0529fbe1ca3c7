"""Sesame's whole job in one process, with the CPU seconds of each stage.

The time of a stage does not include other stages that it calls. The remaining time is Beam and Python code between the
stages. The stopwatch itself takes time at each call, so short documents look slower than they are.
"""

import functools
import importlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, Final

from sesame_job import whole, work
from task import begin, end

# The place where each function is looked up -> its stage.
STAGES: Final = {
    "pipeline.readers.plain.lines": "read: decompress, lines",
    "pipeline.readers.plain.blocks": "read: decompress, lines",
    "pipeline.readers.jsonl.parse_line": "read: JSON",
    "pipeline.steps.clean.repair_text": "clean: repair",
    "pipeline.steps.clean.normalize": "clean: normalize",
    "preprocessing.text.filters.apply_rules": "clean: rules",
    "pipeline.steps.clean.text_key": "keys, dedup, plan",
    "pipeline.steps.clean.write_documents": "clean: rest; write text",
    "pipeline.steps.clean.seal": "write text",
    "pipeline.steps.clean.read_seal": "write text",
    "pipeline.steps.ingest.clean_split": "clean: rest",
    "pipeline.steps.ingest.addresses": "keys, dedup, plan",
    "pipeline.steps.dedup.in_order": "keys, dedup, plan",
    "pipeline.steps.dedup._repeats": "keys, dedup, plan",
    "pipeline.steps.plan.in_order": "keys, dedup, plan",
    "pipeline.steps.plan.assign_shards": "keys, dedup, plan",
    "pipeline.steps.plan.write_repeats": "keys, dedup, plan",
    "pipeline.steps.plan.seal": "keys, dedup, plan",
    "pipeline.steps.ingest._text": "keys, dedup, plan",
    "pipeline.steps.dedup.sign_texts": "near-duplicates: signatures",
    "pipeline.steps.dedup.hash_bands": "near-duplicates: hashes of bands",
    "pipeline.steps.ingest.bands": "near-duplicates: rest",
    "pipeline.steps.ingest.edges": "near-duplicates: pairs",
    "pipeline.steps.plan.select_similar_edges": "near-duplicates: pairs",
    "pipeline.steps.plan.without_near": "near-duplicates: components",
    "pipeline.steps.line_dedup.line_hashes": "repeated lines",
    "pipeline.steps.ingest.find_repeats": "repeated lines",
    "pipeline.steps.ingest.strike": "repeated lines",
    "pipeline.steps.plan.rows_of": "read text again",
    "pipeline.steps.plan.documents_at": "read text again",
    "pipeline.jobs.train": "train the vocabulary",
    "pipeline.steps.encode.sentences": "encode: sentences",
    "preprocessing.tokenization.vocab.Vocab._encode": "encode: tokenizers",
    "preprocessing.tokenization.encoders.NanotokenEncoder.encode": "encode: nanotoken",
    "preprocessing.tokenization.document_encoder.DocumentEncoder.encode": "encode: starts of sentences and words",
    "pipeline.jobs.try_encoder": "encode: trial of the encoder",
    "pipeline.steps.encode.write_flat_shard": "write shards",
    "pipeline.steps.encode.seal": "write shards",
    "pipeline.steps.encode.read_seal": "write shards",
    "pipeline.jobs.check_fit": "check the vocabulary and the text",
    "pipeline.jobs.implausible_sentences": "check the vocabulary and the text",
    "pipeline.jobs.describe_accent_loss": "check the vocabulary and the text",
    "pipeline.jobs._manifest": "manifest",
}


class Stopwatch:
    """Divides the CPU time of this process among the stages; at any time the innermost stage runs."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.running = ["rest: Beam, Python between stages"]
        self.seconds["imports"] = self.since = time.process_time()

    def turn(self, stage: str | None) -> None:
        """Start a stage; None ends the innermost one."""
        now = time.process_time()
        self.seconds[self.running[-1]] += now - self.since
        self.since = now
        if stage is None:
            self.running.pop()
        else:
            self.running.append(stage)

    def timed(self, function: Callable[..., Any], stage: str) -> Callable[..., Any]:
        """Wrap a function, so that its time counts for the stage; for a generator, the time of its items."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            self.turn(stage)
            try:
                result = function(*args, **kwargs)
            finally:
                self.turn(None)
            return self.each(result, stage) if isinstance(result, Iterator) else result

        return call

    def each(self, items: Iterator[Any], stage: str) -> Iterator[Any]:
        """Yield the items; the time to produce them counts for the stage."""
        while True:
            self.turn(stage)
            try:
                item = next(items)
            except StopIteration:
                return
            finally:
                self.turn(None)
            yield item


def watch(stopwatch: Stopwatch) -> None:
    """Replace each function of STAGES by its timed version."""
    for where, stage in STAGES.items():
        path, name = where.rsplit(".", 1)
        try:
            owner: Any = importlib.import_module(path)
        except ModuleNotFoundError:
            module, cls = path.rsplit(".", 1)
            owner = getattr(importlib.import_module(module), cls)
        setattr(owner, name, stopwatch.timed(getattr(owner, name), stage))


if __name__ == "__main__":
    stopwatch = Stopwatch()
    watch(stopwatch)
    task = begin()
    kept = work(task, whole(task)).ledger.kept
    stopwatch.turn(None)
    end(kept.documents, kept.tokens, stages=stopwatch.seconds)
