"""What `--scale` puts over a recipe, whatever its parts are: each value goes only where the part has such a key."""

import copy
from collections.abc import Iterator
from typing import Any, Final

from orchestration.config import error_messages as explain
from preprocessing.errors import BadInput

# `part.knob`, or `part(kind).knob` for one kind alone, which stands behind what holds for all kinds.
SCALES: Final[dict[str, dict[str, Any]]] = {
    "tiny": {  # minutes on two cores
        "data.vocab.size": 4_096,
        "data.vocab(words).size": 16_384,  # of the demo, which is not tokenised, 4,096 leave a seventh unknown
        "data.vocab.rows": 0,
        "data.vocab.languages": [],
        "data.segment(stream_pair).reuse": 32,
        "trunk(two_stream).reuse": 32,
        "data.segment(parallel).languages": [],  # those that the text has
        "data.segment(sentence).languages": [],
        "objective.rewrite(permute).block": 32,
        "objective.losses(replaced).weight": 5.0,  # at 50 a short run learns the share of replaced tokens and no more
        "trunk.layers": 2,
        "trunk.width": 64,
        "trunk.heads": 2,
        "trunk.head_width": 0,
        "trunk.inner": 0,
        "trunk.init_std": 0.069,  # 0.02 * sqrt(768 / width): at 0.02 a narrow net learns no pair task
        "trunk.init": "normal",
        "trunk.position_init": "sinusoidal",  # else most of the run goes into learning which tokens are neighbours
        "trunk.dropout": 0.0,
        "trunk.attention_dropout": 0.0,
        "trunk(twin).generator": 1.0,  # a quarter of 64 learns nothing that could fool
        "optim.peak": 3e-3,
        "optim(lamb).peak": 1e-2,  # both relative to the weights; a third and three times as much learn more slowly
        "optim(adafactor).peak": 3e-2,
        "optim(adafactor).relative": True,  # as T5's, whose peak this is
        "optim.warmup": 200,
        "optim.horizon": 0,
        "optim.beta2": 0.98,
        "optim.bias_correction": True,  # without it the first rates are several times the peak
        "phases": [{"length": 64, "batch": 32, "steps": 4_000}],
    },
    "small": {  # meant for an hour on two cores; not measured
        "data.vocab.size": 16_384,
        "data.vocab.rows": 0,
        "data.vocab.languages": [],
        "data.segment(stream_pair).reuse": 64,
        "trunk(two_stream).reuse": 64,
        "data.segment(parallel).languages": [],
        "data.segment(sentence).languages": [],
        "objective.rewrite(permute).block": 64,
        "objective.losses(replaced).weight": 5.0,
        "trunk.layers": 4,
        "trunk.width": 256,
        "trunk.heads": 4,
        "trunk.head_width": 0,
        "trunk.inner": 0,
        "trunk.init_std": 0.035,
        "trunk.init": "normal",
        "trunk.position_init": "sinusoidal",
        "trunk.dropout": 0.0,
        "trunk.attention_dropout": 0.0,
        "trunk(twin).generator": 1.0,
        "optim.peak": 1e-3,
        "optim(lamb).peak": 1e-2,
        "optim(adafactor).peak": 2e-2,
        "optim(adafactor).relative": True,
        "optim.warmup": 200,
        "optim.horizon": 0,
        "optim.beta2": 0.98,
        "optim.bias_correction": True,
        "phases": [{"length": 128, "batch": 64, "steps": 2_000}],
    },
}

AT_MOST: Final[dict[str, dict[str, Any]]] = {  # put where the recipe says more than this, and nowhere else
    "tiny": {
        "trunk.embedding": 32,
        "trunk.max_positions": 514,  # 512 and an offset of 2
        "trunk.memory": 64,
        "trunk.clamp": 64,
        "trunk.eval_memory": 128,
        "trunk.eval_clamp": 96,
        "trunk.window": 16,
        "trunk.band": 16,
        "trunk.groups": 2,
        "trunk.cutoffs": [500, 1_500],
        "trunk.shrink": 2,
    },
    "small": {
        "trunk.embedding": 64,
        "trunk.max_positions": 514,
        "trunk.memory": 128,
        "trunk.clamp": 128,
        "trunk.eval_memory": 256,
        "trunk.eval_clamp": 192,
        "trunk.window": 32,
        "trunk.band": 32,
        "trunk.groups": 4,
        "trunk.cutoffs": [2_000, 6_000],
        "trunk.shrink": 2,
    },
}


def shrink(document: dict[str, Any], scale: str, root: type) -> None:
    """Put a scale over a document that is to be read as `root`; BadInput where there is no such scale.

    >>> from orchestration.config import Recipe
    >>> document = {"trunk": {"kind": "decoder", "layers": 96, "memory": 8}, "optim": {"kind": "lamb"}}
    >>> shrink(document, "tiny", Recipe)
    >>> document["trunk"]["layers"], document["trunk"]["memory"], "bias_correction" in document["optim"]
    (2, 8, False)
    """
    if scale not in SCALES:
        raise BadInput(f"--scale is {scale!r}, allowed are {', '.join(SCALES)}")
    for key, value in SCALES[scale].items():
        for part, knob in _parts(document, key, root):
            part[knob] = copy.deepcopy(value)
    for part, knob in _parts(document, "data.corpus", root):
        part[knob] = _demo(document)
    for key, most in AT_MOST[scale].items():
        for part, knob in _parts(document, key, root):
            said = part.get(knob)
            if isinstance(said, type(most)) and said > most:
                part[knob] = copy.deepcopy(most)


def _demo(document: dict[str, Any]) -> str:
    """The text that is on every machine and has what the rows of a recipe ask for."""
    (segment, _), (choose, _) = (
        next(_mappings(document, key), ({}, ())) for key in ("data.segment", "objective.choose")
    )
    if segment.get("kind") == "parallel" and segment.get("pairs"):
        return "demo_parallel"
    return "demo_phrases" if choose.get("kind") == "entities" or choose.get("units") else "demo"


def _parts(document: dict[str, Any], key: str, root: type) -> Iterator[tuple[dict[str, Any], str]]:
    """The mappings of a document that `key` speaks of and that have its last step as a knob, and this knob."""
    place, _, knob = key.rpartition(".")
    for value, path in _mappings(document, place):
        part = explain.chosen(explain.annotation_at(root, document, path), value)
        if part is not None and knob in explain.annotations(part):
            yield value, knob


def _mappings(document: dict[str, Any], place: str) -> Iterator[tuple[dict[str, Any], explain.Keys]]:
    """The mappings of a document at a place, entries of a list one by one, and the path to each."""
    found: list[tuple[Any, explain.Keys]] = [(document, ())]
    for step in place.split(".") if place else ():
        name, _, kind = step.removesuffix(")").partition("(")
        inner = [(value.get(name), (*path, name)) for value, path in found]
        listed = [(one, (*path, i)) for value, path in inner if isinstance(value, list) for i, one in enumerate(value)]
        found = [(value, path) for value, path in inner + listed if isinstance(value, dict)]
        found = [(value, path) for value, path in found if kind in ("", value.get("kind"))]
    yield from found
