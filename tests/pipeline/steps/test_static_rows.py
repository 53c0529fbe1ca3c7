import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline.readers import ParallelReader as SidesOf
from pipeline.readers import TextReader
from pipeline.spec import Corpus
from pipeline.steps import StaticExampleSpec, materialise, static_rows
from preprocessing import objectives
from preprocessing.errors import BadInput
from preprocessing.masking import FragmentMasking, NgramMasking, NoMasking, PartialPrediction, TokenMasking
from preprocessing.objectives import (
    CausalLM,
    Denoising,
    GapSentenceGeneration,
    MaskedLM,
    PermutationLM,
    PrefixLM,
    UnifiedLM,
)
from preprocessing.packing import (
    BestFit,
    Contiguous,
    ParallelSentences,
    SegmentPair,
    SingleSentence,
    Stream,
    StreamPair,
)
from preprocessing.rows import ExampleDataset
from preprocessing.sampling import ExampleSpec
from preprocessing.schema import PER_TOKEN
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab, WordPiece
from tests.pipeline.conftest import story
from tests.pipeline.test_jobs import HELD_OUT, build, content, corpus_of

CASED = WordPiece(vocab_size=300, lowercase=False)
BERT: dict[str, Any] = {
    "packing": SegmentPair(negatives="random"),
    "masking": TokenMasking(),
    "objective": MaskedLM(),
    "static_masks": 3,
}
GPT: dict[str, Any] = {
    "packing": Contiguous(unit="token"),
    "masking": NoMasking(),
    "objective": CausalLM(),
    "static_masks": 1,
}
ONCE = BERT | {"static_masks": 1}
ELECTRA = ONCE | {
    "packing": SegmentPair(negatives="none", short_seq_prob=0.05, single_segment_prob=0.1),
    "objective": MaskedLM(mask_replace_prob=0.85, random_replace_prob=0.0),
}
TRANSFORMER_XL = GPT | {"packing": Stream()}
XLNET = ONCE | {
    "packing": StreamPair(reuse_len=24),
    "masking": PartialPrediction(),
    "objective": PermutationLM(perm_size=24),
}
XLM = ONCE | {"packing": ParallelSentences(translation_ratio=0.0), "masking": TokenMasking(sample_alpha=0.5)}
MASS = ONCE | {"packing": SingleSentence(), "masking": FragmentMasking(), "objective": objectives.MaskedSeq2Seq()}
BART = GPT | {"packing": Contiguous(unit="sentence"), "objective": Denoising()}
PEGASUS = BART | {"objective": GapSentenceGeneration()}
PREFIX = GPT | {"objective": PrefixLM()}
UNILM = ONCE | {"masking": NgramMasking(ngram_weights=(0.8, 0.1, 0.1)), "objective": UnifiedLM()}
WHOLE = BART | {"packing": BestFit(add_cls=True)}
OBJECTIVES = {
    "bert": BERT,
    "gpt": GPT,
    "electra": ELECTRA,
    "transformer_xl": TRANSFORMER_XL,
    "xlnet": XLNET,
    "xlm": XLM,
    "mass": MASS,
    "bart": BART,
    "pegasus": PEGASUS,
    "prefix": PREFIX,
    "whole documents": WHOLE,
    "unilm": UNILM,
}
READ = {
    *PER_TOKEN,
    *(f"source_{name}" for name in PER_TOKEN),
    "source_seen",
    "labels",
    "next_sentence_label",
}  # by a model


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stories")
    lines = (json.dumps({"text": story(number)}) for number in range(60))
    (folder / "stories.jsonl").write_text("\n".join(lines))
    build(corpus_of(folder / "stories.jsonl"), folder)
    return folder / "corpus"


def _static(corpus: Path, parts: dict[str, Any]) -> StaticExampleSpec:
    return StaticExampleSpec(str(corpus), "train", ExampleSpec(**parts, seed=3), length=48)


