"""First half of a job: text -> vocabulary -> shards, by Beam. Finished stages are skipped."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestration import environment, tracking
from orchestration.jobs import stages
from orchestration.jobs.corpus_job import CorpusJob
from orchestration.jobs.job import Job, inputs_of
from orchestration.progress import Report, combine_reports
from orchestration.reports import data_card
from orchestration.tracking import corpus_metadata, corpus_progress, corpus_run, log_card
from pipeline import jobs
from pipeline.runners import check_here
from pipeline.spec import BeamSettings
from pipeline.steps import StaticExampleSpec, TextDirectory, materialise
from preprocessing.errors import BadInput
from preprocessing.lock import JOB, hold_lock
from preprocessing.manifest import Manifest

log = logging.getLogger(__name__)


def corpus(job: Job | CorpusJob, beam_args: Sequence[str], report: Report, with_card: bool = False) -> Manifest:
    """Build the missing parts of the job's corpus in an MLflow run, and return its manifest.

    If the job names a finished corpus of an object store, only its manifest and vocabulary are fetched, without a run.
    Beam gets the runner and the options of the cluster, then `beam_args`; the last value of an option counts. Raises
    BadInput for unknown options before anything starts. `with_card` writes the data card beside the shards and stores
    it in the run.
    """
    folder = job.plan.corpus.folder
    if job.plan.corpus.state == "done" and not with_card:
        return Manifest.load(folder)
    if isinstance(job, Job) and job.linked:
        if with_card:
            raise BadInput(f"--data-card: {job.linked.address} is a finished corpus; make its card where it was made")
        with environment.apply(job.cluster.env), hold_lock(folder, JOB):
            return job.linked.build(job.plan.corpus, job.cluster.engine.shard_cache)
    arguments = arguments_of(job, beam_args)
    with environment.apply(job.cluster.env) as env, hold_lock(folder, JOB):
        _warn_of_local_variables(job.cluster.beam, env)
        return _build_tracked(job, arguments, report, with_card)


def _build_tracked(job: Job | CorpusJob, arguments: Sequence[str], report: Report, with_card: bool) -> Manifest:
    folder = job.plan.corpus.folder
    report({"stage": "opening MLflow"})
    metadata = corpus_metadata(job.corpus, job.tokenizer, job.command)
    with corpus_run(tracking.tracking_store(job.out), folder, metadata) as run:
        _build(job, arguments, combine_reports(report, corpus_progress(run)))
        if with_card:
            report({"stage": "data card"})
            facts = data_card.facts_of(folder, job.recipe if isinstance(job, Job) else None, job.corpus)
            pictures = data_card.pictures(facts)
            log_card(run, data_card.save(facts, pictures, folder), pictures)
        report({"stage": "logging to MLflow"})
    return Manifest.load(folder)


def build_untracked(job: Job, beam_args: Sequence[str], report: Report) -> Manifest:
    """Build the missing parts of the job's corpus without MLflow, and return its manifest."""
    with environment.apply(job.cluster.env):
        return _build(job, arguments_of(job, beam_args), report)


def arguments_of(job: Job | CorpusJob, beam_args: Sequence[str]) -> list[str]:
    """Beam's options of a job: those of its cluster, then `beam_args`.

    Raises BadInput for options unknown to Beam, ResourceError if packages of the runner are not installed, or if
    something is to be built and nothing listens at the job endpoint.
    """
    arguments = [*job.cluster.beam.arguments, *beam_args]
    wanted = job.plan[:3] if isinstance(job, Job) else job.wanted
    check_here(arguments, connect=any(stage.state != "done" for stage in wanted))
    return arguments


def _warn_of_local_variables(beam: BeamSettings, env: Mapping[str, str]) -> None:
    """Warn if the variables of the cluster file do not reach the workers of its runner."""
    if env and beam.runner != BeamSettings().runner:
        log.warning(
            "beam: the workers of %s do not receive %s of cluster.env; set these variables for them",
            beam.runner, ", ".join(env),
        )  # fmt: skip


def documents(job: CorpusJob, beam_args: Sequence[str], report: Report) -> TextDirectory:
    """Make the cleaned documents of a job without a tokenizer. MLflow has runs only for corpora with tokens."""
    arguments = arguments_of(job, beam_args)
    with environment.apply(job.cluster.env) as env, hold_lock(job.text.folder, JOB):
        _warn_of_local_variables(job.cluster.beam, env)
        if job.text.state != "done":
            _read_text(job, job.text, arguments, report)
    return TextDirectory.load(job.text.folder)


def _build(job: Job | CorpusJob, beam_args: Sequence[str], report: Report) -> Manifest:
    text, vocab, shards = job.plan[:3]
    if text.state != "done":
        if vocab.state != "done":
            jobs.require_room(job.tokenizer, job.corpus)
        _read_text(job, text, beam_args, report)
    if vocab.state != "done":
        jobs.train_vocab(text.folder, job.tokenizer, vocab.folder, beam_args, report)
        vocab.finish()
    if shards.state != "done":
        jobs.encode_corpus(
            text.folder, vocab.folder, job.corpus, shards.folder, beam_args, report, shards.find_reweighted()
        )
        shards.finish()
    return Manifest.load(shards.folder)


def _read_text(job: Job | CorpusJob, text: stages.JobStage, beam_args: Sequence[str], report: Report) -> None:
    """Make the cleaned documents. Raises BadInput if the text or a filter changed meanwhile."""
    jobs.read_text(job.corpus, text.folder, beam_args, report)
    if inputs_of(job.corpus) != text.causes["inputs"] or not stages.is_cleaned_alike(text, job.corpus):
        raise BadInput(
            f"corpus {job.corpus.name}: its text changed while this command ran; wait until no other program "
            "writes there, then repeat the command"
        )
    text.finish()


def rows(job: Job, beam_args: Sequence[str], report: Report) -> dict[int, Path]:
    """Write static training sequences of the job's corpus; returns the directory of each sequence length of its
    phases."""
    recipe, folders, arguments = job.recipe, dict[int, Path](), arguments_of(job, beam_args)
    for length, stage in stages.rows(recipe, job.plan.corpus, job.out).items():
        if stage.state != "done":
            static = StaticExampleSpec(str(job.plan.corpus.folder), "train", recipe.sampling, length)
            with environment.apply(job.cluster.env):
                materialise(static, stage.folder, arguments, report)
            stage.finish()
        folders[length] = stage.folder
    return folders
