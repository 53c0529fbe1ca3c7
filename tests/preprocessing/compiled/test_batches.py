"""Compiled batches against those of numpy, column by column."""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from orchestration.config import list_names
from preprocessing.collate import collate_unpadded
from preprocessing.compiled import explain_gap, open_batches
from preprocessing.compiled.masking_calls import make_mask
from preprocessing.compiled.objective_calls import make_objective
from preprocessing.compiled.packing_calls import make_pack
from preprocessing.errors import BadInput
from preprocessing.masking import (
    Masking,
    NgramMasking,
    NoMasking,
    PartialPrediction,
    RandomSpans,
    SpanMasking,
    TokenMasking,
    WholeWordMasking,
)
from preprocessing.objectives import CausalLM, Denoising, MaskedLM, Objective, PermutationLM, SpanCorruption
from preprocessing.packing import BestFit, Contiguous, Packing, SegmentPair, Stream, StreamPair
from preprocessing.rows import ExampleDataset
from preprocessing.sampling import ExampleSpec
from tests import family
from tests.preprocessing import test_facts
from tests.preprocessing.test_mixture import mixed
from tests.preprocessing.toy import ToyShard, ToyStore, random_shard

pytest.importorskip("numba")

GAPS = {  # recipes that numpy makes
    *("ernie_1", "ernie_1_dialogue", "mass_base", "mass_mt", "pegasus_base", "pegasus_large", "spanbert_entities"),
    *("spanbert_noun_phrases", "t5_bert_style", "t5_deshuffling", "t5_prefix_lm", "unilm_large", "xlm_clm", "xlm_mlm"),
    "xlm_tlm",
}
PAIRS = SegmentPair(negatives="random")
SENTENCES = Contiguous(unit="sentence")
TOKENS = Contiguous(unit="token")


def describe(part: Any) -> str:
    """The kind of a part and its other values, as short as possible."""
    return "-".join(str(value) for value in asdict(part).values() if value not in (0, 0.0, False, ()))


def require_equal(rows: ExampleDataset, addresses: list[tuple[int, int]]) -> None:
    batches = open_batches(rows._plans, rows.sampling, rows.vocab, rows.length, lambda: rows._stream_T)
    found = batches.make(np.array(addresses, np.int64))
    wanted = collate_unpadded([rows.row(*address) for address in addresses])
    assert found.keys() == wanted.keys()
    for name, column in wanted.items():
        assert found[name].dtype == column.dtype, name
        np.testing.assert_array_equal(found[name], column, err_msg=name)


def dataset(packing: Packing, masking: Masking, objective: Objective, text: Any = None, **keys: Any) -> ExampleDataset:
    length = keys.pop("length", 64)
    sampling = ExampleSpec(packing=packing, masking=masking, objective=objective, **keys)
    vocab: Any = family.Words()
    assert not explain_gap(sampling)
    return ExampleDataset(text or shards(3), vocab, sampling, length)


def shards(count: int, documents: int = 40, dtype: type = np.uint16) -> ToyStore:
    """Several shards; with fewer than 256 documents each, pairs have partners from other shards."""
    made = [random_shard(documents, seed=number) for number in range(count)]
    return ToyStore(
        tuple(ToyShard(one.ids_T.astype(dtype), one.offset_N1, one.sentence_at_M, one.starts_T) for one in made)
    )


