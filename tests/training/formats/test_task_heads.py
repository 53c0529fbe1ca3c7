"""Fine-tuned models as directories of transformers: the logits of the Auto classes equal those of Sesame.

The tokenizer of the directory builds the same sequences from the same texts. Where no class computes the same, the
export is refused.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from torch import Tensor

from preprocessing.errors import BadInput
from preprocessing.schema import Row
from preprocessing.tokenization import ByteLevelBPE, Template, Unigram, Vocab, WordPiece, train, with_inserts
from tests.family import recipe
from tests.training.formats import newer
from tests.training.parity import hf
from training.finetuning import AnswerSpan, OptionChoice, RowLabel, RowValue, Target, TaskModel, TokenTag, outputs
from training.formats import (
    TaskWeights,
    auto_class,
    describe_task_export,
    task_from_transformers,
    task_to_transformers,
)
from training.formats.task_classes import TASK_KINDS
from training.model_spec import ModelSpec

FAMILIES: Final = {  # a recipe of each family, its classes: for rows, tokens, answers and choices; "": refused
    "bert_base": ("Bert", "Bert", "Bert", "Bert"),
    "spanbert_base": ("Bert", "Bert", "Bert", "Bert"),
    "roberta_base": ("Roberta", "Roberta", "Roberta", "Roberta"),
    "albert_base": ("Albert", "Albert", "Albert", "Albert"),
    "electra_base": ("Bert", "Electra", "Electra", "Bert"),
    "electra_small": ("Albert", "Electra", "Electra", "Albert"),
    "deberta_v3_base": ("DebertaV2", "DebertaV2", "DebertaV2", "DebertaV2"),
    "megatron_bert_345m": ("MegatronBert", "MegatronBert", "MegatronBert", "MegatronBert"),
    "longformer_base": ("Longformer", "", "", ""),
    "xlm_mlm": ("Bert", "Bert", "Bert", "Bert"),
    "xlm_clm": ("", "", "", ""),
    "xlnet_base": ("XLNet", "XLNet", "XLNet", "XLNet"),
    "gpt2": ("GPT2", "GPT2", "GPT2", ""),
    "opt_125m": ("OPT", "", "OPT", ""),
    "gpt1": ("OpenAIGPT", "", "", ""),
    "bart_base": ("", "", "", ""),
    "t5_base": ("", "", "", ""),
    "pegasus_base": ("", "", "", ""),
    "transformer_xl_base": ("", "", "", ""),
    "llama": ("", "Llama", "Llama", ""),
    "mistral": ("", "Mistral", "Mistral", ""),
    "qwen3": ("", "Qwen3", "Qwen3", ""),
    "gpt_neox": ("GPTNeoX", "GPTNeoX", "GPTNeoX", ""),
    "gptj": ("GPTJ", "", "GPTJ", ""),
    "mpt": ("", "Mpt", "Mpt", ""),
    "modernbert": ("", "", "", ""),
    "mt5": ("", "", "", ""),
}
NAMES: Final = ("no", "yes", "perhaps")
TARGETS: Final[Mapping[str, Target]] = {
    "row_label": RowLabel(classes=3),
    "row_value": RowValue(),
    "token_tag": TokenTag(classes=3),
    "answer_span": AnswerSpan(),
    "option_choice": OptionChoice(),
}
TEXTS: Final = ("The quick brown fox jumps over the lazy dog.", "Pack my box with five dozen liquor jugs!", "A fox.")


@cache
def vocab_of(kind: str) -> Vocab:
    specs = {
        "wordpiece": WordPiece(vocab_size=150),
        "byte_level_bpe": ByteLevelBPE(vocab_size=300, special_tokens="gpt2"),
        "roberta": ByteLevelBPE(vocab_size=300, special_tokens="roberta"),
        "unigram": Unigram(vocab_size=46),
    }
    return train(specs[kind], list(TEXTS) * 4)  # type: ignore[arg-type]


def spec_and_vocab(name: str) -> tuple[ModelSpec, Vocab]:
    """A small model of the recipe, and a small tokenizer with the special tokens of the recipe."""
    if name in newer.TRUNKS:
        vocab = vocab_of("roberta")
        return newer.make_spec(newer.TRUNKS[name], vocab.size), vocab
    one = recipe(name, "tiny")
    kind = one.data.tokenizer.kind
    kind = "roberta" if getattr(one.data.tokenizer, "special_tokens", "") == "roberta" else kind
    kind = {"sentencepiece_bpe": "unigram"}.get(
        kind, kind if kind in ("wordpiece", "roberta", "unigram") else "byte_level_bpe"
    )
    vocab = one.sampling.adapt_tokenizer(vocab_of(kind))
    model = replace(one.model, embedding_size=0) if name == "electra_base" else one.model
    return ModelSpec(model=model, losses=one.losses, vocab_size=vocab.size), vocab


def finetuned(name: str, kind: str) -> tuple[TaskWeights, Vocab, TaskModel]:
    """A model with random weights, and with random biases: zeros would hide an error."""
    spec, vocab = spec_and_vocab(name)
    inserts = 0
    if name == "gpt1":
        vocab, inserts = with_inserts(vocab, spec.vocab_size), 3
    model = TaskModel(spec.model, [TARGETS[kind]], spec.vocab_size + inserts, seed=1, new_rows=inserts).eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(torch.empty_like(tensor).normal_(0, 0.1, generator=generator))
    labels = {"row_label": NAMES, "row_value": ("score",), "token_tag": NAMES}.get(kind, ())
    weights = {key: tensor.detach() for key, tensor in model.named_parameters()}
    spec = replace(spec, vocab_size=spec.vocab_size + inserts)
    return TaskWeights(kind, spec, weights, tuple(labels)), vocab, model


def examples_of(kind: str, vocab: Vocab) -> list[list[Row]]:
    """The texts in the form of the fine-tuning loop; a question has three choices."""
    template = Template(vocab)
    rows = [template.row(text).columns() for text in TEXTS]
    if kind == "option_choice":
        rows = [template.row(TEXTS[0], text).columns() for text in TEXTS]
        return [[{**row, "option": np.asarray(at), "right": np.asarray(0)} for at, row in enumerate(rows)]]
    if kind == "token_tag":
        rows = [{**row, "labels": np.zeros(len(row["input_ids"]), np.int32)} for row in rows]
    more = {"label": np.asarray(0), "value": np.asarray(0.0, np.float32), "start": np.asarray(0), "stop": np.asarray(0)}
    needed = {"row_label": ["label"], "row_value": ["value"], "answer_span": ["start", "stop"]}.get(kind, [])
    return [[{**row, **{key: more[key] for key in needed}}] for row in rows]


def ours(kind: str, model: TaskModel, vocab: Vocab) -> list[Tensor]:
    """Our outputs for each text."""
    found: dict[int, Tensor] = {}
    for example in enumerate(examples_of(kind, vocab)):
        number, rows = example
        ((_, heads),) = outputs(model, [rows], torch.device("cpu"))
        found[number] = heads[kind]
    return [found[number] for number in sorted(found)]


def theirs(kind: str, net: Any, tokenizer: Any) -> list[Tensor]:
    """The outputs of transformers for the batch of all texts, with padding."""
    with torch.no_grad():
        if kind == "option_choice":
            batch = tokenizer([TEXTS[0]] * len(TEXTS), list(TEXTS), padding=True, return_tensors="pt")
            return [net(**{key: value[None] for key, value in batch.items()}).logits]
        batch = tokenizer(list(TEXTS), padding=True, return_tensors="pt")
        result = net(**batch)
        seen = batch["attention_mask"].bool()
        if kind == "answer_span":
            both = torch.stack([result.start_logits, result.end_logits], -1)
            return [one[mask][None] for one, mask in zip(both, seen, strict=True)]
        if kind == "token_tag":
            return [one[mask] for one, mask in zip(result.logits, seen, strict=True)]
        return [one[None] if kind == "row_label" else one for one in result.logits]


def their_model(folder: Path) -> tuple[Any, Any]:
    """The model of the Auto class and the tokenizer; no tensor is missing or superfluous."""
    name = json.loads((folder / "config.json").read_text())["architectures"][0]
    auto = getattr(hf(), auto_class(name))
    net, info = auto.from_pretrained(folder, output_loading_info=True)
    assert type(net).__name__ == name
    assert not any(info.values()), info
    return net.eval(), hf().AutoTokenizer.from_pretrained(folder)


CASES: Final = [
    (name, kind, classes[{"row_label": 0, "row_value": 0, "token_tag": 1, "answer_span": 2, "option_choice": 3}[kind]])
    for name, classes in FAMILIES.items()
    for kind in TASK_KINDS
]


@pytest.mark.one_in(5)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "kind", "family"), [case for case in CASES if case[2]])
def test_logits_are_those_of_transformers(name: str, kind: str, family: str, tmp_path: Path) -> None:
    task, vocab, model = finetuned(name, kind)
    architecture = task_to_transformers(task, vocab, tmp_path)
    assert architecture == describe_task_export(task.spec, vocab.pad, kind)
    assert architecture.startswith(f"{family}For")
    net, tokenizer = their_model(tmp_path)
    saved = Vocab.load(tmp_path)
    for text in TEXTS:
        assert (
            tokenizer(text)["input_ids"]
            == Template(saved).row(text).ids.tolist()
            == Template(vocab).row(text).ids.tolist()
        )
    expected = ours(kind, model, vocab)
    for one, other in zip(expected, theirs(kind, net, tokenizer), strict=True):
        torch.testing.assert_close(other, one, atol=1e-5, rtol=1e-5)
    assert_reloads(tmp_path, task, expected, saved)


def assert_reloads(folder: Path, task: TaskWeights, expected: Sequence[Tensor], vocab: Vocab) -> None:
    """The directory gives the same outputs, kind and labels when Sesame loads it."""
    again = task_from_transformers(folder)
    assert (again.kind, again.labels) == (task.kind, task.labels)
    model = TaskModel(again.spec.model, [TARGETS[task.kind]], again.spec.vocab_size, seed=7)
    missing = [key for key, _ in model.named_parameters() if key not in again.weights]
    assert not missing
    with torch.no_grad():
        for key, tensor in model.named_parameters():
            tensor.copy_(again.weights[key])
    for one, other in zip(expected, ours(task.kind, model, vocab), strict=True):
        torch.testing.assert_close(other, one, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize(("name", "kind"), [case[:2] for case in CASES if not case[2]])
def test_a_head_without_an_equal_class_is_refused(name: str, kind: str) -> None:
    spec, vocab = spec_and_vocab(name)
    with pytest.raises(BadInput, match=r"no class of transformers computes the same as this [a-z_]+: .+") as refused:
        describe_task_export(spec, vocab.pad, kind)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id2label": ["a", "b"]}, r"config\.json: is damaged \('list' object"),
        ({"id2label": {"zero": "a", "one": "b"}}, r"config\.json: is damaged \(invalid literal"),
        ({"num_labels": "two"}, r"config\.json: is damaged \(invalid literal"),
        (
            {"id2label": {"0": "a", "1": "b", "2": "c", "3": "d"}},
            r"its head has [23] outputs, expected 4 for the row_label",
        ),
    ],
)
def test_labels_in_config_json_that_do_not_fit_are_refused(
    change: dict[str, object], message: str, tmp_path: Path
) -> None:
    task, vocab, _ = finetuned("bert_base", "row_label")
    task_to_transformers(task, vocab, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(BadInput, match=message) as refused:
        task_from_transformers(tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.filterwarnings("ignore")
def test_the_tokenizer_truncates_to_the_length_of_the_fine_tuning(tmp_path: Path) -> None:
    task, vocab, _ = finetuned("bert_base", "row_label")
    task_to_transformers(task, vocab, tmp_path, length=8)
    _, tokenizer = their_model(tmp_path)
    row = Template(vocab, 8).row("the film is good " * 9)
    assert tokenizer("the film is good " * 9, truncation=True)["input_ids"] == row.ids.tolist()
    assert len(row.ids) == 8


def test_labels_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    task, vocab, _ = finetuned("bert_base", "row_label")
    names = tuple(f"label {12 - number}" for number in range(12))
    head = {name: torch.zeros(12, *weight.shape[1:]) for name, weight in task.weights.items() if ".classify." in name}
    task_to_transformers(replace(task, weights={**task.weights, **head}, labels=names), vocab, tmp_path)
    assert tuple(json.loads((tmp_path / "config.json").read_text())["id2label"].values()) == names
    assert task_from_transformers(tmp_path).labels == names
