import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing import shards
from preprocessing.errors import BadInput
from preprocessing.files import xxh3_file
from preprocessing.manifest import FILE_NAME, Ledger, Manifest, ShardInfo
from preprocessing.schema import Bools, Ints
from preprocessing.shards import Shard, TokenStore, shard_name, write_shard


@dataclass
class Documents:
    """Two documents, "abc de" and "fg h i j"; tests change a column to make them invalid."""

    ids: list[Ints] = field(default_factory=lambda: [np.array([5, 6, 7]), np.array([9, 5, 9, 8])])
    word_starts: list[Bools] = field(default_factory=lambda: [np.array([1, 0, 1], bool), np.array([1, 1, 0, 1], bool)])
    sentence_starts: list[Bools] = field(
        default_factory=lambda: [np.array([1, 0, 0], bool), np.array([1, 0, 0, 1], bool)]
    )
    source: list[str] = field(default_factory=lambda: ["wiki", "books"])
    key: list[bytes] = field(default_factory=lambda: [b"0123456789abcdef", b"fedcba9876543210"])

    def write(self, path: Path, vocab_size: int = 10, unit_starts: list[Bools] | None = None) -> ShardInfo:
        columns = (self.ids, self.word_starts, self.sentence_starts, self.source, self.key)
        return write_shard(path, *columns, vocab_size=vocab_size, unit_starts=unit_starts)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / shard_name("train", 0, 1)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A finished corpus of two training shards and one validation shard."""
    names = [shard_name("train", 0, 2), shard_name("train", 1, 2), shard_name("validation", 0, 1)]
    infos = tuple(Documents().write(tmp_path / name) for name in names)
    Manifest("toy", "spec", "text", {"hash": "vocab"}, {}, infos, Ledger()).save(tmp_path)
    return tmp_path


def test_a_document_survives_writing_and_reading(path: Path) -> None:
    documents = Documents()
    documents.write(path)
    second = Shard(path).document(1)
    assert {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in second.items()} == {
        "ids": [9, 5, 9, 8],
        "word_starts": [True, True, False, True],
        "sentence_starts": [True, False, False, True],
        "source": "books",
        "key": b"fedcba9876543210",
    }


@settings(max_examples=30, deadline=None, derandomize=True)
@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=12), seed=st.integers(0, 99))
def test_any_documents_survive_writing_and_reading(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    ids = [rng.integers(0, 100, size=length) for length in lengths]
    words, sentences = ([rng.random(length) < 0.5 for length in lengths] for _ in range(2))
    for starts_S in sentences:
        starts_S[0] = True
    path = tmp_path_factory.mktemp("shard") / shard_name("train", 0, 1)
    names, keys = [f"source {length % 3}" for length in lengths], [rng.bytes(16) for _ in lengths]
    write_shard(path, ids, words, sentences, names, keys, vocab_size=100)
    shard = Shard(path)
    for i in range(len(lengths)):
        document = shard.document(i)
        np.testing.assert_array_equal(document["ids"], ids[i])
        np.testing.assert_array_equal(document["word_starts"], words[i])
        np.testing.assert_array_equal(document["sentence_starts"], sentences[i])
        assert (document["source"], document["key"]) == (names[i], keys[i])


def test_the_tokens_of_a_shard_are_contiguous(path: Path) -> None:
    Documents().write(path)
    shard = Shard(path)
    assert shard.ids_T.tolist() == [5, 6, 7, 9, 5, 9, 8]
    assert shard.num_tokens_N.tolist() == [3, 4]
    assert shard.offset_N1.tolist() == [0, 3, 7]
    assert (len(shard), shard.num_tokens) == (2, 7)
    assert shard.num_tokens_N.dtype == shard.offset_N1.dtype == shard.sentence_at_M.dtype == np.int64


def test_sentence_positions_count_over_the_whole_shard(path: Path) -> None:
    Documents().write(path)
    assert Shard(path).sentence_at_M.tolist() == [0, 3, 6]


def test_word_starts_can_be_read_across_documents(path: Path) -> None:
    Documents().write(path)
    assert Shard(path).word_starts(1, 6).tolist() == [False, True, True, True, False]


def test_sources_are_sorted_and_each_document_has_its_own(path: Path) -> None:
    Documents().write(path)
    shard = Shard(path)
    assert shard.sources == ("books", "wiki")
    assert [shard.source(i) for i in range(2)] == ["wiki", "books"]
    assert shard.source_N.tolist() == [1, 0]


def test_tokens_are_memory_mapped_and_not_copied(path: Path) -> None:
    Documents().write(path)
    before = pa.total_allocated_bytes()
    ids_T = Shard(path).ids_T
    assert pa.total_allocated_bytes() == before
    assert not ids_T.flags.owndata
    assert not ids_T.flags.writeable


def test_a_shard_is_pickled_as_its_path(path: Path) -> None:
    Documents().write(path)
    shard = Shard(path)
    assert pickle.loads(pickle.dumps(shard)).ids_T.tolist() == shard.ids_T.tolist()
    assert len(pickle.dumps(shard)) < 1000


@pytest.mark.parametrize(("vocab_size", "dtype"), [(65_535, np.uint16), (65_536, np.uint16), (65_537, np.uint32)])
def test_ids_have_16_bits_if_the_vocabulary_allows_it(path: Path, vocab_size: int, dtype: type) -> None:
    documents = Documents()
    documents.ids[0][1] = vocab_size - 1
    documents.write(path, vocab_size)
    assert Shard(path).ids_T.dtype == dtype
    assert Shard(path).ids_T[1] == vocab_size - 1


@pytest.mark.parametrize("id", [10, 70_000, -1])
def test_an_id_outside_the_vocabulary_is_refused_and_nothing_is_written(path: Path, id: int) -> None:
    documents = Documents()
    documents.ids[0][1] = id
    with pytest.raises(ValueError, match="ids must be less than the vocab_size 10"):
        documents.write(path)
    assert list(path.parent.iterdir()) == []


def spoil_lengths(documents: Documents) -> None:
    documents.word_starts[0] = np.array([1, 0], bool)


def spoil_first_sentence(documents: Documents) -> None:
    documents.sentence_starts[1][0] = False


def spoil_sources(documents: Documents) -> None:
    documents.source = ["wiki"]


def spoil_tokens(documents: Documents) -> None:
    documents.ids[0] = documents.ids[0][:0]


def spoil_keys(documents: Documents) -> None:
    documents.key[0] = b"short"


@pytest.mark.parametrize("spoil", [spoil_lengths, spoil_first_sentence, spoil_sources, spoil_tokens, spoil_keys])
def test_inconsistent_columns_are_refused(path: Path, spoil: Any) -> None:
    documents = Documents()
    spoil(documents)
    with pytest.raises(ValueError):  # noqa: PT011  # each rule has its own words
        documents.write(path)
    assert not path.exists()


def test_a_shard_name_without_a_known_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must begin with one of"):
        Documents().write(tmp_path / "dev-00000-of-00001.arrow")


def test_equal_documents_give_equal_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "a" / shard_name("train", 0, 1), tmp_path / "b" / shard_name("train", 0, 1)
    assert Documents().write(first) == Documents().write(second)
    assert first.read_bytes() == second.read_bytes()


def test_shard_info_describes_the_file(path: Path) -> None:
    info = Documents().write(path)
    assert (info.name, info.split, info.rows, info.tokens) == (path.name, "train", 2, 7)
    assert info.bytes == path.stat().st_size


def test_a_store_needs_at_most_2_3_bytes_per_token(path: Path) -> None:
    rng = np.random.default_rng(0)
    ids = [rng.integers(0, 30_522, size=500) for _ in range(1_000)]  # as short as Wikipedia documents
    starts = [np.arange(500) % 3 == 0 for _ in ids]
    keys = [rng.bytes(16) for _ in ids]
    info = write_shard(path, ids, starts, starts, ["wiki"] * 1_000, keys, vocab_size=30_522)
    assert info.bytes / info.tokens < 2.3


def test_a_document_adds_only_its_key_offset_and_source(tmp_path: Path) -> None:
    sizes = []
    for count in (1_000, 2_000):
        ones = [np.ones(8, np.int64)] * count
        flags = [np.ones(8, bool)] * count
        path = tmp_path / shard_name("train", count, 2_001)
        sizes.append(write_shard(path, ones, flags, flags, ["a"] * count, [bytes(16)] * count, vocab_size=9).bytes)
    # buffers are padded to multiples of 64 bytes
    assert sizes[1] - sizes[0] == pytest.approx(1_000 * (16 + 4 + 1 + 8 * 2.25), abs=64 * 6)


def test_tokens_of_a_document_are_a_view(path: Path) -> None:
    Documents().write(path)
    shard = Shard(path)
    assert shard.tokens(1).tolist() == [9, 5, 9, 8]
    assert np.shares_memory(shard.tokens(1), shard.ids_T)


def test_the_unit_column_is_optional_and_defaults_to_words(path: Path) -> None:
    plain, units = path, path.with_name(shard_name("train", 1, 2))
    Documents().write(plain)
    starts = [np.array([1, 0, 0], bool), np.array([1, 0, 0, 1], bool)]
    Documents().write(units, unit_starts=starts)
    assert Shard(units).unit_starts(2, 7).tolist() == [False, True, False, False, True]
    assert Shard(units).document(0)["unit_starts"].tolist() == [True, False, False]
    assert Shard(plain).unit_starts(0, 7).tolist() == Shard(plain).word_starts(0, 7).tolist()
    assert (Shard(plain).has_units, Shard(units).has_units) == (False, True)


@pytest.mark.parametrize(("count", "type"), [(128, np.int8), (129, np.int16)])
def test_source_numbers_use_the_smallest_dtype(path: Path, count: int, type: type) -> None:
    ones, flags = [np.ones(1, np.int64)] * count, [np.ones(1, bool)] * count
    names, keys = [f"file {i}" for i in range(count)], [bytes(16)] * count
    write_shard(path, ones, flags, flags, names, keys, vocab_size=2)
    assert Shard(path).source_N.dtype == type
    assert [Shard(path).source(i) for i in range(count)] == names


def test_plain_pyarrow_reads_a_shard_as_one_uncompressed_batch(path: Path) -> None:
    Documents().write(path)
    with pa.memory_map(str(path)) as file:
        reader = pa.ipc.open_file(file)
        assert reader.num_record_batches == 1
        documents = reader.read_all().to_pylist()
    assert [[token["id"] for token in document["tokens"]] for document in documents] == [[5, 6, 7], [9, 5, 9, 8]]
    assert documents[0]["tokens"][1] == {"id": 6, "word_start": False, "sentence_start": False}
    assert (documents[0]["source"], documents[0]["key"]) == ("wiki", b"0123456789abcdef")


@pytest.mark.parametrize("content", [b"", b"no arrow at all", b"ARROW1\0\0" + bytes(100)])
def test_a_file_that_is_not_a_shard_is_bad_input(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(BadInput, match="cannot read it as a shard") as error:
        Shard(path)
    assert "\n" not in str(error.value)


def test_a_missing_shard_is_bad_input(path: Path) -> None:
    with pytest.raises(BadInput, match="cannot read it as a shard"):
        Shard(path)


def test_a_store_opens_the_shards_of_its_split(corpus: Path) -> None:
    store = TokenStore.open(corpus, "train")
    assert [shard.path.name for shard in store.shards] == ["train-00000-of-00002.arrow", "train-00001-of-00002.arrow"]
    assert store.num_tokens == 14
    assert store.manifest.name == "toy"
    assert store.vocab_dir == corpus / "vocab"


def test_a_store_ignores_files_missing_from_the_manifest(corpus: Path) -> None:
    Documents().write(corpus / "train-00007-of-00009.arrow")
    assert len(TokenStore.open(corpus, "train").shards) == 2


def test_a_split_without_shards_is_bad_input(corpus: Path) -> None:
    with pytest.raises(BadInput, match="invalid split: got test, expected one of train, validation"):
        TokenStore.open(corpus, "test")


def test_a_directory_without_a_manifest_is_refused(corpus: Path) -> None:
    (corpus / FILE_NAME).unlink()
    with pytest.raises(BadInput, match="not a finished corpus"):
        TokenStore.open(corpus, "train")


def test_every_flipped_bit_is_detected_and_the_shard_named(corpus: Path) -> None:
    path = corpus / shard_name("train", 1, 2)
    whole = path.read_bytes()
    for place in range(0, len(whole), 37):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        shards._hash_once.cache_clear()  # the file system clock is coarser than the time of one iteration
        with pytest.raises(
            BadInput, match=r"train-00001-of-00002\.arrow: is damaged: got xxh3 \w{32}, expected \w{32}"
        ):
            TokenStore.open(corpus, "train")


def test_a_damaged_shard_does_not_affect_other_splits(corpus: Path) -> None:
    (corpus / shard_name("train", 1, 2)).write_bytes(b"")
    assert TokenStore.open(corpus, "validation").num_tokens == 7


@pytest.mark.parametrize("keep", [0, 8, 100, -1])
def test_a_truncated_shard_is_detected_without_verification(corpus: Path, keep: int) -> None:
    path = corpus / shard_name("train", 1, 2)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(BadInput, match=r"train-00001-of-00002\.arrow: is damaged: got \d+ bytes, expected \d+"):
        TokenStore.open(corpus, "train", verify=False)


def test_a_missing_shard_of_a_corpus_is_named(corpus: Path) -> None:
    (corpus / shard_name("train", 0, 2)).unlink()
    with pytest.raises(BadInput, match=r"train-00000-of-00002\.arrow: No such file"):
        TokenStore.open(corpus, "train")


def test_each_shard_is_hashed_once_per_process(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = []

    def counting_hash(path: Path) -> str:
        hashed.append(path)
        return xxh3_file(path)

    monkeypatch.setattr(shards, "xxh3_file", counting_hash)
    TokenStore.open(corpus, "train")
    TokenStore.open(corpus, "train")
    assert len(hashed) == 2
