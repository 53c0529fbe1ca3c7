"""FLOPs, stored bytes and split weights that the specs state, against the published models on the meta device."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from orchestration.planning import ParallelLayout, workload_of
from orchestration.planning.memory import count_kept_by_block, weights_of
from preprocessing import collate
from preprocessing.tokenization import table_rows
from tests import family
from tests.training.batches import random_rows, tensors
from tests.training.encoder_decoders import rows_of
from tests.training.meta import Measured, measure
from training.architectures import Share
from training.model import Model
from training.specs import Architecture, BatchWork

LENGTH, ROWS, LAYERS = 128, 2, (2, 4)
IDS = 300  # of random tokens
# Their attention is not one kernel: the bands of Longformer and Mistral, and the relative scores of DeBERTa,
# Transformer-XL and XLNet are computed by several operations, and the specs state them approximately
# (tests/orchestration/planning/test_plan.py).
BY_HAND = (
    *("deberta_v3_base", "longformer_base", "mistral_7b"),
    *("transformer_xl_base", "transformer_xl_enwik8", "xlnet_base"),
)


def distinct() -> list[str]:
    """The first recipe of each architecture with a kernel of torch for its attention."""
    found = dict[Architecture, str]()
    for name in family.RECIPES:
        trunk = _without_dropout(family.recipe(name).model)
        if not _by_hand(trunk):
            found.setdefault(trunk, name)
    return sorted(found.values())


def _by_hand(trunk: Architecture) -> bool:
    positions = trunk.position_embedding
    return positions.relative or positions.kind == "disentangled" or trunk.attention_window.kind == "sliding"


def _without_dropout(trunk: Architecture) -> Architecture:
    return replace(trunk, hidden_dropout=0.0, attention_dropout=0.0)


@cache
def batch_of(name: str) -> dict[str, torch.Tensor]:
    trunk, lengths = family.recipe(name).model, [LENGTH] * ROWS
    rows: list[Any] = rows_of(trunk, lengths, lengths) if trunk.reads_source else random_rows(lengths, IDS)  # type: ignore[arg-type]
    return tensors(collate.collate_unpadded(rows))


@cache
def measured_layers(name: str) -> Measured:
    """Two more layers of a recipe at its published size."""
    one, found = family.recipe(name), list[Measured]()
    for layers in LAYERS:
        trunk = replace(_without_dropout(one.model), num_hidden_layers=layers)
        with torch.device("meta"):
            model = Model(trunk, one.losses, table_rows(one.data.tokenizer), one.seed)
        found.append(measure(model, batch_of(name), with_heads="generator" in trunk.nets))
    return found[1].minus(found[0])


def work_of(trunk: Architecture, *, pairs: bool = True) -> BatchWork:
    source = int(trunk.reads_source)
    tokens, squares = ROWS * LENGTH, ROWS * LENGTH**2 * pairs
    return BatchWork(tokens, squares, 0, source * tokens, source * squares, source * squares)


def test_all_architectures_are_measured_or_named() -> None:
    left = {name for name in family.RECIPES if _by_hand(family.recipe(name).model)}
    assert set(BY_HAND) <= left
    assert len(distinct()) > 40


@pytest.mark.one_in(9)
@pytest.mark.parametrize("name", distinct())
def test_flops_of_linear_layers_are_exact(name: str) -> None:
    few, many = (replace(family.recipe(name).model, num_hidden_layers=layers) for layers in LAYERS)
    without_pairs = work_of(few, pairs=False)
    assert measured_layers(name).flops == 6 * (many.products(without_pairs) - few.products(without_pairs))


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", distinct())
def test_stored_bytes_of_a_block_are_exact(name: str) -> None:
    """Except the statistics of the norms, which the specs leave out: one or two numbers per token."""
    trunk = replace(_without_dropout(family.recipe(name).model), num_hidden_layers=2)
    work, layout = work_of(trunk), ParallelLayout(precision="fp32")
    stated = statistics = 0.0
    for stack in trunk.blocks(work):
        stated += stack.number * count_kept_by_block(stack, layout, cuda=False)  # the kernels of windows differ
        norms = 1 if stack.parallel_residual == "one_norm" else stack.attentions + 1
        per_token = 4 if trunk.describe_norm() == "RMSNorm" else 8
        statistics += stack.number * norms * stack.tokens * per_token
    assert measured_layers(name).bytes == stated + statistics


@pytest.mark.one_in(19)
@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("name", sorted({*distinct(), *BY_HAND}))
def test_weights_of_tensor_parallel_workers_are_exact(name: str, workers: int) -> None:
    """The mean over the workers: the last one may have a row of the token table more.

    Transformer-XL's two biases, which all layers share, are split by heads, and the specs state them as whole.
    """
    one = family.recipe(name)
    if one.model.split_over(workers):
        pytest.skip("its heads cannot be divided")
    demand = workload_of(one)
    found = 0
    with torch.device("meta"):
        for number in range(workers):
            share = Share(number, workers)
            found += Model(one.model, one.losses, demand.vocab_size, one.seed, share).num_parameters
    stated = weights_of(demand, ParallelLayout(tensor=workers))
    biases = 2 * one.model.hidden_size if one.model.kind == "decoder" and one.model.position_embedding.relative else 0
    assert stated - biases <= found / workers <= stated
    assert biases or found / workers == stated
