"""Classes of transformers with task heads."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from training.formats.keys import Config
from training.formats.names import Names


class TaskHeadClass(NamedTuple):
    """A class of transformers that computes the same as the trunk with a task head of Sesame."""

    architecture: str
    names: Names  # maps modules of our head to those of the class
    config: Config = MappingProxyType({})  # additional keys of config.json
    tokenizer: Config = MappingProxyType({})  # additional keys of tokenizer_config.json
    # Our bias that gets the bias of the last layer, if the class has no such bias: that of the norm below the head.
    # {last} is the index of the last block.
    bias_into: str = ""
    # The first part of the names of the trunk's tensors, if the class has another one than that of the language model.
    base: str = ""


TaskHeads = Mapping[str, TaskHeadClass | str]
"""By kind of fine-tuning target: the class, or the reason why no class computes the same."""

TASK_KINDS: Final = ("row_label", "row_value", "token_tag", "answer_span", "option_choice")
"""The kinds of fine-tuning targets (finetuning/targets.py) for which transformers has classes."""


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


def make_causal_row_heads(name: str, norm: str) -> dict[str, TaskHeadClass | str]:
    """The classes for sequences whose head is a linear layer without bias above the last token, as in GPT-2.

    `norm` is our bias of the last norm, which gets the bias of the head.
    """
    row = f"{name}ForSequenceClassification"
    return {
        "row_label": TaskHeadClass(row, {"classify": ["score"]}, bias_into=norm),
        "row_value": TaskHeadClass(row, {"regress": ["score"]}, bias_into=norm),
    }


def make_causal_token_heads(name: str, tag: str, base: str = "") -> dict[str, TaskHeadClass | str]:
    """The classes whose head is a linear layer above each token. `tag` is the layer of labels; `base` as in
    TaskHeadClass, for answers."""
    return {
        "token_tag": TaskHeadClass(f"{name}ForTokenClassification", {"classify": [tag]}),
        "answer_span": TaskHeadClass(f"{name}ForQuestionAnswering", {"ends": ["qa_outputs"]}, base=base),
    }


def explain_missing_heads(reason: str, *kinds: str) -> dict[str, TaskHeadClass | str]:
    """The same reason for each of these kinds, or for all kinds."""
    return dict.fromkeys(kinds or TASK_KINDS, reason)
