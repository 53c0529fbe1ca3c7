"""Exports load by the Auto classes of transformers without a warning or log message."""

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from preprocessing.tokenization import ByteLevelBPE, Unigram, table_rows, train, vocab_from_file
from tests.family import recipe
from tests.training.formats import newer
from tests.training.parity import ONE_PAD, ZERO_PAD, hf, vocabulary
from training.formats import FORMATS, auto_class, describe_export, to_transformers, without_heads
from training.losses import MaskedTokens
from training.model import Model
from training.model_spec import ModelSpec

ONE_OF_EACH = {  # a recipe for each exported model type and each class of a type
    "albert": "albert_base",
    "bart": "bart_base",
    "bert": "bert_base",
    "bert, masked tokens only": "spanbert_base",
    "deberta-v2": "deberta_v3_base",
    "electra": "electra_small",
    "gpt2": "gpt2",
    "longformer": "longformer_base",
    "mbart": "mbart_large",
    "megatron-bert": "megatron_bert_345m",
    "openai-gpt": "gpt1",
    "opt": "opt_125m",
    "pegasus": "pegasus_base",
    "roberta": "roberta_base",
    "t5": "t5_base",
    "xlm": "xlm_mlm",
    "xlm, causal": "xlm_clm",
    "xlnet": "xlnet_base",
}


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Small vocabularies, whose padding is token 0 or 1."""
    texts = ["The quick brown fox jumps over the lazy dog.", "Pack my box with five dozen liquor jugs!"] * 4
    train(Unigram(vocab_size=44), texts).save(unigram := tmp_path_factory.mktemp("unigram"))
    return {
        "wordpiece": vocabulary(ZERO_PAD, tmp_path_factory.mktemp("wordpiece")),
        "byte_level_bpe": vocabulary(ONE_PAD, tmp_path_factory.mktemp("byte_level_bpe")),
        "unigram": unigram,
        "sentencepiece_bpe": unigram,
    }


@contextmanager
def assert_silent() -> Iterator[None]:
    """Fail if Python or the log of transformers has a warning."""
    actual: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: actual.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("transformers")
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    finally:
        logger.removeHandler(handler)
    assert actual == []


def exported(case: str, vocabularies: dict[str, Path], folder: Path, **more: Any) -> str:
    """Export a small model of the recipe, and return its class in transformers."""
    if case in newer.TRUNKS:
        spec, where = newer.make_spec(newer.TRUNKS[case], 310), vocabularies["byte_level_bpe"]
    else:
        one = recipe(ONE_OF_EACH[case], "tiny")
        spec = ModelSpec(model=one.model, losses=one.losses, vocab_size=table_rows(one.data.tokenizer))
        where = vocabularies[one.data.tokenizer.kind]
    model = Model(spec.model, spec.losses, spec.vocab_size, seed=0)
    to_transformers(dict(model.named_parameters()), spec, where, folder, **more)
    return describe_export(spec, 1 if where.name.startswith("byte") else 0).split(",")[0]


def test_every_exported_model_type_is_tested() -> None:
    tried = {case.split(",")[0] for case in ONE_OF_EACH}
    only_loaded = {"ernie", "xlm-roberta"}  # exported as BERT and RoBERTa
    assert tried | newer.TRUNKS.keys() | only_loaded == {format.model_type for format in FORMATS}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("case", [*ONE_OF_EACH, *newer.TRUNKS])
def test_the_model_with_its_heads_loads_silently(case: str, vocabularies: dict[str, Path], tmp_path: Path) -> None:
    architecture = exported(case, vocabularies, tmp_path)
    with assert_silent():
        net = getattr(hf(), auto_class(architecture)).from_pretrained(tmp_path)
        tokenizer = hf().AutoTokenizer.from_pretrained(tmp_path)
        tokenizer("The quick brown fox", "and the lazy dog", return_tensors="pt")
    assert type(net).__name__ == architecture


@pytest.mark.one_in(4)
@pytest.mark.parametrize("case", [*ONE_OF_EACH, *newer.TRUNKS])
def test_the_trunk_alone_loads_by_auto_model_silently(case: str, vocabularies: dict[str, Path], tmp_path: Path) -> None:
    architecture = exported(case, vocabularies, tmp_path, heads=False)
    with assert_silent():
        net, info = hf().AutoModel.from_pretrained(tmp_path, output_loading_info=True)
        hf().AutoTokenizer.from_pretrained(tmp_path)
    assert type(net).__name__ == without_heads(architecture)
    assert not any(info.values()), info


@pytest.mark.parametrize("case", ["gpt2", "openai-gpt", "opt", "t5", "bart", "mbart", "pegasus"])
def test_a_model_whose_heads_have_no_weights_loads_by_auto_model(
    case: str, vocabularies: dict[str, Path], tmp_path: Path
) -> None:
    exported(case, vocabularies, tmp_path)
    with assert_silent():
        hf().AutoModel.from_pretrained(tmp_path)


def test_an_imported_tokenizer_is_exported_unchanged(tmp_path: Path) -> None:
    theirs = Tokenizer(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    theirs.train_from_iterator(["A fox; a box!"], trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet))
    theirs.add_special_tokens(["<start>", "<end>", "<hole>", "<fill>"])
    (tmp_path / "theirs").mkdir()
    theirs.save(str(tmp_path / "theirs" / "tokenizer.json"))
    roles = {"cls_token": "<start>", "sep_token": "<end>", "mask_token": "<hole>", "pad_token": "<fill>"}
    (tmp_path / "theirs" / "tokenizer_config.json").write_text(json.dumps(roles))
    vocab_from_file(ByteLevelBPE(vocab_size=400, path=str(tmp_path / "theirs"))).save(tmp_path / "pieces")
    spec = ModelSpec(model=recipe("bert_base", "tiny").model, losses=(MaskedTokens(),), vocab_size=400)
    weights = dict(Model(spec.model, spec.losses, spec.vocab_size, seed=0).named_parameters())
    to_transformers(weights, spec, tmp_path / "pieces", tmp_path / "hf")
    with assert_silent():
        found = hf().AutoTokenizer.from_pretrained(tmp_path / "hf")
    text = "Two foxes <hole> and a box"
    assert found(text, add_special_tokens=False).input_ids == theirs.encode(text, add_special_tokens=False).ids
    assert {key: getattr(found, key) for key in roles} == roles
