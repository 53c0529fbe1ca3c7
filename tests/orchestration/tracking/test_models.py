"""Finished models in MLflow: loading, registering and finding them with MLflow's own functions; the model registry."""

import importlib.metadata
import json
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestration import tracking
from orchestration.config import load
from orchestration.tracking import models
from orchestration.tracking import runs as track
from preprocessing import tokenization
from preprocessing.errors import BadInput
from preprocessing.manifest import Manifest
from tests.training.corpora import mini_corpus
from training.formats import to_transformers
from training.losses import MaskedTokens, NextToken, SentencePair
from training.model import Model
from training.model_spec import ModelSpec
from training.specs import Decoder, Encoder, LearnedPositions

TEXT = ["The people of the town came to the old house, and the house was full of people."] * 4
SMALL: Mapping[str, Any] = {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2}
BERT = ModelSpec(
    model=Encoder(position_embedding=LearnedPositions(max_position_embeddings=48), **SMALL),
    losses=(MaskedTokens(), SentencePair()),
    vocab_size=320,
)
GPT = ModelSpec(
    model=Decoder(position_embedding=LearnedPositions(max_position_embeddings=48), **SMALL),
    losses=(NextToken(),),
    vocab_size=320,
)
RUSSIAN = ("один", "два", "три", "четыре", "пять", "шесть", "семь", "восемь")
VOCABS = {"bert": tokenization.WordPiece(vocab_size=100), "gpt": tokenization.ByteLevelBPE(vocab_size=300)}
SPECS = {"bert": BERT, "gpt": GPT}

