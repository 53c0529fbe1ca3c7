"""The pipeline of transformers for an exported model. No torch in here."""

from typing import NamedTuple


class TransformersPipeline(NamedTuple):
    """The pipeline of transformers for an exported model."""

    task: str  # fill-mask, text-generation, ...
    model_class: str  # class for the task; it may omit heads of the exported class
    lacks: str = ""  # why no pipeline is available; "" if one is
    unused: tuple[
        str, ...
    ] = ()  # prefixes of tensors that `model_class` does not have; transformers would warn of them
