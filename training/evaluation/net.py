"""What is evaluated, from disk: the net of a finished run of ours, or that of any folder of `transformers`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from torch import Tensor

from preprocessing.errors import BadInput
from preprocessing.sampling import ExampleSpec
from preprocessing.tokenization import Vocab, of_folder
from training.evaluation.eval_result import EvaluatedModel
from training.formats import from_transformers, load_weights, weight_files
from training.model import ModelSpec
from training.run import RUN, load_run

_WEIGHTS: Final = "weights"
_CONVERT: Final = "AutoModelForPreTraining.from_pretrained(DIR).save_pretrained(DIR)"


def net_of(folder: Path) -> EvaluatedModel:
    """The net of a finished run of ours, or of a folder of `transformers`.

    BadInput, in one line, where the folder is neither, is not finished, or lacks what it takes.
    """
    if not folder.is_dir():
        raise BadInput(f"{folder}: is no folder; give a finished run, or a folder of transformers")
    if (folder / RUN).is_file():
        return net_of_run(folder)
    if (folder / "config.json").is_file():
        return net_of_folder(folder)
    raise BadInput(
        f"{folder}: is neither a run (it has no {RUN}) nor a folder of transformers (it has no config.json); give one"
    )


def net_of_run(folder: Path) -> EvaluatedModel:
    """The net of a finished run, with the vocabulary of its corpus. BadInput where it is not finished."""
    try:
        corpus = Path(load_run(folder)["corpus"])
    except (KeyError, TypeError):
        raise BadInput(f"{folder / RUN}: says no corpus; give the folder of a run of this version") from None
    if not (folder / _WEIGHTS / "spec.json").is_file():
        raise BadInput(f"{folder}: this run is not finished, so it has no weights; go on with `sesame train`")
    spec, weights = load_weights(folder / _WEIGHTS)
    return _checked(folder, spec, weights, reads(folder, Vocab.load(corpus / "vocab")))


def reads(folder: Path, vocab: Vocab) -> Vocab:
    """The vocabulary of a run's corpus as the net of this run reads texts; of another folder, as it is."""
    rows = load_run(folder).get("sampling") if (folder / RUN).is_file() else None
    return ExampleSpec.of(rows).reading(vocab) if rows else vocab


def net_of_folder(folder: Path) -> EvaluatedModel:
    """The net of a folder that `save_pretrained` of transformers or `sesame export` wrote, with its tokenizer there.

    BadInput where its weights are pickled, its architecture is none that we build, or there is no tokenizer.
    """
    if not weight_files(folder, "model")[0].is_file():
        raise BadInput(f"{folder}: {_no_weights(folder)}")
    vocab = of_folder(folder)
    return _checked(folder, *from_transformers(folder), vocab)


def _no_weights(folder: Path) -> str:
    """Why a folder has no model.safetensors."""
    if (pickled := sorted(folder.glob("pytorch_model*.bin"))) or (pickled := sorted(folder.glob("*.pt"))):
        return (
            f"has pickled weights only ({pickled[0].name}), which can run code; convert them with {_CONVERT} in Python"
        )
    return "has no model.safetensors; give a folder that save_pretrained wrote"


def _checked(folder: Path, spec: ModelSpec, weights: Mapping[str, Tensor], vocab: Vocab) -> EvaluatedModel:
    """The net; BadInput where the vocabulary has more pieces than the token table rows."""
    if vocab.size > spec.vocab_size:
        sizes = f"the tokenizer has {vocab.size} pieces, the net's table {spec.vocab_size} rows"
        raise BadInput(f"{folder}: {sizes}; give the tokenizer that the net was trained with")
    return EvaluatedModel(spec, weights, vocab)
