"""transformers computes what our BART and T5 compute, in both directions, and what does not fit is refused."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from preprocessing.errors import BadInput
from tests.training.batches import padded, unpadded
from tests.training.encoder_decoders import BART, MASS, T5, inside, rows_of, spec_of
from tests.training.parity import ONE_PAD, built, gradients, labels_of, loaded, randomised, vocabulary, weights
from training.formats import bart, t5, to_transformers
from training.formats.load import from_transformers
from training.formats.named import renamed
from training.model import Model
from training.specs import EncoderDecoder, LearnedPlain

SPECS = {"bart": spec_of(BART), "t5": spec_of(T5)}
FORMATS = {"bart": bart, "t5": t5}


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small vocabulary whose padding is token 1."""
    return vocabulary(ONE_PAD, tmp_path_factory.mktemp("pieces"))


def exported(model: Model, pieces: Path, folder: Path) -> Any:
    """What plain from_pretrained makes of our net."""
    to_transformers(weights(model), model.spec, pieces, folder)
    return loaded(folder)


def ask(oracle: Any, batch: Mapping[str, Tensor], **more: Any) -> Any:
    """What transformers answers to a padded batch."""
    return oracle(
        decoder_input_ids=batch["ids"],
        decoder_attention_mask=inside(batch).long(),
        **({"input_ids": batch["source_ids"], "attention_mask": inside(batch, "source_").long()} | more),
    )


def logits(model: Model, batch: Mapping[str, Tensor]) -> Tensor:
    return F.linear(model.trunk(batch), model.trunk.table)


@pytest.mark.parametrize("family", SPECS)
def test_exported_net_has_our_logits_loss_and_gradients(family: str, pieces: Path, tmp_path: Path) -> None:
    model = built(SPECS[family])
    oracle, rows = exported(model, pieces, tmp_path), rows_of(SPECS[family].trunk)
    ours, theirs = unpadded(rows), padded(rows, 14, pad=1)
    wanted, score = ask(oracle, theirs, labels=labels_of(theirs)), model(ours)["next_token"]
    torch.testing.assert_close(logits(model, ours), wanted.logits[inside(theirs)], rtol=0, atol=1e-5)
    torch.testing.assert_close(score.loss / score.count, wanted.loss, rtol=0, atol=1e-5)
    wanted.loss.backward()
    (score.loss / score.count).backward()
    found = renamed(gradients(model), FORMATS[family].NAMES)
    torch.testing.assert_close(found, gradients(oracle), rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", SPECS)
def test_net_of_transformers_has_its_logits_here(family: str, pieces: Path, tmp_path: Path) -> None:
    to_transformers(weights(built(SPECS[family])), SPECS[family], pieces, tmp_path / "config")
    oracle = randomised(loaded(tmp_path / "config"))
    oracle.save_pretrained(tmp_path / "theirs")
    spec, state = from_transformers(tmp_path / "theirs")
    assert spec.trunk == replace(SPECS[family].trunk, inner=spec.trunk.inner, init_std=spec.trunk.init_std)
    model, rows = Model(spec.trunk, spec.losses, spec.vocab_size, seed=0).eval(), rows_of(SPECS[family].trunk)
    model.load_state_dict(state)
    theirs = padded(rows, 14, pad=1)
    wanted = ask(oracle, theirs).logits[inside(theirs)]
    torch.testing.assert_close(logits(model, unpadded(rows)), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", SPECS)
def test_weights_come_back_from_transformers_bit_for_bit(family: str, pieces: Path, tmp_path: Path) -> None:
    model = built(SPECS[family])
    exported(model, pieces, tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    spec, state = from_transformers(tmp_path / "theirs")
    again = weights(model)
    assert state.keys() == again.keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in again.items())
    assert spec.trunk == replace(model.spec.trunk, inner=spec.trunk.inner, init_std=spec.trunk.init_std)


def test_hidden_source_is_what_transformers_masks_for_the_decoder_alone(pieces: Path, tmp_path: Path) -> None:
    model, rng = built(spec_of(BART)), np.random.default_rng(2)
    oracle = exported(model, pieces, tmp_path)
    rows = [row | {"source_seen": rng.random(len(row["source_ids"])) < 0.6} for row in rows_of(BART)]
    theirs = padded(rows, 14, pad=1)
    with torch.no_grad():
        read = oracle.model.encoder(theirs["source_ids"], attention_mask=inside(theirs, "source_").long())
        wanted = ask(oracle, theirs, input_ids=None, encoder_outputs=read, attention_mask=theirs["source_seen"].long())
        found = logits(model, unpadded(rows))
    torch.testing.assert_close(found, wanted.logits[inside(theirs)], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "trunk",
    [
        replace(BART, norm="pre"),
        replace(BART, positions=LearnedPlain(max=18)),
        replace(BART, norm_eps=1e-12),
        MASS,
        replace(T5, scale_output=False),
    ],
)
def test_net_that_transformers_does_not_have_is_not_exported(
    trunk: EncoderDecoder, pieces: Path, tmp_path: Path
) -> None:
    model = built(spec_of(trunk))
    with pytest.raises(BadInput, match="transformers has no encoder_decoder like this"):
        to_transformers(weights(model), model.spec, pieces, tmp_path)


@pytest.mark.parametrize(
    ("family", "change", "complaint"),
    [
        ("bart", {"decoder_layers": 3}, "decoder_layers is 3, allowed is 2"),
        ("bart", {"scale_embedding": True}, "scale_embedding is True"),
        ("t5", {"feed_forward_proj": "gated-gelu"}, "gated-gelu"),
        ("t5", {"tie_word_embeddings": False}, "tie_word_embeddings is False"),
    ],
)
def test_folder_with_another_net_is_refused(
    family: str, change: dict[str, Any], complaint: str, pieces: Path, tmp_path: Path
) -> None:
    to_transformers(weights(built(SPECS[family])), SPECS[family], pieces, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(BadInput, match=complaint):
        from_transformers(tmp_path)


def test_trained_bias_of_logits_is_refused(pieces: Path, tmp_path: Path) -> None:
    oracle = exported(built(spec_of(BART)), pieces, tmp_path)
    oracle.final_logits_bias += 1
    oracle.save_pretrained(tmp_path)
    with pytest.raises(BadInput, match="final_logits_bias is not 0"):
        from_transformers(tmp_path)
