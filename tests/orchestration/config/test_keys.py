"""`sesame keys`: every key is documented by one plain sentence at its declaration; parts and keys are found by name."""

import dataclasses
import importlib
import typing
from collections import Counter

import pytest

from orchestration.config import keys
from orchestration.config.recipe import Cluster, Recipe
from pipeline.spec import Corpus
from preprocessing.errors import BadInput
from preprocessing.spec import doc_of, key, spec
from tests.english import banned_phrases
from tests.for_all import for_all
from training.evaluation.tasks import TaskFile
from training.optimizers import SCHEDULES

EVERY = [(part, key) for part in keys.parts() for key in part.keys]


def names(asked: str) -> list[str]:
    return [part.name for part in keys.find_parts(asked)]


def faults(sentence: str) -> list[str]:
    """The rules that a key's documentation breaks."""
    rules = {
        "1 to 100 characters": 1 <= len(sentence) <= 100,
        "a capital letter first": sentence[:1].isupper(),
        "a period last, and no other sentence": sentence.endswith(".") and ". " not in sentence.replace("e.g. ", ""),
        "a noun first, never 'Of'": not sentence.startswith("Of "),
        "no doctest": ">>>" not in sentence and "``" not in sentence,
        "one line": sentence == " ".join(sentence.split()),
    }
    return [rule for rule, holds in rules.items() if not holds] + banned_phrases(sentence)


@for_all(EVERY, name=lambda each: f"{each[0].name}.{each[1].name}")
def test_every_key_is_documented_by_one_plain_sentence(each: tuple[keys.KeyGroup, keys.KeyDoc]) -> None:
    part, key = each
    assert key.doc, f"{part.name}.{key.name}: declare it as `{key.name}: ... = key(default=..., doc=...)`"
    assert faults(key.doc) == [], f"{part.name}.{key.name}: {key.doc}"
    assert key.type


@for_all(keys.parts(), name=lambda part: part.name)
def test_every_part_has_a_docstring_in_plain_English(part: keys.KeyGroup) -> None:
    assert faults(part.doc) == [], f"{part.name}: {part.doc}"
    assert ">>>" not in part.details, f"{part.name}: move the doctest to a method"
    assert banned_phrases(part.details) == []


def test_invalid_documentation_of_a_key_is_detected() -> None:
    assert faults("Number of tokens, e.g. 512.") == []
    assert [len(faults(bad)) for bad in ("", "of rows", "Of rows.", "Rows. Tokens.", "x" * 101, "A net.")] == [
        3,
        2,
        1,
        1,
        3,
        1,
    ]


@pytest.mark.parametrize(("path", "root"), [("", Recipe), ("cluster", Cluster), ("corpus", Corpus), ("task", TaskFile)])
def test_top_level_keys_are_the_fields_of_the_file(path: str, root: type) -> None:
    top = next(part for part in keys.parts() if part.path == path)
    assert [key.name for key in top.keys] == [field.name for field in dataclasses.fields(root)]


def test_parts_of_all_files_are_listed() -> None:
    assert len(EVERY) > 400
    known = set(keys.key_names())
    assert {"optimizer.lamb", "model.generator_discriminator", "masking.span", "losses.sentence_pair"} <= known
    assert {"data.tokenizer.byte_level_bpe", "corpus.sources.warc", "cluster.engine", "phases"} <= known
    assert {"task.grids", "task.files.format.conll", "task.task.text_to_text", "task.task.generation"} <= known


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
        ("phases.0", ["phases"]),
        ("dedup", ["corpus.dedup"]),
        ("grids", ["task.grids"]),
        ("files.format.conll", ["task.files.format.conll"]),
        ("optimizer.eps", []),
    ],
)
def test_a_part_is_found_by_its_path_the_end_of_its_path_or_its_kind(asked: str, found: list[str]) -> None:
    assert names(asked) == found


