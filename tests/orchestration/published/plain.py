"""Schedules, weight decay masks, optimizers and initial weights as in the papers: numpy, one tensor at a time.

Nothing here is imported from training/. Tensors have names like those in the authors' code, with separate queries, keys
and values.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tests.orchestration.published.table import Published

Array = NDArray[np.float64]
HEAD_WIDTH = 64  # for models of width 128
CUT_STD = 0.8796256610342398  # standard deviation of a standard normal distribution truncated at two

# Patterns for the ends of Sesame's parameter names, and the names in the authors' code. The group before the end is the
# location in the model. A linear layer has a "kernel" and a "bias".
_ENDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"(.*)attention\.qkv\.(weight|bias)", ("query", "key", "value")),
    (r"(.*)(?:attention|cross)\.key_value\.(weight|bias)", ("key", "value")),
    (r"(.*)global_key_value\.(weight|bias)", ("key_global", "value_global")),
    (r"(.*)global_query\.(weight|bias)", ("query_global",)),
    (r"(.*)(?:attention|cross)\.query\.(weight|bias)", ("query",)),
    (r"(.*)(?:attention|cross)\.out\.(weight|bias)", ("attention_output/dense",)),
    (r"(.*)attention\.distance\.(weight)", ("r",)),
    (r"(.*)feed_forward\.up\.(weight|bias)", ("intermediate/dense",)),
    (r"(.*)feed_forward\.gate_and_up\.(weight|bias)", ("intermediate/gate", "intermediate/dense")),
    (r"(.*)feed_forward\.down\.(weight|bias)", ("output/dense",)),
    (r"(.*)tokens\.widen\.\d+\.(weight)", ("emb_projs",)),
    (r"(.*)widen\.(weight|bias)", ("embeddings_project",)),
    (r"heads\.(next_token)\.project\.(weight)", ("out_projs",)),
    (r"(trunk)\.output\.(weight)", ("lm_head",)),
    (r"heads\.(replaced)\.transform\.(weight|bias)", ("discriminator_predictions/dense",)),
    (r"heads\.(replaced)\.classify\.(weight|bias)", ("discriminator_predictions/dense_1",)),
    (r"heads\.(pair_label)\.(?:pooler|classify)\.(weight|bias)", ("dense",)),
    (r"heads\.(masked_tokens)\.transform\.(weight|bias)", ("transform/dense",)),
    (r"heads\.(span_boundary)\.(?:first|second)\.(weight|bias)", ("mlp/dense",)),
)
_NORM = re.compile(r"(.*?)(?:[a-z_]*norm)\.(weight|bias)")
_TABLE = re.compile(
    r"(.*)\b(?:tokens|positions|segments|languages|distances|rel_embeddings|offsets|clusters\.\d+)\.weight"
)
_OTHERS = {  # standalone parameters, by the end of their name
    "biases.content": "r_w_bias",
    "biases.distance": "r_r_bias",
    "biases.segment": "r_s_bias",
    "attention.segments": "seg_embed",
    "trunk.unknown": "mask_emb",
    "next_token.clusters": "cluster_weight",
    "next_token.cluster_bias": "cluster_bias",
    "masked_tokens.bias": "output_bias",
    "next_token.bias": "output_bias",
    "span_boundary.bias": "output_bias",
}


@cache
def names_of(ours: str) -> tuple[str, ...]:
    """Return the tensor names of a Sesame parameter, which may contain several tensors, with endings of the authors'
    code.

    >>> names_of("trunk.blocks.0.attention.qkv.bias")[1]
    'trunk.blocks.0.attention.qkv.bias: key/bias'
    """
    for pattern, ends in _ENDS:
        if found := re.fullmatch(pattern, ours):
            kind = "kernel" if found[2] == "weight" else "bias"
            return tuple(f"{ours}: {end}/{kind}" for end in ends)
    if found := _NORM.fullmatch(ours):
        return (f"{ours}: LayerNorm/{'gamma' if found[2] == 'weight' else 'beta'}",)
    if ours.startswith("trunk.difference."):  # of the discriminator's tables from the generator's (DeBERTaV3 3.3)
        return (f"{ours}: _weight",)
    if _TABLE.fullmatch(ours):
        return (f"{ours}: {'positions' if 'positions' in ours else 'table'}",)
    (end,) = {end for end in _OTHERS if ours.endswith(end)}
    return (f"{ours}: {_OTHERS[end]}",)


def decays(paper: Published, name: str) -> bool:
    """Return whether a tensor has weight decay. google-research/bert and zihangdai/xlnet decide by name; fairseq decays
    all."""
    name = name.partition(": ")[2]
    if paper.decays == "all" or re.search("r_s_bias|r_r_bias|r_w_bias", name):
        return True
    return not re.search("LayerNorm|bias", name)


def rate(paper: Published, step: int) -> float:
    """Return the learning rate of the update after `step` others."""
    if paper.again and step >= paper.again[0]:
        begin, peak, warmup, steps = paper.again
        return rate(replace(paper, peak=peak, warmup=warmup, steps=steps, again=None), step - begin)
    peak, warmup = paper.peak, paper.warmup
    assert peak is not None
    assert warmup is not None
    risen = step / warmup if warmup else 1.0
    if paper.curve == "root":
        return 1 / math.sqrt(max(step, warmup))
    if step < warmup and paper.curve != "linear from 0 times warm-up":
        return peak * risen
    if paper.curve == "constant":
        return peak
    if paper.curve == "root from the warm-up":
        return peak * math.sqrt(warmup) / math.sqrt(step)
    assert paper.steps is not None
    done = min(step, paper.steps)
    since_0, since_warmup = done / paper.steps, (done - warmup) / (paper.steps - warmup)
    least = paper.least * peak
    match paper.curve:
        case "linear from 0":
            return peak * (1 - since_0)
        case "linear from 0 times warm-up":
            return peak * (1 - since_0) * min(1.0, risen)
        case "linear from the warm-up":
            return (peak - least) * (1 - since_warmup) + least
        case "cube from the warm-up":
            return (peak - least) * (1 - since_warmup) ** 3 + least
        case "cosine from the warm-up":
            return least + (peak - least) * (1 + math.cos(math.pi * since_warmup)) / 2
        case "cosine from 0":
            return peak * (1 + math.cos(math.pi * since_0)) / 2
        case "constant from the warm-up, then 1 - sqrt" if paper.again:
            return peak  # only the last stage has a decay
        case "constant from the warm-up, then 1 - sqrt":
            fallen = 1 - (paper.steps - done) / round(paper.falling * paper.steps)
            return least + (peak - least) * (1 - math.sqrt(max(0.0, fallen)))
        case "cosine from the warm-up, stopped":
            return max(least, peak * (1 + math.cos(math.pi * since_warmup)) / 2)
    raise AssertionError(paper.curve)


@dataclass
class Plain:
    """Weights and optimizer state, by the names of the authors' code."""

    paper: Published
    weights: dict[str, Array]
    updates: int = 0
    state: dict[str, dict[str, Array]] = field(default_factory=dict)

    def step(self, gradients: Mapping[str, Array], rate: float) -> None:
        """Clip the gradients, and update each weight that has one."""
        self.updates += 1
        norm = math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients.values()))
        clip = self.paper.clip
        share = clip / norm if clip and norm > clip else 1.0
        update = {"adam": self._adam, "lamb": self._lamb, "adafactor": self._adafactor}[self.paper.rule]
        for name, gradient in gradients.items():
            update(name, share * gradient, rate)

    def _moments(self, name: str, gradient: Array) -> tuple[Array, Array]:
        beta1, beta2 = self.paper.beta1, self.paper.beta2
        zeros = np.zeros_like(gradient)
        state = self.state.setdefault(name, {"m": zeros, "v": zeros})
        state["m"] = beta1 * state["m"] + (1 - beta1) * gradient
        state["v"] = beta2 * state["v"] + (1 - beta2) * gradient**2
        return state["m"], state["v"]

    def _adam(self, name: str, gradient: Array, rate: float) -> None:
        """arXiv:1711.05101, algorithm 2; without both bias corrections it is google-research/bert, optimization.py."""
        (m, v), weight = self._moments(name, gradient), self.weights[name]
        if self.paper.corrected:
            m, v = m / (1 - self.paper.beta1**self.updates), v / (1 - self.paper.beta2**self.updates)
        update = m / (np.sqrt(v) + self.paper.eps)
        if decays(self.paper, name):
            update = update + self.paper.decay * weight
        self.weights[name] = weight - rate * update

    def _lamb(self, name: str, gradient: Array, rate: float) -> None:
        """google-research/albert, lamb_optimizer.py: without weight decay the trust ratio is 1."""
        (m, v), weight = self._moments(name, gradient), self.weights[name]
        update, ratio = m / (np.sqrt(v) + self.paper.eps), 1.0
        if decays(self.paper, name):
            update = update + self.paper.decay * weight
            lengths = math.sqrt(float((weight**2).sum())), math.sqrt(float((update**2).sum()))
            ratio = lengths[0] / lengths[1] if min(lengths) > 0 else 1.0
        self.weights[name] = weight - rate * ratio * update

    def _adafactor(self, name: str, gradient: Array, rate: float) -> None:
        """tensorflow/mesh, optimize.py, with the settings of T5; rowanz/grover, optimization_adafactor.py."""
        weight, square = self.weights[name], gradient**2 + 1e-30
        kept = self.paper.kept or 1 - self.updates**-0.8
        state = self.state.setdefault(name, {})
        if square.ndim == 2 and min(square.shape) >= 128:
            for key, axis in (("row", 1), ("column", 0)):
                mean = square.mean(axis)
                state[key] = kept * state.get(key, np.zeros_like(mean)) + (1 - kept) * mean
            square = np.outer(state["row"] / state["row"].mean(), state["column"])
        else:
            state["all"] = square = kept * state.get("all", np.zeros_like(square)) + (1 - kept) * square
        update = gradient / np.sqrt(square)
        update = update / max(1.0, math.sqrt(float((update**2).mean())))
        size = max(1e-3, math.sqrt(float((weight**2).mean()))) if self.paper.relative else 1.0
        decay = self.paper.decay if decays(self.paper, name) else 0.0
        self.weights[name] = weight - rate * size * update - rate * decay * weight


