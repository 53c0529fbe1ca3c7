"""Build a finished run of a tiny model with its own vocabulary, and the task files on which it can be scored."""

import json
from pathlib import Path
from typing import Any

import torch

from orchestration import launch
from orchestration.config import load_cluster, tasks_from_words
from orchestration.evaluation import evaluate
from orchestration.evaluation.eval_request import EvalRequest, EvalTarget
from orchestration.evaluation.score_plan import plan_tasks
from orchestration.jobs import stages
from orchestration.progress import ignore_progress
from preprocessing.tokenization import WordPiece, train
from training.formats import load_weights, save_weights, to_transformers
from training.losses import MaskedTokens
from training.model import Model
from training.specs import Encoder, LearnedPositions

WORDS = "good bad film book story plot actor scene a an the very not so it is was"


def finished_run(folder: Path) -> Path:
    """Write a run directory with randomly initialized weights and a corpus that has only a vocabulary."""
    corpus, vocab = folder.parent / "corpus", train(WordPiece(vocab_size=120), [WORDS] * 20)
    vocab.save(corpus / "vocab")
    trunk = Encoder(
        num_hidden_layers=1,
        hidden_size=16,
        num_attention_heads=2,
        position_embedding=LearnedPositions(max_position_embeddings=32),
        hidden_dropout=0.0,
        init_std=0.1,
    )
    model = Model(trunk, (MaskedTokens(),), vocab.size, seed=5)
    state = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    save_weights(state, model.spec, folder / launch.WEIGHTS)
    (folder / launch.RUN).write_text(json.dumps({"corpus": str(corpus)}))
    (folder / stages.MARK).write_text(json.dumps({"hash": "of the run"}))
    assert torch.isfinite(next(iter(state.values()))).all()
    return folder


def write_transformers_directory(folder: Path) -> Path:
    """Write the same model as a directory that `transformers` loads."""
    run = finished_run(folder.parent / "runs" / "bert_base_tiny-12345678")
    spec, state = load_weights(run / launch.WEIGHTS)
    to_transformers(state, spec, run.parent / "corpus" / "vocab", folder)
    return folder


def write_reviews(folder: Path, train: int = 24, dev: int = 12) -> Path:
    """Write SST-2 in the format of GLUE; one word of each sentence determines its label."""
    (folder / "SST-2").mkdir(parents=True)
    for split, count in (("train", train), ("dev", dev)):
        lines = [f"the {('film', 'book', 'plot')[n % 3]} is {('bad', 'good')[n % 2]}\t{n % 2}" for n in range(count)]
        (folder / f"SST-2/{split}.tsv").write_text("sentence\tlabel\n" + "\n".join(lines) + "\n")
    return folder


def write_questions(folder: Path, train: int = 16, dev: int = 4) -> Path:
    """Write SQuAD 1.1 in its distributed format; each answer is the last word of its context."""
    folder.mkdir(parents=True)
    for split, count in (("train", train), ("dev", dev)):
        paragraphs = []
        for number in range(count):
            context = f"the {('film', 'book', 'plot')[number % 3]} is {('bad', 'good')[number % 2]}"
            answer = {"text": context.split()[-1], "answer_start": context.rindex(" ") + 1}
            request = {"id": str(number), "question": "the film is", "answers": [answer]}
            paragraphs.append({"context": context, "qas": [request]})
        written = json.dumps({"version": "1.1", "data": [{"title": "T", "paragraphs": paragraphs}]})
        (folder / f"{split}-v1.1.json").write_text(written)
    return folder


OWN = """
name: {name}
description: is this review positive
citation: my own
files:
  train: {{paths: [train.tsv], format: {{kind: tsv}}}}
  dev: {{paths: [dev.tsv], format: {{kind: tsv}}}}
task: {{kind: classification, text: review, label: stars, labels: ["0", "1"]}}
"""


def write_task_file(folder: Path, name: str = "mine", file: str = "mine.yaml", rows: int = 8) -> Path:
    """Write a task file and its data into the same directory."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(OWN.format(name=name))
    lines = [f"the film is {('bad', 'good')[n % 2]}\t{n % 2}" for n in range(rows)]
    for split in ("train", "dev"):
        (folder / f"{split}.tsv").write_text("review\tstars\n" + "\n".join(lines) + "\n")
    return folder / file


QUICK: dict[str, Any] = {"learning_rates": (3e-3,), "batch_sizes": (8,), "max_steps": 2, "num_seeds": 2}


def make_request(data: Path | None, tasks: str = "sst2", **more: Any) -> EvalRequest:
    return EvalRequest(tasks=tasks_from_words(tasks), task_data_dir=data, **QUICK | more)


def score_one(target: EvalTarget, request: EvalRequest) -> Any:
    (score,) = evaluate.evaluate(target.folder, plan_tasks(target, request), load_cluster("local"), ignore_progress)
    return score
