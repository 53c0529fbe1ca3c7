"""`sesame keys`: no key is without a meaning, and what is asked for is found."""

import dataclasses

import pytest

from orchestration.config import keys
from orchestration.config.recipe import Cluster, Recipe
from pipeline.spec import Corpus
from preprocessing.errors import BadInput
from preprocessing.spec import spec

EVERY = [(part, key) for part in keys.parts() for key in part.keys]


def names(asked: str) -> list[str]:
    return [part.name for part in keys.find_keys(asked)]


@pytest.mark.parametrize(("part", "key"), EVERY, ids=lambda each: each.name)
def test_every_key_says_what_it_is(part: keys.KeyGroup, key: keys.KeyDoc) -> None:
    assert key.means, f"{part.name}.{key.name}: write a comment behind its field, `name: type  # what it is`"
    assert key.type


@pytest.mark.parametrize("part", keys.parts(), ids=lambda part: part.name)
def test_every_part_says_what_it_is(part: keys.KeyGroup) -> None:
    assert part.means


@pytest.mark.parametrize(("path", "root"), [("", Recipe), ("cluster", Cluster), ("corpus", Corpus)])
def test_the_keys_at_the_top_are_the_fields_of_the_file(path: str, root: type) -> None:
    top = next(part for part in keys.parts() if part.path == path)
    assert [key.name for key in top.keys] == [field.name for field in dataclasses.fields(root)]


def test_there_are_parts_of_every_kind() -> None:
    assert len(EVERY) > 250
    assert {"optimizer.lamb", "model.generator_discriminator", "masking.span", "losses.sentence_pair"} <= set(
        keys.key_names()
    )
    assert {"data.tokenizer.byte_level_bpe", "corpus.sources.warc", "cluster.engine", "phases"} <= set(keys.key_names())


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("optimizer", ["optimizer.adamw", "optimizer.lamb", "optimizer.adafactor", "optimizer.lion", "optimizer.muon"]),
        ("optimizer.adamw", ["optimizer.adamw"]),
        ("adamw", ["optimizer.adamw"]),
        ("masking.span", ["masking.span"]),
        ("span", ["masking.span"]),
        ("cluster", ["cluster", "cluster.engine", "cluster.loss_spikes", "cluster.beam"]),
        ("engine", ["cluster.engine"]),
        ("phases.0.steps", ["phases"]),
        ("dedup", ["corpus.dedup"]),
    ],
)
def test_a_part_is_found_by_its_path_its_end_or_its_kind(asked: str, found: list[str]) -> None:
    assert names(asked) == found


def test_one_key_is_found_in_each_kind_that_has_it() -> None:
    found = keys.find_keys("optimizer.learning_rate")
    assert [part.name for part in found] == [
        "optimizer.adamw",
        "optimizer.lamb",
        "optimizer.adafactor",
        "optimizer.lion",
        "optimizer.muon",
    ]
    assert {key.name for part in found for key in part.keys} == {"learning_rate"}


def test_a_part_with_parts_inside_of_it_has_them_all() -> None:
    assert {
        "model.encoder",
        "model.decoder",
        "model.position_embedding.learned",
        "model.attention_window.sliding",
    } <= set(names("model"))


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("optimzer", "optimzer is no part and no key; did you mean optimizer?"),
        ("masking.spans", "masking.spans is no part and no key; did you mean masking.span?"),
        ("lr", "lr is no part and no key; here it is optimizer.learning_rate"),
        ("qqqq", "qqqq is no part and no key; `sesame keys` lists them all"),
    ],
)
def test_what_is_not_there_is_answered_with_what_is_like_it(asked: str, answer: str) -> None:
    with pytest.raises(BadInput) as error:
        keys.find_keys(asked)
    assert str(error.value) == answer


def test_types_defaults_and_meanings_are_those_of_the_source() -> None:
    (adamw,) = keys.find_keys("optimizer.adamw")
    by_name = {key.name: key for key in adamw.keys}
    assert by_name["learning_rate"] == keys.KeyDoc("learning_rate", "number", "", "learning rate")
    assert by_name["weight_decay"] == keys.KeyDoc(
        "weight_decay", "number", "0.01", "weight decay, of what `weight_decay_params` says"
    )
    assert by_name["bias_correction"].default == "true"
    assert "cosine" in by_name["lr_schedule"].means  # a name in a table: which ones there are
    (spans,) = keys.find_keys("masking.span")
    assert "`max_span_length` words" in {key.name: key for key in spans.keys}["max_span_length"].means


@spec
class Sample:
    """A part. With `told` something happens."""

    told: int = 1
    # above the field,
    # in two lines
    above: tuple[str, ...] = ()
    behind: float = 0.5  # behind the field
    silent: bool = False

    def method(self) -> int:
        told = 3  # not a field
        return told


def test_a_meaning_is_the_comment_at_the_field_or_a_sentence_that_has_it() -> None:
    meanings = {name: keys.meaning(Sample, name, name) for name in ("told", "above", "behind", "silent")}
    assert meanings == {
        "told": "With `told` something happens.",
        "above": "above the field, in two lines",
        "behind": "behind the field",
        "silent": "",
    }
