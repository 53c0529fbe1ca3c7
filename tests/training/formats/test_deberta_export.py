"""DeBERTa in transformers: the discriminator with its own tables, files of the authors, and misfits."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from preprocessing.errors import BadInput
from preprocessing.tokenization import Vocab
from tests.training.architectures.test_disentangled import ENCODER, TWIN
from tests.training.architectures.test_generator_discriminator import LOSSES
from tests.training.batches import collate_padded, random_rows
from tests.training.formats.logits import our_logits, their_logits
from tests.training.parity import ZERO_PAD, built, inside, loaded, vocabulary, weights
from training.formats import (
    TaskWeights,
    describe_export,
    half,
    task_from_transformers,
    task_to_transformers,
    to_transformers,
)
from training.formats.load import from_transformers
from training.formats.start import load_init_checkpoint
from training.losses import MaskedTokens, ReplacedTokenDetection
from training.model import Model
from training.model_spec import ModelSpec
from training.specs import GatedAttention, GatedFeedForward, LearnedPositions

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


def test_the_head_of_the_discriminator_is_left_out_and_named() -> None:
    described = (
        "DebertaV2Model, without its replaced_token_detection head (transformers has no DeBERTa with such a head)"
    )
    assert describe_export(BOTH, pad=0) == described
    adds = replace(BOTH, losses=(MaskedTokens(), ReplacedTokenDetection(add_first_state=True)))
    assert describe_export(adds, pad=0) == described
    generator = half({}, BOTH, "generator")[1]
    assert describe_export(generator, pad=0) == "DebertaV2ForMaskedLM"


def test_an_electra_with_tables_of_differences_is_exported_with_their_sum(words: Path, tmp_path: Path) -> None:
    positions = LearnedPositions(max_position_embeddings=16)
    spec = replace(BOTH, model=replace(TWIN, position_embedding=positions, type_vocab_size=2))
    model = built(spec)
    to_transformers(weights(model), spec, words, tmp_path)
    oracle = loaded(tmp_path)
    assert type(oracle).__name__ == "ElectraForPreTraining"
    for found, wanted in zip(our_logits(model), their_logits(oracle), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)


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


def test_a_model_without_buckets_or_scores_of_positions_is_refused(words: Path, tmp_path: Path) -> None:
    """The defaults of the class are those of another model."""
    write_changed(tmp_path, words)
    config = json.loads((tmp_path / "config.json").read_text())
    for key in ("position_buckets", "pos_att_type"):
        shorter = {name: value for name, value in config.items() if name != key}
        (tmp_path / "config.json").write_text(json.dumps(shorter))
        with pytest.raises(BadInput, match=rf"config.json: unsupported model \(invalid .*{key}: got "):
            from_transformers(tmp_path)


def test_a_task_head_with_another_pooler_is_refused(words: Path, tmp_path: Path) -> None:
    """Most fine-tuned models of others have a GELU there, whose logits Sesame's tanh would change."""
    vocab = Vocab.load(words)
    trunk = {name: tensor for name, tensor in weights(built(MASKED)).items() if name.startswith("trunk.")}
    generator = torch.Generator().manual_seed(0)
    head = {
        f"heads.row_label.{name}": torch.randn(shape, generator=generator)
        for name, shape in {
            "summary.pooler.weight": (32, 32),
            "summary.pooler.bias": (32,),
            "classify.weight": (2, 32),
            "classify.bias": (2,),
        }.items()
    }
    task_to_transformers(TaskWeights("row_label", MASKED, trunk | head, ("no", "yes")), vocab, tmp_path)
    back = task_from_transformers(tmp_path).weights
    assert all(torch.equal(back[name], tensor) for name, tensor in head.items())
    config = json.loads((tmp_path / "config.json").read_text())
    for changed in (config | {"pooler_hidden_act": "gelu"}, {**config, "pooler_hidden_act": None}):
        (tmp_path / "config.json").write_text(json.dumps(changed))
        with pytest.raises(BadInput, match=r"invalid pooler_hidden_act: got .*, expected 'tanh'"):
            task_from_transformers(tmp_path)


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
        {"embedding_norm": False},
        {"feed_forward": GatedFeedForward()},
        {"attention": GatedAttention()},
    ],
    ids=str,
)
def test_models_that_the_class_cannot_express_are_not_exported(
    keys: dict[str, Any], words: Path, tmp_path: Path
) -> None:
    spec = replace(MASKED, model=replace(ENCODER, **keys))
    with pytest.raises(BadInput, match="transformers has no class for this encoder"):
        to_transformers(weights(built(spec)), spec, words, tmp_path)