@dataclass(frozen=True)
class Distribution:
    """Distribution of the initial elements of a tensor: independent draws."""

    kind: str  # constant, normal, truncated, uniform
    mean: float
    std: float  # standard deviation after truncation

    @property
    def bound(self) -> float:
        """Largest possible distance from the mean."""
        return {"truncated": 2 / CUT_STD, "uniform": 3**0.5}.get(self.kind, math.inf) * self.std


ZERO = Distribution("constant", 0.0, 0.0)


def initial_distribution(paper: Published, name: str, shape: tuple[int, ...], layers: int, width: int) -> Distribution:
    """Return the initial distribution of a tensor in a model with this many layers and this width.

    `shape` is [outputs, inputs]; a bias has the shape of its linear layer.
    """
    name, (outputs, inputs) = name.partition(": ")[2], shape
    if name == "LayerNorm/gamma":
        return Distribution("normal", 1.0, paper.gain_std) if paper.gain_std else Distribution("constant", 1.0, 0.0)
    if name in ("LayerNorm/beta", "_weight"):
        return ZERO
    if name.endswith("bias") and not re.fullmatch("r_[swr]_bias", name):
        return Distribution("uniform", 0.0, (3 * inputs) ** -0.5) if paper.start == "torch" else ZERO
    if paper.start in ("torch", "glorot") and not name.endswith("kernel"):
        return Distribution("normal", 0.0, inputs**-0.5)
    if paper.start == "torch":
        return Distribution("uniform", 0.0, (3 * inputs) ** -0.5)
    if paper.start == "glorot" or name in paper.left_to_tensorflow:
        return Distribution("uniform", 0.0, (2 / (inputs + outputs)) ** 0.5)
    if paper.start == "t5":
        return Distribution("normal", 0.0, _of_t5(name, shape, width))
    std = paper.std
    if name in ("emb_projs/kernel", "out_projs/kernel"):
        std = 0.01  # proj_init_std
    if name == "positions" and paper.positions_std:
        std = paper.positions_std
    if paper.scaled and name in ("attention_output/dense/kernel", "output/dense/kernel"):
        std = std / math.sqrt(2 * layers)
    return (
        Distribution("truncated", 0.0, CUT_STD * std)
        if paper.start == "truncated"
        else Distribution("normal", 0.0, std)
    )


def _of_t5(name: str, shape: tuple[int, ...], width: int) -> float:
    """mesh_tensorflow: attention.py (the scale is part of the queries), layers.py, vocab_embedding.py."""
    if name == "table":
        return 1.0 if shape[1] == width else width**-0.5  # tokens; relative distances
    inputs = shape[1]
    return (inputs * HEAD_WIDTH) ** -0.5 if name == "query/kernel" else inputs**-0.5
