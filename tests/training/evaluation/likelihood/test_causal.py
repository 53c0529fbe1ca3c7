"""Log-probabilities of continuations equal those of transformers, one at a time and without shared computation."""

from typing import Any

import pytest
import torch

from preprocessing.errors import BadInput
from tests.training.evaluation.likelihood.nets import LONG, REQUESTS, net, vocabulary
from tests.training.evaluation.likelihood.nets import exported as export
from training.evaluation.likelihood import LogP, Request, pair_of
from training.evaluation.likelihood.models import CausalLikelihood, score_causal

LONGEST = 32


@pytest.fixture(scope="module", params=["gpt2", "gpt1"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    """The name of a model, and the model of transformers with the same weights."""
    return request.param, export(request.param, tmp_path_factory.mktemp(request.param))


@torch.no_grad()
def expected(oracle: Any, kind: str, request: Request, longest: int = LONGEST) -> tuple[float, int, bool]:
    """The log-probability of a continuation, its number of tokens, and whether each token is the arg max."""
    context, continuation = pair_of(vocabulary(kind), request)
    whole = torch.tensor([(context + continuation)[-longest - 1 :]])
    log_p = oracle(whole[:, :-1]).logits.log_softmax(-1)[0, -len(continuation) :]
    targets = torch.tensor(continuation)
    return float(log_p.gather(1, targets[:, None]).sum()), len(continuation), bool((log_p.argmax(-1) == targets).all())


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("micro_tokens", [1, 40, 16_384])
def test_continuations_have_the_log_probability_of_transformers(
    both: tuple[str, Any], share: bool, micro_tokens: int
) -> None:
    kind, oracle = both
    found = score_causal(net(kind), vocabulary(kind), REQUESTS, share=share, micro_tokens=micro_tokens)
    wanted = [expected(oracle, kind, request) for request in REQUESTS]
    assert [each.nats for each in found] == pytest.approx([nats for nats, *_ in wanted], abs=2e-4)
    assert [(each.tokens, each.greedy) for each in found] == [tuple(rest) for _, *rest in wanted]
    assert net(kind).training  # training mode is restored


def test_a_continuation_of_most_likely_tokens_is_greedy() -> None:
    model, pieces = net("gpt2"), vocabulary("gpt2")
    words = [" fox", " dog", " jugs", " the", "!", ".", " box", " liquor", " quick", " lazy", "s", "j", "q", "x", "z"]
    one_token = [word for word in words if len(pieces.encode(word)) == 1]
    best = max(one_token, key=lambda word: score_causal(model, pieces, [Request("Pack my", word)])[0].nats)
    greedy = [score_causal(model, pieces, [Request("Pack my", word)])[0].greedy for word in one_token]
    assert sum(greedy) <= 1
    assert not any(flag for word, flag in zip(one_token, greedy, strict=True) if word != best)


def test_the_number_of_truncated_tokens_is_reported() -> None:
    first, last = score_causal(net("gpt2"), vocabulary("gpt2"), [Request("Pack", " my"), Request(LONG, " fox")])
    tokens = len(vocabulary("gpt2").encode(LONG + " fox"))
    assert (first.cut, last.cut) == (0, tokens - LONGEST - 1)


def test_a_continuation_that_is_too_long_is_refused() -> None:
    with pytest.raises(BadInput, match=r"continuation too long: got \d+ tokens, expected at most 32; shorten it"):
        score_causal(net("gpt2"), vocabulary("gpt2"), [Request("", LONG)])


def test_a_continuation_without_tokens_is_refused() -> None:
    with pytest.raises(BadInput, match="has no token after 'Pack'"):
        score_causal(net("gpt2"), vocabulary("gpt2"), [Request("Pack", "")])


@pytest.mark.parametrize("kind", ["xl", "adaptive"])
def test_transformer_xl_log_probabilities_equal_its_own_loss(kind: str) -> None:
    """transformers has removed its class: the oracle is the loss of its head, one token at a time."""
    model, pieces = net(kind), vocabulary(kind)
    found = score_causal(model, pieces, REQUESTS, micro_tokens=64)
    model.eval()
    for request, each in zip(REQUESTS, found, strict=True):
        context, continuation = pair_of(pieces, request)
        ids = torch.tensor(context + continuation[:-1])
        total, right = 0.0, 0
        for number, target in enumerate(continuation):
            batch = {
                "input_ids": ids[None],
                "lengths": torch.tensor([len(ids)], dtype=torch.int32),
                "targets_at": torch.tensor([len(context) - 1 + number]),
                "targets": torch.tensor([target]),
            }
            score = model(batch)["next_token"]
            total, right = total - float(score.loss.detach()), right + int(score.correct)
        assert each.nats == pytest.approx(total, abs=1e-4)
        assert each.greedy == (right == len(continuation))
    model.train()


def test_a_masked_language_model_is_refused() -> None:
    with pytest.raises(BadInput, match="cannot compute likelihoods"):
        score_causal(net("bert"), vocabulary("bert"), REQUESTS[:1])


def test_the_kind_of_likelihood_fits_the_model() -> None:
    requests = REQUESTS[2:4]
    causally, masking = (CausalLikelihood(net(kind), vocabulary(kind)) for kind in ("gpt2", "bert"))
    assert causally.log_ps(requests) == score_causal(net("gpt2"), vocabulary("gpt2"), requests)
    assert all(isinstance(each, LogP) for each in masking.log_ps(requests))
    assert causally.describe() == "log p, from left to right"
    assert masking.describe("original") == "pseudo-log-likelihood (original), special tokens not scored"
    assert causally.format_request(requests[0]) == "The quick brown fox"
    assert masking.format_request(requests[0]) == "[CLS] the quick brown fox [SEP]"
