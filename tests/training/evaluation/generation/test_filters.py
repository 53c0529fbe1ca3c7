"""Filters compared with those of transformers, in the same order, and samples tested by chi-square."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from preprocessing.rng import key
from tests.training.parity import built, hf
from training.evaluation.generation import GenerationLimits, Prompt, SampledDecoding, filter_scores, generate
from training.evaluation.generation.filters import apply_limits, find_completing_tokens, penalize_repetition
from training.evaluation.generation.sample import draw
from training.losses import NextToken
from training.model_spec import ModelSpec
from training.specs import Decoder, LearnedPositions

ROWS, TOKENS = 5, 40
FIVE = torch.tensor([[0.5, 0.25, 0.15, 0.06, 0.04]]).log()
METHODS = [
    SampledDecoding(),
    SampledDecoding(temperature=0.7),
    SampledDecoding(top_k=7),
    SampledDecoding(top_k=1),
    SampledDecoding(top_p=0.8),
    SampledDecoding(temperature=1.4, top_k=12, top_p=0.9),
]


def scores(seed: int = 0) -> Tensor:
    return torch.randn(ROWS, TOKENS, generator=torch.Generator().manual_seed(seed)) * 2


def texts(seed: int = 1) -> Tensor:
    return torch.randint(TOKENS, (ROWS, 30), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("method", METHODS)
def test_filters_keep_the_same_tokens_as_transformers(method: SampledDecoding) -> None:
    wanted: Tensor = scores() / method.temperature
    if method.top_k:
        wanted = hf().TopKLogitsWarper(method.top_k)(None, wanted)
    if method.top_p < 1:
        wanted = hf().TopPLogitsWarper(method.top_p)(None, wanted)
    torch.testing.assert_close(filter_scores(scores(), method), wanted, rtol=0, atol=0)


PROCESSORS: dict[str, tuple[GenerationLimits, Callable[[Any], Any]]] = {
    "repetition": (GenerationLimits(repetition_penalty=1.7), lambda hf: hf.RepetitionPenaltyLogitsProcessor(1.7)),
    "bigrams": (GenerationLimits(no_repeat_ngram_size=2), lambda hf: hf.NoRepeatNGramLogitsProcessor(2)),
    "tokens": (GenerationLimits(no_repeat_ngram_size=1), lambda hf: hf.NoRepeatNGramLogitsProcessor(1)),
    "least length": (
        GenerationLimits(min_new_tokens=5, ends=(3, 8)),
        lambda hf: hf.MinNewTokensLengthLogitsProcessor(26, 5, [3, 8]),
    ),
    "enough": (
        GenerationLimits(min_new_tokens=4, ends=(3, 8)),
        lambda hf: hf.MinNewTokensLengthLogitsProcessor(26, 4, [3, 8]),
    ),
    "forced end": (
        GenerationLimits(max_new_tokens=5, ends=(3,), force_eos=True),
        lambda hf: hf.ForcedEOSTokenLogitsProcessor(31, [3]),
    ),
    "barred": (GenerationLimits(barred=(1, 2)), lambda hf: hf.SuppressTokensLogitsProcessor([1, 2])),
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_limits_equal_those_of_transformers(name: str) -> None:
    """Sequences of 30 tokens, of which 4 are new."""
    limits, processor = PROCESSORS[name]
    found = apply_limits(scores(), texts(), torch.full((ROWS,), 30), 4, limits)
    torch.testing.assert_close(found, processor(hf())(texts(), scores()), rtol=0, atol=0)


def test_no_repeat_in_new_allows_n_grams_of_the_prompt() -> None:
    """As in transformers with an encoder, whose text is not part of the generated sequence."""
    limits, ids = (
        GenerationLimits(no_repeat_ngram_size=2, no_repeat_in="new"),
        torch.tensor([[5, 6, 7, 5], [5, 6, 5, 0], [7, 7, 9, 7]]),
    )
    zero, lengths = torch.zeros(3, 10), torch.tensor([4, 3, 4])
    for written in (0, 1):
        assert torch.equal(apply_limits(zero, ids, lengths, written, limits), zero)
    assert apply_limits(zero, ids, lengths, 3, limits).isneginf().nonzero().tolist() == [[1, 6], [2, 9]]
    _, processor = PROCESSORS["bigrams"]
    found = apply_limits(scores(), texts(), torch.full((ROWS,), 30), 20, limits)
    torch.testing.assert_close(found, processor(hf())(texts()[:, 10:], scores()), rtol=0, atol=0)


def test_padding_of_a_shorter_sequence_is_ignored() -> None:
    ids, lengths = texts(), torch.tensor([30, 3, 1, 17, 29])
    for row, length in enumerate(lengths.tolist()):
        alone, its_length = ids[row : row + 1, :length], lengths[row : row + 1]
        one = scores()[row : row + 1]
        assert torch.equal(
            penalize_repetition(scores(), ids, lengths, 1.5)[row], penalize_repetition(one, alone, its_length, 1.5)[0]
        )
        for size in (1, 2, 3):
            wanted = find_completing_tokens(alone, its_length, size, TOKENS)[0]
            assert torch.equal(find_completing_tokens(ids, lengths, size, TOKENS)[row], wanted)


@pytest.mark.parametrize(("top_p", "kept"), [(0.5, 1), (0.51, 2), (0.75, 2), (0.9, 3), (1.0, 5)])
def test_a_nucleus_is_the_smallest_set_with_the_probability(top_p: float, kept: int) -> None:
    assert int(filter_scores(FIVE, SampledDecoding(top_p=top_p)).isfinite().sum()) == kept


def test_top_k_keeps_all_tokens_that_tie_with_the_last() -> None:
    tied = torch.tensor([[3.0, 2.0, 2.0, 2.0, 1.0]])
    assert filter_scores(tied, SampledDecoding(top_k=2)).isfinite().tolist() == [[True, True, True, True, False]]


# Samples.


def assert_distributed(counts: np.ndarray, probability: np.ndarray) -> None:
    """Chi-square test, with cells below 5 expected draws pooled; filtered tokens must not be drawn."""
    assert counts[probability == 0].sum() == 0
    if (probability > 0).sum() == 1:
        return
    expected = counts.sum() * probability
    small = expected < 5
    observed = np.append(counts[~small], counts[small].sum())
    expected = np.append(expected[~small], expected[small].sum())
    assert stats.chisquare(observed[expected > 0], expected[expected > 0]).pvalue > 1e-3


@pytest.mark.parametrize("method", METHODS)
def test_draws_follow_the_filtered_distribution(method: SampledDecoding) -> None:
    kept = filter_scores(scores()[:1], method)
    uniform = torch.from_numpy(key(0, "task").at(0, 0).random(20_000))
    counts = np.bincount(draw(kept.expand(20_000, -1), uniform).numpy(), minlength=TOKENS)
    assert_distributed(counts, kept.double().softmax(-1)[0].numpy())


def test_generated_tokens_follow_the_filtered_distribution() -> None:
    """10,000 sequences continue the same prompt by one token; each draws from its own random stream."""
    trunk = Decoder(
        num_hidden_layers=1,
        hidden_size=8,
        num_attention_heads=2,
        position_embedding=LearnedPositions(max_position_embeddings=8),
        hidden_dropout=0.0,
        init_std=0.5,
    )
    model = built(ModelSpec(model=trunk, losses=(NextToken(),), vocab_size=TOKENS))
    method = SampledDecoding(temperature=0.8, top_k=20, top_p=0.95)
    prompt = Prompt(np.array([1, 2]))
    rows = generate(
        model, [prompt] * 10_000, GenerationLimits(max_new_tokens=1), method=method, key=key(3, "task"), batch=1000
    )
    counts = np.bincount([int(row.ids[0]) for row in rows], minlength=TOKENS)
    columns = {"input_ids": torch.tensor([[1, 2]]), "positions": torch.tensor([[0, 1]]), "lengths": torch.tensor([2])}
    with torch.no_grad():
        logits = model.trunk(columns)[0, -1:] @ model.trunk.table.T
    assert_distributed(counts, filter_scores(logits, method).double().softmax(-1)[0].numpy())


def test_no_draw_has_probability_zero() -> None:
    rare = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]]).expand(3, -1)
    edges = torch.tensor([0.0, 0.5, np.nextafter(1.0, 0.0)], dtype=torch.float64)
    assert draw(rare, edges).tolist() == [1, 3, 3]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GenerationLimits(max_new_tokens=0), "max_new_tokens: got 0"),
        (
            lambda: GenerationLimits(max_new_tokens=4, min_new_tokens=5),
            "invalid min_new_tokens: got 5, expected 0 to 4",
        ),
        (lambda: GenerationLimits(force_eos=True), "force_eos: got True"),
        (lambda: SampledDecoding(temperature=0), "temperature: got 0"),
        (lambda: SampledDecoding(top_p=0), "top_p: got 0"),
    ],
)
def test_invalid_values_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
