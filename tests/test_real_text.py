"""Each kind of objective learns from real text: the documentation of installed Python packages, at tiny scale.

The tests train one recipe of each kind in one process. The runs have fewer steps, shorter sequences and, except for
whole words, a quarter of the vocabulary, so that each takes at most two minutes. The loss on held-out sequences is
compared with the unigram entropy of the same target tokens.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from orchestration.jobs import JobFlags, open_job
from orchestration.jobs.corpus import build_untracked
from preprocessing.schema import Ints
from tests.mini_world import unigram_entropy
from training.data import open_validation
from training.engines.local import LocalEngine
from training.formats import build_model
from training.loop import pretrain
from training.run import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

TEXT = "name: documentation\nsources: [{kind: python_docs, packages: [python, numpy, torch]}]\nvalidation_ratio: 0.1\n"
LENGTH = 64


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the corpora. Recipes with the same tokenizer share a corpus, and the text is read only once."""
    folder = tmp_path_factory.mktemp("real_text")
    (folder / "documentation.yaml").write_text(TEXT)
    return folder


def run_of(name: str, out: Path, steps: int) -> Run:
    """A run of a recipe at tiny scale with one evaluation at its end; makes the corpus if it is missing."""
    overrides = [
        f"phases=[{{seq_length: {LENGTH}, global_batch_size: 16, steps: {steps}}}]",
        f"optimizer.warmup_steps={steps // 6}",
    ]
    if not name.startswith("transformer_xl"):  # with whole words, too many tokens would be unknown
        overrides.append("data.tokenizer.vocab_size=1024")
    flags = JobFlags(
        recipe=name, overrides=overrides, scale="tiny", data=(str(out / "documentation.yaml"),), output_dir=out
    )
    job = open_job(flags)
    build_untracked(job, [], lambda *_: None)
    return replace(job.pretraining(), save_every=0, eval_every=steps, log_every=steps)


def held_out_targets(run: Run) -> Ints:
    """The target tokens of the held-out sequences."""
    validation = open_validation(run, rank=0, world=1)
    assert validation is not None
    num_rows = min(run.eval_rows, validation.rows_by_length[LENGTH].count(0))
    return np.concatenate([batch["targets"] for batch in validation.batches(LENGTH, range(num_rows))])


def final_evaluation(run: Run) -> dict[str, float]:
    """Train, and return the evaluation at the end of the run."""
    return pretrain(run, LocalEngine(build_model(run), run.optimizer, run.engine), lambda *_: None).state.evaluation


@dataclass(frozen=True)
class Goal:
    """The steps of a recipe, and the required distance of its loss below the unigram entropy."""

    steps: int
    below: float  # nats per token


GOALS = {  # the comments give the distance that seed 0 reached
    "bert_base": Goal(3000, below=0.35),  # .460
    "spanbert_base": Goal(3000, below=0.2),  # .525, and .302 at the boundary
    "albert_base": Goal(3000, below=0.2),  # .297
    "unilm_large": Goal(3000, below=0.25),  # .377
    "electra_small": Goal(1200, below=0.4),  # .727, of the generator
    "gpt2": Goal(400, below=1.0),  # 1.730
    "bart_base": Goal(400, below=1.0),  # 2.242
    "pegasus_base": Goal(400, below=0.8),  # 1.232
    "mass_base": Goal(400, below=0.6),  # .965
    "transformer_xl_base": Goal(400, below=0.5),  # .868, of whole words
    "xlnet_base": Goal(1000, below=0.7),  # 1.144
    "t5_small": Goal(400, below=0.6),  # .912
}


@pytest.mark.parametrize("name", GOALS)
def test_each_kind_of_objective_learns_from_real_text(name: str, out: Path) -> None:
    run = run_of(name, out, GOALS[name].steps)
    entropy, evaluation = unigram_entropy(held_out_targets(run)), final_evaluation(run)
    losses = [evaluation[f"eval/{loss.kind}/loss"] for loss in run.losses if loss.names_tokens]
    assert max(losses) < entropy - GOALS[name].below