@pytest.fixture(scope="module")
def translations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each story beside its copy in capitals, and some English text without translation."""
    folder = tmp_path_factory.mktemp("translations")
    stories = [story(number, 2) for number in range(40)]
    (folder / "a.en-fr.en").write_text("\n".join(stories))
    (folder / "a.en-fr.fr").write_text("\n".join(text.upper() for text in stories))
    (folder / "news.en").write_text("\n".join(story(number) for number in range(100, 120)))
    sides = (str(folder / "a.en-fr.en"), str(folder / "a.en-fr.fr"))
    sources = (SidesOf(paths=sides), TextReader(path=str(folder / "news.en"), document_unit="line"))
    build(Corpus(name="translations", sources=sources, phrases="given", **HELD_OUT), folder, vocab=CASED)
    return folder / "corpus"


@pytest.mark.parametrize("pairs", [0.0, 0.5, 1.0])
def test_translations_come_from_aligned_files(translations: Path, pairs: float) -> None:
    store = TokenStore.open(translations, "train")
    vocab = Vocab.load(store.vocab_dir)
    segment = ParallelSentences(translation_ratio=pairs, language_sampling_alpha=1.0, languages=("fr", "en"))
    rows = ExampleDataset(
        store, vocab, ExampleSpec(packing=segment, masking=NoMasking(), objective=CausalLM(), seed=3), length=128
    )
    kinds = Counter[tuple[int, ...]]()
    for sample in range(rows.count(0)):
        row = rows.row(0, sample)
        spoken = tuple(dict.fromkeys(row["languages"].tolist()))
        kinds[spoken] += len(row["input_ids"])
        texts = [
            vocab.decode(row["input_ids"][(row["languages"] == one) & ~row["special_tokens_mask"]]) for one in spoken
        ]
        if len(spoken) == 2:
            assert texts[0].upper().split() == texts[1].split()
        assert all((text == text.upper()) == (one == 0) for text, one in zip(texts, spoken, strict=True))
    assert kinds[1, 0] / kinds.total() == pytest.approx(pairs, abs=0.02)
    assert (kinds[0,] > 0) == (kinds[1,] > 0) == (pairs < 1)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("parts", OBJECTIVES.values(), ids=OBJECTIVES)
def test_stored_sequences_equal_those_of_the_loader(
    corpus: Path, tmp_path: Path, parts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(static_rows, "_AT_ONCE", 7)
    monkeypatch.setattr(static_rows, "_ROWS_BYTES", 10_000)
    actual = materialise(_static(corpus, parts), tmp_path / "rows")
    store = TokenStore.open(corpus, "train")
    loader = ExampleDataset(store, Vocab.load(store.vocab_dir), ExampleSpec(**parts, seed=3), length=48)
    tables = [pa.ipc.open_file(tmp_path / "rows" / file["name"]).read_all() for file in actual["files"]]
    found = pa.concat_tables(tables)
    copies = range(parts["static_masks"])
    wanted = [loader.row(copy, sample) for copy in copies for sample in range(loader.count(copy))]
    assert len(tables) > 1
    assert found.num_rows == len(wanted) == sum(actual["rows"])
    for name in found.column_names:
        for column, row in zip(found[name].to_pylist(), wanted, strict=True):
            np.testing.assert_array_equal(column, row[name], err_msg=name)
    assert {"input_ids", "labels"} <= set(found.column_names)
    assert set(found.column_names) >= READ & wanted[0].keys()
    assert ("next_sentence_label" in found.column_names) == (parts in (BERT, UNILM))


# their parts have lists, and a seal is JSON, which has no tuples
@pytest.mark.parametrize("name", ["bart", "xlm", "mass"])
def test_existing_sequences_of_parts_with_lists_are_not_made_again(corpus: Path, tmp_path: Path, name: str) -> None:
    made = [materialise(_static(corpus, OBJECTIVES[name]), tmp_path / "rows") for _ in range(2)]
    written = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "rows").glob("*.arrow")}
    assert made[0] == made[1] == materialise(_static(corpus, OBJECTIVES[name]), tmp_path / "rows")
    assert written == {file.name: file.stat().st_mtime_ns for file in (tmp_path / "rows").glob("*.arrow")}


def test_sequences_have_equal_bytes_in_every_run(corpus: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        materialise(_static(corpus, BERT), tmp_path / name)
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_existing_sequences_are_not_made_again(corpus: Path, tmp_path: Path) -> None:
    materialise(_static(corpus, BERT), tmp_path / "rows")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "rows").glob("*.arrow")}
    materialise(_static(corpus, BERT), tmp_path / "rows")
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "rows").glob("*.arrow")}


def test_another_seed_replaces_the_sequences_in_the_same_directory(corpus: Path, tmp_path: Path) -> None:
    materialise(_static(corpus, BERT), tmp_path / "rows")
    first = content(tmp_path / "rows")
    materialise(StaticExampleSpec(str(corpus), "train", ExampleSpec(**BERT, seed=4), length=48), tmp_path / "rows")
    assert content(tmp_path / "rows") != first


def test_sequences_without_static_masks_cannot_be_stored(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^invalid data.static_masks: got 0, [^\n]+$"):
        materialise(_static(corpus, BERT | {"static_masks": 0}), tmp_path / "rows")
