"""Each part declares which of its keys `--scale` changes; each such key exists and is used by a recipe."""

import dataclasses
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestration.config import Recipe, flatten, list_names, load
from orchestration.config.error_messages import annotations, find_chosen_class, options
from orchestration.config.library import HOME, SCALES
from orchestration.config.scales import shrink
from preprocessing.spec import AtMost
from tests.for_all import for_all

WITH_A_BAND = load(
    "gpt3_125m", ["model.attention_window={kind: alternating, size: 256}"]
)  # no paper gives the width of its window

OTHER_OPTIMISERS = [
    load("gpt2", [f"optimizer={{kind: {kind}, learning_rate: 1e-4}}"]) for kind in ("lion", "muon")
]  # not used in any recipe


def classes(annotation: Any) -> Iterator[type]:
    """Every class of parts that a recipe can contain, at any depth."""
    for option in options(annotation):
        if typing.get_origin(option) is tuple:
            yield from classes(typing.get_args(option)[0])
        elif isinstance(option, type) and dataclasses.is_dataclass(option):
            yield option
            for inner in annotations(option).values():
                yield from classes(inner)


def parts(value: Any) -> Iterator[Any]:
    """A recipe and all parts in it."""
    if isinstance(value, tuple):
        for one in value:
            yield from parts(one)
    elif dataclasses.is_dataclass(value):
        yield value
        for field in dataclasses.fields(value):
            yield from parts(getattr(value, field.name))


CLASSES = list(dict.fromkeys(classes(Recipe)))
SHRUNK = [
    (kind, scale, key) for kind in CLASSES for scale in kind.scale_overrides for key in kind.scale_overrides[scale]
]  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def used() -> set[type]:
    """The classes of all parts of all recipes."""
    recipes = [load(name) for name in list_names("recipes")]
    return {type(part) for recipe in (*recipes, WITH_A_BAND, *OTHER_OPTIMISERS) for part in parts(recipe)}


def test_the_walk_finds_the_parts_of_a_recipe() -> None:
    found = {kind.__name__ for kind in CLASSES}
    assert {
        "Recipe",
        "Data",
        "WordPiece",
        "SegmentPair",
        "TokenMasking",
        "MaskedLM",
        "MaskedTokens",
        "Encoder",
        "RelativePositions",
    } <= found
    assert len(SHRUNK) > 60


def test_each_key_of_a_scale_is_a_field_that_a_recipe_uses(used: set[type]) -> None:
    assert SHRUNK
    assert [
        (kind, scale, key) for kind, scale, key in SHRUNK if scale not in SCALES or key not in annotations(kind)
    ] == []
    assert {kind for kind, _, _ in SHRUNK if not any(issubclass(one, kind) for one in used)} == set()


@pytest.mark.parametrize("scale", SCALES)
def test_a_part_with_its_default_value_is_scaled_too(scale: str) -> None:
    recipe = load("bert_base", scale=scale)
    assert recipe.model.position_embedding.init_method == "sinusoidal"  # bert_base.yaml does not set positions
    assert recipe.model.position_embedding.max_position_embeddings == 512


def test_an_upper_bound_changes_only_larger_values() -> None:
    assert load("transformer_xl_base", scale="tiny").model.mem_len == 64
    assert load("transformer_xl_base", ["model.position_embedding.mem_len=8"]).model.mem_len == 8
    assert isinstance(
        find_chosen_class(annotations(Recipe)["model"], {"kind": "generator_discriminator"}).scale_overrides["tiny"][
            "embedding_size"
        ],
        AtMost,
    )


def test_an_upper_bound_that_is_a_fraction_changes_a_number_of_steps() -> None:
    """`num_decay_steps` is a fraction of all steps, or a number of steps, which a short run does not have."""
    for given, expected in ((500, 0.2), (0.5, 0.2), (0.1, 0.1)):
        document = {"optimizer": {"kind": "adamw", "num_decay_steps": given}}
        shrink(document, "tiny", Recipe)
        assert document["optimizer"]["num_decay_steps"] == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bert_base", "demo"),
        ("ernie_1", "demo_phrases"),
        ("spanbert_entities", "demo_phrases"),
        ("xlm_tlm", "demo_parallel"),
    ],
)
def test_a_scale_selects_the_demo_corpus_that_its_sequences_require(name: str, text: str) -> None:
    assert load(name, scale="tiny").data.corpus == text


