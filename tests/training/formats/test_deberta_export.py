"""DeBERTa in transformers: the discriminator with its own tables, files of the authors, and misfits."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from preprocessing.errors import BadInput
from tests.training.architectures.test_disentangled import ENCODER, TWIN
from tests.training.architectures.test_generator_discriminator import LOSSES
from tests.training.batches import collate_padded, random_rows
from tests.training.parity import ZERO_PAD, built, inside, loaded, vocabulary, weights
from training.formats import to_transformers
from training.formats.load import from_transformers
from training.formats.start import load_init_checkpoint
from training.losses import MaskedTokens
from training.model import Model
from training.model_spec import ModelSpec

MASKED = ModelSpec(model=ENCODER, losses=(MaskedTokens(),), vocab_size=120)
BOTH = ModelSpec(model=TWIN, losses=LOSSES, vocab_size=120)


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vocabulary(ZERO_PAD, tmp_path_factory.mktemp("vocab"))


def test_the_discriminator_is_exported_with_the_sum_of_its_tables(words: Path, tmp_path: Path) -> None:
    model = built(BOTH)
    to_transformers(weights(model), BOTH, words, tmp_path)
    theirs, padded = loaded(tmp_path), collate_padded(random_rows([9, 3], 100), 9)
    assert type(theirs).__name__ == "DebertaV2Model"
    table = model.trunk.tokens.weight + model.trunk.difference.tokens.weight
    assert torch.equal(theirs.embeddings.word_embeddings.weight, table)
    with torch.no_grad():
        wanted = theirs(input_ids=padded["input_ids"], attention_mask=inside(padded).long()).last_hidden_state
        found = model.trunk(padded)
    torch.testing.assert_close(found[inside(padded)], wanted[inside(padded)], rtol=0, atol=1e-5)


def test_a_run_starts_with_a_model_of_transformers(words: Path, tmp_path: Path) -> None:
    model = built(MASKED)
    to_transformers(weights(model), MASKED, words, tmp_path)
    started = Model(MASKED.model, MASKED.losses, MASKED.vocab_size, seed=7)
    load_init_checkpoint(started, tmp_path)
    assert all(torch.equal(started.get_parameter(name), weight) for name, weight in weights(model).items())
    fewer = replace(ENCODER, position_embedding=replace(ENCODER.position_embedding, max_relative_positions=32))
    with pytest.raises(BadInput, match=r"model.position_embedding.max_relative_positions: got 32, expected 16"):
        load_init_checkpoint(Model(fewer, MASKED.losses, MASKED.vocab_size, seed=7), tmp_path)


def write_changed(folder: Path, words: Path, **keys: Any) -> ModelSpec:
    """Export a model, and change keys of its config.json."""
    to_transformers(weights(built(MASKED)), MASKED, words, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | keys))
    return MASKED


def test_files_of_the_authors_are_read(words: Path, tmp_path: Path) -> None:
    """Their config.json has the terms in one text, and no maximum; their head has other names."""
    keys = {"pos_att_type": "p2c|c2p", "max_relative_positions": -1, "max_position_embeddings": 16, "legacy": False}
    spec = write_changed(tmp_path, words, **keys)
    tensors = safetensors.torch.load_file(tmp_path / "model.safetensors")
    renamed = {
        name.replace("cls.predictions.transform.", "lm_predictions.lm_head.").replace(
            "cls.predictions.", "lm_predictions.lm_head."
        ): tensor
        for name, tensor in tensors.items()
    }
    assert renamed.keys() != tensors.keys()
    renamed["mask_predictions.dense.weight"] = torch.zeros(32, 32)  # the head of their discriminator
    safetensors.torch.save_file(renamed, tmp_path / "model.safetensors", {"format": "pt"})
    found, state = from_transformers(tmp_path)
    assert found == replace(spec, model=replace(spec.model, intermediate_size=128, init_method="normal", init_std=0.2))
    assert all(torch.equal(state[name], weight) for name, weight in weights(built(MASKED)).items())


@pytest.mark.parametrize(
    "keys",
    [
        {"relative_attention": False},
        {"position_biased_input": True},
        {"share_att_key": False},
        {"norm_rel_ebd": "none"},
        {"pos_att_type": "c2p"},
        {"conv_kernel_size": 3},
        {"embedding_size": 16},
        {"position_buckets": -1},
        {"hidden_act": "tanh"},
    ],
    ids=str,
)
def test_other_models_of_this_type_are_refused(keys: dict[str, Any], words: Path, tmp_path: Path) -> None:
    write_changed(tmp_path, words, **keys)
    with pytest.raises(BadInput, match=r"config.json: unsupported model"):
        from_transformers(tmp_path)


@pytest.mark.parametrize(
    "keys",
    [
        {"norm_position": "pre"},
        {"bias": False},
        {"norm_type": "rmsnorm"},
        {"parameter_sharing": "all"},
        {"embedding_size": 16},
        {"head_dim": 4},
        {"num_languages": 2},
        {"tie_word_embeddings": False},
    ],
    ids=str,
)
def test_models_that_the_class_cannot_express_are_not_exported(
    keys: dict[str, Any], words: Path, tmp_path: Path
) -> None:
    spec = replace(MASKED, model=replace(ENCODER, **keys))
    with pytest.raises(BadInput, match="transformers has no class for this encoder"):
        to_transformers(weights(built(spec)), spec, words, tmp_path)
