"""BART, mBART, PEGASUS, T5 and mT5 compute the same as in transformers, in both directions, and misfits are refused."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor
from torch.nn import functional as F

from preprocessing.errors import BadInput
from preprocessing.objectives import GapSentenceGeneration
from preprocessing.schema import Row
from preprocessing.tokenization import Vocab
from tests.training.batches import collate_padded, collate_unpadded
from tests.training.encoder_decoders import BART, MASS, MBART, PEGASUS, T5, inside, rows_of, spec_of
from tests.training.parity import ONE_PAD, built, gradients, labels_of, loaded, randomized, vocabulary, weights
from training.formats import FORMATS, pegasus, to_transformers
from training.formats.format import Format
from training.formats.load import from_transformers
from training.model import Model
from training.specs import EncoderDecoder, GatedFeedForward, Seq2SeqLearnedPositions, Seq2SeqSinusoidalPositions

GATED_T5 = replace(T5, activation="gelu_tanh", feed_forward=GatedFeedForward(), scale_decoder_outputs=False)
SPECS = {
    "bart": spec_of(BART),
    "mbart": spec_of(MBART),
    "pegasus": spec_of(PEGASUS),
    "t5": spec_of(T5),
    "t5 1.1": spec_of(replace(GATED_T5, tie_word_embeddings=False)),
    "mt5": spec_of(GATED_T5),  # untied, it is exported as T5
}
FORMAT_OF = {format.model_type: format for format in FORMATS}
FORMAT_OF["t5 1.1"] = FORMAT_OF["t5"]


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small vocabulary whose padding is token 1."""
    return vocabulary(ONE_PAD, tmp_path_factory.mktemp("pieces"))


def exported(model: Model, pieces: Path, folder: Path) -> Any:
    """Our model, exported and loaded by plain from_pretrained."""
    to_transformers(weights(model), model.spec, pieces, folder)
    return loaded(folder)


def randomize_all_but_sinusoids(oracle: Any) -> Any:
    """Their model with every tensor random, except the sinusoids of PEGASUS, which are not trained."""
    randomized(oracle)
    if oracle.config.model_type == "pegasus":
        for side in (oracle.model.encoder, oracle.model.decoder):
            side.embed_positions.weight.data = side.embed_positions.create_weight()
    return oracle


def oracle_output(oracle: Any, batch: Mapping[str, Tensor], **more: Any) -> Any:
    """The output of transformers for a padded batch."""
    return oracle(
        decoder_input_ids=batch["input_ids"],
        decoder_attention_mask=inside(batch).long(),
        **({"input_ids": batch["source_input_ids"], "attention_mask": inside(batch, "source_").long()} | more),
    )


def logits(model: Model, batch: Mapping[str, Tensor]) -> Tensor:
    return F.linear(model.trunk(batch), model.trunk.table)


