"""Finished nets as MLflow models, and the model registry.

A model is a folder of plain files that `mlflow.transformers` and `mlflow.pyfunc` load where transformers is installed:
MLmodel (flavours, signature), weights as safetensors, the tokenizer, an input example, requirements, a card. It is
written here, not by `mlflow.transformers.log_model`, which wants transformers, builds the net, copies its weights twice
and asks the hub for a card.
"""

import importlib.metadata
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from orchestration.reports.model_card import model_card
from orchestration.tracking import names
from orchestration.tracking.metadata import NOTE
from orchestration.tracking.runs import UNFINISHED, TrackedRun, client_of, existing_run
from orchestration.tracking.store_timeout import database_file, folder_of, redact, summarize_error, without_password
from preprocessing.errors import BadInput
from preprocessing.files import read_object
from preprocessing.tokenization import Vocab

if TYPE_CHECKING:  # torch takes seconds to import
    from training.formats import TransformersPipeline

NAME: Final = "model"  # runs:/RUN/model
MLMODEL: Final = "MLmodel"  # the file that makes a folder a model
STATE: Final = "sesame.model_status"  # the tag of a run that says what its model is, or why it has none
VERSIONS: Final = "mlflow.modelVersions"  # the tag by which the UI shows, with a model, what it is registered as
INSTANCES: Final = {  # the classes of transformers' pipelines
    "fill-mask": "FillMaskPipeline",
    "text-generation": "TextGenerationPipeline",
    "feature-extraction": "FeatureExtractionPipeline",
    "text2text-generation": "Text2TextGenerationPipeline",
}
NEW_TOKENS: Final = 20  # that a generating model adds where the caller does not say
SENTENCE: Final = "The people of the town came to the house"
REQUIRED: Final = ("mlflow", "torch", "transformers")


@dataclass(frozen=True)
class ModelVersion:
    """A version of a registered model."""

    name: str
    number: str
    uri: str  # models:/NAME/NUMBER
    store: str  # the address under which MLflow finds it
    is_new: bool
    example: str  # a text that it takes


def log_model(tracked: TrackedRun, export: Path) -> str:
    """Keep the exported folder as the run's MLflow model `model`; its id. A run has one: it is not logged again.

    Weights are linked, not copied, where the store's artifacts are on the same disk.
    """
    client = client_of(tracked.uri)
    run = client.get_run(tracked.run_id)
    if ids := _models_of(run):
        return ids[0]
    from mlflow.entities import LoggedModelOutput

    from training.formats import pipeline

    what = pipeline(export)
    card = _card(run, export, what)
    model = client.create_logged_model(
        run.info.experiment_id,
        NAME,
        source_run_id=tracked.run_id,
        tags={NOTE: names.value(card)},
        params=dict(run.data.params),
        model_type=what.task,
    )
    status = "FAILED"
    try:
        with tempfile.TemporaryDirectory(dir=export.parent, prefix=UNFINISHED) as folder:
            _write(Path(folder), export, what, card, model, tracked.run_id)
            _publish(client, model, Path(folder))
        status = "READY"
    finally:
        client.finalize_logged_model(model.model_id, status)
    held_out = _held_out(run, model.model_id)
    last_step = max((metric.step for metric in held_out), default=0)
    client.log_outputs(tracked.run_id, [LoggedModelOutput(model.model_id, last_step)])
    client.log_batch(tracked.run_id, metrics=held_out)
    client.set_tag(tracked.run_id, STATE, _state(what))
    return str(model.model_id)


def _models_of(run: Any) -> list[str]:
    """The ids of the models that a run has put out, the newest first."""
    outputs = run.outputs.model_outputs if run.outputs else []
    return [output.model_id for output in reversed(outputs)]


def _held_out(run: Any, model_id: str) -> list[Any]:
    """The last point of each metric on held-out text, which the entry of a run has, as the model's too."""
    from mlflow.entities import Metric

    last = (point for point in run.data.to_proto().metrics if point.key.startswith("eval/"))
    return [Metric(point.key, point.value, point.timestamp, point.step, model_id) for point in last]


def _state(what: "TransformersPipeline") -> str:
    made = f"{what.task} by {what.model_class}"
    return f"{made}; load it with return_type='components': {what.lacks}" if what.lacks else made


# The folder of a model


