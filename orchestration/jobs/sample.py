"""Samples of a finished run: what its net writes behind a prompt, or, with an encoder, for a source."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from orchestration import launch
from preprocessing.errors import BadInput
from preprocessing.rng import key
from preprocessing.vocab import Vocab
from training.formats import load_weights
from training.generation import Beams, Greedy, Limits, Method, Prompt, Sampling, generate
from training.model import Model


def sample(
    folder: Path, prompts: Sequence[str], *, values: dict[str, Any], max_new: int, seed: int
) -> list[dict[str, Any]]:
    """One row for each prompt: `prompt`, `text` behind it, `score` in nats, `ended`, and whether it is a `source`.

    The same call gives the same rows. `values` are keys of a method, of `Sampling` where there are none of another:
    `{"greedy": True}`, `{"beams": 4}`, `{"top_p": .9}`. BadInput where the run is not finished, or its net does not
    write from left to right.
    """
    weights, run = folder / launch.WEIGHTS, json.loads((folder / launch.RUN).read_text())
    if not (weights / "spec.json").is_file():
        raise BadInput(f"{folder}: this run is not finished, so it has no weights; go on with `sesame train`")
    method, vocab, model = _method(values), Vocab.load(Path(run["corpus"]) / "vocab"), _model(weights)
    start = _start(folder) if model.spec.trunk.reads_source else None
    barred = set(_barred(vocab, start)) | set(range(vocab.size, model.spec.vocab_size))
    limits = Limits(max_new=max_new, ends=tuple(_sep(vocab)), barred=tuple(sorted(barred)))
    given = [_prompt(text, vocab, start) for text in prompts]
    rows = generate(model, given, limits, method=method, key=key(seed, "task"))
    return [
        {"prompt": text, "text": vocab.decode(id for id in row.ids.tolist() if id not in _unspoken(vocab))}
        | {"score": row.score, "ended": row.ended, "source": start is not None}
        for text, row in zip(prompts, rows, strict=True)
    ]


def _model(weights: Path) -> Model:
    """The net of a finished run."""
    spec, state = load_weights(weights)
    model = Model(spec.trunk, spec.losses, spec.vocab_size, seed=0).eval()
    model.load_state_dict(state, strict=False)  # what layers share is in it once
    return model


def _sep(vocab: Vocab) -> list[int]:
    """The token that ends a text, where there is one."""
    return [] if vocab.sep is None else [vocab.sep]


def _unspoken(vocab: Vocab) -> set[int]:
    """Special tokens, which are no text; T5 writes its sentinels between the spans that it fills in."""
    return set(vocab.special_ids) - set(range(vocab.size - vocab.sentinels, vocab.size))


def _barred(vocab: Vocab, start: int | None) -> set[int]:
    """Special tokens that are never written: behind its start token, BART writes the one that begins a text."""
    return _unspoken(vocab) - set(_sep(vocab)) - ({vocab.cls} if start is not None else set())


def _method(values: dict[str, Any]) -> Method:
    """The method that has these keys; BadInput where they are of several, or a value means nothing."""
    try:
        if values.get("greedy"):
            return Greedy(**{name: value for name, value in values.items() if name != "greedy"})
        return Beams(**values) if "beams" in values else Sampling(**values)
    except TypeError:
        given = ", ".join(f"--{name.replace('_', '-')}" for name in values)
        raise BadInput(f"sample: {given} are of several methods; give those of one") from None
    except ValueError as error:
        raise BadInput(f"sample: {error}") from None


def _start(folder: Path) -> int:
    """The token that the decoder of two stacks begins with, as its export says."""
    config = folder / launch.EXPORT / "config.json"
    if not config.is_file():
        raise BadInput(
            f"{folder}: has no export, which says what its decoder begins with; sample from BART, T5 or PEGASUS"
        )
    return int(json.loads(config.read_text())["decoder_start_token_id"])


def _prompt(text: str, vocab: Vocab, start: int | None) -> Prompt:
    """A text that begins a document, or, with a start token, the source of a row."""
    ids, sep = vocab.encode(text), _sep(vocab)
    if start is None:
        return Prompt(np.array([*sep, *ids], np.int64))
    first = [] if vocab.cls is None else [vocab.cls]
    return Prompt(np.array([start], np.int64), np.array([*first, *ids, *sep], np.int64))
