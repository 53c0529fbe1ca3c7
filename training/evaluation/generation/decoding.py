"""`generate`: continue prompts with a model."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from preprocessing.errors import BadInput
from preprocessing.rng import RandomKey
from training.evaluation.generation.beam import search
from training.evaluation.generation.rows import MaskSlot, Prompt, begin
from training.evaluation.generation.sample import GeneratedText, OnToken, make_chooser, sample_tokens
from training.evaluation.generation.spec import BeamSearch, GenerationLimits, GreedyDecoding, Method
from training.model import Model

GREEDY: Final = GreedyDecoding()
Address = tuple[int, int]
"""The epoch and the sample of `RandomKey.at`, each below 2**64."""


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
    addresses: Sequence[Address] | None = None,
    on_token: OnToken | None = None,
) -> Iterator[GeneratedText]:
    """Yield the continuation of each prompt, in order; `batch` prompts are decoded together.

    A result depends only on its own prompt and index, not on the other prompts of the batch. Samples are drawn from
    `key`, for each prompt at its own address: (0, index) by default. `on_token` receives the index of a prompt and each
    new token of it as soon as it is chosen, except in beam search. With `cached=False`, each step reads whole
    sequences: this is slower, and works for models without a cache. With a `blank`, an encoder with attention mask
    "per_sequence" can generate too. The model must not be in training mode.

    Raises BadInput if a prompt is empty, too long, contains a token outside the vocabulary, or lacks a source.
    """
    assert not model.training, "generation needs dropout off: call model.eval()"
    check_prompts(model, prompts)
    for first in range(0, len(prompts), batch):
        numbers = range(first, min(first + batch, len(prompts)))
        chosen = [prompts[number] for number in numbers]
        rows = begin(model, chosen, cached=cached, blank=blank)
        room = [min(limits.max_new_tokens, model.spec.model.longest - len(prompt.ids)) for prompt in chosen]
        if isinstance(method, BeamSearch):
            yield from search(model, rows, room, method, limits)
        else:
            where = [addresses[number] if addresses else (0, number) for number in numbers]
            choose = make_chooser(method, where, key)
            written = None if on_token is None else partial(_report, on_token, first)
            yield from sample_tokens(model, rows, room, choose, limits, written)


def _report(on_token: OnToken, first: int, row: int, token: int, is_last: bool) -> None:
    on_token(first + row, token, is_last)


def check_prompts(model: Model, prompts: Sequence[Prompt]) -> None:
    """Raise BadInput, with the number of the prompt, unless the model can continue each prompt."""
    for number, prompt in enumerate(prompts):
        _check(model, prompt, number)


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
