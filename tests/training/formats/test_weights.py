"""Our own directories of weights: saved weights are restored, and damage is detected."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from preprocessing.errors import BadInput
from training.formats import load_spec, load_weights, save_weights
from training.losses import MaskedTokens, NextToken, SentencePair
from training.model import Model
from training.model_spec import ModelSpec
from training.specs import AdaptiveEmbedding, Decoder, Encoder, RelativePositions

BERT = ModelSpec(
    model=Encoder(num_hidden_layers=2, hidden_size=32, num_attention_heads=4, activation="relu"),
    losses=(MaskedTokens(), SentencePair(weight=0.5)),
    vocab_size=50,
)
GPT2 = ModelSpec(
    model=Decoder(num_hidden_layers=2, hidden_size=32, num_attention_heads=4, hidden_dropout=0.2),
    losses=(NextToken(),),
    vocab_size=60,
)
SHARED = replace(
    BERT,
    model=Encoder(
        num_hidden_layers=4,
        hidden_size=32,
        num_attention_heads=4,
        embedding_size=16,
        parameter_sharing="all",
        num_hidden_groups=2,
    ),
)


def built(spec: ModelSpec) -> Model:
    return Model(spec.model, spec.losses, spec.vocab_size, seed=0)


@pytest.mark.parametrize("spec", [BERT, GPT2])
def test_weights_and_spec_are_restored_bit_for_bit(spec: ModelSpec, tmp_path: Path) -> None:
    model = built(spec)
    save_weights(model.state_dict(), model.spec, tmp_path)
    spec, state = load_weights(tmp_path)
    assert spec == model.spec
    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


def test_shared_weights_are_stored_once(tmp_path: Path) -> None:
    model = built(SHARED)
    save_weights(dict(model.named_parameters()), model.spec, tmp_path)
    spec, state = load_weights(tmp_path)
    assert spec == SHARED
    assert sum(tensor.numel() for tensor in state.values()) == model.num_parameters


ADAPTIVE = AdaptiveEmbedding(cutoffs=(20, 40))


def test_a_spec_with_a_list_is_restored_unchanged(tmp_path: Path) -> None:
    spec = replace(
        GPT2,
        losses=(NextToken(bias=True),),
        model=Decoder(
            num_hidden_layers=1,
            hidden_size=32,
            num_attention_heads=4,
            norm_position="post",
            position_embedding=RelativePositions(mem_len=8),
            token_embedding=ADAPTIVE,
        ),
    )
    save_weights({}, spec, tmp_path)
    assert load_spec(tmp_path) == spec


@pytest.mark.parametrize("at", [0, 8, 5000, -1])
def test_one_flipped_bit_in_the_weights_is_detected(at: int, tmp_path: Path) -> None:
    model = built(BERT)
    save_weights(model.state_dict(), model.spec, tmp_path)
    content = bytearray((tmp_path / "weights.safetensors").read_bytes())
    content[at] ^= 1
    (tmp_path / "weights.safetensors").write_bytes(content)
    with pytest.raises(BadInput, match="damaged or replaced"):
        load_weights(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "not a spec of this version"),
        (
            b'{"spec": {"model": {"kind": "lstm"}, "losses": [], "vocab_size": 9}, "sha256": ""}',
            "invalid kind: got 'lstm'",
        ),
    ],
)
def test_a_garbled_spec_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    model = built(BERT)
    save_weights(model.state_dict(), model.spec, tmp_path)
    (tmp_path / "spec.json").write_bytes(content)
    with pytest.raises(BadInput, match=message):
        load_weights(tmp_path)


def test_missing_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"spec\.json: No such file"):
        load_weights(tmp_path)
