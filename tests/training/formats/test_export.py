"""Directories of transformers: equal logits in both directions, and misfits are refused."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor
from torch.nn import functional as F

from preprocessing import tokenization
from preprocessing.errors import BadInput
from tests.training.batches import collate_padded, collate_unpadded, random_rows
from tests.training.parity import ONE_PAD, ZERO_PAD, built, hf, inside, labels_of, loaded, randomized, vocabulary
from training.formats import to_transformers
from training.formats.load import from_transformers
from training.losses import MaskedTokens, NextToken, SentencePair
from training.model import Model
from training.model_spec import ModelSpec
from training.specs import Decoder, DisentangledPositions, Encoder, LearnedPositions, SlidingWindow

STILL: dict[str, Any] = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "init_std": 0.2}
ENCODER = Encoder(
    num_hidden_layers=2,
    hidden_size=32,
    num_attention_heads=4,
    position_embedding=LearnedPositions(max_position_embeddings=16),
    **STILL,
)
DECODER = Decoder(
    num_hidden_layers=2,
    hidden_size=32,
    num_attention_heads=4,
    position_embedding=LearnedPositions(max_position_embeddings=16),
    **STILL,
)
ROBERTA = replace(
    ENCODER, position_embedding=LearnedPositions(max_position_embeddings=18, offset=2), type_vocab_size=1, norm_eps=1e-5
)
DEBERTA = replace(
    ENCODER,
    position_embedding=DisentangledPositions(position_buckets=4, max_relative_positions=8),
    type_vocab_size=0,
    norm_eps=1e-7,
)
BERT_LOSSES = (MaskedTokens(), SentencePair())
TABLE = 320  # rows of the embedding table, more than any tokenizer here has tokens
RAGGED = [5, 12, 1, 7]
VOCABS = {
    "bert": ZERO_PAD,
    "deberta": ZERO_PAD,
    "roberta": ONE_PAD,
    "gpt2": tokenization.ByteLevelBPE(vocab_size=300),
}
SPECS = {
    "bert": ModelSpec(model=ENCODER, losses=BERT_LOSSES, vocab_size=TABLE),
    "roberta": ModelSpec(model=ROBERTA, losses=(MaskedTokens(),), vocab_size=TABLE),
    "deberta": ModelSpec(model=DEBERTA, losses=(MaskedTokens(),), vocab_size=TABLE),
    "gpt2": ModelSpec(model=DECODER, losses=(NextToken(),), vocab_size=TABLE),
}
CLASSES = {
    "bert": "BertForPreTraining",
    "roberta": "RobertaForMaskedLM",
    "deberta": "DebertaV2ForMaskedLM",
    "gpt2": "GPT2LMHeadModel",
}


@pytest.fixture(scope="module")
def vocabs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A directory with a small vocabulary for each family."""
    folders = {}
    for family, spec in VOCABS.items():
        folders[family] = vocabulary(spec, tmp_path_factory.mktemp(family))
    return folders