def _write(folder: Path, export: Path, what: "TransformersPipeline", card: str, model: Any, run_id: str) -> None:
    """All files of a model, MLmodel last. Its weights are links to the exported ones where that can be."""
    shutil.copytree(export, folder / "model", copy_function=_link)
    tokenizer = folder / "components" / "tokenizer"
    tokenizer.mkdir(parents=True)
    for file in export.iterdir():
        if file.name != "config.json" and file.suffix not in (".safetensors", ".md"):
            _link(file, tokenizer / file.name)
    if what.task == "text-generation":  # the pipeline's own default is 256, more than small nets have positions for
        (folder / "model" / "generation_config.json").write_text(json.dumps({"max_new_tokens": NEW_TOKENS}))
    example = example_of(export, what.task)
    (folder / "input_example.json").write_text(json.dumps(example))
    (folder / "serving_input_example.json").write_text(json.dumps({"inputs": example}))
    (folder / "model_card.md").write_text(card, encoding="utf-8")
    _write_environment(folder)
    _mlmodel(what, model, run_id, folder).save(str(folder / MLMODEL))


def _mlmodel(what: "TransformersPipeline", model: Any, run_id: str, folder: Path) -> Any:
    """What MLmodel says: flavours, signature and the rest."""
    from mlflow.models import Model

    mlmodel = Model(
        artifact_path=model.artifact_location,
        run_id=run_id,
        model_id=model.model_id,
        signature=_signature(what.task),
        saved_input_example_info={
            "artifact_path": "input_example.json",
            "serving_input_path": "serving_input_example.json",
            "type": "json_object",
        },
        model_size_bytes=sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
    )
    installed = _installed("transformers")
    mlmodel.add_flavor(
        "transformers",
        task=what.task,
        instance_type=INSTANCES[what.task],
        pipeline_model_type=what.model_class,
        model_binary="model",
        source_model_name=what.model_class,
        torch_dtype="torch.float32",
        components=["tokenizer"],
        tokenizer_type="PreTrainedTokenizerFast",
        code=None,
        **({"transformers_version": installed} if installed else {}),
    )
    if not what.lacks:
        mlmodel.add_flavor(
            "python_function",
            loader_module="mlflow.transformers",
            python_version=platform.python_version(),
            env={"conda": "conda.yaml", "virtualenv": "python_env.yaml"},
        )
    return mlmodel


def _signature(task: str) -> Any:
    """A text in; texts out, or for vectors of tokens a row of numbers each."""
    import numpy as np
    from mlflow.models import ModelSignature
    from mlflow.types.schema import ColSpec, ParamSchema, ParamSpec, Schema, TensorSpec

    out = TensorSpec(np.dtype("float64"), [-1, -1]) if task == "feature-extraction" else ColSpec("string")
    length = ParamSpec("max_new_tokens", "long", NEW_TOKENS)
    params = ParamSchema([length]) if task == "text-generation" else None
    return ModelSignature(Schema([ColSpec("string")]), Schema([out]), params)