def assert_alike(model: Model, oracle: Any, format: Format, rows: list[Row]) -> None:
    """Assert equal logits, loss and gradients, ours without padding and theirs with it."""
    ours, theirs = collate_unpadded(rows), collate_padded(rows, 14, pad=1)
    wanted, score = oracle_output(oracle, theirs, labels=labels_of(theirs)), model(ours)["next_token"]
    torch.testing.assert_close(logits(model, ours), wanted.logits[inside(theirs)], rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(score.loss / score.count, wanted.loss, rtol=0, atol=1e-5)
    wanted.loss.backward()
    (score.loss / score.count).backward()
    found = format.theirs(gradients(model), model.spec)
    torch.testing.assert_close(found, gradients(oracle), rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", SPECS)
def test_an_exported_model_has_our_logits_loss_and_gradients(family: str, pieces: Path, tmp_path: Path) -> None:
    model = built(SPECS[family])
    assert_alike(model, exported(model, pieces, tmp_path), FORMAT_OF[family], rows_of(SPECS[family].model))


@pytest.mark.parametrize("family", SPECS)
def test_a_model_of_transformers_has_the_same_logits_loss_and_gradients_here(
    family: str, pieces: Path, tmp_path: Path
) -> None:
    to_transformers(weights(built(SPECS[family])), SPECS[family], pieces, tmp_path / "config")
    oracle = randomize_all_but_sinusoids(loaded(tmp_path / "config"))
    oracle.save_pretrained(tmp_path / "theirs")
    spec, state = from_transformers(tmp_path / "theirs")
    assert spec.model == replace(
        SPECS[family].model, intermediate_size=spec.model.intermediate_size, init_std=spec.model.init_std
    )
    model, rows = Model(spec.model, spec.losses, spec.vocab_size, seed=0).eval(), rows_of(SPECS[family].model)
    model.load_state_dict(state)
    assert_alike(model, oracle, FORMAT_OF[family], rows)


@pytest.mark.parametrize("family", SPECS)
def test_weights_survive_export_and_import_bit_for_bit(family: str, pieces: Path, tmp_path: Path) -> None:
    model = built(SPECS[family])
    exported(model, pieces, tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    spec, state = from_transformers(tmp_path / "theirs")
    again = weights(model)
    assert state.keys() == again.keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in again.items())
    assert spec.model == replace(
        model.spec.model, intermediate_size=spec.model.intermediate_size, init_std=spec.model.init_std
    )


def test_a_hidden_source_equals_a_decoder_mask_in_transformers(pieces: Path, tmp_path: Path) -> None:
    model, rng = built(spec_of(BART)), np.random.default_rng(2)
    oracle = exported(model, pieces, tmp_path)
    rows = [row | {"source_seen": rng.random(len(row["source_input_ids"])) < 0.6} for row in rows_of(BART)]
    theirs = collate_padded(rows, 14, pad=1)
    with torch.no_grad():
        read = oracle.model.encoder(theirs["source_input_ids"], attention_mask=inside(theirs, "source_").long())
        wanted = oracle_output(
            oracle, theirs, input_ids=None, encoder_outputs=read, attention_mask=theirs["source_seen"].long()
        )
        found = logits(model, collate_unpadded(rows))
    torch.testing.assert_close(found, wanted.logits[inside(theirs)], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "trunk",
    [
        replace(BART, scale_embedding=True),
        replace(T5, scale_embedding=True),
        replace(BART, position_embedding=Seq2SeqLearnedPositions(max_position_embeddings=18)),
        replace(BART, norm_eps=1e-12),
        MASS,
        replace(T5, tie_word_embeddings=False),
        replace(GATED_T5, activation="gelu"),
        replace(GATED_T5, scale_decoder_outputs=True, tie_word_embeddings=False),
        replace(PEGASUS, scale_embedding=False),
        replace(MBART, position_embedding=Seq2SeqLearnedPositions(max_position_embeddings=18, offset=1)),
        replace(MBART, norm_type="rmsnorm"),
        replace(PEGASUS, position_embedding=Seq2SeqLearnedPositions(max_position_embeddings=16)),
        replace(PEGASUS, embedding_norm=True),
        replace(PEGASUS, norm_position="post"),
    ],
)
def test_a_model_that_transformers_does_not_have_is_not_exported(
    trunk: EncoderDecoder, pieces: Path, tmp_path: Path
) -> None:
    model = built(spec_of(trunk))
    with pytest.raises(BadInput, match="transformers has no class for this encoder_decoder"):
        to_transformers(weights(model), model.spec, pieces, tmp_path)


@pytest.mark.parametrize(
    ("family", "change", "complaint"),
    [
        ("bart", {"decoder_layers": 3}, "invalid decoder_layers: got 3, expected 2"),
        ("bart", {"scale_embedding": True}, "invalid scale_embedding: got True"),
        ("t5", {"feed_forward_proj": "gated-tanh"}, "invalid feed_forward_proj: got 'gated-tanh'"),
        (
            "t5",
            {"feed_forward_proj": "gated-gelu"},
            "missing tensor encoder.block.0.layer.1.DenseReluDense.wi_0.weight",
        ),
        ("mbart", {"add_final_layer_norm": False}, "invalid add_final_layer_norm: got False"),
        ("mbart", {"normalize_embedding": False}, "invalid normalize_embedding: got False"),
        ("mbart", {"decoder_attention_heads": 2}, "invalid decoder_attention_heads: got 2, expected 4"),
        ("pegasus", {"scale_embedding": False}, "invalid scale_embedding: got False, expected True"),
        ("pegasus", {"static_position_embeddings": False}, "invalid static_position_embeddings: got False"),
        ("pegasus", {"activation_dropout": 0.1}, "invalid activation_dropout: got 0.1, expected 0.0"),
        ("pegasus", {"decoder_layers": 3}, "invalid decoder_layers: got 3, expected 2"),
    ],
)
def test_a_directory_of_an_unsupported_model_is_refused(
    family: str, change: dict[str, Any], complaint: str, pieces: Path, tmp_path: Path
) -> None:
    to_transformers(weights(built(SPECS[family])), SPECS[family], pieces, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(BadInput, match=complaint):
        from_transformers(tmp_path)


@pytest.mark.parametrize("family", ["bart", "mbart", "pegasus"])
def test_a_trained_bias_of_logits_is_refused(family: str, pieces: Path, tmp_path: Path) -> None:
    oracle = exported(built(SPECS[family]), pieces, tmp_path)
    oracle.final_logits_bias += 1
    oracle.save_pretrained(tmp_path)
    with pytest.raises(BadInput, match="final_logits_bias is not 0"):
        from_transformers(tmp_path)


# T5 and mT5: their config classes ignore tie_word_embeddings.


def test_t5_without_an_output_table_has_tied_tables(pieces: Path, tmp_path: Path) -> None:
    """T5's states are then scaled or not by the key that the class derives from tie_word_embeddings."""
    to_transformers(weights(built(SPECS["t5"])), SPECS["t5"], pieces, tmp_path)
    for tied in (True, False):
        config = json.loads((tmp_path / "config.json").read_text()) | {"tie_word_embeddings": tied}
        del config["scale_decoder_outputs"]
        (tmp_path / "config.json").write_text(json.dumps(config))
        spec, state = from_transformers(tmp_path)
        oracle = loaded(tmp_path)
        assert oracle.lm_head.weight is oracle.shared.weight
        trunk = spec.model
        assert isinstance(trunk, EncoderDecoder)
        assert trunk.tie_word_embeddings
        assert trunk.scale_decoder_outputs == oracle.config.scale_decoder_outputs == tied
        assert "trunk.output.weight" not in state
        config["scale_decoder_outputs"] = tied
        (tmp_path / "config.json").write_text(json.dumps(config))


def test_untied_mt5_is_read_with_its_own_output_table(pieces: Path, tmp_path: Path) -> None:
    model = built(spec_of(replace(GATED_T5, tie_word_embeddings=False)))
    to_transformers(weights(model), model.spec, pieces, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(
        json.dumps(config | {"model_type": "mt5", "architectures": ["MT5ForConditionalGeneration"]})
    )
    spec, state = from_transformers(tmp_path)
    assert torch.equal(state["trunk.output.weight"], weights(model)["trunk.output.weight"])
    again = Model(spec.model, spec.losses, spec.vocab_size, seed=0).eval()
    again.load_state_dict(state)
    assert_alike(again, loaded(tmp_path), FORMAT_OF["mt5"], rows_of(T5))


# PEGASUS.


def test_positions_of_pegasus_that_are_not_sinusoids_are_refused(pieces: Path, tmp_path: Path) -> None:
    oracle = exported(built(spec_of(PEGASUS)), pieces, tmp_path)
    oracle.model.decoder.embed_positions.weight.data[3, 5] += 0.1
    oracle.save_pretrained(tmp_path)
    with pytest.raises(BadInput, match=r"decoder\.embed_positions\.weight does not contain sinusoids"):
        from_transformers(tmp_path)


def test_positions_of_pegasus_equal_theirs_up_to_the_longest_sequence(pieces: Path, tmp_path: Path) -> None:
    """Their positions are computed in float64, ours in float32. At the end of a sequence of 512 tokens, this adds a
    difference of 3e-5."""
    model = built(spec_of(replace(PEGASUS, position_embedding=Seq2SeqSinusoidalPositions(max_position_embeddings=512))))
    oracle, rows = exported(model, pieces, tmp_path), rows_of(PEGASUS, [512, 300], [512, 512])
    table = oracle.model.encoder.embed_positions
    torch.testing.assert_close(table.weight.data, table.create_weight(), rtol=0, atol=4e-5)
    with torch.no_grad():
        wanted = oracle_output(oracle, collate_padded(rows, 512, pad=1)).logits[
            inside(collate_padded(rows, 512, pad=1))
        ]
        torch.testing.assert_close(logits(model, collate_unpadded(rows)), wanted, rtol=0, atol=1e-5)


@torch.no_grad()
def test_a_gap_sentence_example_has_the_same_loss_in_transformers(pieces: Path, tmp_path: Path) -> None:
    """Their class derives the decoder input from the labels: padding first, then the labels shifted right."""
    model, vocab, rng = built(spec_of(PEGASUS)), Vocab.load(pieces), np.random.default_rng(0)
    oracle, starts_S = exported(model, pieces, tmp_path), np.arange(15) % 3 == 0
    before = {
        "input_ids": rng.integers(5, 300, 15),
        "special_tokens_mask": np.zeros(15, bool),
        "sentence_starts": starts_S,
    }
    row = GapSentenceGeneration()(before, vocab, rng)
    score = model(collate_unpadded([row]))["next_token"]
    source, labels = (torch.from_numpy(row[name])[None].long() for name in ("source_input_ids", "labels"))
    torch.testing.assert_close(score.loss / score.count, oracle(source, labels=labels).loss, rtol=0, atol=1e-5)


def test_a_file_of_pegasus_without_positions_is_loaded(pieces: Path, tmp_path: Path) -> None:
    """Older versions of transformers save it this way."""
    model = built(spec_of(PEGASUS))
    to_transformers(weights(model), model.spec, pieces, tmp_path)
    tensors = safetensors.torch.load_file(tmp_path / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if name not in pegasus.TABLES}
    assert len(kept) == len(tensors) - 2
    safetensors.torch.save_file(kept, tmp_path / "model.safetensors")
    assert from_transformers(tmp_path)[1].keys() == weights(model).keys()


def test_keys_of_the_published_pegasus_are_read(pieces: Path, tmp_path: Path) -> None:
    """The keys of google/pegasus-large: dropout also inside its feed-forward layers, and some keys of older
    versions."""
    spec = spec_of(replace(PEGASUS, hidden_dropout=0.1, attention_dropout=0.1))
    oracle = exported(built(spec), pieces, tmp_path)
    assert (oracle.config.dropout, oracle.config.activation_dropout) == (0.1, 0.1)
    older = {
        "add_bias_logits": False,
        "extra_pos_embeddings": 1,
        "normalize_before": True,
        "normalize_embedding": False,
    }
    config = json.loads((tmp_path / "config.json").read_text()) | older
    assert (config["add_final_layer_norm"], config["static_position_embeddings"]) == (True, True)
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert from_transformers(tmp_path)[0].model == replace(spec.model, intermediate_size=128)


def test_a_missing_key_of_pegasus_has_the_default_of_its_class(pieces: Path, tmp_path: Path) -> None:
    to_transformers(weights(built(spec_of(PEGASUS))), spec_of(PEGASUS), pieces, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["scale_embedding"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadInput, match="invalid scale_embedding: got False, expected True"):
        from_transformers(tmp_path)
