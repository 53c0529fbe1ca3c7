"""The first half of a job: text -> vocabulary -> shards, by Beam. Stages that are done are skipped."""

from collections.abc import Sequence

from orchestration.job import Job
from orchestration.progress import Report
from pipeline import jobs
from preprocessing.manifest import Manifest


def corpus(job: Job, beam_args: Sequence[str], report: Report) -> Manifest:
    """Build what the job's corpus still lacks, and return its manifest."""
    text, vocab, shards, _ = job.plan
    if text.state != "done":
        jobs.read_text(job.corpus, text.folder, beam_args, report)
        text.finish()
    if vocab.state != "done":
        report({"stage": "vocabulary"})
        jobs.train_vocab(text.folder, job.recipe.data.vocab, vocab.folder)
        vocab.finish()
    if shards.state != "done":
        jobs.encode(text.folder, vocab.folder, job.corpus, shards.folder, beam_args, report)
        shards.finish()
    return Manifest.load(shards.folder)
