"""Loads recipes, clusters and corpora: reads YAML, applies the scale and the overrides, and validates with pydantic."""

import dataclasses
import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from orchestration.config import error_messages, glossary, scales, strict_yaml
from orchestration.config import overrides as dotted
from orchestration.config.epochs import refuse_epochs
from orchestration.config.library import HOME, list_names, open_document
from orchestration.config.part_checks import check_facts, describe_failure
from orchestration.config.recipe import BY_KIND, Cluster, CorpusFile, Recipe
from pipeline.readers import absolute
from pipeline.spec import Corpus, MixtureGroup
from preprocessing.errors import BadInput
from preprocessing.spec import spec
from preprocessing.tokenization import TokenizerSpec
from training.specs import EngineSettings

T = TypeVar("T")
_CLUSTER_KEYS = {field.name for field in dataclasses.fields(Cluster)} - {
    field.name for field in dataclasses.fields(Recipe)
}
_ENGINE_KEYS = {field.name for field in dataclasses.fields(EngineSettings)}


def load(name_or_path: str, overrides: Sequence[str] = (), scale: str = "", *, with_epochs: bool = False) -> Recipe:
    """The recipe of this name or file, reduced to `scale`, with overrides such as `optimizer.learning_rate=2e-4`.

    A scaled or overridden recipe has no `reported_results`, because the paper reports none for it. The phases have
    steps, or epochs `with_epochs`; without it, epochs are BadInput.

    >>> load("bert_base", ["optimizer.learning_rate=2e-4"], scale="tiny").optimizer.learning_rate
    0.0002
    """
    check_facts()
    document, where = open_document("recipes", name_or_path)
    for given in overrides:
        shown, key = dotted.redact_override(given), re.split(r"[.=]", given)[0]
        if key in _CLUSTER_KEYS | _ENGINE_KEYS:
            place = "" if key in _CLUSTER_KEYS else "engine."
            message = error_messages.invalid(
                "key",
                key,
                "a key of the recipe",
                f"write {dotted.CLUSTER}{place}{shown}, because it is a key of the cluster",
            )
            raise BadInput(f"override {shown}: {message}")
        if option := glossary.OVERRIDES.get(glossary.plain(key)):
            raise BadInput(f"override {shown}: {error_messages.invalid('key', key, *option)}")
    if scale or overrides:
        document.pop("reported_results", None)
    if scale:
        document["name"] = f"{document.get('name', name_or_path)}_{scale}"
        scales.shrink(document, scale, Recipe)
    _remove_steps(document, overrides)
    recipe = validate(Recipe, document, where, overrides)
    if not with_epochs:
        refuse_epochs(recipe, where)
    return recipe


def _remove_steps(document: dict[str, Any], overrides: Sequence[str]) -> None:
    """Remove the steps of each phase that gets epochs by an override."""
    for given in overrides:
        phases = document.get("phases")
        if (found := re.match(r"phases\.(\d+)\.epochs=", given)) and isinstance(phases, list):
            phase = phases[int(found[1])] if int(found[1]) < len(phases) else None
            if isinstance(phase, dict):
                phase.pop("steps", None)


def load_cluster(name_or_path: str, overrides: Sequence[str] = ()) -> Cluster:
    """The cluster of this name or file, with overrides such as `cluster.num_workers=2`."""
    document, where = open_document("clusters", name_or_path)
    return validate(Cluster, document, where, overrides)


def load_corpus(name_or_path: str) -> Corpus:
    """The corpus of this name or file. Relative paths start at the directory of the file.

    A shipped corpus has no sources if its text may not be distributed.
    """
    document, where = open_document("corpora", name_or_path)
    read = validate(CorpusFile, document, where)
    fields = {field.name: getattr(read, field.name) for field in dataclasses.fields(Corpus)}
    folder = HOME / "corpora" if name_or_path in list_names("corpora") else Path(name_or_path).parent
    dedup, decontaminate = fields["dedup"], fields["decontaminate"]
    fields["clean"] = fields["clean"].resolve_paths(folder)
    fields["sources"] = () if read.mixture else tuple(source.resolve_paths(folder) for source in read.sources)
    fields["mixture"] = tuple(
        MixtureGroup(
            name=group.name,
            weight=group.weight,
            epochs=group.epochs,
            sources=tuple(each.resolve_paths(folder) for each in group.sources),
        )
        for group in read.mixture
    )
    against, paths = (
        [absolute(path, folder) for path in given] for given in (dedup.reference_corpora, decontaminate.paths)
    )
    fields["dedup"] = dataclasses.replace(dedup, reference_corpora=tuple(against))
    fields["decontaminate"] = dataclasses.replace(decontaminate, paths=tuple(paths))
    if fields["phrases"] not in ("", "given"):
        fields["phrases"] = absolute(fields["phrases"], folder)
    return Corpus(**fields)


@spec
class TokenizerOption:
    """The tokenizer of an option, with the keys that it has in a recipe."""

    tokenizer: Annotated[TokenizerSpec, BY_KIND]


def parse_tokenizer(given: str, where: str) -> TokenizerSpec:
    """The tokenizer whose keys are YAML, e.g. "{kind: byte_level_bpe, vocab_size: 8000}". BadInput if it is invalid.

    >>> parse_tokenizer("{kind: bytes}", "--tokenizer").vocab_size
    258
    """
    return validate(TokenizerOption, {"tokenizer": strict_yaml.parse(given, where)}, where).tokenizer


@cache
def _adapter(root: type) -> TypeAdapter[Any]:
    return TypeAdapter(root)


def validate(root: type[T], document: dict[str, Any], where: str, overrides: Sequence[str] = ()) -> T:
    """The document with its overrides as an instance of `root`. BadInput with one line for each invalid key."""
    for override in overrides:
        dotted.override(document, override, root)
    try:
        adapter = _adapter(root)  # type: ignore[arg-type]  # a type is hashable
        return adapter.validate_json(json.dumps(document), strict=True)
    except ValidationError as error:
        of_cluster = dotted.split_overrides(overrides)[1]
        found = error_messages.explain(
            error, root, document, lambda key: dotted.CLUSTER if dotted.origin(key, of_cluster, "") else ""
        )
        lines = (f"{dotted.origin(one.key, overrides, where)}: {one.text}" for one in found)
        raise BadInput("\n".join(lines)) from None
    except ArithmeticError as error:  # pydantic passes on the exceptions that are not about a value
        raise BadInput(describe_failure(error, f"{where}: a part")) from None
