"""`init_checkpoint`: a run directory is refused with the paths to use, and another vocabulary is a warning."""

import dataclasses
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestration.cli import main
from orchestration.config import Recipe, load
from orchestration.jobs import initial_weights
from preprocessing import tokenization
from preprocessing.errors import BadInput
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab
from training.formats import save_weights
from training.model import Model
from training.model_spec import ModelSpec

TINY = load("bert_base", (), "tiny")


def recipe_from(folder: Path, path: str = "") -> Recipe:
    tokenizer = dataclasses.replace(TINY.data.tokenizer, path=path)
    return dataclasses.replace(
        TINY, init_checkpoint=str(folder), data=dataclasses.replace(TINY.data, tokenizer=tokenizer)
    )


def trained(folder: Path, *texts: str) -> Vocab:
    vocab = tokenization.train(tokenization.WordPiece(vocab_size=100), texts)
    vocab.save(folder)
    return vocab


def test_a_run_directory_is_refused_with_the_checkpoint_to_use(tmp_path: Path) -> None:
    for step in (20, 100):
        (tmp_path / "checkpoints" / f"step-{step:09d}").mkdir(parents=True)
    with pytest.raises(BadInput) as refusal:
        initial_weights.require_weights(str(tmp_path))
    assert str(refusal.value) == (
        f"invalid init_checkpoint: got {tmp_path}, a run, expected the weights of one step; "
        f"set init_checkpoint={tmp_path}/checkpoints/step-000000100, "
        f"or export the run with `sesame export {tmp_path} DIR` and set init_checkpoint=DIR"
    )


def test_check_warns_of_a_vocabulary_that_the_recipe_does_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = ModelSpec(model=TINY.model, losses=TINY.losses, vocab_size=64)
    save_weights(Model(spec.model, spec.losses, spec.vocab_size, seed=1).named_parameters(), spec, tmp_path)
    words = ["check", "bert_base", "--scale", "tiny", f"init_checkpoint={tmp_path}"]
    assert main(words) == 0
    assert "init_checkpoint" not in capsys.readouterr().err
    trained(tmp_path, "the quick brown fox")
    assert main(words) == 0
    assert (
        "init_checkpoint: the recipe trains its own vocabulary, but the weights have that of "
        f"{tmp_path}/tokenizer.json; set data.tokenizer.path={tmp_path}" in capsys.readouterr().err.splitlines()
    )
    assert initial_weights.remind_of_vocabulary(recipe_from(tmp_path, path=str(tmp_path))) == []


def test_a_run_warns_of_the_number_of_equal_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ours = trained(tmp_path / "corpus", "zebra zebra zoo zoo")
    store = SimpleNamespace(vocab_dir=tmp_path / "corpus", manifest=SimpleNamespace(vocab={"hash": ours.hash}))
    monkeypatch.setattr(TokenStore, "open", lambda *_, **__: store)
    trained(tmp_path / "same", "zebra zebra zoo zoo")
    initial_weights.warn_of_other_vocabulary(recipe_from(tmp_path / "same"), tmp_path / "corpus")
    initial_weights.warn_of_other_vocabulary(TINY, tmp_path / "corpus")
    assert not caplog.records
    trained(tmp_path / "other", "the quick brown fox")
    initial_weights.warn_of_other_vocabulary(recipe_from(tmp_path / "other"), tmp_path / "corpus")
    (line,) = caplog.messages
    assert re.fullmatch(
        rf"init_checkpoint: only \d+ of {ours.size} tokens have the same ID in the vocabulary of {tmp_path}/other; "
        "the other tokens start with the embeddings of unrelated tokens; set data.tokenizer.path=.*/other",
        line,
    )
