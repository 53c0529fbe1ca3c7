"""The pipeline of transformers for an exported model. No torch in here."""

from typing import NamedTuple

from training.formats.keys import Config
from training.formats.names import Names


class TransformersPipeline(NamedTuple):
    """The pipeline of transformers for an exported model."""

    task: str  # fill-mask, text-generation, ...
    model_class: str  # class for the task; it may omit heads of the exported class
    lacks: str = ""  # why no pipeline is available; "" if one is
    unused: tuple[
        str, ...
    ] = ()  # prefixes of tensors that `model_class` does not have; transformers would warn of them


def fill_masks(names: Names, config: Config) -> TransformersPipeline:
    """The pipeline that fills masks. Its class has no head for sentence pairs.

    >>> heads = {"heads.pair_label.classify": ["cls.seq_relationship"]}
    >>> fill_masks(heads, {"architectures": ["BertForPreTraining"]})[1:]
    ('BertForMaskedLM', '', ('cls.seq_relationship.',))
    """
    of_pairs = [name for ours, theirs in names.items() if ours.startswith("heads.pair_label.") for name in theirs]
    model_class = config["architectures"][0].replace("ForPreTraining", "ForMaskedLM")
    return TransformersPipeline("fill-mask", model_class, unused=tuple(f"{name}." for name in of_pairs))


def generate_text(names: Names, config: Config) -> TransformersPipeline:
    """The pipeline that continues a text.

    >>> generate_text({}, {"architectures": ["GPT2LMHeadModel"]}).task
    'text-generation'
    """
    return TransformersPipeline("text-generation", config["architectures"][0])


def refuse_seq2seq(names: Names, config: Config) -> TransformersPipeline:
    """No pipeline: transformers 5 has none for an encoder-decoder, and no class for these encoders only."""
    lacks = "transformers 5 has no pipeline for an encoder-decoder"
    return TransformersPipeline("text2text-generation", config["architectures"][0], lacks)
