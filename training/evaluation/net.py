"""Load a model for evaluation, from a finished run or from a directory of `transformers`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from torch import Tensor

from preprocessing.errors import BadInput
from preprocessing.files import of_kind, read_object
from preprocessing.sampling import ExampleSpec
from preprocessing.tokenization import Vocab, of_folder
from training.evaluation.eval_result import EvaluatedModel
from training.formats import from_transformers, load_weights, weight_files
from training.model_spec import ModelSpec
from training.run import RUN, load_run

_WEIGHTS: Final = "weights"
_TASK_HEADS: Final = {  # by a part of the class of transformers
    "ForSequenceClassification": "a classifier",
    "ForTokenClassification": "a tagger",
    "ForQuestionAnswering": "a model for questions",
    "ForMultipleChoice": "a model for choices",
}
_CONVERT: Final = "AutoModelForPreTraining.from_pretrained(DIR).save_pretrained(DIR)"


def net_of(folder: Path) -> EvaluatedModel:
    """Load the model of a finished run, or of a directory of `transformers`.

    Raises BadInput if the directory is neither, if the run is not finished, or if a file is missing.
    """
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such directory; give a finished run, or a model directory of transformers")
    if (folder / RUN).is_file():
        return net_of_run(folder)
    if (folder / "config.json").is_file():
        return net_of_folder(folder)
    raise BadInput(
        f"{folder}: neither a run (it has no {RUN}) nor a model directory of transformers (it has no config.json); "
        "give one of them"
    )


def net_of_run(folder: Path) -> EvaluatedModel:
    """Load the model of a finished run, with the vocabulary of its corpus. Raises BadInput if it is not finished."""
    try:
        corpus = Path(load_run(folder)["corpus"])
    except (KeyError, TypeError):
        raise BadInput(f"{folder / RUN}: no corpus is named; give the directory of a run of this version") from None
    if not (folder / _WEIGHTS / "spec.json").is_file():
        raise BadInput(f"{folder}: the run is not finished and has no weights; resume it with `sesame train`")
    spec, weights = load_weights(folder / _WEIGHTS)
    return _check_model(folder, spec, weights, reads(folder, Vocab.load(corpus / "vocab")))


def reads(folder: Path, vocab: Vocab) -> Vocab:
    """The vocabulary as the run in `folder` uses it to read texts; unchanged if `folder` is not a run."""
    rows = load_run(folder).get("sampling") if (folder / RUN).is_file() else None
    return ExampleSpec.of(rows).adapt_tokenizer(vocab) if rows else vocab


def net_of_folder(folder: Path) -> EvaluatedModel:
    """Load the model and tokenizer of a directory written by `save_pretrained` of transformers or `sesame export`.

    Raises BadInput if the weights are pickled, the architecture is not supported, or there is no tokenizer.
    """
    if not weight_files(folder, "model")[0].is_file():
        raise BadInput(f"{folder}: {_no_weights(folder)}")
    _refuse_task_head(folder)
    vocab = of_folder(folder)
    return _check_model(folder, *from_transformers(folder), vocab)


def _refuse_task_head(folder: Path) -> None:
    """Raise BadInput for the directory of a fine-tuned model, whose head predicts no tokens."""
    remedy = "write the directory again with save_pretrained"
    with of_kind(folder / "config.json", remedy):
        architecture = (read_object(folder / "config.json", remedy).get("architectures") or [""])[0]
    for ending, noun in _TASK_HEADS.items():
        if ending in str(architecture):
            raise BadInput(
                f"{folder} is {noun} ({architecture}) and predicts no tokens; use the pretrained model that it was "
                f"fine-tuned from, or use it with `sesame eval {folder}` or sesame.open({str(folder)!r}).predict(TEXT)"
            )


def _no_weights(folder: Path) -> str:
    """The reason why a directory has no model.safetensors, and the remedy."""
    if (pickled := sorted(folder.glob("pytorch_model*.bin"))) or (pickled := sorted(folder.glob("*.pt"))):
        return (
            f"only pickled weights ({pickled[0].name}), which can execute code; convert them with {_CONVERT} in Python"
        )
    return "no model.safetensors; give a directory written by save_pretrained"


def _check_model(folder: Path, spec: ModelSpec, weights: Mapping[str, Tensor], vocab: Vocab) -> EvaluatedModel:
    """The model to evaluate. Raises BadInput if the vocabulary is larger than the embedding table."""
    if vocab.size > spec.vocab_size:
        sizes = f"the tokenizer has {vocab.size} tokens, but the embedding table has {spec.vocab_size} rows"
        raise BadInput(f"{folder}: {sizes}; give the tokenizer that the model was trained with")
    return EvaluatedModel(spec, weights, vocab)
