"""The models of the recipes: their parts, parameters, FLOPs and oracles, and a table of all recipes."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from orchestration.config import Recipe
from orchestration.planning import workload_of
from orchestration.reports import describe
from preprocessing.tokenization import table_rows

if TYPE_CHECKING:  # importing torch takes seconds, and most functions do not need it
    from torch import nn

    from training.model_spec import ModelSpec

COLUMNS = (
    *("recipe", "paper", "year", "packing", "masking", "objective", "architecture", "parameters", "printed"),
    "oracle",
)


@dataclass(frozen=True)
class Node:
    """A part of a model: its name, its shape as text, its own parameters and its parts."""

    name: str
    shape: str = ""
    own: int = 0
    parts: tuple["Node", ...] = ()

    @property
    def parameters(self) -> int:
        """Number of parameters, with those of all parts."""
        return self.own + sum(part.parameters for part in self.parts)


def build_tree(recipe: Recipe) -> Node:
    """The model of a recipe as a tree of its parts. A tensor that several parts share is counted once.

    The model is built on the meta device, without memory for its parameters.

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
    """The number of parameters, computed from the specs of the model and the losses, without building the model.

    >>> from orchestration.config import load
    >>> count_parameters(load("mt_nlg_530b"))
    529600819200
    """
    return workload_of(recipe).parameters


def _node(name: str, modules: "list[nn.Module]", counted: set[int]) -> Node:
    """One node for modules of equal structure.

    A single module without stacks has no parts. For repeated modules, each child is a part.
    """
    from torch import nn

    first, several = modules[0], len(modules) > 1
    label = f"{len(modules)} {name}" if several else name
    if not several and not any(isinstance(part, nn.ModuleList | nn.ModuleDict) for part in first.modules()):
        return Node(name, _shape(first), _count(first.parameters(), counted))
    own = _count((tensor for one in modules for tensor in one.parameters(recurse=False)), counted)
    parts = []
    for part, child in first.named_children():
        children = [getattr(one, part) for one in modules] if several else [child]
        label_of_part = part.replace("_", " ")
        if isinstance(child, nn.ModuleList):
            parts.append(_node(label_of_part, list(child), counted))
        elif several:
            own_of_part = _count((tensor for one in children for tensor in one.parameters()), counted)
            parts.append(Node(label_of_part, _shape(child), own_of_part))
        else:
            parts.append(_node(label_of_part, children, counted))
    return Node(label, own=own, parts=tuple(part for part in parts if part.parameters))


def _count(tensors: Iterable[Any], counted: set[int]) -> int:
    """The number of elements of the tensors that were not counted before."""
    total = 0
    for tensor in tensors:
        total += 0 if id(tensor) in counted else tensor.numel()
        counted.add(id(tensor))
    return total


def _shape(module: "nn.Module") -> str:
    """The shape of a module as text: the input and output features of its linear layers, or the size of its table."""
    from torch import nn

    if isinstance(module, nn.Embedding):
        return f"{module.num_embeddings:,} x {module.embedding_dim:,}"
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        return f"{module.normalized_shape[0]:,}"
    linears = [part for part in module.modules() if isinstance(part, nn.Linear)]
    return ", ".join(f"{linear.in_features:,} -> {linear.out_features:,}" for linear in linears)


def training_flops(recipe: Recipe) -> float:
    """Floating-point operations of the whole run, counted as for MFU; each sequence has the full length."""
    return workload_of(recipe).training_flops


_REST: Final = "; the rest in closed form"  # the end of a description of an oracle


def oracle(recipe: Recipe) -> str:
    """The reference for logits and gradients of the model: a class of transformers, or a formula."""
    from training.model_spec import ModelSpec

    trunk, losses = recipe.model, recipe.losses
    spec = ModelSpec(model=trunk, losses=losses, vocab_size=table_rows(recipe.data.tokenizer))
    if name := _architecture(spec):
        return name
    if trunk.oracle:
        return trunk.oracle
    body = replace(spec, losses=tuple(loss for loss in losses if loss.names_tokens and not loss.not_exported))
    known = _architecture(body)
    return f"{known.removesuffix(_REST)}{_REST}" if known else "closed form"


def _architecture(spec: "ModelSpec") -> str:
    """The first class of transformers that computes the same function, also without a head; "" if there is none."""
    from training.formats import FORMATS

    pad = max(0, spec.model.position_embedding.offset - 1)
    found = ((one, name) for one in FORMATS if (name := one.architecture(spec, pad)))
    return next((f"{name}{_REST if one.missing_heads(name) else ''}" for one, name in found), "")


def sort_recipes(recipes: Iterable[Recipe]) -> list[Recipe]:
    """Recipes sorted by model family, year and paper, then by number of parameters."""
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
    """The cells of a recipe in the table of all recipes."""
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
    """A Markdown table of recipes with their oracles. Papers on arXiv are links."""
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    for recipe in recipes:
        cells = {"recipe": f"`{recipe.name}`", **row(recipe), "oracle": oracle(recipe)}
        cells |= {"paper": _cite(recipe.paper), "parameters": f"{cells['parameters']:,}"}
        lines.append(f"| {' | '.join(str(cells[column]) for column in COLUMNS)} |")
    return "\n".join(lines)


def _year(recipe: Recipe) -> int:
    """The year of the paper; 0 if there is none."""
    year = re.search(r"\b20\d\d\b", recipe.paper)
    return int(year[0]) if year else 0


def _cite(paper: str) -> str:
    """The name of a paper, as a link if it is on arXiv.

    >>> _cite("RoBERTa, Liu et al. 2019, arXiv:1907.11692")
    '[RoBERTa](https://arxiv.org/abs/1907.11692)'
    """
    name, arxiv = paper.split(",")[0], re.search(r"arXiv:([\d.]+)", paper)
    return f"[{name}](https://arxiv.org/abs/{arxiv[1]})" if arxiv else name
