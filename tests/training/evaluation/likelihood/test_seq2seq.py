"""Log-probabilities of BART and T5 equal those of transformers, one at a time."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from preprocessing import tokenization
from preprocessing.errors import BadInput
from preprocessing.tokenization import Vocab
from tests.training.encoder_decoders import BART, MASS, T5
from tests.training.parity import ONE_PAD, TEXT, built, loaded, weights
from training.evaluation.likelihood import Request, Windowing
from training.evaluation.likelihood.models import CausalLikelihood
from training.formats import to_transformers
from training.losses import NextToken
from training.model import Model
from training.model_spec import ModelSpec
from training.specs import Seq2SeqLearnedPositions

REQUESTS = [
    Request("The quick brown", " fox jumps over"),
    Request("The quick brown", " box"),
    Request("Pack my box with five dozen liquor", " jugs!"),
    Request("", " The lazy dog."),
]
SPECS = {"bart": ONE_PAD, "t5": tokenization.Unigram(vocab_size=48, extra_ids=4)}
TRUNKS = {
    "bart": replace(BART, position_embedding=Seq2SeqLearnedPositions(max_position_embeddings=42, offset=2)),
    "t5": T5,
}


@cache
def vocabulary(kind: str) -> Vocab:
    return tokenization.train(SPECS[kind], TEXT)


@cache
def net(kind: str) -> Model:
    return built(ModelSpec(model=TRUNKS[kind], losses=(NextToken(),), vocab_size=vocabulary(kind).size))


@pytest.fixture(scope="module", params=["bart", "t5"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    kind, folder = request.param, tmp_path_factory.mktemp(request.param)
    vocabulary(kind).save(folder / "vocab")
    (folder / "net").mkdir()
    to_transformers(weights(net(kind)), net(kind).spec, folder / "vocab", folder / "net")
    return kind, loaded(folder / "net")


@torch.no_grad()
def expected(oracle: Any, kind: str, request: Request) -> tuple[float, int, bool]:
    """The log-probability with the special tokens of the source, and the decoder's start tokens of each paper."""
    pieces = vocabulary(kind)
    sep, source = [pieces.sep], pieces.encode(request.context)
    source = [pieces.cls, *source, *sep]  # vocabularies trained here have a [CLS] token, also for T5
    begins = [pieces.sep, pieces.cls] if kind == "bart" else [pieces.pad]
    targets = pieces.encode(request.context + request.continuation)[len(pieces.encode(request.context)) :]
    decoder = torch.tensor([[*begins, *targets[:-1]]])
    log_p = oracle(input_ids=torch.tensor([source]), decoder_input_ids=decoder).logits.log_softmax(-1)[0]
    log_p, wanted = log_p[len(begins) - 1 :], torch.tensor(targets)
    return float(log_p.gather(1, wanted[:, None]).sum()), len(targets), bool((log_p.argmax(-1) == wanted).all())


@pytest.mark.parametrize("micro_tokens", [1, 16_384])
def test_continuations_with_a_source_have_the_log_probability_of_transformers(
    both: tuple[str, Any], micro_tokens: int
) -> None:
    kind, oracle = both
    found = CausalLikelihood(net(kind), vocabulary(kind), micro_tokens).log_ps(REQUESTS)
    wanted = [expected(oracle, kind, request) for request in REQUESTS]
    assert [each.nats for each in found] == pytest.approx([nats for nats, *_ in wanted], abs=2e-4)
    assert [(each.tokens, each.greedy) for each in found] == [tuple(rest) for _, *rest in wanted]


def test_the_source_and_the_decoder_text_are_shown() -> None:
    reader = CausalLikelihood(net("bart"), vocabulary("bart"))
    assert reader.format_request(REQUESTS[1]) == "<s>The quick brown</s> => </s><s> box"
    assert "with the context as source" in reader.describe()


def test_a_decoder_with_an_unknown_start_token_is_refused() -> None:
    model = built(ModelSpec(model=MASS, losses=(NextToken(),), vocab_size=vocabulary("bart").size))
    with pytest.raises(BadInput, match="the start token of this decoder is unknown; use BART"):
        CausalLikelihood(model, vocabulary("bart")).log_ps(REQUESTS[:1])


def test_a_source_that_is_too_long_is_truncated_at_its_beginning() -> None:
    (found,) = CausalLikelihood(net("bart"), vocabulary("bart")).log_ps([Request(" ".join(TEXT * 4), " fox")])
    assert found.cut > 0
    with pytest.raises(BadInput, match=r"continuation too long: got \d+ tokens, expected at most \d+; shorten it"):
        CausalLikelihood(net("bart"), vocabulary("bart")).log_ps([Request("", " ".join(TEXT * 4))])


def test_an_encoder_decoder_has_no_perplexity() -> None:
    with pytest.raises(BadInput, match="perplexity requires"):
        CausalLikelihood(net("bart"), vocabulary("bart")).perplexities([], Windowing())


def test_unknown_tokens_of_source_and_continuation_are_counted() -> None:
    strange = "\N{CJK UNIFIED IDEOGRAPH-6F22}"
    asked = [
        Request("The fox", " jumps"),
        Request(f"The {strange}", " fox"),
        Request(f"The {strange}", f" {strange} fox"),
    ]
    assert [one.unknown for one in CausalLikelihood(net("t5"), vocabulary("t5")).log_ps(asked)] == [0, 1, 2]
