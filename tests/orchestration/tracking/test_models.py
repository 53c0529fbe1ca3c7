"""Finished nets as MLflow models: the calls by which MLflow's users load, register and find them; the registry."""

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

from orchestration.config import load
from orchestration.tracking import models
from orchestration.tracking import runs as track
from preprocessing import tokenization
from preprocessing.errors import BadInput
from training.formats import to_transformers
from training.losses import MaskedTokens, NextToken, SentencePair
from training.model import Model, ModelSpec
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

LOADS = pytest.mark.filterwarnings("ignore")  # of the libraries that load; what we write is written without warnings


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> track.TrackingStore:
    return track.tracking_store(tmp_path_factory.mktemp("out"))


@pytest.fixture
def store(place: track.TrackingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow's functions ask the store, and nothing else can be asked for anything."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", place.uri)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")

    def refuse(self: socket.socket, address: Any) -> None:
        raise AssertionError(f"the network was asked: {address}")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def exported(kind: str, folder: Path) -> Path:
    """A run folder with an export in it, as the first worker leaves it."""
    tokenization.train(VOCABS[kind], TEXT).save(folder / "vocab")
    spec = SPECS[kind]
    weights = dict(Model(spec.model, spec.losses, spec.vocab_size, seed=0).named_parameters())
    to_transformers(weights, spec, folder / "vocab", folder / "export")
    return folder


def logged(kind: str, place: track.TrackingStore, folder: Path) -> track.TrackedRun:
    """The run of a folder, whose model is in the store."""
    about = track.Metadata(kind, {"seed": 0}, note="A small net.")
    with track.run(place, exported(kind, folder), None, about) as tracked:
        track.log_scores(tracked, {"eval/loss": 2.5})
        models.log_model(tracked, folder / "export")
    return tracked


def mlmodel(place: track.TrackingStore, tracked: track.TrackedRun) -> tuple[Any, Path]:
    """What MLmodel says, and the folder that it is in."""
    from mlflow.models import Model as Described

    client = track.client_of(place.uri)
    (output,) = client.get_run(tracked.run_id).outputs.model_outputs
    folder = Path(client.get_logged_model(output.model_id).artifact_location.removeprefix("file://"))
    return Described.load(str(folder)), folder


def test_a_vocabulary_of_no_words_has_an_example_too(tmp_path: Path) -> None:
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
def test_a_model_is_loaded_found_and_registered_as_any_of_mlflow(
    kind: str, net: str, place: track.TrackingStore, store: None, tmp_path: Path
) -> None:
    import mlflow

    tracked = logged(kind, place, tmp_path)
    uri = f"runs:/{tracked.run_id}/model"
    pipeline = mlflow.transformers.load_model(uri)
    assert type(pipeline.model).__name__ == net
    loaded = mlflow.pyfunc.load_model(uri)
    example = loaded.input_example
    assert len(pipeline(example)) > 0  # the positions of the small net suffice
    assert [type(answer) for answer in loaded.predict([example, example])] == [str, str]
    version = mlflow.register_model(uri, f"by hand, {kind}")
    assert mlflow.pyfunc.load_model(f"models:/{version.name}/{version.version}").predict(example)
    experiment = mlflow.get_run(tracked.run_id).info.experiment_id
    found = mlflow.search_logged_models(experiment_ids=[experiment], output_format="list")
    (ours,) = (model for model in found if model.source_run_id == tracked.run_id)
    assert (ours.name, str(ours.status), ours.params) == ("model", "READY", {"seed": "0"})
    assert [(metric.key, metric.value) for metric in ours.metrics] == [("eval/loss", 2.5)]


@LOADS
def test_a_discriminator_gives_vectors_of_the_tokens(
    place: track.TrackingStore, store: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    recipe = load("electra_base", scale="tiny")
    spec = ModelSpec(model=recipe.model, losses=recipe.losses, vocab_size=320)
    monkeypatch.setitem(SPECS, "bert", spec)
    loaded = mlflow.pyfunc.load_model(f"runs:/{logged('bert', place, tmp_path).run_id}/model")
    vectors = loaded.predict("The people of the town")
    assert vectors.ndim == 2
    assert vectors.shape[1] == recipe.model.hidden_size
    assert (
        "the vectors of the first of several texts"
        in (mlmodel(place, known(tmp_path))[1] / "model_card.md").read_text()
    )


def known(folder: Path) -> track.TrackedRun:
    tracked = track.existing_run(folder)
    assert tracked
    return tracked


@LOADS
def test_a_caller_says_how_much_is_generated(place: track.TrackingStore, store: None, tmp_path: Path) -> None:
    import mlflow

    loaded = mlflow.pyfunc.load_model(f"runs:/{logged('gpt', place, tmp_path).run_id}/model")
    (short,), (long,) = (loaded.predict("The people", params={"max_new_tokens": number}) for number in (1, 30))
    assert len(short) < len(long)


@LOADS
@pytest.mark.parametrize("kind", list(SPECS))
def test_mlmodel_says_what_mlflow_itself_would_write(
    kind: str, place: track.TrackingStore, store: None, tmp_path: Path
) -> None:
    import mlflow
    import transformers

    ours, folder = mlmodel(place, logged(kind, place, tmp_path / "run"))
    flavour = ours.flavors["transformers"]
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
    of_place = {"source_model_name", "tokenizer_type"}  # the folder it came from; transformers has two names for it
    assert {key: value for key, value in flavour.items() if key not in of_place} == {
        key: value for key, value in theirs.flavors["transformers"].items() if key not in of_place
    }
    assert ours.flavors["python_function"] == theirs.flavors["python_function"]
    assert ours.saved_input_example_info == theirs.saved_input_example_info
    assert (ours.signature.inputs, ours.signature.outputs) == (theirs.signature.inputs, theirs.signature.outputs)
    files = {path.relative_to(tmp_path / "theirs") for path in (tmp_path / "theirs").rglob("*") if path.is_file()}
    assert files - {path.relative_to(folder) for path in folder.rglob("*")} <= {Path("LICENSE.txt")} | {
        file for file in files if file.name in ("model_card_data.yaml", "generation_config.json")
    }


def test_weights_are_not_copied_and_nothing_is_pickled(place: track.TrackingStore, tmp_path: Path) -> None:
    _, folder = mlmodel(place, logged("bert", place, tmp_path))
    assert os.path.samefile(folder / "model" / "model.safetensors", tmp_path / "export" / "model.safetensors")
    suffixes = {path.suffix for path in folder.rglob("*") if path.is_file()}
    assert suffixes <= {"", ".json", ".md", ".safetensors", ".txt", ".yaml"}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_weights_are_copied_to_another_disk(
    place: track.TrackingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cross(source: object, target: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", cross)
    _, folder = mlmodel(place, logged("bert", place, tmp_path))
    theirs, ours = folder / "model" / "model.safetensors", tmp_path / "export" / "model.safetensors"
    assert theirs.read_bytes() == ours.read_bytes()
    assert not os.path.samefile(theirs, ours)


def test_the_card_says_what_the_model_is_and_how_it_is_loaded(place: track.TrackingStore, tmp_path: Path) -> None:
    tracked = logged("bert", place, tmp_path)
    _, folder = mlmodel(place, tracked)
    card = (folder / "model_card.md").read_text()
    assert "A small net." in card
    assert "`BertForMaskedLM` of transformers, task `fill-mask`" in card
    assert f'mlflow.pyfunc.load_model("runs:/{tracked.run_id}/model").predict("The people of the [MASK]' in card
    tags = track.client_of(place.uri).get_run(tracked.run_id).data.tags
    assert tags["sesame.model_status"] == "fill-mask by BertForMaskedLM"


def test_a_run_that_goes_on_after_its_model_was_logged_has_one_model(
    place: track.TrackingStore, tmp_path: Path
) -> None:
    tracked = logged("bert", place, tmp_path)
    first = mlmodel(place, tracked)[0].model_id
    assert models.log_model(tracked, tmp_path / "export") == first
    assert mlmodel(place, tracked)[0].model_id == first


@LOADS
def test_a_model_is_logged_without_transformers_and_loads_where_it_is(
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
        tracked = logged("bert", place, tmp_path)
    ours, folder = mlmodel(place, tracked)
    assert "transformers_version" not in ours.flavors["transformers"]
    assert "transformers>=5" in (folder / "requirements.txt").read_text().splitlines()
    assert mlflow.pyfunc.load_model(f"runs:/{tracked.run_id}/model").predict("The [MASK] of the town")


@LOADS
def test_a_net_without_a_pipeline_is_loaded_in_pieces_and_its_run_says_so(
    place: track.TrackingStore, store: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    recipe = load("pegasus_base", scale="tiny")
    spec = ModelSpec(model=recipe.model, losses=recipe.losses, vocab_size=320)
    monkeypatch.setitem(SPECS, "bert", spec)
    tracked = logged("bert", place, tmp_path)
    ours, _ = mlmodel(place, tracked)
    assert list(ours.flavors) == ["transformers"]
    pieces = mlflow.transformers.load_model(f"runs:/{tracked.run_id}/model", return_type="components")
    assert type(pieces["model"]).__name__ == "PegasusForConditionalGeneration"
    said = track.client_of(place.uri).get_run(tracked.run_id).data.tags["sesame.model_status"]
    assert "load it with return_type='components': transformers 5 has no pipeline for an encoder-decoder" in said
    assert "\n" not in said


def test_the_example_is_of_pieces_that_the_vocabulary_knows(tmp_path: Path) -> None:
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


# The registry


@LOADS
def test_a_model_is_registered_once_and_its_versions_are_counted(
    place: track.TrackingStore, store: None, tmp_path: Path
) -> None:
    import mlflow

    one, two = tmp_path / "one", tmp_path / "two"
    logged("bert", place, one), logged("bert", place, two)
    first = models.register(one, one / "export", "counted")
    assert (first.number, first.uri, first.is_new) == ("1", "models:/counted/1", True)
    assert models.register(one, one / "export", "counted") == replace(first, is_new=False)
    assert models.register(two, two / "export", "counted").number == "2"
    assert mlflow.pyfunc.load_model("models:/counted/2").predict(first.example)
    version = track.client_of(place.uri).get_model_version("counted", "1")
    tracked = track.existing_run(one)
    assert tracked
    assert version.run_id == tracked.run_id
    assert "A small net." in version.description


def test_a_run_whose_model_was_not_logged_has_it_logged_then(place: track.TrackingStore, tmp_path: Path) -> None:
    with track.run(place, exported("bert", tmp_path), None, track.Metadata("bert")):
        pass
    assert models.register(tmp_path, tmp_path / "export", "later").number == "1"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / track.RUN_FILE).unlink(), "it has no MLflow run"),
        (lambda folder: forget(folder, uri="sqlite:////no/such/store.db"), "/no/such/store.db: no such store"),
        (lambda folder: forget(folder, run_id="0" * 32), "Run with id=0{32} not found"),
    ],
)
def test_a_run_that_cannot_be_asked_for_is_one_line(
    spoil: Any, said: str, place: track.TrackingStore, tmp_path: Path
) -> None:
    logged("bert", place, tmp_path)
    spoil(tmp_path)
    with pytest.raises(BadInput, match=said) as refused:
        models.register(tmp_path, tmp_path / "export", "never")
    assert "\n" not in str(refused.value)


def forget(folder: Path, **changes: str) -> None:
    known = json.loads((folder / track.RUN_FILE).read_text())
    known.pop("checksum")
    (folder / track.RUN_FILE).write_text(json.dumps(known | changes))


def test_a_name_that_mlflow_does_not_take_is_one_line(place: track.TrackingStore, tmp_path: Path) -> None:
    logged("bert", place, tmp_path)
    with pytest.raises(BadInput, match="invalid model name: got 'a/b'"):
        models.register(tmp_path, tmp_path / "export", "a/b")


def test_a_run_without_a_model_says_why(place: track.TrackingStore, tmp_path: Path) -> None:
    with track.run(place, tmp_path, None, track.Metadata("strange", tags={models.STATE: "none: no such class"})):
        pass
    with pytest.raises(BadInput, match=r"has no MLflow model to register \(none: no such class\)"):
        models.register(tmp_path, tmp_path / "export", "never")
