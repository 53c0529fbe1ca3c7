"""`generate`: prompts -> what a net writes behind them."""

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
    """What the net writes behind each prompt, in their order, `batch` prompts side by side.

    A row depends on its own prompt and number only, not on what is beside it; samples are drawn from `key`. `cached`
    False reads whole rows at each step: slower, and for nets without a cache. With a `blank` an encoder whose rows say
    what each token sees (attention mask "per_sequence") writes too. The model must not be in training mode.
    BadInput where a prompt is empty, has no room behind it, has a token that the net does not know or no source.
    """
    assert not model.training, "generation is without dropout: model.eval()"
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
    """BadInput unless the net can go on from a prompt."""
    trunk, where = model.spec.model, f"prompt {number + 1}"
    if len(prompt.ids) == 0:
        raise BadInput(f"{where}: has no token; begin with one, such as the one that ends a document")
    if len(prompt.ids) >= trunk.longest:
        raise BadInput(f"{where}: has {len(prompt.ids)} tokens, the net's rows at most {trunk.longest}; shorten it")
    if trunk.reads_source != (prompt.source_ids is not None):
        needs = "a source, which its encoder reads" if trunk.reads_source else "no source, since it has no encoder"
        raise BadInput(f"{where}: this net needs {needs}")
    source = () if prompt.source_ids is None else prompt.source_ids
    if prompt.source_ids is not None and not 1 <= len(source) <= trunk.longest:
        raise BadInput(f"{where}: its source has {len(source)} tokens, allowed are 1 to {trunk.longest}")
    highest = max([*prompt.ids, *source])
    if highest >= model.spec.vocab_size:
        raise BadInput(f"{where}: has token {highest}, the net knows those below {model.spec.vocab_size}")
