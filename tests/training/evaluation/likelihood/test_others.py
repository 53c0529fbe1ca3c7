"""XLNet in text order, ELECTRA by its generator, and models without likelihoods."""

from collections.abc import Sequence
from functools import cache

import pytest
import torch

from preprocessing.errors import BadInput
from tests.training.evaluation.likelihood.nets import REQUESTS, vocabulary
from tests.training.parity import TEXT, built
from training.evaluation.likelihood import Pair, PerplexityText, Request, pair_of
from training.evaluation.likelihood.models import CausalLikelihood, perplexity, score_causal
from training.formats import half
from training.losses import MaskedTokens, ReplacedTokenDetection
from training.model import Model
from training.model_spec import ModelSpec
from training.specs import GeneratorDiscriminator, LearnedPositions, TwoStream, TwoStreamRelativePositions

SIZES = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
    "init_std": 0.2,
}
LONG = [PerplexityText(" ".join(TEXT)), PerplexityText("Pack my box")]


@cache
def xlnet(memory: int = 0, reuse: int = 0) -> Model:
    trunk = TwoStream(**SIZES, position_embedding=TwoStreamRelativePositions(mem_len=memory, reuse_len=reuse))  # type: ignore[arg-type]
    return built(ModelSpec(model=trunk, losses=(MaskedTokens(transform=False),), vocab_size=vocabulary("gpt2").size))


@torch.no_grad()
def one_by_one(model: Model, pair: Pair) -> tuple[float, bool]:
    """Score one token after the other, each by a query after all previous tokens (`Net.next_states`)."""
    ids, total, right = list(pair[0]), 0.0, True
    for target in pair[1]:
        batch = {"input_ids": torch.tensor([ids]), "lengths": torch.tensor([len(ids)], dtype=torch.int32)}
        columns = {"targets_at": torch.tensor([0]), "targets": torch.tensor([target])}
        score = model.heads["masked_tokens"](model.trunk.next_states(batch), columns, model.trunk.table)
        total, right = total - float(score.loss), right and bool(score.correct)
        ids.append(target)
    return total, right


@pytest.mark.parametrize("micro_tokens", [1, 64, 16_384])
def test_xlnet_predicts_in_text_order(micro_tokens: int) -> None:
    found = score_causal(xlnet(), vocabulary("gpt2"), REQUESTS, micro_tokens=micro_tokens)
    wanted = [one_by_one(xlnet(), pair_of(vocabulary("gpt2"), request)) for request in REQUESTS]
    assert [each.nats for each in found] == pytest.approx([nats for nats, _ in wanted], abs=2e-4)
    assert [each.greedy for each in found] == [greedy for _, greedy in wanted]


def test_a_memory_of_everything_equals_one_long_sequence_of_xlnet() -> None:
    tokens = max(len(vocabulary("gpt2").encode(text.text)) for text in LONG)
    assert tokens > 12
    whole = perplexity(xlnet(100), vocabulary("gpt2"), LONG, window=tokens + 1)
    carried = perplexity(xlnet(100), vocabulary("gpt2"), LONG, window=6, carry=True)
    assert carried.nats == pytest.approx(whole.nats, rel=1e-5)
    assert abs(perplexity(xlnet(100), vocabulary("gpt2"), LONG, window=6).nats - whole.nats) > 1e-2
    assert (carried.tokens, carried.memory, carried.window) == (whole.tokens, 100, 6)


def test_windows_of_xlnet_are_limited_by_reuse_len() -> None:
    model = xlnet(100, 5)
    assert perplexity(model, vocabulary("gpt2"), LONG, carry=True).window == 5
    with pytest.raises(BadInput, match=r"invalid window: got 6, expected 1 to 5 \(reuse_len\), the size of the memory"):
        perplexity(model, vocabulary("gpt2"), LONG, window=6, carry=True)
    with pytest.raises(BadInput, match="invalid window: got 1, expected 2 to"):
        perplexity(model, vocabulary("gpt2"), LONG, window=1, carry=True)


def electra(samples: str = "generator") -> Model:
    trunk = GeneratorDiscriminator(
        **SIZES,
        position_embedding=LearnedPositions(max_position_embeddings=40),
        generator_size_ratio=0.5,
        sample_from=samples,
    )  # type: ignore[arg-type]
    losses = (ReplacedTokenDetection(), *((MaskedTokens(),) if samples == "generator" else ()))
    return built(ModelSpec(model=trunk, losses=losses, vocab_size=vocabulary("bert").size))


def masked_loss(model: Model, ids: Sequence[int], at: int) -> float:
    """The model's own generator loss for one mask."""
    given = torch.tensor([[*ids[:at], vocabulary("bert").mask, *ids[at + 1 :]]])  # type: ignore[list-item]
    batch = {
        "input_ids": given,
        "positions": torch.arange(len(ids))[None],
        "token_type_ids": torch.zeros_like(given),
        "lengths": torch.tensor([len(ids)], dtype=torch.int32),
        "targets_at": torch.tensor([at]),
        "targets": torch.tensor([ids[at]]),
    }
    with torch.no_grad():
        return float(model(batch)["masked_tokens"].loss)


def test_electra_is_scored_by_its_generator() -> None:
    model, pieces = electra(), vocabulary("bert")
    state, spec = half(dict(model.named_parameters()), model.spec, "generator")
    generator = Model(spec.model, spec.losses, spec.vocab_size, 0).eval()
    generator.load_state_dict(state, strict=False)
    (found,) = CausalLikelihood(generator, pieces).log_ps([Request("", "The quick fox")], "original")
    ids = [pieces.cls, *pieces.encode("The quick fox"), pieces.sep]
    wanted = -sum(masked_loss(model, ids, at) for at in range(1, len(ids) - 1))  # type: ignore[arg-type]
    assert found.nats == pytest.approx(wanted, abs=1e-4)


def test_both_models_together_and_a_discriminator_alone_are_refused() -> None:
    for model in (electra(), electra("uniform")):
        with pytest.raises(
            BadInput, match=r"cannot compute likelihoods with this model .*; use .* \(for ELECTRA, the generator\)"
        ):
            CausalLikelihood(model, vocabulary("bert")).log_ps(REQUESTS[:1])
