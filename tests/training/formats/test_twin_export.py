"""ELECTRA's sizes have the published numbers of weights, and each of its two models computes the same in
transformers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from preprocessing import tokenization
from preprocessing.schema import IGNORE
from tests.training.architectures.test_generator_discriminator import LOSSES, SMALL, VOCAB, rows, scores_and_input, twin
from tests.training.batches import collate_padded, collate_unpadded
from tests.training.parity import hf
from training.architectures.layout import layout
from training.formats import half, load_weights, save_weights, to_transformers
from training.formats.electra import ELECTRA
from training.formats.load import from_transformers
from training.losses.heads.replaced_token_detection import original_ids
from training.model import Model
from training.specs import GeneratorDiscriminator

PUBLISHED = {  # discriminator trunk, discriminator with its head, both models with both heads (family.md B2.7)
    "small": (
        GeneratorDiscriminator(num_hidden_layers=12, hidden_size=256, num_attention_heads=4, embedding_size=128),
        13_483_008,
        13_549_057,
        14_196_219,
    ),
    "base": (
        GeneratorDiscriminator(
            num_hidden_layers=12, hidden_size=768, num_attention_heads=12, generator_size_ratio=1 / 3
        ),
        108_891_648,
        109_483_009,
        119_386_427,
    ),
    "large": (
        GeneratorDiscriminator(num_hidden_layers=24, hidden_size=1024, num_attention_heads=16),
        334_092_288,
        335_142_913,
        354_655_291,
    ),
}


@pytest.mark.parametrize("size", PUBLISHED)
def test_published_sizes_have_the_published_number_of_weights(size: str) -> None:
    trunk, body, with_head, joint = PUBLISHED[size]
    with torch.device("meta"):
        model = Model(trunk, LOSSES, 30_522, seed=0)
    kept, _ = half(dict(model.named_parameters()), model.spec, "discriminator")
    head = sum(tensor.numel() for name, tensor in kept.items() if name.startswith("heads."))
    total = sum(tensor.numel() for tensor in kept.values())
    assert (total - head, total, model.num_parameters) == (body, with_head, joint)


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vocab")
    tokenization.train(tokenization.WordPiece(vocab_size=VOCAB), ["The quick brown fox jumps over the lazy dog."]).save(
        folder
    )
    return folder


CLASSES = {"discriminator": "ElectraForPreTraining", "generator": "ElectraForMaskedLM"}
HALVES = [(trunk, which) for trunk in (SMALL, replace(SMALL, embedding_size=0)) for which in CLASSES]


@pytest.mark.parametrize(("trunk", "which"), HALVES)
def test_each_model_has_our_logits_losses_and_gradients_in_transformers(
    trunk: GeneratorDiscriminator, which: Any
) -> None:
    model = twin(trunk)
    state, spec = half(model.state_dict(), model.spec, which)
    config = ELECTRA.config(spec, vocab=None) | {
        "vocab_size": VOCAB,
        "pad_token_id": None,
        "attn_implementation": "eager",
    }
    oracle = getattr(hf(), CLASSES[which])(hf().ElectraConfig(**config))
    found = oracle.load_state_dict(ELECTRA.theirs(state, spec), strict=False)
    assert not found.unexpected_keys
    assert set(found.missing_keys) <= {"generator_lm_head.weight"}  # tied
    ours, theirs = collate_unpadded(rows()), collate_padded(rows(), 14)
    inside_BS = torch.arange(14) < theirs["lengths"][:, None]
    scores, read = scores_and_input(model, ours)
    labels_BS = torch.full((4, 14), IGNORE)
    if which == "generator":
        hidden = model.trunk.generator(model.trunk.embed(ours), layout(ours, "bidirectional"))
        head, kind, ids_T = model.heads["masked_tokens"], "masked_tokens", ours["input_ids"]
        logits = F.linear(head.features(hidden), model.trunk.table, head.bias)
        labels_BS.view(-1)[theirs["targets_at"]] = theirs["targets"]
    else:
        hidden = model.trunk.discriminator(model.trunk.embed(read), layout(read, "bidirectional"))
        kind, ids_T, logits = "replaced_token_detection", read["input_ids"], model.heads["replaced"].logits(hidden)
        labels_BS[inside_BS] = (ids_T != original_ids(ours)).long()
    ids_BS = torch.zeros(4, 14, dtype=torch.int64)
    ids_BS[inside_BS] = ids_T
    output = oracle.eval()(
        input_ids=ids_BS, attention_mask=inside_BS.long(), token_type_ids=theirs["token_type_ids"], labels=labels_BS
    )
    torch.testing.assert_close(logits, output.logits[inside_BS], rtol=0, atol=1e-5)
    found = scores[kind].loss / scores[kind].count
    torch.testing.assert_close(found, output.loss, rtol=0, atol=1e-5)
    found.backward()
    output.loss.backward()
    gradients = {name: w.grad for name, w in model.named_parameters() if w.grad is not None}
    mine = ELECTRA.theirs(half(gradients, model.spec, which)[0], spec)
    wanted = {name: w.grad for name, w in oracle.named_parameters() if w.grad is not None}
    assert mine.keys() == wanted.keys()
    for name, gradient in wanted.items():
        torch.testing.assert_close(mine[name], gradient, rtol=0, atol=1e-5, msg=name)


@pytest.mark.parametrize(("trunk", "which"), HALVES)
def test_weights_saved_by_transformers_survive_import_and_export_bit_for_bit(
    trunk: GeneratorDiscriminator, which: Any, tmp_path: Path
) -> None:
    spec = half({}, twin(trunk).spec, which)[1]
    config = ELECTRA.config(spec, vocab=None) | {"vocab_size": VOCAB}
    oracle = getattr(hf(), CLASSES[which])(hf().ElectraConfig(**config))
    with torch.no_grad():
        for tensor in oracle.parameters():
            tensor.normal_(0, 0.2, generator=torch.Generator().manual_seed(3))
    oracle.save_pretrained(tmp_path)
    came, state = from_transformers(tmp_path)
    assert came == replace(spec, model=replace(spec.model, intermediate_size=spec.model.inner_width))
    back = ELECTRA.theirs(state, came)
    assert back.keys() == dict(oracle.named_parameters()).keys()
    assert all(torch.equal(tensor, back[name]) for name, tensor in oracle.named_parameters())


def test_the_discriminator_of_electra_is_exported(words: Path, tmp_path: Path) -> None:
    model = twin()
    to_transformers(dict(model.named_parameters()), model.spec, words, tmp_path)
    _, info = hf().ElectraForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    _, back = from_transformers(tmp_path)
    kept, _ = half(model.state_dict(), model.spec, "discriminator")
    assert back.keys() == kept.keys()
    assert all(torch.equal(tensor, kept[name]) for name, tensor in back.items())


def test_both_models_are_saved_in_our_own_files(tmp_path: Path) -> None:
    model = twin()
    save_weights(dict(model.named_parameters()), model.spec, tmp_path)
    assert load_weights(tmp_path)[0] == model.spec
