"""The interface of a format of transformers, and shared functions: tables that map our names and keys to theirs."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from preprocessing.tokenization import Vocab
from training.formats.transformers_pipeline import TransformersPipeline
from training.losses import Loss
from training.model_spec import ModelSpec
from training.specs import Stack

if TYPE_CHECKING:  # formats are imported without torch
    from torch import Tensor

Weights = Mapping[str, "Tensor"]
Tensors = dict[str, "Tensor"]
Config = Mapping[str, Any]
Names = Mapping[str, Sequence[str]]
"""Maps our modules to those of transformers. * is the layer index. If there are several names, our tensor is the
concatenation of theirs."""


class TaskHeadClass(NamedTuple):
    """A class of transformers that computes the same as the trunk with a task head of Sesame."""

    architecture: str
    names: Names  # maps modules of our head to those of the class
    config: Config = MappingProxyType({})  # additional keys of config.json
    tokenizer: Config = MappingProxyType({})  # additional keys of tokenizer_config.json
    # Our bias that gets the bias of the last layer, if the class has no such bias: that of the norm below the head.
    # {last} is the index of the last block.
    bias_into: str = ""


TaskHeads = Mapping[str, TaskHeadClass | str]
"""By kind of fine-tuning target: the class, or the reason why no class computes the same."""

TASK_KINDS: Final = ("row_label", "row_value", "token_tag", "answer_span", "option_choice")
"""The kinds of fine-tuning targets (finetuning/targets.py) for which transformers has classes."""


ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}


class ModelFormat(Protocol):
    """A model type of transformers, as a module of this directory: the supported models, and names of keys and
    weights."""

    @property
    def model_type(self) -> str: ...

    @property
    def pooler(self) -> str:
        """The name of the pooler in the class without heads; "" if it has none."""

    @property
    def task_heads(self) -> TaskHeads:
        """The classes with task heads, for each of TASK_KINDS."""

    @property
    def by_layer(self) -> bool:
        """Whether tensors can be converted one layer at a time."""

    def architecture(self, spec: ModelSpec, pad: int | None, /) -> str | None:
        """The class of transformers that computes the same as `spec`, or None."""

    def config(self, spec: ModelSpec, vocab: Vocab, /) -> dict[str, Any]:
        """The content of config.json, without the shared keys of export.py; it may override these."""

    def pipeline(self, config: Config, /) -> TransformersPipeline:
        """The pipeline for a model with this config.json."""

    def spec(self, config: Config, tensors: Weights, /) -> ModelSpec:
        """The spec of a directory of transformers. Raises KeyError, TypeError or ValueError if it is not supported."""

    def theirs(self, state: Weights, spec: ModelSpec, /) -> Tensors:
        """Convert our tensors to those of transformers."""

    def ours(self, tensors: Weights, spec: ModelSpec, wanted: Iterable[str], /) -> Tensors:
        """Convert tensors of transformers to ours, those in `wanted`. Raises KeyError with the name of a missing
        tensor."""


def rename(state: Weights, names: Names, input_first: tuple[str, ...] = ()) -> Tensors:
    """Rename our tensors to theirs; split a tensor that corresponds to several of theirs."""
    tensors: Tensors = {}
    for name, tensor in state.items():
        theirs = their_names(name, names)
        for piece_name, piece in zip(theirs, tensor.chunk(len(theirs)), strict=True):
            tensors[piece_name] = (piece.T if piece_name.endswith(input_first) else piece).contiguous()
    return tensors


def gather(tensors: Weights, names: Names, wanted: Iterable[str], input_first: tuple[str, ...] = ()) -> Tensors:
    """Return our tensors `wanted`; concatenate those that correspond to several of theirs."""
    import torch

    state: Tensors = {}
    for name in wanted:
        pieces = [(theirs, tensors[theirs]) for theirs in their_names(name, names)]
        state[name] = torch.cat([piece.T if theirs.endswith(input_first) else piece for theirs, piece in pieces])
    return state


def their_names(ours: str, names: Names) -> list[str]:
    """
    >>> their_names("trunk.blocks.7.attention.out.bias", {"trunk.blocks.*.attention.out": ["h.*.attn.c_proj"]})
    ['h.7.attn.c_proj.bias']
    """
    module, _, leaf = ours.rpartition(".")
    number = "".join(re.findall(r"\d+", module))
    return [f"{name.replace('*', number)}.{leaf}" for name in names[re.sub(r"\d+", "*", module)]]


def add_prefix(names: Names, old: str, new: str) -> dict[str, list[str]]:
    """Replace the prefix of the names of transformers.

    >>> add_prefix({"trunk.tokens": ["bert.embeddings.word_embeddings"]}, "bert.", "ernie.")
    {'trunk.tokens': ['ernie.embeddings.word_embeddings']}
    """
    return {ours: [re.sub(f"^{re.escape(old)}", new, name) for name in theirs] for ours, theirs in names.items()}


def make_masked_lm_pipeline(names: Names, config: Config) -> TransformersPipeline:
    """The pipeline that fills masks. `names` are those of the format: its class has no head for sentence pairs.

    >>> heads = {"heads.pair_label.classify": ["cls.seq_relationship"]}
    >>> make_masked_lm_pipeline(heads, {"architectures": ["BertForPreTraining"]})[1:]
    ('BertForMaskedLM', '', ('cls.seq_relationship.',))
    """
    of_pairs = [name for ours, theirs in names.items() if ours.startswith("heads.pair_label.") for name in theirs]
    model_class = config["architectures"][0].replace("ForPreTraining", "ForMaskedLM")
    return TransformersPipeline("fill-mask", model_class, unused=tuple(f"{name}." for name in of_pairs))


def make_pooled_heads(name: str, pooler: str) -> dict[str, TaskHeadClass | str]:
    """The classes whose heads are a pooler inside the trunk and one linear layer, as in BERT.

    >>> make_pooled_heads("Bert", "bert.pooler.dense")["token_tag"].architecture
    'BertForTokenClassification'
    """
    pool, row = {"summary.pooler": [pooler]}, f"{name}ForSequenceClassification"
    return {
        "row_label": TaskHeadClass(row, pool | {"classify": ["classifier"]}),
        "row_value": TaskHeadClass(row, pool | {"regress": ["classifier"]}),
        "token_tag": TaskHeadClass(f"{name}ForTokenClassification", {"classify": ["classifier"]}),
        "answer_span": TaskHeadClass(f"{name}ForQuestionAnswering", {"ends": ["qa_outputs"]}),
        "option_choice": TaskHeadClass(f"{name}ForMultipleChoice", pool | {"rate": ["classifier"]}),
    }


def explain_missing_heads(reason: str, *kinds: str) -> dict[str, TaskHeadClass | str]:
    """The same reason for each of these kinds, or for all kinds."""
    return dict.fromkeys(kinds or TASK_KINDS, reason)


def causal_pipeline(config: Config) -> TransformersPipeline:
    """
    >>> causal_pipeline({"architectures": ["GPT2LMHeadModel"]}).task
    'text-generation'
    """
    return TransformersPipeline("text-generation", config["architectures"][0])


def their_keys(trunk: Stack, keys: Mapping[str, str]) -> dict[str, Any]:
    """Return values for config.json; `keys` maps our keys (with dots for nested parts) to those of transformers."""
    config = {theirs: attrgetter(ours)(trunk) for ours, theirs in keys.items()}
    if "intermediate_size" in keys:
        config[keys["intermediate_size"]] = trunk.inner_width
    if "activation" in keys:
        config[keys["activation"]] = next(theirs for theirs, ours in ACTIVATIONS.items() if ours == trunk.activation)
    return config


def our_keys(config: Config, keys: Mapping[str, str], built_in: Config) -> dict[str, Any]:
    """Return the values of config.json by our keys; omitted keys must have the same default on both sides.

    `built_in` has the only supported values of other keys. Raises ValueError if one has a different value.
    """
    for key, allowed in built_in.items():
        if config.get(key, allowed) != allowed:
            raise ValueError(f"invalid {key}: got {config[key]!r}, expected {allowed!r}")
    values = {ours: config[theirs] for ours, theirs in keys.items() if config.get(theirs) is not None}
    if "activation" in values:
        values["activation"] = ACTIVATIONS[values["activation"]]
    return values


def losses_in(tensors: Weights, names: Names, candidates: Collection[Loss]) -> tuple[Loss, ...]:
    """Return the candidates whose heads have tensors in the file. With a task head, there is none: the first one."""
    heads = {ours.split(".")[1] for ours, theirs in names.items() if f"{theirs[0]}.weight" in tensors}
    found = tuple(loss for loss in candidates if loss.head_name in heads)
    return found or (tuple(candidates)[:1] if is_of_task(tensors) else ())


def is_of_task(tensors: Collection[str]) -> bool:
    """Whether tensors have a task head, by the names that the classes of transformers have in common.

    >>> is_of_task(["bert.pooler.dense.weight", "classifier.weight"]), is_of_task(["cls.predictions.bias"])
    (True, False)
    """
    heads = ("classifier.", "qa_outputs.", "score.", "logits_proj.", "sequence_summary.")
    return any(name.startswith(heads) for name in tensors)


def heads_of(spec: ModelSpec) -> set[str]:
    """The names of the heads of a model. Losses with the same head are exported alike."""
    return {loss.head_name for loss in spec.losses}
