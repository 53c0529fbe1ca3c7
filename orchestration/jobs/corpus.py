"""The first half of a job: text -> vocabulary -> shards, by Beam. Stages that are done are skipped."""

from collections.abc import Sequence
from pathlib import Path

from orchestration import tracking
from orchestration.jobs import stages
from orchestration.jobs.job import Job
from orchestration.progress import Report, together
from orchestration.reports import data_card
from orchestration.tracking import corpus_metadata, corpus_progress, corpus_run, log_card
from pipeline import jobs
from pipeline.steps import Static, materialise
from preprocessing.manifest import Manifest


def corpus(job: Job, beam_args: Sequence[str], report: Report, with_card: bool = False) -> Manifest:
    """Build what the job's corpus still lacks, as a run of MLflow, and return its manifest.

    `with_card` writes the data card beside the shards and keeps it in the run.
    """
    folder = job.plan.corpus.folder
    if job.plan.corpus.state == "done" and not with_card:
        return Manifest.load(folder)
    report({"stage": "opening MLflow"})
    metadata = corpus_metadata(job.corpus, job.recipe.data.vocab, job.command)
    with corpus_run(tracking.place(job.out), folder, metadata) as run:
        untracked(job, beam_args, together(report, corpus_progress(run)))
        if with_card:
            report({"stage": "data card"})
            known = data_card.facts_of(folder, job.recipe, job.corpus)
            drawn = data_card.pictures(known)
            log_card(run, data_card.save(known, drawn, folder), drawn)
        report({"stage": "logging to MLflow"})
    return Manifest.load(folder)


def untracked(job: Job, beam_args: Sequence[str], report: Report) -> Manifest:
    """Build what the job's corpus still lacks, and return its manifest; MLflow hears nothing of it."""
    text, vocab, shards, _ = job.plan
    if text.state != "done":
        if vocab.state != "done":
            jobs.require_room(job.recipe.data.vocab, job.corpus)
        jobs.read_text(job.corpus, text.folder, beam_args, report)
        text.finish()
    if vocab.state != "done":
        jobs.train_vocab(text.folder, job.recipe.data.vocab, vocab.folder, beam_args, report)
        vocab.finish()
    if shards.state != "done":
        jobs.encode(text.folder, vocab.folder, job.corpus, shards.folder, beam_args, report)
        shards.finish()
    return Manifest.load(shards.folder)


def rows(job: Job, beam_args: Sequence[str], report: Report) -> dict[int, Path]:
    """Write the finished training rows of the job's corpus, a folder for each length of its phases."""
    recipe, folders = job.recipe, dict[int, Path]()
    for length, stage in stages.rows(recipe, job.plan.corpus, job.out).items():
        if stage.state != "done":
            static = Static(str(job.plan.corpus.folder), "train", recipe.sampling, length)
            materialise(static, stage.folder, beam_args, report)
            stage.finish()
        folders[length] = stage.folder
    return folders
