"""A format of transformers as a value: tables of classes, names of weights and keys of config.json.

A model is exported in a format if one of its classes has the heads, and if config.json, read again, has the same
function (round_trip.py). A key that no table has is read with its default. So a model with another value is refused.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from preprocessing.spec import part
from preprocessing.tokenization import Vocab
from training.formats.keys import (
    MISSING,
    Config,
    Keys,
    get_key,
    get_nested,
    merge,
    nest,
    read_keys,
    require_values,
    write_keys,
)
from training.formats.names import Names, Reshape, Tensors, Weights, gather, is_of_task, rename
from training.formats.round_trip import is_same_function, is_same_head, normal_form
from training.formats.task_classes import TaskHeads
from training.formats.transformers_pipeline import TransformersPipeline, generate_text
from training.losses import Loss
from training.model_spec import ModelSpec
from training.specs import Architecture

if TYPE_CHECKING:  # formats are imported without torch
    from torch import Tensor

PAD: Final = "pad_token_id"
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
EVERYWHERE: Final[Config] = MappingProxyType({"quantization_config": None})
"""The only supported values of keys that all config classes have."""

Convert = Callable[[Weights, ModelSpec], tuple[Weights, ModelSpec]]


class ModelClass(NamedTuple):
    """A class of transformers with the heads of these losses."""

    architecture: str
    losses: tuple[Loss, ...]
    requires: Config = NOTHING  # values of our keys that its head has built in
    lacks: str = ""  # why it has no heads of these losses; "" if it has

    def suits(self, trunk: Architecture) -> bool:
        """Whether its losses can have the attention mask of a model."""
        return all(trunk.attention_mask in loss.sees for loss in self.losses)

    def has_heads_of(self, spec: ModelSpec) -> bool:
        """Whether it has the heads of a model, and no others; or the same ones without weights, if it `lacks` them."""
        if not self.suits(spec.model):
            return False
        names = {loss.head_name: loss for loss in spec.losses}
        fit = (
            loss.head_name in names and (self.lacks or is_same_head(names[loss.head_name], loss, spec.model))
            for loss in self.losses
        )
        return len(names) == len(self.losses) and all(fit)

    def require_keys(self, trunk: Architecture) -> None:
        """Raise ValueError if a key has another value than the head."""
        for key, value in self.requires.items():
            if (given := get_key(trunk, key)) != value:
                raise ValueError(f"invalid {key}: got {given!r}, expected {value!r} for {self.architecture}")


def keep_model(state: Weights, spec: ModelSpec) -> tuple[Weights, ModelSpec]:
    """The model unchanged."""
    return state, spec


def keep_name(name: str, spec: ModelSpec) -> str:
    """The name unchanged."""
    return name


def add_no_constants(spec: ModelSpec) -> Tensors:
    """No tensors."""
    return {}


def accept_tensors(trunk: Architecture, tensors: Weights) -> Architecture:
    """The architecture unchanged."""
    return trunk


@dataclass(frozen=True, eq=False)
class Format:
    """A model type of transformers. Functions are for what tables cannot express."""

    model_type: str
    classes: tuple[ModelClass, ...]
    names: Names
    keys: Keys
    fixed: Config
    """Values of our keys that the classes have built in, with the kinds of the model and its parts."""
    built_in: Config
    """The only supported values of other keys of config.json."""
    defaults: Config
    """Values in transformers of keys that config.json lacks."""
    task_heads: TaskHeads
    """The classes with task heads, for each of TASK_KINDS."""
    written: Mapping[str, str] = field(default_factory=dict)
    """Keys of config.json that are written from our keys, and not read."""
    constant_keys: Config = field(default_factory=dict)
    """Further keys of config.json, which are not read."""
    tokens: Mapping[str, str] = field(default_factory=dict)
    """Keys of config.json with the ID of a special token: its name in a vocabulary."""
    old_keys: Mapping[str, str] = field(default_factory=dict)
    """Keys of older files, with dots for nested mappings, and their current names; of two old ones, the later wins."""
    transposed: tuple[str, ...] = ()
    """Ends of the names of their matrices that have the inputs first."""
    pooler: str = ""
    """The name of the pooler in the class without heads; "" if it has none."""
    pipeline_of: Callable[[Names, Config], TransformersPipeline] = generate_text
    """The pipeline for a model with a config.json."""
    modern: Callable[[str], str] = str
    """The current name of a tensor of an older file."""
    as_class: Convert = keep_model
    """The same function in the form of the classes, if they have no key for ours: weights, and spec."""
    place_of: Callable[[str, ModelSpec], str] = keep_name
    """The name in the form of the classes of one of our tensors; of one of its copies, if there are several."""
    reshape: Reshape | None = None
    """Conversion of tensors with another shape."""
    constants: Callable[[ModelSpec], Tensors] = add_no_constants
    """Tensors of transformers that are not weights in our model."""
    check_tensors: Callable[[Architecture, Weights], Architecture] = accept_tensors
    """The architecture, corrected by what only tensors show. Raises ValueError if they are not supported."""

    def architecture(self, spec: ModelSpec, pad: int | None) -> str | None:
        """The class of transformers that computes the same as `spec`, or None. `pad` is the padding ID."""
        try:
            form = self.as_class({}, spec)[1]
            architecture = next((one.architecture for one in self.classes if self._has_class(one, form)), None)
            if architecture is None:
                return None
            config = self._write(form)
            return architecture if config.get(PAD, pad) == pad and self._reads(config, form) else None
        except ValueError:  # a value that config.json cannot express
            return None

    def missing_heads(self, architecture: str) -> dict[str, str]:
        """The heads that an exported class lacks: why, by name."""
        return {
            loss.head_name: one.lacks
            for one in self.classes
            if one.architecture == architecture and one.lacks
            for loss in one.losses
        }

    def _reads(self, config: Config, form: ModelSpec) -> bool:
        """Whether config.json, read again, has the same function."""
        again = ModelSpec(model=self.read(config), losses=form.losses, vocab_size=form.vocab_size)
        return is_same_function(self.as_class({}, again)[1].model, form.model)

    def _has_class(self, one: ModelClass, form: ModelSpec) -> bool:
        return one.has_heads_of(form) and all(get_key(form.model, key) == x for key, x in one.requires.items())

    def config(self, spec: ModelSpec, vocab: Vocab) -> dict[str, Any]:
        """The content of config.json, without the shared keys of export.py; it may override these."""
        tokens = {key: getattr(vocab, token) for key, token in self.tokens.items()}
        return self._write(self.as_class({}, spec)[1]) | tokens

    def _write(self, form: ModelSpec) -> dict[str, Any]:
        """The keys that tables have, and those whose default in transformers is not supported."""
        trunk = normal_form(form.model)
        unusual = {key: value for key, value in self.built_in.items() if self.defaults.get(key, value) != value}
        written = {theirs: get_key(trunk, ours) for theirs, ours in self.written.items()}
        return nest(write_keys(trunk, self.keys) | unusual | dict(self.constant_keys) | written)

    def pipeline(self, config: Config) -> TransformersPipeline:
        """The pipeline for a model with this config.json."""
        return self.pipeline_of(self.names, config)

    def read(self, config: Config) -> Architecture:
        """The architecture in a config.json. Raises KeyError, TypeError or ValueError if it is not supported."""
        config = self._modernize(config)
        require_values(config, {**self.built_in, **EVERYWHERE})
        trunk: Architecture = part(Architecture, nest({**self.fixed, **read_keys(config, self.keys)}))
        return trunk

    def spec(self, config: Config, tensors: Weights) -> ModelSpec:
        """The spec of a directory of transformers. Raises KeyError, TypeError or ValueError if it is not supported."""
        tensors = self._rename_old(tensors)
        trunk = self.check_tensors(self.read(config), tensors)
        losses = self._losses_in(trunk, tensors)
        for one in self.classes:
            if one.losses == losses and not is_of_task(tensors):
                one.require_keys(trunk)
        return ModelSpec(model=trunk, losses=losses, vocab_size=self._modernize(config)["vocab_size"])

    def _modernize(self, config: Config) -> dict[str, Any]:
        found = nest(self.defaults)
        for old, new in self.old_keys.items():
            value, current = get_nested(config, old), get_nested(config, new)
            if value in (MISSING, None):
                continue
            if current not in (MISSING, None, value):
                raise ValueError(f"invalid {old}: got {value!r}, expected {current!r} as {new}")
            found = merge(found, nest({new: value}))
        return merge(found, config)

    def _losses_in(self, trunk: Architecture, tensors: Weights) -> tuple[Loss, ...]:
        """The losses of the class, if only one suits the attention mask; else those whose heads have tensors.

        With a task head, there is none: the first one.
        """
        suitable = [one.losses for one in self.classes if one.suits(trunk) and not one.lacks]
        if len(suitable) == 1:
            return suitable[0]
        candidates = tuple(dict.fromkeys(loss for losses in suitable for loss in losses))
        heads = {ours.split(".")[1] for ours, theirs in self.names.items() if f"{theirs[0]}.weight" in tensors}
        found = tuple(loss for loss in candidates if loss.head_name in heads)
        return found or (candidates[:1] if is_of_task(tensors) else ())

    def theirs(self, state: Weights, spec: ModelSpec) -> Tensors:
        """Convert our tensors to those of transformers."""
        state, form = self.as_class(state, spec)
        parameters = form.model.tensors(form.vocab_size).parameters()
        fused = {f"trunk.{one.name}": one.fused for one in parameters if one.fused}

        def to_theirs(ours: str, theirs: str, piece: "Tensor") -> "Tensor":
            piece = self.reshape.to_theirs(ours, piece, form.model) if self.reshape else piece
            return piece.T if theirs.endswith(self.transposed) else piece

        return rename(state, self.names, fused, to_theirs)

    def ours(self, tensors: Weights, spec: ModelSpec, wanted: Iterable[str]) -> Tensors:
        """Convert tensors of transformers to ours, those in `wanted`. Raises KeyError with the name of a missing
        tensor."""
        places = {name: self.place_of(name, spec) for name in wanted}
        modern = self._rename_old(tensors)

        def to_ours(ours: str, theirs: str, piece: "Tensor") -> "Tensor":
            piece = piece.T if theirs.endswith(self.transposed) else piece
            return self.reshape.to_ours(ours, piece, spec.model) if self.reshape else piece

        found = gather(modern, self.names, places.values(), to_ours)
        return {name: found[place] for name, place in places.items()}

    def _rename_old(self, tensors: Weights) -> Weights:
        return {self.modern(name): tensor for name, tensor in tensors.items()}