def batches(spec: ModelSpec, lengths: list[int], length: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The same random sequences unpadded and padded with token 1. No ID is 1, because RoBERTa's positions skip it."""
    rows = [
        row
        | {
            "input_ids": row["input_ids"] + 2,
            "token_type_ids": row["token_type_ids"] * (spec.model.type_vocab_size > 1),
        }
        for row in random_rows(lengths, spec.vocab_size - 2)
    ]
    return collate_unpadded(rows), collate_padded(rows, length, pad=1)


def our_logits(model: Model, batch: dict[str, Tensor]) -> list[Tensor]:
    """Logits over the vocabulary at each token, and the pair logits of each sequence, of an unpadded batch."""
    hidden_TD, heads, logits = model.trunk(batch), model.heads, []
    if "masked_tokens" in heads:
        features_TD = heads["masked_tokens"].features(hidden_TD)
        logits.append(F.linear(features_TD, model.trunk.tokens.weight, heads["masked_tokens"].bias))
    if "next_token" in heads:
        logits.append(F.linear(hidden_TD, model.trunk.tokens.weight))
    if "pair_label" in heads:
        logits.append(heads["pair_label"].logits(hidden_TD[batch["first_at"]]))
    return logits


def oracle_output(oracle: Any, batch: dict[str, Tensor], **labels: Tensor) -> Any:
    """The output of transformers for a padded batch."""
    if oracle.config.model_type != "gpt2":
        labels["token_type_ids"] = batch["token_type_ids"]
    return oracle(input_ids=batch["input_ids"], attention_mask=inside(batch).long(), **labels)


def their_logits(oracle: Any, batch: dict[str, Tensor]) -> list[Tensor]:
    """Their logits at the real tokens, and the pair logits of each sequence if the model has a pair head."""
    output = oracle_output(oracle, batch)
    if isinstance(oracle, hf().BertForPreTraining):
        return [output.prediction_logits[inside(batch)], output.seq_relationship_logits]
    return [output.logits[inside(batch)]]


def assert_same_logits(model: Model, oracle: Any, lengths: list[int], length: int) -> None:
    ours, theirs = batches(model.spec, lengths, length)
    with torch.no_grad():
        torch.testing.assert_close(our_logits(model, ours), their_logits(oracle, theirs), rtol=0, atol=1e-5)


# Equal logits in both directions.


@pytest.mark.parametrize("family", SPECS)
def test_an_exported_model_has_our_logits_in_transformers(family: str, vocabs: dict[str, Path], tmp_path: Path) -> None:
    model = built(SPECS[family])
    to_transformers(model.state_dict(), model.spec, vocabs[family], tmp_path)
    assert_same_logits(model, loaded(tmp_path), RAGGED, 14)


@pytest.mark.parametrize("family", SPECS)
def test_a_model_of_transformers_has_the_same_logits_here(family: str, vocabs: dict[str, Path], tmp_path: Path) -> None:
    to_transformers(built(SPECS[family]).state_dict(), SPECS[family], vocabs[family], tmp_path / "config")
    config = hf().AutoConfig.from_pretrained(tmp_path / "config", attn_implementation="eager")
    oracle = getattr(hf(), CLASSES[family])(config).eval()
    randomized(oracle)
    oracle.save_pretrained(tmp_path / "theirs")
    spec, state = from_transformers(tmp_path / "theirs")
    model = Model(spec.model, spec.losses, spec.vocab_size, seed=0).eval()
    model.load_state_dict(state)
    assert_same_logits(model, oracle, RAGGED, 14)


def test_loss_and_gradients_of_bert_equal_those_of_transformers(vocabs: dict[str, Path], tmp_path: Path) -> None:
    model = built(SPECS["bert"])
    to_transformers(model.state_dict(), model.spec, vocabs["bert"], tmp_path)
    oracle = loaded(tmp_path)
    ours, theirs = batches(model.spec, RAGGED, 14)
    wanted = oracle_output(
        oracle, theirs, labels=labels_of(theirs), next_sentence_label=theirs["next_sentence_label"]
    ).loss
    found = sum(score.loss / score.count for score in model(ours).values())
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=0)
    wanted.backward()
    found.backward()
    theirs_by_name = dict(oracle.named_parameters())
    table = theirs_by_name["bert.embeddings.word_embeddings.weight"].grad
    torch.testing.assert_close(model.trunk.tokens.weight.grad, table, rtol=0, atol=1e-5)
    query = theirs_by_name["bert.encoder.layer.0.attention.self.query.weight"].grad
    torch.testing.assert_close(model.trunk.blocks[0].attention.qkv.weight.grad[:32], query, rtol=0, atol=1e-5)
    pooler = theirs_by_name["bert.pooler.dense.weight"].grad
    torch.testing.assert_close(model.heads["pair_label"].pooler.weight.grad, pooler, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("family", SPECS)
def test_base_size_has_the_same_logits_in_both_directions(family: str, vocabs: dict[str, Path], tmp_path: Path) -> None:
    size: dict[str, Any] = {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "init_std": 0.02}
    base = {
        "bert": ModelSpec(
            model=replace(ENCODER, position_embedding=LearnedPositions(max_position_embeddings=512), **size),
            losses=BERT_LOSSES,
            vocab_size=30_522,
        ),
        "roberta": ModelSpec(
            model=replace(ROBERTA, position_embedding=LearnedPositions(max_position_embeddings=514, offset=2), **size),
            losses=(MaskedTokens(),),
            vocab_size=50_265,
        ),
        "deberta": ModelSpec(
            model=replace(
                DEBERTA,
                position_embedding=DisentangledPositions(position_buckets=256, max_relative_positions=512),
                **size,
            ),
            losses=(MaskedTokens(),),
            vocab_size=128_100,
        ),
        "gpt2": ModelSpec(
            model=replace(DECODER, position_embedding=LearnedPositions(max_position_embeddings=1024), **size),
            losses=(NextToken(),),
            vocab_size=50_257,
        ),
    }[family]
    model = Model(base.model, base.losses, base.vocab_size, seed=0).eval()
    to_transformers(model.state_dict(), base, vocabs[family], tmp_path)
    oracle = loaded(tmp_path)
    assert_same_logits(model, oracle, [128, 60], 128)
    oracle.save_pretrained(tmp_path / "again")
    spec, state = from_transformers(tmp_path / "again")
    assert spec.model == replace(base.model, intermediate_size=3072)
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


# The exported files.


@pytest.mark.parametrize("family", SPECS)
def test_exported_weights_are_imported_bit_for_bit(family: str, vocabs: dict[str, Path], tmp_path: Path) -> None:
    model = built(SPECS[family])
    to_transformers(model.state_dict(), model.spec, vocabs[family], tmp_path)
    spec, state = from_transformers(tmp_path)
    assert spec == replace(model.spec, model=replace(model.spec.model, intermediate_size=128))
    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("family", SPECS)
def test_a_tied_table_is_stored_once(family: str, vocabs: dict[str, Path], tmp_path: Path) -> None:
    model = built(SPECS[family])
    to_transformers(model.state_dict(), model.spec, vocabs[family], tmp_path)
    tensors = safetensors.torch.load_file(tmp_path / "model.safetensors")
    assert sum(tensor.numel() for tensor in tensors.values()) == model.num_parameters


@pytest.mark.parametrize("family", SPECS)
def test_the_exported_tokenizer_gives_our_ids(family: str, vocabs: dict[str, Path], tmp_path: Path) -> None:
    to_transformers(built(SPECS[family]).state_dict(), SPECS[family], vocabs[family], tmp_path)
    theirs, ours = hf().AutoTokenizer.from_pretrained(tmp_path), tokenization.Vocab.load(vocabs[family])
    text = "The lazy fox; five jugs!"
    assert theirs(text, add_special_tokens=False).input_ids == ours.encode(text)
    assert [theirs.mask_token_id, theirs.pad_token_id, theirs.eos_token_id] == [ours.mask, ours.pad, ours.sep]


@pytest.mark.parametrize("family", SPECS)
def test_the_exported_model_accepts_the_output_of_the_exported_tokenizer(
    family: str, vocabs: dict[str, Path], tmp_path: Path
) -> None:
    model = built(SPECS[family])
    to_transformers(model.state_dict(), model.spec, vocabs[family], tmp_path)
    given = hf().AutoTokenizer.from_pretrained(tmp_path)("A fox", "my dog", return_tensors="pt")
    output = loaded(tmp_path)(**given)
    ids_S = given["input_ids"][0]
    ours = {
        "input_ids": ids_S,
        "positions": torch.arange(len(ids_S)),
        "token_type_ids": given["token_type_ids"][0] if family == "bert" else torch.zeros_like(ids_S),
        "lengths": torch.tensor([len(ids_S)]),
        "first_at": torch.tensor([0]),
    }
    torch.testing.assert_close(our_logits(model, ours)[0], output[0][0], rtol=0, atol=1e-5)


def test_bert_without_a_pair_head_becomes_bert_for_masked_lm(vocabs: dict[str, Path], tmp_path: Path) -> None:
    model = built(replace(SPECS["bert"], losses=(MaskedTokens(),)))
    to_transformers(model.state_dict(), model.spec, vocabs["bert"], tmp_path)
    oracle = hf().AutoModelForMaskedLM.from_pretrained(tmp_path, attn_implementation="eager")
    assert isinstance(oracle, hf().BertForMaskedLM)
    assert_same_logits(model, oracle.eval(), RAGGED, 14)


def test_an_offset_of_positions_that_differs_from_roberta_is_exported_as_bert(
    vocabs: dict[str, Path], tmp_path: Path
) -> None:
    model = built(
        replace(
            SPECS["bert"],
            model=replace(ENCODER, position_embedding=LearnedPositions(max_position_embeddings=18, offset=2)),
        )
    )
    to_transformers(model.state_dict(), model.spec, vocabs["bert"], tmp_path)
    assert_same_logits(model, loaded(tmp_path), RAGGED, 14)


@pytest.mark.parametrize("activation", ["gelu_tanh", "relu"])
def test_other_activations_are_exported(activation: Any, vocabs: dict[str, Path], tmp_path: Path) -> None:
    model = built(replace(SPECS["bert"], model=replace(ENCODER, activation=activation)))
    to_transformers(model.state_dict(), model.spec, vocabs["bert"], tmp_path)
    assert_same_logits(model, loaded(tmp_path), RAGGED, 14)


@pytest.mark.parametrize(
    "spec",
    [
        replace(SPECS["bert"], model=replace(ENCODER, norm_position="pre", embedding_size=16)),
        replace(SPECS["bert"], model=replace(ENCODER, type_vocab_size=0)),
        replace(SPECS["bert"], model=replace(ENCODER, attention_window=SlidingWindow(size=4))),
        replace(SPECS["bert"], losses=(SentencePair(),)),
        replace(SPECS["gpt2"], model=replace(DECODER, norm_position="post", intermediate_size=64)),
        replace(SPECS["gpt2"], losses=(MaskedTokens(),)),
    ],
)
def test_a_model_that_transformers_does_not_have_is_refused(
    spec: ModelSpec, vocabs: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match="transformers has no"):
        to_transformers(built(spec).state_dict(), spec, vocabs["bert"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("family", SPECS)
def test_fewer_layers_than_in_the_files_are_refused(family: str, vocabs: dict[str, Path], tmp_path: Path) -> None:
    model = built(SPECS[family])
    to_transformers(dict(model.named_parameters()), model.spec, vocabs[family], tmp_path)
    from_transformers(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    key = "num_hidden_layers" if "num_hidden_layers" in config else "n_layer"
    (tmp_path / "config.json").write_text(json.dumps(config | {key: 1}))
    stacks = {name: f"{name}.encoder.layer." for name in ("bert", "roberta", "deberta")} | {"gpt2": "transformer.h."}
    stack = stacks[family]
    message = f"config.json: invalid number of layers: got 1, expected 2, the number of layers {stack}* in the files; "
    with pytest.raises(BadInput, match=re.escape(message)):
        from_transformers(tmp_path)


def test_a_vocabulary_larger_than_the_table_is_refused(vocabs: dict[str, Path], tmp_path: Path) -> None:
    size = tokenization.Vocab.load(vocabs["roberta"]).size
    spec = replace(SPECS["roberta"], vocab_size=size - 1)
    with pytest.raises(BadInput, match=f"{size} tokens, but the embedding table has {size - 1} rows"):
        to_transformers(built(spec).state_dict(), spec, vocabs["roberta"], tmp_path)


# Directories from elsewhere.


def rewrite(folder: Path, rename: Any = lambda name: name, **config: Any) -> None:
    """Rename the tensors, and change keys of config.json."""
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    safetensors.torch.save_file(
        {rename(name): tensor for name, tensor in tensors.items()}, folder / "model.safetensors"
    )
    content = json.loads((folder / "config.json").read_text()) | config
    (folder / "config.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("family", "rename"),
    [
        (
            "bert",
            lambda name: name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
                "LayerNorm.bias", "LayerNorm.beta"
            ),
        ),
        ("gpt2", lambda name: name.removeprefix("transformer.")),
    ],
)
def test_names_of_the_first_published_weights_are_converted(
    family: str, rename: Any, vocabs: dict[str, Path], tmp_path: Path
) -> None:
    model = built(SPECS[family])
    to_transformers(model.state_dict(), model.spec, vocabs[family], tmp_path)
    rewrite(tmp_path, rename)
    _, state = from_transformers(tmp_path)
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "mamba"}, "invalid model_type: got 'mamba', expected one of"),
        ({"is_decoder": True}, "invalid is_decoder: got True, expected False"),
        ({"hidden_act": "swish"}, "unsupported model"),
        ({"num_attention_heads": 5}, "invalid model.num_attention_heads: got 5, expected a divisor of hidden_size 32"),
        ({"num_hidden_layers": 3}, "missing tensor bert.encoder.layer.2"),
        ({"vocab_size": 319}, r"got \[320, 32\], expected \[319, 32\] from config.json"),
    ],
)
def test_an_incompatible_directory_is_refused_in_one_line(
    config: dict[str, Any], message: str, vocabs: dict[str, Path], tmp_path: Path
) -> None:
    to_transformers(built(SPECS["bert"]).state_dict(), SPECS["bert"], vocabs["bert"], tmp_path)
    rewrite(tmp_path, **config)
    with pytest.raises(BadInput, match=message) as refused:
        from_transformers(tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_missing_or_garbled_file_is_refused(name: str, vocabs: dict[str, Path], tmp_path: Path) -> None:
    to_transformers(built(SPECS["bert"]).state_dict(), SPECS["bert"], vocabs["bert"], tmp_path)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-100])
    with pytest.raises(BadInput, match=name):
        from_transformers(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(BadInput, match=f"{name}: No such file"):
        from_transformers(tmp_path)