def some_addresses(rows: ExampleDataset, most: int = 40) -> list[tuple[int, int]]:
    if rows.sampling.packing.ordered:
        count = rows.count(0)
        step = max(1, count // most)
        return [(epoch, sample) for epoch in (0, 3) for sample in range(0, count, step)]
    count = rows.count(0)
    return [*rows.addresses(0, most), *rows.addresses(count - 5, count + 5), *rows.addresses(5 * count, 5 * count + 9)]


@pytest.mark.slow
def test_which_recipes_have_kernels() -> None:
    assert {name for name in list_names("recipes") if explain_gap(family.recipe(name).sampling)} == GAPS


VOCAB: Any = family.Words()


@pytest.mark.parametrize("part", [part for part, _ in test_facts.PARTS if hasattr(part, "kernel_gap")], ids=str)
def test_each_part_states_whether_it_has_a_kernel(part: Any) -> None:
    """The modules with the calls of kernels know exactly the kinds that state no gap."""
    make: dict[str, Callable[[], Any]] = {
        "masking": lambda: make_mask(part, 64),
        "objectives": lambda: make_objective(part, VOCAB, 64, lambda: np.zeros(1, np.uint16)),
        "packing": lambda: make_pack(part),
    }
    has_kernel = True
    try:
        make[type(part).__module__.split(".")[1]]()
    except ValueError:
        has_kernel = False
    assert has_kernel or part.kernel_gap
    assert not part.kernel_gap or part.kernel_gap.startswith(part.kind)
    assert has_kernel == (part.kernel_gap != part.kind)


# Each family of kernels is compiled in five to ten seconds; those of BERT are in the fast tests.
@pytest.mark.one_in(1000)
@pytest.mark.parametrize("name", ["bert_base", *sorted(set(family.RECIPES) - GAPS - {"bert_base"})])
def test_batches_of_a_recipe_equal_those_of_numpy(name: str) -> None:
    (rows,) = family.loader(family.recipe(name, "tiny"), 1).rows_by_length.values()
    require_equal(rows, some_addresses(rows))


@pytest.mark.parametrize(
    "packing",
    [PAIRS, SENTENCES, TOKENS, BestFit(), BestFit(add_cls=True), Stream(), StreamPair(reuse_len=32)],
    ids=describe,
)
@pytest.mark.parametrize(
    "masking",
    [
        TokenMasking(),
        TokenMasking(rate=0.4, rounding="up", max_predictions_per_seq=7),
        TokenMasking(rounding="stochastic"),
        TokenMasking(rounding="independent"),
        WholeWordMasking(rate=0.5),
        WholeWordMasking(rounding="stochastic", max_predictions_per_seq=3),
        NgramMasking(rate=0.6),
        NgramMasking(max_ngram=6, rounding="stochastic"),
        NgramMasking(rate=0.9, ngram_weights=(0.8, 0.1, 0.1), ngram_unit="token"),
        SpanMasking(),
        SpanMasking(rate=0.9, geometric_p=0.5, max_span_length=3, rounding="stochastic"),
        RandomSpans(),
        PartialPrediction(),
        PartialPrediction(group_size=2, max_ngram=3),
    ],
    ids=describe,
)
@pytest.mark.one_in(1000)
def test_maskings(packing: Packing, masking: Masking) -> None:
    rows = dataset(packing, masking, MaskedLM(replace_unit="span"), seed=5)
    require_equal(rows, some_addresses(rows))


@pytest.mark.one_in(1000)
@pytest.mark.parametrize(
    "objective",
    [
        MaskedLM(),
        MaskedLM(mask_replace_prob=0.1, random_replace_prob=0.9),
        MaskedLM(mask_replace_prob=0.2, random_replace_prob=0.7, random_token_source="vocabulary"),
        MaskedLM(mask_replace_prob=0.2, random_replace_prob=0.7, random_token_source="row"),
        MaskedLM(mask_replace_prob=0.2, random_replace_prob=0.7, random_token_source="corpus", replace_unit="span"),
        PermutationLM(perm_size=1),
        PermutationLM(perm_size=7),
        PermutationLM(perm_size=1000),
        SpanCorruption(),
        SpanCorruption(targets="all"),
        SpanCorruption(collapse_spans=False),
        SpanCorruption(targets="all", collapse_spans=False),
    ],
    ids=describe,
)
@pytest.mark.parametrize("packing", [PAIRS, TOKENS, StreamPair(reuse_len=32)], ids=describe)
def test_objectives(packing: Packing, objective: Objective) -> None:
    rows = dataset(packing, TokenMasking(rate=0.3), objective, seed=6)
    require_equal(rows, some_addresses(rows))


@pytest.mark.slow
@pytest.mark.parametrize(
    "packing", [PAIRS, SENTENCES, Contiguous(unit="sentence", cross_documents=False)], ids=describe
)
@pytest.mark.parametrize(
    "objective",
    [
        Denoising(),
        Denoising(noise_types=("text_infilling",), mask_ratio=1.0, poisson_lambda=0.3, random_replace_prob=0.5),
        Denoising(noise_types=("text_infilling",), mask_ratio=0.1, poisson_lambda=9.5),
        Denoising(noise_types=("sentence_permutation", "document_rotation"), permute_sentence_ratio=0.6),
        Denoising(noise_types=("token_masking", "document_rotation"), random_replace_prob=0.3),
        Denoising(noise_types=("sentence_permutation", "token_deletion"), mask_ratio=1.0),
    ],
    ids=describe,
)
def test_denoising(packing: Packing, objective: Denoising) -> None:
    rows = dataset(packing, NoMasking(), objective, seed=7)
    require_equal(rows, some_addresses(rows))


@pytest.mark.parametrize(
    "packing",
    [TOKENS, Stream(), SENTENCES, BestFit(), BestFit(add_cls=True), Contiguous(unit="token", add_separators=False)],
    ids=describe,
)
def test_causal_language_models(packing: Packing) -> None:
    rows = dataset(packing, NoMasking(), CausalLM())
    require_equal(rows, some_addresses(rows))


@pytest.mark.parametrize("length", [4, 16, 500])
@pytest.mark.parametrize("add_cls", [False, True])
@pytest.mark.parametrize(
    "text", [shards(5, 3), shards(1, 300), shards(2, 40, np.uint32)], ids=["pool", "one", "uint32"]
)
def test_best_fit(length: int, add_cls: bool, text: ToyStore) -> None:
    rows = dataset(BestFit(add_cls=add_cls), NoMasking(), CausalLM(), text, length=length)
    require_equal(rows, some_addresses(rows))


@pytest.mark.parametrize("negatives", ["random", "swapped", "none", "dialogue"])
@pytest.mark.parametrize(
    "text", [shards(5, 3), shards(1, 300), shards(2, 40, np.uint32)], ids=["pool", "one", "uint32"]
)
def test_segment_pairs(negatives: Any, text: ToyStore) -> None:
    single = 0.5 if negatives == "none" else 0.0
    packing = SegmentPair(negatives=negatives, single_segment_prob=single, num_separators=2)
    rows = dataset(packing, WholeWordMasking(), MaskedLM(), text)
    require_equal(rows, some_addresses(rows))


@pytest.mark.parametrize("seed", [0, 1, 2**33, 2**64 + 5])
@pytest.mark.parametrize("static_masks", [0, 1, 3])
@pytest.mark.parametrize("length", [8, 37, 128])
def test_seeds_and_static_masks(seed: int, static_masks: int, length: int) -> None:
    rows = dataset(PAIRS, TokenMasking(), MaskedLM(), seed=seed, static_masks=static_masks, length=length)
    require_equal(rows, some_addresses(rows))


@pytest.mark.parametrize("packing", [PAIRS, SENTENCES, BestFit()], ids=describe)
def test_a_mixture(packing: Packing) -> None:
    """A batch has sequences of several groups and epochs."""
    rows = dataset(packing, TokenMasking(), MaskedLM(), mixed(), length=48)
    addresses = rows.addresses(0, 9000)[::19]
    assert len({epoch for epoch, _ in addresses}) > 1
    require_equal(rows, addresses)


@pytest.mark.slow
def test_too_few_sentinels_are_an_error() -> None:
    rows = dataset(TOKENS, TokenMasking(rate=0.5), SpanCorruption())
    few: Any = replace(rows.vocab, sentinels=3)  # type: ignore[type-var]
    with pytest.raises(BadInput, match="selected spans, but the tokenizer has 3 sentinel tokens"):
        replace(rows, vocab=few).load_kernels()