@pytest.mark.parametrize(
    ("name", "lengths"),
    [
        ("bert_base", [32, 128]),
        ("spanbert_base", [32, 128]),
        ("electra_small", [32, 128]),
        ("gpt2", [128]),
        ("t5_base", [128]),
        ("xlnet_base", [128]),  # each sequence continues from the last 64 tokens of the previous one
    ],
)
def test_masked_language_models_start_with_short_sequences(name: str, lengths: list[int]) -> None:
    assert [phase.seq_length for phase in load(name, scale="small").phases] == lengths
    assert [phase.seq_length for phase in load(name, scale="tiny").phases] == [64]
    (own,) = load(name, ["phases=[{seq_length: 64, global_batch_size: 8, steps: 300}]"], "small").phases
    assert own.steps == 300


@for_all(list_names("recipes"))
def test_lengths_and_steps_of_every_recipe_are_valid_at_each_scale(name: str) -> None:
    for scale in SCALES:
        recipe = load(name, scale=scale)
        assert all(phase.seq_length <= recipe.model.longest for phase in recipe.phases)
        assert recipe.optimizer.warmup_steps < recipe.phases[0].steps


@pytest.mark.parametrize("scale", SCALES)
def test_the_phases_of_a_scale_keep_the_mixtures_of_the_recipe(scale: str) -> None:
    plain = load("bert_base", scale=scale).phases
    document = yaml.safe_load((HOME / "recipes" / "bert_base.yaml").read_text())
    web, wiki = {"web": 3.0, "wiki": 1.0}, {"wiki": 1.0}
    document["phases"][0]["mixture"], document["phases"][1]["mixture"] = web, wiki
    shrink(document, scale, Recipe)
    mixtures = [phase["mixture"] for phase in document["phases"]]
    steps = [phase["steps"] for phase in document["phases"]]
    total = sum(phase.steps for phase in plain)
    assert sum(steps) == total
    assert sorted({str(mixture) for mixture in mixtures}) == sorted([str(web), str(wiki)])
    assert sum(count for count, mixture in zip(steps, mixtures, strict=True) if mixture == web) == round(0.9 * total)


@pytest.mark.parametrize("phases", [3, [3], [{"steps": "x", "mixture": 3}], [{"steps": 4, "mixture": 3}]])
def test_scaling_invalid_phases_raises_no_error(phases: Any) -> None:
    document = {"losses": [{"kind": "masked_tokens"}], "phases": phases}
    shrink(document, "tiny", Recipe)
    assert document["phases"] != phases


@pytest.mark.parametrize(
    "document", [{"objective": 3}, {"objective": {"losses": 3}}, {"objective": {"losses": [3]}}, {}]
)
def test_scaling_an_invalid_recipe_raises_no_error(document: dict[str, Any]) -> None:
    shrink(document, "small", Recipe)
    assert [phase["seq_length"] for phase in document["phases"]] == [128]


def test_the_page_of_recipes_has_the_values_of_the_scales() -> None:
    """The table of docs/guides/recipes.md: each key that `--scale` changes in bert_base, with its three values."""
    page = (Path(__file__).parents[3] / "docs/guides/recipes.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z_.0-9]+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", page, re.MULTILINE)
    values = [dict(flatten(dataclasses.asdict(load("bert_base", (), scale)))) for scale in ("", "tiny", "small")]
    changed = {key for key, value in values[0].items() if key in values[1] and values[1][key] != value}
    changed = {key for key in changed if key != "name" and not key.startswith("reported_results")}
    assert {key for key, *_ in rows} == changed
    for key, *shown in rows:
        for text, each in zip(shown, values, strict=True):
            assert yaml.safe_load(text.replace(",", "")) == each[key], key
