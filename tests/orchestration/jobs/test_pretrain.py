"""`sesame export`: the parts of a finished run that transformers can load, and errors for the others."""

import shutil
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from orchestration import launch
from orchestration.jobs import export, pretrain, samples_of
from preprocessing import tokenization
from preprocessing.errors import BadInput
from preprocessing.masking import TokenMasking
from preprocessing.objectives import MaskedLM
from preprocessing.packing import Contiguous
from preprocessing.sampling import ExampleSpec
from training.checkpoint import Topology
from training.engines import LocalEngine
from training.formats import from_transformers, save_weights, to_transformers
from training.losses import MaskedTokens, SpanBoundary
from training.model import Model
from training.model_spec import ModelSpec
from training.optimizers import AdamW
from training.run import Run, load_stored_run
from training.saver import Saver
from training.specs import Encoder, EngineSettings, Phase

SPANBERT = ModelSpec(
    model=Encoder(num_hidden_layers=1, hidden_size=32, num_attention_heads=4, type_vocab_size=1),
    losses=(MaskedTokens(), SpanBoundary()),
    vocab_size=320,
)


def write_finished_run(spec: ModelSpec, folder: Path) -> Path:
    """Write a run directory as the first worker leaves it."""
    tokenization.train(tokenization.WordPiece(vocab_size=100), ["The quick brown fox"]).save(
        folder / "corpus" / "vocab"
    )
    run = Run(
        model=spec.model,
        losses=spec.losses,
        optimizer=AdamW(learning_rate=1e-3),
        phases=(Phase(seq_length=16, global_batch_size=2, steps=1),),
        sampling=ExampleSpec(packing=Contiguous(unit="sentence"), masking=TokenMasking(), objective=MaskedLM()),
        corpus=str(folder / "corpus"),
        vocab_size=spec.vocab_size,
        folder=str(folder),
        engine=EngineSettings(),
    )
    (folder / launch.RUN).write_text(run.to_json())
    weights = dict(Model(spec.model, spec.losses, spec.vocab_size, seed=0).named_parameters())
    save_weights(weights, spec, folder / "weights")
    with suppress(BadInput):
        to_transformers(weights, spec, folder / "corpus" / "vocab", folder / "export")
    return folder


def test_export_names_its_class_and_the_omitted_head(tmp_path: Path) -> None:
    files, becomes, _ = export(write_finished_run(SPANBERT, tmp_path / "run"), tmp_path / "hf")
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= set(files)
    assert becomes.startswith("BertForMaskedLM, without its span_boundary head")


def test_export_without_heads_loads_with_auto_model(tmp_path: Path) -> None:
    from transformers import AutoModel  # imported here because it is slow

    run = write_finished_run(SPANBERT, tmp_path / "run")
    _, becomes, _ = export(run, tmp_path / "hf", heads=False)
    assert becomes == "BertModel"
    _, info = AutoModel.from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not any(info.values())
    assert "from transformers import AutoModel, AutoTokenizer" in (tmp_path / "hf" / "README.md").read_text()


def test_model_without_a_transformers_class_gives_a_one_line_error(tmp_path: Path) -> None:
    spec = replace(
        SPANBERT,
        model=Encoder(num_hidden_layers=1, hidden_size=32, num_attention_heads=4, type_vocab_size=0),
        losses=(MaskedTokens(),),
    )
    with pytest.raises(
        BadInput, match=r"transformers has no class for this encoder \(.*type_vocab_size 0\)"
    ) as refused:
        export(write_finished_run(spec, tmp_path / "run"), tmp_path / "hf")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "hf").exists()


def test_unfinished_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not finished"):
        export(tmp_path, tmp_path / "hf")


def test_saved_step_of_an_unfinished_run_is_exported(tmp_path: Path) -> None:
    run = write_finished_run(replace(SPANBERT, losses=(MaskedTokens(),)), tmp_path / "run")
    for folder in ("weights", "export"):
        shutil.rmtree(run / folder)
    other = load_stored_run(run)
    trained = LocalEngine(Model(other.model, other.losses, other.vocab_size, seed=7), other.optimizer, other.engine)
    about: Topology = {"recipe": "", "workers": 1, "zero_stage": "none", "precision": "fp32"}
    Saver(trained, run / "checkpoints", about, asdict(trained.model.spec), keep=1, background=False).save(5, {})
    files, becomes, _ = export(run, tmp_path / "hf", step=5)
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= set(files)
    assert becomes == "BertForMaskedLM"
    _, weights = from_transformers(tmp_path / "hf")
    assert torch.equal(weights["trunk.tokens.weight"], trained.full_state()["trunk.tokens.weight"])
    assert "step 5 of 1" in (tmp_path / "hf" / "README.md").read_text()
    with pytest.raises(
        BadInput, match=r"invalid --step: got 6, expected a saved step of .* \(5\); use one of these, or save more"
    ):
        export(run, tmp_path / "other", step=6)
    with pytest.raises(BadInput, match="--push-to-hub a/b: --step cannot be combined with it"):
        export(run, tmp_path / "other", step=5, repo="a/b")


def test_samples_before_and_after_are_those_of_the_first_and_last_step(tmp_path: Path) -> None:
    assert samples_of(tmp_path) == {}
    (tmp_path / launch.SAMPLES).mkdir()
    for step in (0, 5, 10):
        text = launch.BETWEEN.join([f"a at {step}", f"b at {step}"])
        (tmp_path / launch.SAMPLES / f"step-{step}.txt").write_text(text + "\n")
    assert samples_of(tmp_path) == {"before": ["a at 0", "b at 0"], "after": ["a at 10", "b at 10"]}
    (tmp_path / launch.SAMPLES / "step-0.txt").unlink()
    (tmp_path / launch.SAMPLES / "step-5.txt").unlink()
    assert samples_of(tmp_path) == {}


@pytest.mark.parametrize(("in_vain", "words"), [(1, "1 evaluation without"), (2, "2 evaluations without")])
def test_an_early_end_counts_its_evaluations_in_english(in_vain: int, words: str, tmp_path: Path) -> None:
    best = {"step": 5, "loss": 3.0, "in_vain": in_vain}
    (line,) = pretrain._describe_end(10, 60, best, tmp_path)
    assert f"ended early, after step 10 of 60: {words} a lower validation loss" in line