def test_a_key_is_found_in_each_kind_that_has_it() -> None:
    found = keys.find_keys("optimizer.learning_rate")
    assert [part.kind for part in found] == ["adamw", "lamb", "adafactor", "lion", "muon"]
    assert {key.name for part in found for key in part.keys} == {"learning_rate"}
    assert [part.path for part in keys.find_keys("phases.0.steps")] == ["phases"]


def test_equal_keys_of_several_kinds_share_one_entry() -> None:
    required, own = keys.entries(keys.find_keys("optimizer.learning_rate"))
    assert (required.path, required.kinds) == ("optimizer.learning_rate", ("adamw", "lamb", "lion", "muon"))
    assert (own.kinds, own.key.default) == (("adafactor",), "0.01")


def test_the_entry_of_a_part_documents_the_key_that_contains_it() -> None:
    (entry,) = keys.entries_at("masking")
    assert (entry.key.default, entry.key.type.split(" | ")[:2]) == ("none", ["none", "token"])
    assert keys.entries_at("cluster") == []


def test_the_parts_of_a_path_include_nested_parts() -> None:
    assert {
        "model.encoder",
        "model.decoder",
        "model.position_embedding.learned",
        "model.attention_window.sliding",
    } <= set(names("model"))


def test_a_nested_part_lists_the_kinds_that_contain_it() -> None:
    within = Counter(kind for part in keys.find_parts("model.position_embedding.learned") for kind in part.within)
    assert within == {"encoder": 1, "decoder": 1, "generator_discriminator": 1, "encoder_decoder": 1}


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("optimzer", "invalid PART: got optimzer, expected a part, a kind or a key of a file; did you mean optimizer?"),
        (
            "masking.spans",
            "invalid PART: got masking.spans, expected a part, a kind or a key of a file; did you mean masking.span?",
        ),
        ("qqqq", "invalid PART: got qqqq, expected a part, a kind or a key of a file; see `sesame keys`"),
        (
            "warmup_ratio",
            "invalid PART: got warmup_ratio, expected a part, a kind or a key of a file; "
            "use a number of steps, optimizer.warmup_steps",
        ),
    ],
)
def test_an_unknown_name_is_refused_with_the_most_similar_one(asked: str, answer: str) -> None:
    with pytest.raises(BadInput) as error:
        keys.find_keys(asked)
    assert str(error.value) == answer


@pytest.mark.parametrize(
    ("asked", "ours"),
    [
        ("lr", ("optimizer.learning_rate",)),
        ("model.n_embd", ("model.hidden_size",)),
        ("block_size", ("block_size",)),  # also a key of Sesame
        ("NSP", ("sentence_pair", "segment_pair")),
        ("data_collator", ("masking",)),
        ("--train-iters", ("phases.0.steps",)),
        ("training.steps", ("phases.0.steps",)),
        ("--masking.rate", ("masking.rate",)),
        ("qqqq", ("qqqq",)),
    ],
)
def test_a_name_of_another_library_is_translated(asked: str, ours: tuple[str, ...]) -> None:
    assert keys.translate(asked) == ours


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("tensor", ["tensor_parallel_size"]),
        (
            "parallel",
            [
                *["parallel_residual"] * 2,  # of encoders and decoders
                *("tensor_parallel_size", "pipeline_parallel_size", "sequence_parallel_size"),
            ],
        ),
        ("tensor_parallel", ["tensor_parallel_size"]),
    ],
)
def test_a_word_of_a_name_finds_the_keys_that_contain_it(word: str, found: list[str]) -> None:
    assert [key.name for part in keys.find_keys(word) for key in part.keys] == found


