"""The models of parity: five small recipes on text of the mini-world, and what `sesame check` says about a cell."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from orchestration.config import check, load, load_cluster
from orchestration.config.recipe import Cluster, Recipe
from preprocessing.errors import BadInput
from tests.parity.cells import Cell
from tests.training.corpora import mini_run
from training.optimizers import Adafactor, AdamW, Lamb, Lion, Muon, Optimizer
from training.run import Run
from training.specs import Phase

STEPS: Final = 20
ROWS: Final = 467  # of the token table: an odd number, so that one worker has one row more
PHASES: Final = (
    Phase(seq_length=48, global_batch_size=9, steps=STEPS),
)  # nine sequences of different lengths, so that workers have different numbers of them
MICRO_TOKENS: Final = 144  # three sequences at a time
SAMPLED: Final = ("ELECTRA",)  # the sampled tokens depend on the worker that draws them
RECIPES: Final = {
    "BERT": "bert_base",
    "GPT-2": "gpt2",
    "ALBERT": "albert_base",
    "T5": "t5_base",
    "ELECTRA": "electra_base",
    "XLNet": "xlnet_base",  # in the guards of tests/golden/bits.py only
}
OVERRIDES: Final = {
    # The mini-world has no sentinels. T5's ReLU is replaced: a value of 1e-8 that rounds to the other side of 0
    # switches a neuron on. Adafactor then makes a full-size step from its gradient, however small (observed: one of 160
    # neurons, 1e-4).
    "T5": [
        "model.activation=gelu",
        "masking={kind: none}",
        "objective={kind: denoising, noise_types: [text_infilling]}",
    ],
    "ALBERT": ["model.embedding_size=16"],
    "ELECTRA": ["model.embedding_size=16", "model.generator_size_ratio=0.5", "model.num_attention_heads=8"],
}
OPTIMIZERS: Final[dict[str, Optimizer]] = {
    "AdamW": AdamW(learning_rate=1e-2, warmup_steps=2),
    "LAMB": Lamb(learning_rate=1e-2, warmup_steps=1),
    "Adafactor": Adafactor(learning_rate=0.03, warmup_steps=2),
    "Muon": Muon(learning_rate=1e-2, warmup_steps=2),
    "Lion": Lion(learning_rate=1e-3, warmup_steps=2),
}


@cache
def recipe(net: str, optimizer: str) -> Recipe:
    """A recipe with two layers, wide enough for Adafactor to store rows and columns instead of elements."""
    width, inner = (128, 160) if optimizer == "Adafactor" else (32, 128)
    sizes = f"num_hidden_layers=2 hidden_size={width} num_attention_heads=4 intermediate_size={inner}".split()
    sizes += ["hidden_dropout=0", "attention_dropout=0", "init_std=0.1"]
    found = load(RECIPES[net], [*(f"model.{size}" for size in sizes), *OVERRIDES.get(net, [])], scale="tiny")
    return replace(found, optimizer=OPTIMIZERS[optimizer], phases=PHASES)


@cache
def _cluster(keys: tuple[str, ...]) -> Cluster | str:
    try:
        return load_cluster("local", keys)
    except BadInput as error:
        return str(error)


def _keys(cell: Cell) -> tuple[str, ...]:
    machine = cell.machine | {"micro_batch_tokens": MICRO_TOKENS, "param_persistence_threshold": 0}
    return (f"num_workers={cell.world}", *(f"engine.{key}={value}" for key, value in machine.items()))


def refusal(cell: Cell) -> str:
    """The message of `sesame check` that refuses the cluster file or the recipe on it; "" if it is allowed."""
    cluster = _cluster(_keys(cell))
    if isinstance(cluster, str):
        return cluster
    return next(iter(check(recipe(cell.net, cell.optimizer), cluster)), "")


def run(cell: Cell, corpus: Path, folder: Path) -> Run:
    """The run that the workers of a cell train."""
    cluster, wanted = _cluster(_keys(cell)), recipe(cell.net, cell.optimizer)
    assert isinstance(cluster, Cluster), cluster
    return mini_run(
        corpus,
        folder / cell.name,
        model=wanted.model,
        losses=wanted.losses,
        optimizer=wanted.optimizer,
        phases=wanted.phases,
        sampling=wanted.sampling,
        vocab_size=ROWS,
        engine=cluster.engine,
    )
