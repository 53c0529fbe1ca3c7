"""`generate`: continue prompts with a model."""

from collections.abc import Iterator, Sequence
from typing import Final

from preprocessing.errors import BadInput
from preprocessing.rng import RandomKey
from training.generation.beam import search
from training.generation.rows import MaskSlot, Prompt, begin
from training.generation.sample import GeneratedText, make_chooser, sample_tokens
from training.generation.spec import BeamSearch, GenerationLimits, GreedyDecoding, Method
from training.model import Model

GREEDY: Final = GreedyDecoding()


def generate(
    model: Model,
    prompts: Sequence[Prompt],
    limits: GenerationLimits,
    *,
    method: Method = GREEDY,
    key: RandomKey | None = None,
    batch: int = 16,
    cached: bool = True,
    blank: MaskSlot | None = None,
) -> Iterator[GeneratedText]:
    """Yield the continuation of each prompt, in order; `batch` prompts are decoded together.

    A result depends only on its own prompt and index, not on the other prompts of the batch. Samples are drawn from
    `key`. With `cached=False`, each step reads whole sequences: this is slower, and works for models without a cache.
    With a `blank`, an encoder with attention mask "per_sequence" can generate too. The model must not be in training
    mode.

    Raises BadInput if a prompt is empty, too long, contains a token outside the vocabulary, or lacks a source.
    """
    assert not model.training, "generation needs dropout off: call model.eval()"
    for number, prompt in enumerate(prompts):
        _check(model, prompt, number)
    for first in range(0, len(prompts), batch):
        numbers = range(first, min(first + batch, len(prompts)))
        chosen = [prompts[number] for number in numbers]
        rows = begin(model, chosen, cached=cached, blank=blank)
        room = [min(limits.max_new_tokens, model.spec.model.longest - len(prompt.ids)) for prompt in chosen]
        if isinstance(method, BeamSearch):
            yield from search(model, rows, room, method, limits)
        else:
            choose = make_chooser(method, numbers, key, limits.max_new_tokens)
            yield from sample_tokens(model, rows, room, choose, limits)


def _check(model: Model, prompt: Prompt, number: int) -> None:
    """Raise BadInput unless the model can continue the prompt."""
    trunk, where = model.spec.model, f"prompt {number + 1}"
    if len(prompt.ids) == 0:
        raise BadInput(f"{where}: no tokens; start with one, such as the token that ends a document")
    if len(prompt.ids) >= trunk.longest:
        raise BadInput(
            f"{where}: too long: got {len(prompt.ids)} tokens, expected fewer than {trunk.longest}; shorten it"
        )
    if trunk.reads_source != (prompt.source_ids is not None):
        remedy = "add a source for the encoder" if trunk.reads_source else "remove the source: the model has no encoder"
        raise BadInput(f"{where}: invalid source; {remedy}")
    source = () if prompt.source_ids is None else prompt.source_ids
    if prompt.source_ids is not None and not 1 <= len(source) <= trunk.longest:
        raise BadInput(
            f"{where}: invalid source: got {len(source)} tokens, expected 1 to {trunk.longest}; change its length"
        )
    highest = max([*prompt.ids, *source])
    if highest >= model.spec.vocab_size:
        expected = f"expected less than {model.spec.vocab_size}"
        raise BadInput(f"{where}: invalid token ID: got {highest}, {expected}; use the tokenizer of the model")