LOADS = pytest.mark.filterwarnings("ignore")  # warnings of the loading libraries; Sesame's own code emits none


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> track.TrackingStore:
    return track.tracking_store(tmp_path_factory.mktemp("out"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mini_corpus(tmp_path_factory.mktemp("text") / "corpus", num_train=3, num_validation=1)


@pytest.fixture
def store(place: track.TrackingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow's functions use the test store, and any network access fails."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", place.uri)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")

    def refuse(self: socket.socket, address: Any) -> None:
        raise AssertionError(f"unexpected network access: {address}")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def write_export(kind: str, folder: Path) -> Path:
    """Write a run directory with an export, as the first worker leaves it."""
    tokenization.train(VOCABS[kind], TEXT).save(folder / "vocab")
    spec = SPECS[kind]
    weights = dict(Model(spec.model, spec.losses, spec.vocab_size, seed=0).named_parameters())
    to_transformers(weights, spec, folder / "vocab", folder / "export")
    return folder


def log_model_run(kind: str, place: track.TrackingStore, folder: Path) -> track.TrackedRun:
    """Return the run of a directory whose model is logged."""
    about = track.Metadata(kind, {"seed": 0}, note="A small net.")
    with track.run(place, write_export(kind, folder), None, about) as tracked:
        track.log_scores(tracked, {"eval/loss": 2.5})
        models.log_model(tracked, folder / "export")
    return tracked


def uri_of(place: track.TrackingStore, tracked: track.TrackedRun) -> str:
    """Return the address of the model of a run."""
    (output,) = track.client_of(place.uri).get_run(tracked.run_id).outputs.model_outputs
    return f"models:/{output.model_id}"


def load_mlmodel(place: track.TrackingStore, tracked: track.TrackedRun) -> tuple[Any, Path]:
    """Return the parsed MLmodel file and its directory."""
    from mlflow.models import Model as Described

    client = track.client_of(place.uri)
    (output,) = client.get_run(tracked.run_id).outputs.model_outputs
    folder = Path(client.get_logged_model(output.model_id).artifact_location.removeprefix("file://"))
    return Described.load(str(folder)), folder


def test_vocabulary_without_words_has_an_example(tmp_path: Path) -> None:
    for pieces in (["w5", "w6"], ["##", "--"]):
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces]
        (tmp_path / "pieces.txt").write_text("".join(f"{word}\n" for word in words))
        tokenization.train(tokenization.WordPiece(vocab_size=len(words), path=str(tmp_path / "pieces.txt")), ()).save(
            tmp_path
        )
        (tmp_path / "tokenizer_config.json").write_text('{"mask_token": "[MASK]"}')
        assert "[MASK]" in models.example_of(tmp_path, "fill-mask").split()


@LOADS
@pytest.mark.parametrize(("kind", "net"), [("bert", "BertForMaskedLM"), ("gpt", "GPT2LMHeadModel")])
def test_model_works_with_mlflow_functions(
    kind: str, net: str, place: track.TrackingStore, store: None, tmp_path: Path
) -> None:
    import mlflow

    tracked = log_model_run(kind, place, tmp_path)
    uri = uri_of(place, tracked)
    pipeline = mlflow.transformers.load_model(uri)
    assert type(pipeline.model).__name__ == net
    loaded = mlflow.pyfunc.load_model(uri)
    example = loaded.input_example
    assert len(pipeline(example)) > 0  # the positions of the small model suffice
    assert [type(answer) for answer in loaded.predict([example, example])] == [str, str]
    version = mlflow.register_model(uri, f"by hand, {kind}")
    assert mlflow.pyfunc.load_model(f"models:/{version.name}/{version.version}").predict(example)
    experiment = mlflow.get_run(tracked.run_id).info.experiment_id
    found = mlflow.search_logged_models(experiment_ids=[experiment], output_format="list")
    (own,) = (model for model in found if model.source_run_id == tracked.run_id)
    assert (own.name, str(own.status), own.params) == (f"{kind}-step-0", "READY", {"seed": "0"})
    assert [(metric.key, metric.value) for metric in own.metrics] == [("eval/loss", 2.5)]


@LOADS
def test_discriminator_returns_token_vectors(
    place: track.TrackingStore, store: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    recipe = load("electra_base", scale="tiny")
    spec = ModelSpec(model=recipe.model, losses=recipe.losses, vocab_size=320)
    monkeypatch.setitem(SPECS, "bert", spec)
    loaded = mlflow.pyfunc.load_model(uri_of(place, log_model_run("bert", place, tmp_path)))
    vectors = loaded.predict("The people of the town")
    assert vectors.ndim == 2
    assert vectors.shape[1] == recipe.model.hidden_size
    assert (
        "the vectors of the first of several texts"
        in (load_mlmodel(place, existing_run(tmp_path))[1] / "model_card.md").read_text()
    )


def existing_run(folder: Path) -> track.TrackedRun:
    tracked = track.existing_run(folder)
    assert tracked
    return tracked


@LOADS
def test_caller_sets_the_number_of_generated_tokens(place: track.TrackingStore, store: None, tmp_path: Path) -> None:
    import mlflow

    loaded = mlflow.pyfunc.load_model(uri_of(place, log_model_run("gpt", place, tmp_path)))
    (short,), (long,) = (loaded.predict("The people", params={"max_new_tokens": number}) for number in (1, 30))
    assert len(short) < len(long)


@LOADS
@pytest.mark.parametrize("kind", list(SPECS))
def test_mlmodel_equals_the_file_that_mlflow_writes(
    kind: str, place: track.TrackingStore, store: None, tmp_path: Path
) -> None:
    import mlflow
    import transformers

    own, folder = load_mlmodel(place, log_model_run(kind, place, tmp_path / "run"))
    flavour = own.flavors["transformers"]
    net = getattr(transformers, flavour["pipeline_model_type"]).from_pretrained(folder / "model")
    words = transformers.PreTrainedTokenizerFast.from_pretrained(folder / "components" / "tokenizer")
    mlflow.transformers.save_model(
        transformers.pipeline(flavour["task"], model=net, tokenizer=words),
        tmp_path / "theirs",
        input_example=json.loads((folder / "input_example.json").read_text()),
        pip_requirements=["mlflow"],
        model_card=type("Card", (), {"text": "", "data": type("Data", (), {"license": "other", "to_dict": dict})})(),
    )
    theirs = mlflow.models.Model.load(str(tmp_path / "theirs"))
    # the source directory differs, and transformers has two names for the tokenizer class
    of_place = {"source_model_name", "tokenizer_type"}
    assert {key: value for key, value in flavour.items() if key not in of_place} == {
        key: value for key, value in theirs.flavors["transformers"].items() if key not in of_place
    }
    assert own.flavors["python_function"] == theirs.flavors["python_function"]
    assert own.saved_input_example_info == theirs.saved_input_example_info
    assert (own.signature.inputs, own.signature.outputs) == (theirs.signature.inputs, theirs.signature.outputs)
    files = {path.relative_to(tmp_path / "theirs") for path in (tmp_path / "theirs").rglob("*") if path.is_file()}
    assert files - {path.relative_to(folder) for path in folder.rglob("*")} <= {Path("LICENSE.txt")} | {
        file for file in files if file.name in ("model_card_data.yaml", "generation_config.json")
    }


def test_weights_are_linked_and_nothing_is_pickled(place: track.TrackingStore, tmp_path: Path) -> None:
    _, folder = load_mlmodel(place, log_model_run("gpt", place, tmp_path))
    assert os.path.samefile(folder / "model" / "model.safetensors", tmp_path / "export" / "model.safetensors")
    assert not (folder / "pretraining").exists()
    suffixes = {path.suffix for path in folder.rglob("*") if path.is_file()}
    assert suffixes <= {"", ".json", ".md", ".safetensors", ".txt", ".yaml"}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_weights_are_copied_to_another_disk(
    place: track.TrackingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cross(source: object, target: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", cross)
    _, folder = load_mlmodel(place, log_model_run("gpt", place, tmp_path))
    theirs, own = folder / "model" / "model.safetensors", tmp_path / "export" / "model.safetensors"
    assert theirs.read_bytes() == own.read_bytes()
    assert not os.path.samefile(theirs, own)


@pytest.mark.one_in(3)
@LOADS
@pytest.mark.parametrize(
    "name", ["bert_base", "albert_base", "ernie_1", "megatron_bert_345m", "electra_base", "t5_base"]
)
def test_model_of_the_pipeline_loads_without_a_report_on_other_weights(
    name: str, place: track.TrackingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    recipe = load(name, scale="tiny")
    losses = tuple(loss for loss in recipe.losses if not loss.not_exported)
    monkeypatch.setitem(SPECS, "bert", ModelSpec(model=recipe.model, losses=losses, vocab_size=320))
    own, folder = load_mlmodel(place, log_model_run("bert", place, tmp_path))
    model_class = getattr(transformers, own.flavors["transformers"]["pipeline_model_type"])
    _, info = model_class.from_pretrained(folder / "model", output_loading_info=True)
    assert (info["unexpected_keys"], info["missing_keys"]) == (set(), set())
    whole = folder / ("pretraining" if (folder / "pretraining").exists() else "model")
    exported = json.loads((tmp_path / "export" / "config.json").read_text())["architectures"][0]
    _, info = getattr(transformers, exported).from_pretrained(whole, output_loading_info=True)
    assert (info["unexpected_keys"], info["missing_keys"]) == (set(), set())


def test_card_describes_the_model_and_its_loading(place: track.TrackingStore, tmp_path: Path) -> None:
    tracked = log_model_run("bert", place, tmp_path)
    _, folder = load_mlmodel(place, tracked)
    card = (folder / "model_card.md").read_text()
    assert "A small net." in card
    assert "`BertForMaskedLM` of transformers, task `fill-mask`" in card
    assert f'mlflow.set_tracking_uri("{place.uri}")' in card
    assert f'mlflow.pyfunc.load_model("{uri_of(place, tracked)}").predict("The people of the [MASK]' in card
    assert "directory `pretraining/` has the whole model" in card
    tags = track.client_of(place.uri).get_run(tracked.run_id).data.tags
    assert tags["sesame.model_status"] == "fill-mask by BertForMaskedLM"


def test_model_has_the_corpus_and_the_files_of_its_tasks_as_datasets(
    place: track.TrackingStore, corpus: Path, tmp_path: Path
) -> None:
    with track.run(place, write_export("gpt", tmp_path), corpus, track.Metadata("gpt", {})) as tracked:
        track.log_scores(tracked, {"train/loss": 3.0, "eval/loss": 2.5, "perf/step_time_s": 0.1})
        models.log_model(tracked, tmp_path / "export")
    client = track.client_of(place.uri)
    dataset = tracking.TaskDataset("rte, dev", "d" * 64, "/a/dev.tsv", {"text": str}, 9, "evaluation", is_scored=True)
    headline = {"pretrained_accuracy": 0.75, "random_accuracy": 0.5}
    tracking.log_task(tracked, tracking.TaskRecord("rte", {}, {}, headline, datasets=[dataset]))
    (output,) = client.get_run(tracked.run_id).outputs.model_outputs
    name = Manifest.load(corpus).name
    found = {(one.key, one.value, one.dataset_name) for one in client.get_logged_model(output.model_id).metrics}
    assert found == {
        ("train/loss", 3.0, name),
        ("eval/loss", 2.5, name),
        ("eval/rte/pretrained_accuracy", 0.75, "rte, dev"),
    }
    experiment = client.get_run(tracked.run_id).info.experiment_id
    (task,) = client.search_runs([experiment], f"tags.mlflow.parentRunId = '{tracked.run_id}'")
    assert [one.model_id for one in client.get_run(task.info.run_id).inputs.model_inputs] == [output.model_id]


def test_card_of_a_registered_model_gets_later_scores(
    place: track.TrackingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracked = log_model_run("gpt", place, tmp_path)
    models.register(tmp_path, tmp_path / "export", "with scores")
    cards: list[Mapping[str, Any]] = []

    def card(folder: Path, **options: Any) -> str:
        cards.append(options)
        return "With scores."

    monkeypatch.setattr(models, "model_card", card)
    models.update_card(tracked, tmp_path / "export")
    client = track.client_of(place.uri)
    (output,) = client.get_run(tracked.run_id).outputs.model_outputs
    note = client.get_logged_model(output.model_id).tags["mlflow.note.content"]
    assert note.startswith("With scores.")
    assert client.get_model_version("with scores", "1").description == note
    (options,) = cards
    assert options["for_hub"] is False
    assert (
        options["setup"][-1] == f'folder = mlflow.artifacts.download_artifacts("{uri_of(place, tracked)}") + "/model"'
    )


def test_updated_card_names_the_directory_of_the_whole_model(place: track.TrackingStore, tmp_path: Path) -> None:
    tracked = log_model_run("bert", place, tmp_path)
    client = track.client_of(place.uri)
    (output,) = client.get_run(tracked.run_id).outputs.model_outputs
    models.update_card(tracked, tmp_path / "export")
    card = client.get_logged_model(output.model_id).tags["mlflow.note.content"]
    assert "`pretraining/` has the whole model" in card


def test_deleted_models_and_versions_stop_no_scores_and_no_registration(
    place: track.TrackingStore, tmp_path: Path
) -> None:
    """Each later evaluation once lacked its scores in MLflow, and warned of them for ever."""
    tracked = log_model_run("gpt", place, tmp_path)
    models.register(tmp_path, tmp_path / "export", "deleted")
    client = track.client_of(place.uri)
    client.delete_model_version("deleted", "1")
    models.update_card(tracked, tmp_path / "export")
    (first,) = models.find_models(client, client.get_run(tracked.run_id))
    client.delete_logged_model(first)
    models.update_card(tracked, tmp_path / "export")
    tracking.log_task(tracked, tracking.TaskRecord("rte", {}, {}, {"pretrained_accuracy": 0.75}))
    assert client.get_run(tracked.run_id).data.metrics["eval/rte/pretrained_accuracy"] == 0.75
    assert models.register(tmp_path, tmp_path / "export", "deleted").is_new
    (second,) = models.find_models(client, client.get_run(tracked.run_id))
    assert second != first


def test_model_is_logged_once_per_run(place: track.TrackingStore, tmp_path: Path) -> None:
    tracked = log_model_run("bert", place, tmp_path)
    first = load_mlmodel(place, tracked)[0].model_id
    assert models.log_model(tracked, tmp_path / "export") == first
    assert load_mlmodel(place, tracked)[0].model_id == first


def test_model_of_a_run_that_ended_early_has_its_last_step(place: track.TrackingStore, tmp_path: Path) -> None:
    """The recipe has 60 steps, and early stopping ended the run after 10 of them."""
    folder = write_export("gpt", tmp_path)
    for step in (5, 10):
        (folder / "checkpoints" / f"step-{step:09}").mkdir(parents=True)
    with track.run(place, folder, None, track.Metadata("gpt", {})) as tracked:
        models.log_model(tracked, folder / "export")
    client = track.client_of(place.uri)
    run = client.get_run(tracked.run_id)
    (output,) = run.outputs.model_outputs
    assert output.step == 10
    assert client.get_logged_model(output.model_id).name == f"{run.info.run_name}-step-10"
    for step in (5, 10):
        (folder / "checkpoints" / f"step-{step:09}").rmdir()
    (folder / "result.json").write_text(json.dumps({"step": 8}))  # the user deleted the checkpoints
    assert models._last_step(run, folder / "export") == 8


@LOADS
def test_model_is_logged_without_transformers_installed(
    place: track.TrackingStore, store: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    version = importlib.metadata.version

    def lacking(name: str) -> str:
        if name == "transformers":
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)

    with monkeypatch.context() as without:
        without.setitem(sys.modules, "transformers", None)  # `import transformers` fails
        without.setattr(importlib.metadata, "version", lacking)
        tracked = log_model_run("bert", place, tmp_path)
    own, folder = load_mlmodel(place, tracked)
    assert "transformers_version" not in own.flavors["transformers"]
    assert "transformers>=5" in (folder / "requirements.txt").read_text().splitlines()
    assert mlflow.pyfunc.load_model(uri_of(place, tracked)).predict("The [MASK] of the town")


@LOADS
def test_model_without_a_pipeline_loads_as_components_and_is_tagged(
    place: track.TrackingStore, store: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    recipe = load("pegasus_base", scale="tiny")
    spec = ModelSpec(model=recipe.model, losses=recipe.losses, vocab_size=320)
    monkeypatch.setitem(SPECS, "bert", spec)
    tracked = log_model_run("bert", place, tmp_path)
    own, _ = load_mlmodel(place, tracked)
    assert list(own.flavors) == ["transformers"]
    pieces = mlflow.transformers.load_model(uri_of(place, tracked), return_type="components")
    assert type(pieces["model"]).__name__ == "PegasusForConditionalGeneration"
    message = track.client_of(place.uri).get_run(tracked.run_id).data.tags["sesame.model_status"]
    assert "load it with return_type='components': transformers 5 has no pipeline for an encoder-decoder" in message
    assert "\n" not in message


def test_example_uses_known_tokens(tmp_path: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *RUSSIAN]
    (tmp_path / "pieces.txt").write_text("".join(f"{word}\n" for word in words))
    tokenization.train(tokenization.WordPiece(vocab_size=len(words), path=str(tmp_path / "pieces.txt")), ()).save(
        tmp_path
    )
    (tmp_path / "tokenizer_config.json").write_text('{"mask_token": "[MASK]"}')
    example = models.example_of(tmp_path, "fill-mask")
    assert set(example.split()) <= set(words)
    assert example.split().count("[MASK]") == 1
    assert "[UNK]" not in example


# Registry


@LOADS
def test_model_is_registered_once_with_numbered_versions(
    place: track.TrackingStore, store: None, tmp_path: Path
) -> None:
    import mlflow

    one, two = tmp_path / "one", tmp_path / "two"
    log_model_run("bert", place, one), log_model_run("bert", place, two)
    first = models.register(one, one / "export", "counted")
    assert (first.number, first.uri, first.is_new) == ("1", "models:/counted/1", True)
    assert models.register(one, one / "export", "counted") == replace(first, is_new=False)
    assert models.register(two, two / "export", "counted").number == "2"
    assert mlflow.pyfunc.load_model("models:/counted/2").predict(first.example)
    for folder, number in ((one, "1"), (two, "2")):  # an alias moves
        found = models.register(folder, folder / "export", "counted", "champion")
        assert (found.number, found.uri, found.is_new) == (number, "models:/counted@champion", False)
        champion = track.client_of(place.uri).get_model_version_by_alias("counted", "champion")
        assert str(champion.version) == number
    assert mlflow.pyfunc.load_model("models:/counted@champion").predict(first.example)
    version = track.client_of(place.uri).get_model_version("counted", "1")
    tracked = track.existing_run(one)
    assert tracked
    assert version.run_id == tracked.run_id
    assert "A small net." in version.description


@pytest.mark.parametrize("alias", ["latest", "v1", "a b", "ü", "x" * 101])
def test_an_alias_that_mlflow_does_not_take_is_refused_before_anything_is_registered(
    alias: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match="invalid --alias: got"):
        models.register(tmp_path, tmp_path / "export", "mine", alias)


def test_registering_logs_a_missing_model(place: track.TrackingStore, tmp_path: Path) -> None:
    with track.run(place, write_export("bert", tmp_path), None, track.Metadata("bert")):
        pass
    assert models.register(tmp_path, tmp_path / "export", "later").number == "1"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / track.RUN_FILE).unlink(), "it has no MLflow run"),
        (lambda folder: change_run_file(folder, uri="sqlite:////no/such/store.db"), "/no/such/store.db: no such store"),
        (lambda folder: change_run_file(folder, run_id="0" * 32), "Run with id=0{32} not found"),
    ],
)
def test_unavailable_run_gives_a_one_line_error(
    damage: Any, message: str, place: track.TrackingStore, tmp_path: Path
) -> None:
    log_model_run("bert", place, tmp_path)
    damage(tmp_path)
    with pytest.raises(BadInput, match=message) as refused:
        models.register(tmp_path, tmp_path / "export", "never")
    assert "\n" not in str(refused.value)


def change_run_file(folder: Path, **changes: str) -> None:
    existing_run = json.loads((folder / track.RUN_FILE).read_text())
    existing_run.pop("checksum")
    (folder / track.RUN_FILE).write_text(json.dumps(existing_run | changes))


def test_invalid_model_name_gives_a_one_line_error(place: track.TrackingStore, tmp_path: Path) -> None:
    log_model_run("bert", place, tmp_path)
    with pytest.raises(BadInput, match="invalid model name: got 'a/b'"):
        models.register(tmp_path, tmp_path / "export", "a/b")


def test_run_without_a_model_reports_the_reason(place: track.TrackingStore, tmp_path: Path) -> None:
    with track.run(place, tmp_path, None, track.Metadata("strange", tags={models.STATE: "none: no such class"})):
        pass
    with pytest.raises(BadInput, match=r"has no MLflow model to register \(none: no such class\)"):
        models.register(tmp_path, tmp_path / "export", "never")
