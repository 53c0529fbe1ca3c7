"""Metrics and tags of MLflow runs, with their meaning. The reference page lists them.

A name in angle brackets stands for any text: `train/<loss>/loss` is `train/masked_tokens/loss`. A test checks that each
metric and each tag that the code logs is in these tables.
"""

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class LoggedName:
    """A metric or a tag, and the meaning of its value."""

    name: str
    means: str


TRAINING_METRICS: Final = (
    LoggedName("train/loss", "Weighted sum of the losses, in nats per target: mean since the previous point."),
    LoggedName("train/<loss>/loss", "One loss in nats per target, without its weight; <loss> is its kind."),
    LoggedName("train/masked_accuracy", "Fraction of the masked tokens that get the highest score."),
    LoggedName("train/next_accuracy", "Fraction of the next tokens that get the highest score."),
    LoggedName("train/pair_accuracy", "Accuracy of sentence_pair."),
    LoggedName("train/span_accuracy", "Accuracy of span_boundary."),
    LoggedName("train/replaced_accuracy", "Accuracy of replaced_token_detection."),
    LoggedName("train/generator_accuracy", "Accuracy of the generator of the loss adversarial."),
    LoggedName("train/z_loss", "Z-loss of the losses with the key z_loss, times that key; train/loss is without it."),
    LoggedName("train/replaced_share", "Fraction of the targets of the discriminator that the generator replaced."),
    LoggedName("train/perplexity", "exp(loss) of the tokens; only for losses over a vocabulary."),
    LoggedName("train/learning_rate", "Learning rate of the update."),
    LoggedName("train/grad_norm", "L2 norm of the gradient before clipping."),
    LoggedName("train/skipped_steps", "Updates skipped so far, for a gradient that is not finite or for a spike."),
    LoggedName("train/tokens", "Tokens read so far, without padding."),
    LoggedName("train/loss_spike", "Loss of a step above cluster.loss_spikes; logged at that step only."),
    LoggedName("train/grad_norm_spike", "Gradient norm of the step of a loss spike; logged at that step only."),
    LoggedName("train/rolled_back_to", "Step of the checkpoint that was loaded by the policy `rollback`."),
    LoggedName(
        "eval/loss",
        "Weighted sum of the losses on the held-out split `validation`, at the sequence length of the current phase.",
    ),
    LoggedName("eval/<loss>/loss", "One loss on that split."),
    LoggedName("eval/<metric>", "Accuracy or perplexity on that split, with the names above."),
    LoggedName("eval/<task>/sample_<metric>", "Score of a task of cluster.downstream_tasks on a sample of questions."),
    LoggedName("eval/downstream_seconds", "Seconds that these tasks take at one evaluation."),
    LoggedName(
        "perf/tokens_per_second",
        "Tokens per second over all workers; the time of evaluations and checkpoints does not count.",
    ),
    LoggedName("perf/step_time_s", "Seconds per step."),
    LoggedName("perf/mfu", "Model FLOPs utilization; only if the peak of the device is known."),
    LoggedName("perf/data_wait", "Fraction of the time in which the first worker waited for its batches."),
    LoggedName(
        "perf/host_bound",
        "Fraction of the phases (forward, backward, optimizer) at whose start the GPU had no work left; on a GPU only.",
    ),
    LoggedName("perf/slowest_worker_ratio", "Time of the slowest worker divided by that of the median worker."),
    LoggedName("ckpt/save_s", "Seconds without training, until the writing of a checkpoint starts."),
    LoggedName("system/<metric>", "MLflow's system metrics: CPU, memory, disk, network and GPU."),
)
"""Metrics of a pretraining run; the step is the number of updates."""

SCORE_METRICS: Final = (
    LoggedName("eval/<task>/pretrained_<metric>", "Score of a task; the step is the training step of the weights."),
    LoggedName("eval/<task>/random_<metric>", "The same value for the randomly initialized baseline."),
    LoggedName("eval/<task>/by_labels/<name>", "The same score; the step is the number of labeled examples."),
    LoggedName("eval/glue/average_<average>", "Average of GLUE: leaderboard, bert or dev."),
    LoggedName("table/<column>", "Score of one run of an ablation, by the column of the table."),
)
"""Metrics that `sesame eval` and `sesame ablation` log in a pretraining run."""

TASK_METRICS: Final = (
    LoggedName("pretrained_<metric>", "Score of each seed; the step is the index of the seed."),
    LoggedName("random_<metric>", "The same value for the randomly initialized baseline."),
    LoggedName(
        "<split>_<metric>", "Scores of one trial, by split. In the run of a trial; of a saved model: of its task."
    ),
    LoggedName("loss", "Loss of each fine-tuning update. In the run of a trial."),
)
"""Metrics of the run of a task, which is a child of the pretraining run, and of the runs of its trials."""

CORPUS_METRICS: Final = (
    LoggedName("documents", "Documents in the corpus."),
    LoggedName("bytes", "Bytes of text in the corpus."),
    LoggedName("tokens", "Tokens in the corpus."),
    LoggedName("seen/documents", "Documents read."),
    LoggedName("seen/bytes", "Bytes read."),
    LoggedName("dropped/<reason>/documents", "Documents dropped, by reason."),
    LoggedName("dropped/<reason>/bytes", "Bytes dropped, by reason."),
    LoggedName("<split>/tokens", "Tokens of a split: train, validation or test."),
    LoggedName("seconds", "Duration of the job in seconds."),
    LoggedName("<stage>/documents", "Documents processed by a stage; the step is the seconds since the start."),
    LoggedName("<stage>/bytes", "Bytes processed by a stage."),
    LoggedName("<stage>/tokens", "Tokens written by a stage."),
    LoggedName("<stage>/bytes_per_second", "Rate of a stage in bytes."),
    LoggedName("<stage>/tokens_per_second", "Rate of a stage in tokens."),
)
"""Metrics of the run of a corpus, in the experiment `corpora`."""