def test_types_defaults_and_docs_come_from_the_fields() -> None:
    (adamw,) = keys.find_parts("optimizer.adamw")
    by_name = {key.name: key for key in adamw.keys}
    assert by_name["learning_rate"] == keys.KeyDoc("learning_rate", "number", "", "Peak learning rate.", ())
    assert by_name["lr_schedule"].choices == tuple(SCHEDULES)
    assert by_name["bias_correction"].default == "true"
    (adafactor,) = keys.find_parts("adafactor")
    assert {key.name: key for key in adafactor.keys}["learning_rate"].doc == "Peak learning rate."
    (whole,) = keys.find_parts("whole_file")
    assert [(key.type, key.default) for key in whole.keys] == [("integer", "0"), ("integer | null", "null")]


@spec
class Base:
    """Part for a test."""

    rate: float = key(default=0.5, doc="Rate.")
    names: tuple[str, ...] = key(default_factory=tuple, doc="Names.")
    plain: int = 1


@spec
class Sub(Base):
    """Part with another default."""

    rate: float = 0.25
    wanted: int = key(doc="Number.")


def test_the_documentation_of_a_field_does_not_affect_its_class() -> None:
    assert [doc_of(Sub, name) for name in ("rate", "names", "plain", "wanted")] == ["Rate.", "Names.", "", "Number."]
    assert Sub(wanted=3) == Sub(rate=0.25, names=(), plain=1, wanted=3)
    assert dataclasses.asdict(dataclasses.replace(Base(), rate=1.0)) == {"rate": 1.0, "names": (), "plain": 1}
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'wanted'"):
        Sub()  # type: ignore[call-arg]


# Keys with the name and meaning of attributes of transformers: part -> pairs of a class of transformers and keys
OF_TRANSFORMERS: dict[str, list[tuple[str, str]]] = {
    "model.encoder": [
        ("BertConfig", "num_hidden_layers hidden_size num_attention_heads intermediate_size type_vocab_size"),
        ("AlbertConfig", "embedding_size num_hidden_groups"),
        ("ModernBertConfig", "norm_eps attention_dropout"),
        ("GPTNeoXConfig", "hidden_dropout"),
        ("LlamaConfig", "head_dim"),
    ],
    "model.decoder": [("GPT2Config", "num_hidden_layers hidden_size num_attention_heads")],
    "model.encoder_decoder": [
        ("BartConfig", "num_hidden_layers hidden_size num_attention_heads attention_dropout init_std scale_embedding")
    ],
    "model.two_stream": [("XLNetConfig", "num_hidden_layers hidden_size num_attention_heads")],
    "model.generator_discriminator": [("ElectraConfig", "embedding_size type_vocab_size")],
    "model.position_embedding.learned": [("BertConfig", "max_position_embeddings")],
    "model.position_embedding.relative": [("XLNetConfig", "mem_len reuse_len clamp_len same_length")],
    "data.tokenizer.wordpiece": [("BertConfig", "vocab_size")],
    "objective.mlm": [("DataCollatorForLanguageModeling", "mask_replace_prob random_replace_prob")],
    "optimizer.adamw": [("TrainingArguments", "learning_rate warmup_steps weight_decay max_grad_norm")],
    "cluster.engine": [("TrainingArguments", "dataloader_num_workers torch_compile")],
    "task.grids": [("TrainingArguments", "max_steps warmup_steps weight_decay max_grad_norm")],
    "task.task.generation": [
        (
            "GenerationConfig",
            "max_new_tokens min_new_tokens num_beams length_penalty no_repeat_ngram_size top_k top_p temperature",
        )
    ],
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("part", "theirs", "keys_of_both"),
    [(part, *pair) for part, pairs in OF_TRANSFORMERS.items() for pair in pairs],
    ids=lambda each: each if " " not in each else "",
)
def test_keys_with_names_of_transformers_are_attributes_of_its_classes(
    part: str, theirs: str, keys_of_both: str
) -> None:
    ours = {key.name for each in keys.find_parts(part) if each.name == part for key in each.keys}
    cls: typing.Any = getattr(importlib.import_module("transformers"), theirs)
    fields = {field.name for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
    for name in keys_of_both.split():
        assert name in ours
        assert name in fields or hasattr(cls(), name), f"{theirs} has no {name}"
