"""Fine-tuned models as directories for `transformers`: the trunk in the format of its family, and a task head.

`formats/NAME.py` has the classes of a family and their weights (`task_heads`). A model whose family has no class that
computes the same is exported as another family that does: an ELECTRA discriminator with a classifier is a BERT, or an
ALBERT if its embeddings are smaller. A model without such a class is refused, so that logits never differ.

Weights have the names of finetuning/model.py: `trunk.…`, and `heads.KIND.…` for the kind of the target.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from preprocessing.errors import BadInput
from preprocessing.files import of_kind
from preprocessing.tokenization import Vocab, with_padding, with_template
from training.architectures import sinusoids_at
from training.formats import sharded
from training.formats.all import FORMATS
from training.formats.electra import half
from training.formats.export import OUTPUT, by_layer, common_config, save_tokenizer
from training.formats.format import Format
from training.formats.load import convert, empty_weights, open_folder
from training.formats.names import gather, keep_piece, rename
from training.formats.spec_file import read_json, write_json
from training.formats.task_classes import TASK_KINDS, TaskHeadClass
from training.formats.weights import Weights
from training.losses import Loss, MaskedTokens, NextToken
from training.model_spec import ModelSpec
from training.specs import Encoder, FullAttention, GeneratorDiscriminator, LearnedPositions, SinusoidalPositions

POSITIONS, SEGMENTS, LANGUAGES = "trunk.positions.weight", "trunk.segments.weight", "trunk.languages.weight"
_LOSSES: Final[tuple[tuple[Loss, ...], ...]] = ((MaskedTokens(),), (MaskedTokens(transform=False),), (NextToken(),))
_MOST_RESIDUAL: Final = 1e-6  # relative error of a folded bias
REGRESSION: Final = "regression"


@dataclass(frozen=True)
class TaskWeights:
    """A trunk with a task head: the kind of its target, and its weights by the names of finetuning/model.py."""

    kind: str  # one of TASK_KINDS
    spec: ModelSpec  # its losses have no weights here
    weights: Weights
    labels: tuple[str, ...] = ()  # the names of classes; for a regression the name of the number
    config: Mapping[str, Any] = field(default_factory=dict)  # config.json, if the weights come from a directory


class _Choice(NamedTuple):
    """The format, the spec that it exports, and the class with the head."""

    format: Format
    spec: ModelSpec
    head: TaskHeadClass


def describe_task_export(spec: ModelSpec, pad: int | None, kind: str) -> str:
    """The class of transformers for a model with this kind of fine-tuning target. Raises BadInput if there is none."""
    return _choose(spec, pad, kind).head.architecture


def task_to_transformers(
    task: TaskWeights, vocab: Vocab, out: Path, *, length: int = 0, shard_bytes: int = sharded.SHARD_BYTES
) -> str:
    """Write a directory for the Auto class of the task; return the class.

    It has model.safetensors (or shards), the tokenizer with the special tokens of the task, and config.json, which is
    written last. The tokenizer truncates sequences to `length` tokens; 0: to the limit of the model. A tokenizer
    without padding gets a padding token, so that batches can be padded. A bias that the class lacks becomes a part of
    the bias of the last norm. Raises BadInput if no class computes the same.
    """
    choice = _choose(task.spec, vocab.pad, task.kind)
    state, spec = _as_encoder(task.weights, task.spec)
    if choice.spec.model != spec.model:
        state = _without_segments(state, spec)
    vocab = with_template(vocab)
    if vocab.pad is None:
        vocab = with_padding(vocab)
        state = _with_rows(state, vocab.size)
    spec = replace(choice.spec, vocab_size=max(task.spec.vocab_size, vocab.size))
    if choice.head.bias_into:
        state = _fold_bias(state, task.kind, choice.head.bias_into.format(last=spec.model.num_hidden_layers - 1))
    (out / "config.json").unlink(missing_ok=True)
    tensors = _tensors(choice, state, spec, task.kind)
    sharded.write(tensors, out, "model", {"format": "pt"}, shard_bytes=shard_bytes)
    limit = {"model_max_length": min(length, spec.model.longest)} if length else {}
    save_tokenizer(vocab, spec.model, out, {**choice.head.tokenizer, **limit})
    config = common_config(spec, vocab) | {
        "model_type": choice.format.model_type,
        "architectures": [choice.head.architecture],
    }
    config |= choice.format.config(spec, vocab) | dict(choice.head.config) | _labels(task)
    write_json(out / "config.json", config)
    return choice.head.architecture


def task_from_transformers(folder: Path) -> TaskWeights:
    """The model in a directory with a task head, of Sesame or `save_pretrained`.

    Raises BadInput if its class has no head of TASK_KINDS that computes the same as Sesame's.
    """
    config = read_json(folder / "config.json")
    kind, head, labels = _head_of(folder, config)
    format, spec, tensors = open_folder(folder)
    trunk = {name: weight for name, weight in empty_weights(spec).items() if name.startswith("trunk.")}
    state = convert(folder, format, spec, tensors, trunk)
    modules = [f"heads.{kind}.{ours}.{leaf}" for ours in head.names for leaf in ("weight", "bias")]
    last = [name for name in modules if head.bias_into and name.endswith("bias")]
    try:
        wanted = [name for name in modules if name not in last]
        state |= gather(tensors, _with_prefix(head.names, kind), wanted, keep_piece)
    except KeyError as error:
        raise BadInput(
            f"{folder}: missing tensor {error.args[0]}, which its class {head.architecture} requires; download the "
            "files of the same model"
        ) from None
    state |= {name: torch.zeros(len(state[name.replace("bias", "weight")])) for name in last}
    count = len(state[next(name for name in reversed(wanted) if name.endswith("weight"))])
    if labels and count != len(labels):
        raise BadInput(
            f"{folder / 'model.safetensors'}: its head has {count} outputs, expected {len(labels)} for the {kind} of "
            "config.json; download both files of the same model"
        )
    return TaskWeights(kind, spec, state, labels, config)


def describe_task_head(folder: Path) -> tuple[str, tuple[str, ...]]:
    """The kind of target of a directory and the names of its classes, from config.json only. Raises BadInput like
    `task_from_transformers`."""
    kind, _, labels = _head_of(folder, read_json(folder / "config.json"))
    return kind, labels


def _head_of(folder: Path, config: Mapping[str, Any]) -> tuple[str, TaskHeadClass, tuple[str, ...]]:
    """The kind of target of a directory, its class, and the names of its labels."""
    with of_kind(folder / "config.json", "write the directory again with save_pretrained of transformers"):
        architecture = (config.get("architectures") or [""])[0]
        count = int(config.get("num_labels") or len(config.get("id2label") or (0, 1)))
        names = {int(number): str(name) for number, name in (config.get("id2label") or {}).items()}
    format = next((format for format in FORMATS if format.model_type == config.get("model_type")), None)
    heads = dict(format.task_heads) if format else {}
    is_regression = config.get("problem_type") == REGRESSION or count == 1
    for kind in TASK_KINDS:
        head = heads.get(kind)
        if isinstance(head, TaskHeadClass) and head.architecture == architecture:
            if kind in ("row_label", "row_value") and is_regression != (kind == "row_value"):
                continue
            for key, value in head.config.items():
                if (given := config.get(key)) != value:
                    where = f"{folder / 'config.json'}: invalid {key}"
                    raise BadInput(f"{where}: got {given!r}, expected {value!r} as in Sesame; use another model")
            has_labels = kind not in ("answer_span", "option_choice")
            labels = (names.get(at, f"LABEL_{at}") for at in range(1 if kind == "row_value" else count))
            return kind, head, tuple(labels) if has_labels else ()
    supported = sorted({head.architecture for head in heads.values() if isinstance(head, TaskHeadClass)})
    reasons = dict.fromkeys(head for head in heads.values() if isinstance(head, str))
    expected = f"expected {', '.join(supported)}" if supported else "expected another model_type"
    why = f" ({'; '.join(reasons)})" if reasons else ""
    raise BadInput(
        f"{folder / 'config.json'}: invalid architectures: got {architecture or 'none'}, {expected}{why}; use another "
        "model"
    )


def _labels(task: TaskWeights) -> dict[str, Any]:
    """The keys of config.json about the labels."""
    if not task.labels:
        return {}
    keys: dict[str, Any] = {
        "id2label": dict(enumerate(task.labels)),  # sorted by number, as by transformers
        "label2id": {name: number for number, name in enumerate(task.labels)},
    }
    problem = {"row_label": "single_label_classification", "row_value": REGRESSION}
    return keys | ({"problem_type": problem[task.kind]} if task.kind in problem else {})


def _tensors(choice: _Choice, state: Weights, spec: ModelSpec, kind: str) -> Iterator[tuple[str, Tensor]]:
    """The tensors of transformers, one layer of the trunk at a time, then those of the head."""
    trunk = [name for name in state if name.startswith("trunk.") and not name.startswith(OUTPUT)]
    for name, tensor in by_layer(choice.format, state, trunk, spec):
        yield (f"{choice.head.base}.{name.partition('.')[2]}" if choice.head.base else name), tensor
    names = _with_prefix(choice.head.names, kind)
    head = {name: tensor for name, tensor in state.items() if name.startswith(f"heads.{kind}.")}
    left = {f"heads.{kind}.{list(choice.head.names)[-1]}.bias"} if choice.head.bias_into else set()
    kept = {name: tensor for name, tensor in head.items() if name not in left}
    yield from rename(kept, names, {}, keep_piece).items()


def _with_prefix(names: Mapping[str, Sequence[str]], kind: str) -> dict[str, Sequence[str]]:
    return {f"heads.{kind}.{ours}": theirs for ours, theirs in names.items()}


# The choice of a class


def _choose(spec: ModelSpec, pad: int | None, kind: str) -> _Choice:
    """The first class that computes the same: of the model's own family if possible. Raises BadInput if there is
    none."""
    if kind not in TASK_KINDS:
        known = ", ".join(TASK_KINDS)
        raise BadInput(f"--save: invalid head: got {kind}, expected one of {known}; leave --save out")
    reasons = dict[str, None]()
    for format, architecture_spec in _candidates(_as_encoder({}, spec)[1], pad):
        head = format.task_heads[kind]
        if isinstance(head, TaskHeadClass):
            return _Choice(format, architecture_spec, head)
        reasons |= {head: None}
    why = "; ".join(reasons) or "transformers has no such architecture"
    raise BadInput(
        f"--save: no class of transformers computes the same as this {spec.model.kind}: {why}; leave --save out"
    )


def _candidates(spec: ModelSpec, pad: int | None) -> Iterator[tuple[Format, ModelSpec]]:
    """The formats of a trunk, whatever its pretraining heads, each with the spec that it exports."""
    forms = [spec, *([without] if (without := _without_segments_spec(spec)) else [])]
    for form in forms:
        for losses in (form.losses, *_LOSSES):
            try:
                one = replace(form, losses=losses)
            except ValueError:  # these losses do not fit the architecture
                continue
            yield from ((format, one) for format in FORMATS if format.architecture(one, pad))


def _as_encoder(state: Weights, spec: ModelSpec) -> tuple[Weights, ModelSpec]:
    """The discriminator of a generator and discriminator, which is fine-tuned, as an encoder; other models unchanged.

    The head stays.
    """
    if not isinstance(spec.model, GeneratorDiscriminator):
        return state, spec
    encoder, spec = half(state, spec, "discriminator")
    return {**encoder, **{name: tensor for name, tensor in state.items() if name.startswith("heads.")}}, spec


def _without_segments_spec(spec: ModelSpec) -> ModelSpec | None:
    """The same function as an encoder like BERT, for an encoder like XLM; None for another model.

    Sinusoids and the embedding of the first language become learned positions, and the only segment has zeros.
    """
    trunk = spec.model
    if not isinstance(trunk, Encoder) or trunk.type_vocab_size or not isinstance(trunk.attention_window, FullAttention):
        return None
    positions = trunk.position_embedding
    if not isinstance(positions, LearnedPositions | SinusoidalPositions):
        return None
    learned = LearnedPositions(max_position_embeddings=positions.max_position_embeddings - positions.offset)
    return replace(
        spec, model=replace(trunk, type_vocab_size=1, num_languages=0, position_embedding=learned), losses=_LOSSES[0]
    )


def _without_segments(state: Weights, spec: ModelSpec) -> dict[str, Tensor]:
    """The weights for `_without_segments_spec`."""
    trunk, positions = spec.model, spec.model.position_embedding
    assert isinstance(positions, LearnedPositions | SinusoidalPositions)
    longest = positions.max_position_embeddings - positions.offset
    table = (
        state[POSITIONS][positions.offset :]
        if POSITIONS in state
        else sinusoids_at(torch.arange(longest), trunk.hidden_size)
    )
    if LANGUAGES in state:
        table = table + state[LANGUAGES][0]
    others = {name: tensor for name, tensor in state.items() if name not in (POSITIONS, LANGUAGES)}
    return others | {POSITIONS: table, SEGMENTS: torch.zeros(1, trunk.hidden_size)}


# Equivalent weights


def _with_rows(state: Weights, rows: int) -> dict[str, Tensor]:
    """The weights with rows of zeros at the end of a token table that has fewer than `rows` rows."""
    name = "trunk.tokens.weight"
    missing = rows - len(state[name])
    if missing <= 0:
        return dict(state)
    return {**state, name: torch.cat([state[name], state[name].new_zeros(missing, state[name].shape[1])])}


def _fold_bias(state: Weights, kind: str, norm: str) -> dict[str, Tensor]:
    """The weights without the bias of the last layer, whose logits W h + b stay the same.

    The bias of the norm below the head, which nothing else reads, becomes d + the shortest solution x of W x = b.
    """
    layer = next(name for name in state if name.startswith(f"heads.{kind}.") and name.endswith(".bias"))
    weight, bias = state[layer.replace(".bias", ".weight")].double(), state[layer].double()
    shift = torch.linalg.pinv(weight) @ bias
    error = (weight @ shift - bias).abs().max() / bias.abs().max().clamp(min=1e-12)
    if float(error) > _MOST_RESIDUAL:
        raise BadInput(
            f"--save: the class of transformers has no bias in its last layer, and the rows of {layer} are linearly "
            "dependent; fine-tune with another seed"
        )
    folded = {name: tensor for name, tensor in state.items() if name != layer}
    return {**folded, norm: (state[norm].double() + shift).to(state[norm].dtype)}
