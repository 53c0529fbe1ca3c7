"""Mistral (arXiv:2310.06825): MistralForCausalLM. It is LLaMA with an attention window."""

from typing import Final

from training.formats import llama, rope
from training.formats.format import Format, ModelClass
from training.formats.keys import Key
from training.losses import NextToken
from training.specs import AttentionWindow, CausalSlidingWindow


def write_window(window: AttentionWindow) -> int | None:
    """The value of sliding_window. Raises ValueError for a window that not all layers have.

    >>> write_window(CausalSlidingWindow(size=4096))
    4096
    """
    if window.kind == "full":
        return None
    if isinstance(window, CausalSlidingWindow):
        return window.size
    raise ValueError(f"invalid sliding_window: got no value for {window.kind!r}, expected 'full' or 'sliding'")


def read_window(size: int | None) -> dict[str, object]:
    """
    >>> read_window(None), read_window(4096)
    ({'kind': 'full'}, {'kind': 'sliding', 'size': 4096})
    """
    return {"kind": "full"} if size is None else {"kind": "sliding", "size": size}


MISTRAL: Final = Format(
    model_type="mistral",
    classes=(ModelClass("MistralForCausalLM", (NextToken(),)),),
    names=llama.NAMES,
    keys={**llama.KEYS, "attention_window": Key(("sliding_window",), write_window, read_window)},
    fixed=llama.FIXED,
    built_in={"layer_types": None},  # of other model types
    defaults={
        **llama.DEFAULTS,
        "num_key_value_heads": 8,
        "intermediate_size": 14_336,
        "max_position_embeddings": 131_072,
        "sliding_window": 4_096,
    },
    old_keys=rope.OLD_KEYS,
    task_heads=llama.make_task_heads("Mistral", "model"),
    check_tensors=llama.CHECK_TENSORS,
)
