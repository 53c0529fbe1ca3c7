"""The family: what each recipe's net is made of, what it costs, what it is compared with, and a table of all."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from orchestration.config import Recipe
from orchestration.planning import workload_of
from orchestration.reports import describe
from preprocessing.tokenization import table_rows

if TYPE_CHECKING:  # torch takes seconds to import, and most questions do not need it
    from torch import nn

    from training.model import ModelSpec

COLUMNS = (
    *("recipe", "paper", "year", "packing", "masking", "objective", "architecture", "parameters", "printed"),
    "oracle",
)


@dataclass(frozen=True)
class Node:
    """A part of the net: its name, its shape in words, and its parameters or those of its parts."""

    name: str
    shape: str = ""
    own: int = 0
    parts: tuple["Node", ...] = ()

    @property
    def parameters(self) -> int:
        return self.own + sum(part.parameters for part in self.parts)


def build_tree(recipe: Recipe) -> Node:
    """The net of a recipe, built without memory, as a tree of its parts; a tensor that several parts have counts once.

    >>> from orchestration.config import load
    >>> build_tree(load("gpt2")).parameters
    124439808
    """
    import torch

    from training.model import Model

    with torch.device("meta"):
        model = Model(recipe.model, recipe.losses, table_rows(recipe.data.tokenizer), recipe.seed)
    counted: set[int] = set()
    trunk = _node(recipe.name, [model.trunk], counted)
    heads = _node("heads", [model.heads], counted)
    return replace(trunk, parts=(*trunk.parts, heads)) if heads.parameters else trunk


def count_parameters(recipe: Recipe) -> int:
    """Number of its weights, by what its trunk and its losses state: nothing is built.

    >>> from orchestration.config import load
    >>> count_parameters(load("mt_nlg_530b"))
    529600819200
    """
    return workload_of(recipe).parameters


def _node(name: str, modules: "list[nn.Module]", counted: set[int]) -> Node:
    """Modules of one make as one part, with those of their own parts that are stacks, or parts of a block."""
    from torch import nn

    first, several = modules[0], len(modules) > 1
    label = f"{len(modules)} {name}" if several else name
    if not several and not any(isinstance(part, nn.ModuleList | nn.ModuleDict) for part in first.modules()):
        return Node(name, _shape(first), _count(first.parameters(), counted))
    own = _count((tensor for one in modules for tensor in one.parameters(recurse=False)), counted)
    parts = []
    for part, child in first.named_children():
        children = [getattr(one, part) for one in modules] if several else [child]
        said = part.replace("_", " ")
        if isinstance(child, nn.ModuleList):
            parts.append(_node(said, list(child), counted))
        elif several:
            own_of_part = _count((tensor for one in children for tensor in one.parameters()), counted)
            parts.append(Node(said, _shape(child), own_of_part))
        else:
            parts.append(_node(said, children, counted))
    return Node(label, own=own, parts=tuple(part for part in parts if part.parameters))


def _count(tensors: Iterable[Any], counted: set[int]) -> int:
    """Elements of those tensors that have not been counted yet."""
    total = 0
    for tensor in tensors:
        total += 0 if id(tensor) in counted else tensor.numel()
        counted.add(id(tensor))
    return total


def _shape(module: "nn.Module") -> str:
    """What a part does to the width of a token, or the size of a table."""
    from torch import nn

    if isinstance(module, nn.Embedding):
        return f"{module.num_embeddings:,} x {module.embedding_dim:,}"
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        return f"{module.normalized_shape[0]:,}"
    linears = [part for part in module.modules() if isinstance(part, nn.Linear)]
    return ", ".join(f"{linear.in_features:,} -> {linear.out_features:,}" for linear in linears)


def training_flops(recipe: Recipe) -> float:
    """Floating point operations of the whole run, as the meter counts them, with every row full."""
    return workload_of(recipe).training_flops


def oracle(recipe: Recipe) -> str:
    """What the net's logits and gradients are compared with: a class of transformers, or what stands in for one."""
    from training.model import ModelSpec

    trunk, losses = recipe.model, recipe.losses
    spec = ModelSpec(model=trunk, losses=losses, vocab_size=table_rows(recipe.data.tokenizer))
    if name := _architecture(spec):
        return name
    if trunk.oracle:
        return trunk.oracle
    body = replace(spec, losses=tuple(loss for loss in losses if loss.names_tokens and not loss.not_exported))
    known = _architecture(body)
    return f"{known}; the rest in closed form" if known else "closed form"


def _architecture(spec: "ModelSpec") -> str:
    """The first class of transformers that computes the same; "" where there is none."""
    from training.formats import FORMATS

    pad = max(0, spec.model.position_embedding.offset - 1)
    return next((name for one in FORMATS if (name := one.architecture(spec, pad))), "")


def sort_recipes(recipes: Iterable[Recipe]) -> list[Recipe]:
    """Recipes of a kind together, then those of a paper, from small to large."""
    return sorted(
        recipes,
        key=lambda one: (
            one.model.family,
            _year(one),
            one.paper.split()[0].strip(","),
            count_parameters(one),
            one.name,
        ),
    )


def row(recipe: Recipe) -> dict[str, Any]:
    """A recipe in the table of the family."""
    return {
        "paper": recipe.paper,
        "year": _year(recipe),
        "packing": recipe.data.packing.describe(),
        "masking": describe.masking(recipe),
        "objective": " + ".join(describe.losses(recipe)),
        "architecture": recipe.model.describe(),
        "parameters": count_parameters(recipe),
        "printed": recipe.reported_results.get("printed", ""),
    }


def markdown(recipes: Iterable[Recipe]) -> str:
    """The whole family as a Markdown table, each with what it is compared with; a paper is a link where it has one."""
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    for recipe in recipes:
        cells = {"recipe": f"`{recipe.name}`", **row(recipe), "oracle": oracle(recipe)}
        cells |= {"paper": _cited(recipe.paper), "parameters": f"{cells['parameters']:,}"}
        lines.append(f"| {' | '.join(str(cells[column]) for column in COLUMNS)} |")
    return "\n".join(lines)


def _year(recipe: Recipe) -> int:
    """Of the paper, 0 where there is none."""
    year = re.search(r"\b20\d\d\b", recipe.paper)
    return int(year[0]) if year else 0


def _cited(paper: str) -> str:
    """The name of a paper, with a link where arXiv has it.

    >>> _cited("RoBERTa, Liu et al. 2019, arXiv:1907.11692")
    '[RoBERTa](https://arxiv.org/abs/1907.11692)'
    """
    name, arxiv = paper.split(",")[0], re.search(r"arXiv:([\d.]+)", paper)
    return f"[{name}](https://arxiv.org/abs/{arxiv[1]})" if arxiv else name
