"""Masked language models generate text: Gibbs sampling from the joint distribution, and mask-predict."""

from collections import Counter

import numpy as np
import pytest
import torch

from preprocessing.errors import BadInput
from preprocessing.rng import key
from tests.training.parity import built
from training.evaluation.generation import GibbsDecoding, MaskedPrompt, MaskPredict, fill
from training.evaluation.generation import masked as module
from training.losses import MaskedTokens, NextToken
from training.model import Model
from training.model_spec import ModelSpec
from training.specs import Decoder, Encoder, LearnedPositions

MASK, VOCAB = 4, 12
ROW = MaskedPrompt(np.array([2, 7]), 3, np.array([3]))


@pytest.fixture(scope="module")
def model() -> Model:
    trunk = Encoder(
        num_hidden_layers=1,
        hidden_size=16,
        num_attention_heads=2,
        position_embedding=LearnedPositions(max_position_embeddings=12),
        hidden_dropout=0.0,
        init_std=0.5,
    )
    return built(ModelSpec(model=trunk, losses=(MaskedTokens(),), vocab_size=VOCAB))


def log_p(model: Model, ids: list[int], at: int) -> torch.Tensor:
    """Log-probability of each token at a position, by the model's own loss head, one mask at a time."""
    masked = torch.tensor([[*ids[:at], MASK, *ids[at + 1 :]]])
    batch = {
        "input_ids": masked,
        "positions": torch.arange(len(ids))[None],
        "token_type_ids": torch.zeros_like(masked),
        "lengths": torch.tensor([len(ids)]),
        "first_at": torch.tensor([0]),
        "targets_at": torch.tensor([at]),
    }
    with torch.no_grad():
        return torch.stack(
            [-model(batch | {"targets": torch.tensor([token])})["masked_tokens"].loss for token in range(VOCAB)]
        )


def test_scores_are_the_log_probabilities_given_all_other_tokens(model: Model) -> None:
    for method in (MaskPredict(iterations=2), GibbsDecoding(sweeps=2, warm=1)):
        (found,) = fill(model, [ROW], method, mask=MASK, barred=(), key=key(0, "task"))
        ids = [2, 7, *found.ids.tolist(), 3]
        wanted = sum(float(log_p(model, ids, at)[ids[at]]) for at in (2, 3, 4))
        assert found.score == pytest.approx(wanted, abs=1e-4)


def test_mask_predict_takes_the_best_tokens_and_then_changes_the_least_probable(model: Model) -> None:
    (first,) = fill(model, [ROW], MaskPredict(iterations=1), mask=MASK, barred=(), key=key(0, "task"))
    alone = [log_p(model, [2, 7, MASK, MASK, MASK, 3], at) for at in (2, 3, 4)]
    assert first.ids.tolist() == [int(each.argmax()) for each in alone]
    (second,) = fill(model, [ROW], MaskPredict(iterations=2), mask=MASK, barred=(), key=key(0, "task"))
    sure = [float(each.max()) for each in alone]
    kept = [at for at in range(3) if sure[at] > min(sure)]  # of three positions, int(3 / 2) = 1 is masked again
    assert [second.ids[at] for at in kept] == [first.ids[at] for at in kept]


@pytest.mark.slow
def test_a_gibbs_sampler_of_two_positions_draws_each_given_the_other(model: Model) -> None:
    """The frequencies of a second sweep over one position follow the model's distribution given the other one.
    Chi-square test, with cells below 5 pooled."""
    row, draws = MaskedPrompt(np.array([2]), 1, np.array([6, 3])), 1_500
    found = list(
        fill(model, [row] * draws, GibbsDecoding(sweeps=1, warm=1), mask=MASK, barred=(0,), key=key(1, "task"))
    )
    counts = Counter(int(each.ids[0]) for each in found)
    assert 0 not in counts
    p = log_p(model, [2, MASK, 6, 3], 1).exp().double().numpy()
    p[0] = 0
    expected = p / p.sum() * draws
    large = expected >= 5
    observed = np.array([counts[token] for token in range(VOCAB)])
    pairs = [*zip(observed[large], expected[large], strict=True), (observed[~large].sum(), expected[~large].sum())]
    statistic = sum((seen - wanted) ** 2 / wanted for seen, wanted in pairs if wanted > 0)
    assert statistic < 2.5 * len(pairs) + 10


def test_sequences_depend_only_on_their_number_and_the_key(model: Model) -> None:
    method = GibbsDecoding(sweeps=2, warm=2)
    both = list(fill(model, [ROW, ROW], method, mask=MASK, barred=(0,), key=key(0, "task")))
    (alone,) = fill(model, [ROW], method, mask=MASK, barred=(0,), key=key(0, "task"))
    assert both[0].ids.tolist() == alone.ids.tolist()
    many = fill(model, [ROW] * 9, method, mask=MASK, barred=(0,), key=key(0, "task"))
    assert len({tuple(each.ids.tolist()) for each in many}) > 3


def test_after_its_warm_sweeps_the_sampler_takes_the_best_token(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise AssertionError("nothing is drawn any more")

    monkeypatch.setattr(module, "draw", refuse)
    list(fill(model, [ROW], GibbsDecoding(sweeps=1, warm=0), mask=MASK, barred=(), key=key(0, "task")))


def test_invalid_prompts_and_models_are_refused_in_one_line(model: Model) -> None:
    with pytest.raises(BadInput, match="invalid number of masks: got 9, expected 1 to 8"):
        list(
            fill(
                model,
                [MaskedPrompt(np.zeros(2), 9, np.zeros(2))],
                MaskPredict(),
                mask=MASK,
                barred=(),
                key=key(0, "task"),
            )
        )
    decoder = built(
        ModelSpec(
            model=Decoder(num_hidden_layers=1, hidden_size=16, num_attention_heads=2),
            losses=(NextToken(),),
            vocab_size=VOCAB,
        )
    )
    with pytest.raises(BadInput, match="this decoder cannot fill in masks"):
        list(fill(decoder, [ROW], MaskPredict(), mask=MASK, barred=(), key=key(0, "task")))
    with pytest.raises(ValueError, match=r"invalid warm: got 3, expected 0 to 2 \(sweeps\)"):
        GibbsDecoding(sweeps=2, warm=3)
