"""Trainer of transformers trains an export, and a saved fine-tuned model."""

from pathlib import Path
from typing import Any

import pytest

from preprocessing.tokenization import Vocab
from tests.training.formats.test_task_heads import NAMES, finetuned, spec_and_vocab
from tests.training.parity import hf
from training.formats import task_to_transformers, to_transformers
from training.model import Model

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def train_two_steps(folder: Path, **more: Any) -> float:
    """Train a classifier for two steps; return the change of its first trained weight."""
    tokenizer = hf().AutoTokenizer.from_pretrained(folder)
    model = hf().AutoModelForSequenceClassification.from_pretrained(folder, **more)
    rows = [{**tokenizer(text), "label": label} for text, label in [("a lazy dog", 1), ("five liquor jugs", 0)] * 4]
    before = next(model.parameters()).detach().clone()
    arguments = hf().TrainingArguments(
        str(folder / "trained"), max_steps=2, use_cpu=True, report_to="none", disable_tqdm=True, learning_rate=1e-2
    )
    trained = hf().Trainer(model, arguments, train_dataset=rows, processing_class=tokenizer).train()
    assert trained.global_step == 2
    assert trained.training_loss > 0
    return float((next(model.parameters()) - before).abs().max())


@pytest.mark.parametrize("name", ["bert_base", "roberta_base"])
def test_trainer_fine_tunes_an_export(name: str, tmp_path: Path) -> None:
    spec, vocab = spec_and_vocab(name)
    vocab.save(tmp_path / "vocab")
    model = Model(spec.model, spec.losses, spec.vocab_size, seed=0)
    to_transformers(dict(model.named_parameters()), spec, tmp_path / "vocab", tmp_path / "export")
    assert train_two_steps(tmp_path / "export", num_labels=2) > 0


@pytest.mark.parametrize("name", ["bert_base", "gpt2"])
def test_trainer_continues_with_a_saved_model(name: str, tmp_path: Path) -> None:
    """Batches are padded, also with the tokenizer of GPT-2, which gets a padding token."""
    task, vocab, _ = finetuned(name, "row_label")
    task_to_transformers(task, vocab, tmp_path)
    assert Vocab.load(tmp_path).pad is not None
    assert train_two_steps(tmp_path) > 0
    assert len(NAMES) == hf().AutoConfig.from_pretrained(tmp_path).num_labels