COMPARISON_METRICS: Final = (
    LoggedName("compare/<model>/<task>/<metric>/difference", "Score of a model minus that of the baseline."),
    LoggedName("compare/<model>/<task>/<metric>/low", "Lower end of its 95 % interval."),
    LoggedName("compare/<model>/<task>/<metric>/high", "Upper end of its 95 % interval."),
    LoggedName("compare/<model>/<task>/<metric>/p", "Two-sided p of the difference."),
)
"""Metrics of the run of a comparison."""

ABLATION_METRICS: Final = (
    LoggedName("<row>/<column>", "Mean score of a row over the seeds."),
    LoggedName("<row>/<column> deviation", "Standard deviation over the seeds, if there are several."),
    LoggedName("exponent/<quantity>", "Exponent over the FLOPs, of a scaling ladder: parameters, tokens or loss."),
    LoggedName("exponent/<quantity>/low", "Lower end of its 95 % interval."),
    LoggedName("exponent/<quantity>/high", "Upper end of its 95 % interval."),
)
"""Metrics of the run of an ablation table. They are not among METRICS, because their names match almost any name."""

TAGS: Final = (
    LoggedName("command", "The command that started the run."),
    LoggedName("recipe", "Name of the recipe."),
    LoggedName("recipe_hash", "Hash of the recipe."),
    LoggedName("corpus_hash", "Digest of the manifest of the corpus."),
    LoggedName("changed_code", "Files of parts whose code changed since the results were made."),
    LoggedName("cluster", "Name of the cluster file."),
    LoggedName("cluster.<key>", "Value of each key of the cluster file."),
    LoggedName("num_workers", "Number of workers."),
    LoggedName("num_workers_history", "Number of workers over time, if it changed; with the steps."),
    LoggedName("layout_history", "Layouts over time (workers, ZeRO stage, parallelism, precision), if they changed."),
    LoggedName("restarts", "Number of restarts of the workers, if a worker died."),
    LoggedName("best_step", "Step of the lowest validation loss, with keep_best or early stopping."),
    LoggedName("best_eval_loss", "Lowest validation loss, with keep_best or early stopping."),
    LoggedName("stopped_early_at", "Last step, if the validation loss did not improve any more."),
    LoggedName("skip_steps", "Steps skipped because of loss spikes, or by cluster.skip_steps."),
    LoggedName("zero_stage", "Stage of ZeRO."),
    LoggedName("precision", "Precision of the forward and backward pass."),
    LoggedName("table", "Name of the ablation that the run belongs to."),
    LoggedName("row", "Row of the ablation."),
    LoggedName("seed", "Seed of a run of an ablation."),
    LoggedName("title", "Title of the ablation."),
    LoggedName("paper", "Paper of the ablation."),
    LoggedName("outcome", "Whether the claims of the paper hold; in the run of an ablation table."),
    LoggedName("type", "`comparison` for the run of `sesame compare`."),
    LoggedName("compared_runs", "IDs of the runs that a comparison compares, the baseline first."),
    LoggedName("net", "`a directory of transformers`, if the evaluated model was not pretrained by Sesame."),
    LoggedName("sesame.exit_reason", "Why the run ended, if MLflow's status does not say it."),
    LoggedName("sesame.run_dir", "Directory of the results, as a URI."),
    LoggedName("sesame.owner", "Process that writes to the run, as JSON."),
    LoggedName("sesame.model_status", "The run's MLflow model, or why it has none."),
    LoggedName("sesame.scores", "Name of the directory of scores; in the run of a task."),
    LoggedName("sesame.corpus_digest", "Digest of the corpus manifest; in the run of a corpus."),
    LoggedName("sesame.data_card", "`logged` if the data card is among the artifacts; in the run of a corpus."),
    LoggedName("sesame.name.<name>", "The original of a name that MLflow does not accept."),
    LoggedName("host", "Name of the machine."),
    LoggedName("hardware.<fact>", "System, processor, cores and memory in GiB of the machine."),
    LoggedName("library.<package>", "Version of Python or of a package."),
    LoggedName("git_dirty", "Whether the checkout has uncommitted changes."),
    LoggedName("mlflow.source.git.commit", "Commit of the checkout."),
    LoggedName("mlflow.source.name", "Always `sesame`."),
    LoggedName("mlflow.note.content", "Description of the run, in Markdown."),
    LoggedName("mlflow.loggedArtifacts", "Artifacts that the UI shows as tables; in the run of a task."),
    LoggedName("mlflow.parentRunId", "ID of the parent run, for tasks, trials and runs of an ablation."),
    LoggedName("mlflow.runName", "Name of the run."),
)
"""Tags of all runs."""

METRICS: Final = (*TRAINING_METRICS, *SCORE_METRICS, *TASK_METRICS, *CORPUS_METRICS, *COMPARISON_METRICS)


def is_documented(name: str, names: tuple[LoggedName, ...] = METRICS) -> bool:
    """Whether a metric or a tag has a row in a table.

    >>> is_documented("train/masked_tokens/loss"), is_documented("train/lr")
    (True, False)
    """
    return any(re.fullmatch(re.sub(r"<\w+>", r"[^/]+", re.escape(each.name)), name) for each in names)
