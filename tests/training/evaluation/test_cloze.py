"""Pretrained models predict masked words without fine-tuning."""

from typing import Any

import numpy as np
import pytest
import torch

from preprocessing.errors import BadInput
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab
from tests.training.encoder_decoders import BART
from tests.training.held_out import with_test_split
from training.evaluation import EvaluatedModel, fill_in
from training.evaluation.tasks import Cloze, ClozeItem, ClozeItems
from training.losses import MaskedTokens, NextToken, ReplacedTokenDetection
from training.model import Model
from training.model_spec import ModelSpec
from training.specs import Decoder, Encoder, GeneratorDiscriminator, LearnedPositions

SMALL: dict[str, Any] = {
    "num_hidden_layers": 1,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    return TokenStore.open(with_test_split(tmp_path_factory.mktemp("corpus") / "mini"), "test")


def spec_of(kind: str, vocab: Vocab) -> ModelSpec:
    if kind == "encoder":
        trunk = Encoder(position_embedding=LearnedPositions(max_position_embeddings=64), **SMALL)
        return ModelSpec(model=trunk, losses=(MaskedTokens(),), vocab_size=vocab.size)
    if kind == "twin":
        twin = GeneratorDiscriminator(
            position_embedding=LearnedPositions(max_position_embeddings=64), generator_size_ratio=0.5, **SMALL
        )
        return ModelSpec(model=twin, losses=(MaskedTokens(), ReplacedTokenDetection()), vocab_size=vocab.size)
    causal = Decoder(position_embedding=LearnedPositions(max_position_embeddings=64), **SMALL)
    return ModelSpec(model=causal, losses=(NextToken(),), vocab_size=vocab.size)


@pytest.mark.parametrize("kind", ["encoder", "twin"])  # ELECTRA is evaluated by its generator
def test_a_model_that_always_predicts_one_word_is_right_only_for_that_word(kind: str, store: TokenStore) -> None:
    vocab = Vocab.load(store.vocab_dir)
    blanks = Cloze().make(store, vocab)
    spec, word = spec_of(kind, vocab), blanks.blanks[0].answer
    model = Model(spec.model, spec.losses, spec.vocab_size, seed=1)
    weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    weights["heads.masked_tokens.bias"][word] = 100.0
    found = fill_in(EvaluatedModel(spec, weights, vocab), blanks)
    assert len({one["answer"] for one in found.predictions["test"]}) == 1
    assert [one["correct"] for one in found.predictions["test"]] == [one.answer == word for one in blanks.blanks]
    assert [one["margin"] > 0 for one in found.predictions["test"]] == [one.answer == word for one in blanks.blanks]
    assert [one["gold"] for one in found.questions["test"]][:1] == [found.predictions["test"][0]["answer"]]
    share = np.mean([one.answer == word for one in blanks.blanks])
    assert found.scores["test"]["accuracy"] == pytest.approx(share)


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_three_sentences_are_shown_with_the_predictions(kind: str, store: TokenStore) -> None:
    vocab = Vocab.load(store.vocab_dir)
    found = fill_in(EvaluatedModel(spec_of(kind, vocab), None, vocab), Cloze().make(store, vocab))
    assert 0 <= found.scores["test"]["accuracy"] <= found.scores["test"]["top5"] <= 1
    lines = found.example.splitlines()
    assert len(lines) == 3
    assert all("___" in line and "(it was: " in line for line in lines)


def test_a_decoder_does_not_attend_to_the_text_after_the_blank(store: TokenStore) -> None:
    vocab = Vocab.load(store.vocab_dir)
    spec, ids_S = spec_of("decoder", vocab), Cloze().make(store, vocab).blanks[0].ids_S
    other = ids_S.copy()
    other[5:] = other[5:][::-1]
    first, second = (
        fill_in(EvaluatedModel(spec, None, vocab), ClozeItems([ClozeItem(ids, 4)])) for ids in (ids_S, other)
    )
    assert first.predictions == second.predictions


def test_the_global_generator_is_unchanged(store: TokenStore) -> None:
    vocab, before = Vocab.load(store.vocab_dir), torch.get_rng_state()
    fill_in(EvaluatedModel(spec_of("encoder", vocab), None, vocab), Cloze().make(store, vocab))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_model_that_cannot_predict_a_single_word_is_refused(store: TokenStore) -> None:
    vocab = Vocab.load(store.vocab_dir)
    spec = ModelSpec(model=BART, losses=(NextToken(),), vocab_size=vocab.size)
    with pytest.raises(BadInput, match="task cloze: this encoder_decoder cannot predict a single word; remove cloze"):
        fill_in(EvaluatedModel(spec, None, vocab), Cloze().make(store, vocab))