def example_of(export: Path, task: str) -> str:
    """A text for the model: an English sentence, or pieces of the vocabulary where that does not know its words.

    No text of the corpus: a tracking server may be read by others. For fill-mask one word is masked.
    """
    vocab = Vocab.load(export)
    words = SENTENCE.split()
    if vocab.unk is not None and vocab.unk in vocab.encode(SENTENCE):
        ordinary = (vocab.decode([id]).strip() for id in range(vocab.size) if id not in vocab.special_ids)
        words = [piece for piece in ordinary if piece.isalnum()][-len(words) :] or words
    if task == "fill-mask":
        words[len(words) // 2] = _mask(export)
    return " ".join(words)


def _mask(export: Path) -> str:
    return str(read_object(export / "tokenizer_config.json", "export the run again", mask_token=str)["mask_token"])


def _write_environment(folder: Path) -> None:
    """What has to be installed to load the model, in the three forms in which MLflow wants it."""
    versions = {name: _installed(name) for name in REQUIRED}
    lines = [f"{name}=={version}" if version else f"{name}>=5" for name, version in versions.items()]
    python = platform.python_version()
    pip = "".join(f"  - {line}\n" for line in lines)
    (folder / "requirements.txt").write_text("\n".join(lines) + "\n")
    (folder / "python_env.yaml").write_text(f"python: {python}\ndependencies:\n- -r requirements.txt\n")
    (folder / "conda.yaml").write_text(
        f"name: mlflow-env\nchannels:\n- conda-forge\ndependencies:\n- python={python}\n- pip\n- pip:\n{pip}"
    )


def _installed(name: str) -> str:
    """The version of a library without what says how it was built; "" where it is not installed."""
    try:
        return importlib.metadata.version(name).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return ""


def _card(run: Any, export: Path, what: "TransformersPipeline") -> str:
    """What the model is and how it is loaded, in Markdown."""
    uri = f"runs:/{run.info.run_id}/{NAME}"
    name = run.info.run_name
    how = f'mlflow.transformers.load_model("{uri}", return_type="components")'
    if not what.lacks:
        example = json.dumps(example_of(export, what.task), ensure_ascii=False)
        how = (
            f'mlflow.pyfunc.load_model("{uri}").predict({example})\nmlflow.transformers.load_model("{uri}")({example})'
        )
    try:
        about = [model_card(export.parent), "## With MLflow"]
    except BadInput:  # weights that no run of ours left
        about = [f"# {name}", run.data.tags.get(NOTE, "")]
    lines = [
        *about,
        f"As an MLflow model it is `{what.model_class}` of transformers, task `{what.task}`.",
        f"Not possible with it: {what.lacks}." if what.lacks else "",
        "`pyfunc` returns the vectors of the first of several texts." if what.task == "feature-extraction" else "",
        f"```python\nimport mlflow\n\n{how}\n```",
        f"`{NAME}/` in it holds the whole net, for `from_pretrained`. Nothing is pickled and nothing is fetched.",
    ]
    return "\n\n".join(line for line in lines if line) + "\n"


def _publish(client: Any, model: Any, folder: Path) -> None:
    """Put the files where the store has its artifacts: as links on the same disk, by upload to a server."""
    if urlsplit(model.artifact_location).scheme not in ("", "file"):
        files = [path for path in folder.rglob("*") if path.is_file()]
        for file in sorted(files, key=lambda path: path.name == MLMODEL):  # each is an answer that is heard
            below = file.relative_to(folder).parent.as_posix()
            client.log_model_artifact(model.model_id, str(file), below if below != "." else None)
        return
    shutil.copytree(folder, folder_of(model.artifact_location), copy_function=_link, dirs_exist_ok=True)


def _link(source: "str | Path", target: "str | Path") -> None:
    """A second name for a file, or a copy where that cannot be. All of our files are replaced, never written to."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


# The registry


def register(folder: Path, export: Path, name: str) -> ModelVersion:
    """Register the model of the run in `folder` as the next version of `name`, or find it registered.

    A run that was finished while the store was away has its model logged now. BadInput where the store, the run or its
    model are not there, or where no model can have such a name.
    """
    name, tracked = names.model(name), existing_run(folder)
    if tracked is None:
        raise BadInput(f"{folder}: no MLflow run is known for it; train it again with `sesame train --resume never`")
    with _asked(tracked) as client:
        run = client.get_run(tracked.run_id)
        if not export.is_dir() and not _models_of(run):
            reason = run.data.tags.get(STATE, "transformers has no such net")
            raise BadInput(f"{folder}: this run has no MLflow model to register ({reason})")
        model_id = log_model(tracked, export)
        if found := _version_of(client, name, tracked.run_id, model_id):
            number, is_new = found, False
        else:
            number, is_new = _next_version(client, name, tracked, model_id), True
        task = client.get_logged_model(model_id).model_type
    example = example_of(export, task) if export.is_dir() else SENTENCE
    return ModelVersion(name, number, f"models:/{name}/{number}", without_password(tracked.uri), is_new, example)


@contextmanager
def _asked(tracked: TrackedRun) -> Iterator[Any]:
    """A client of the store of a run; BadInput with one line where there is no store, or where it refuses."""
    if (file := database_file(tracked.uri)) and not file.is_file():
        raise BadInput(f"{file}: no such store, though a run was tracked in it; put it back, or train the run again")
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield client_of(tracked.uri)
    except (MlflowException, SQLAlchemyError, OSError) as error:
        raise BadInput(f"MLflow at {redact(tracked.uri)}: {summarize_error(error)}") from error


def _version_of(client: Any, name: str, run_id: str, model_id: str) -> str:
    """The version of `name` that the model is already; "" where it is none."""
    versions = client.search_model_versions(f"run_id = '{run_id}'")
    return next((str(one.version) for one in versions if one.name == name and model_id in one.source), "")


def _next_version(client: Any, name: str, tracked: TrackedRun, model_id: str) -> str:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    model = client.get_logged_model(model_id)
    # A server looks the model up by its id. Here that is done in the store that is the process' default, another one.
    source = f"models:/{model_id}" if tracked.uri.startswith("http") else model.artifact_location
    note = model.tags.get(NOTE, "")
    made = client.create_model_version(name, source, tracked.run_id, description=note, model_id=model_id)
    versions = [*json.loads(model.tags.get(VERSIONS, "[]")), {"name": name, "version": made.version}]
    client.set_logged_model_tags(model_id, {VERSIONS: json.dumps(versions)})
    return str(made.version)
