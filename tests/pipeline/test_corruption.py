"""Each flipped bit and each truncation is detected before the file is used, and the error names the file."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from pipeline.jobs import encode_corpus, train_vocab
from pipeline.readers import JsonlReader
from pipeline.spec import Corpus
from pipeline.steps import TextDirectory, read_seal, read_text
from pipeline.steps.documents import Document
from preprocessing.errors import BadInput
from preprocessing.manifest import Manifest
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab, WordPiece
from tests.pipeline.conftest import story
from tests.pipeline.faults import HERE
from tests.pipeline.formats import json_lines

FLIPS = 10_000
CUTS = 1_000


class Made(NamedTuple):
    """A small corpus and its documents."""

    folder: Path
    documents: list[Document]


def read_shards(made: Made) -> None:
    TokenStore.open(made.folder / "corpus", "train")


def read_manifest(made: Made) -> None:
    Manifest.load(made.folder / "corpus")


def read_vocab(made: Made) -> None:
    Vocab.load(made.folder / "corpus" / "vocab")


def read_plan(made: Made) -> None:
    assert len(TextDirectory.load(made.folder / "text").plan_N) == len(made.documents)


def read_documents(made: Made) -> bool:
    """Return whether the documents are unchanged: only documents are checked, not the bytes between them."""
    return list(TextDirectory.load(made.folder / "text").documents(0, len(made.documents))) == made.documents


def read_seals(made: Made) -> None:
    """A part without a valid seal, or a seal without its part, is made again."""
    for part in [*(made.folder / "text").glob("text-*.arrow"), *(made.folder / "corpus").glob("train-*.arrow")]:
        if read_seal(part) is None:
            raise BadInput(f"{part.with_suffix('.json')}: is damaged")


# The first reader of each file, and its percentage of the flips and cuts.
READERS: dict[str, tuple[Callable[[Made], bool | None], int]] = {
    "corpus/train-*.arrow": (read_shards, 30),
    "corpus/manifest.json": (read_manifest, 10),
    "corpus/vocab/tokenizer.json": (read_vocab, 10),
    "corpus/vocab/vocab.txt": (read_vocab, 5),
    "corpus/vocab/specials.json": (read_vocab, 5),
    "corpus/train-*.json": (read_seals, 5),
    "text/text.json": (read_plan, 10),
    "text/plan.npy": (read_plan, 10),
    "text/text-*.arrow": (read_documents, 10),
    "text/text-*.json": (read_seals, 5),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("made")
    source = folder / "stories.jsonl"
    source.write_bytes(json_lines([{"text": story(number)} for number in range(60)]))
    corpus = Corpus(name="stories", sources=(JsonlReader(path=str(source)),), validation_ratio=0.1, test_ratio=0.1)
    texts = read_text(corpus, folder / "text", HERE)
    train_vocab(folder / "text", WordPiece(vocab_size=200), folder / "vocab")
    encode_corpus(folder / "text", folder / "vocab", corpus, folder / "corpus", HERE)
    return Made(folder, list(texts.documents(0, len(texts.plan_N))))


def damages(path: Path, damage: Callable[[bytes, int], bytes], places: np.ndarray) -> Iterator[int]:
    """Damage a file at one place after another, and restore it at the end."""
    sound, clock = path.read_bytes(), path.stat().st_mtime_ns
    with path.open("r+b") as file:  # truncating the file first would write to the disk each time

        def write(content: bytes, time: int) -> None:
            file.seek(0)
            file.write(content)
            file.truncate()
            file.flush()
            os.utime(path, ns=(time, time))  # otherwise, writes within one clock tick would have the same time

        try:
            for number, place in enumerate(places.tolist(), start=1):
                write(damage(sound, place), clock + number)
                yield place
        finally:
            write(sound, clock - 1)


def flipped(content: bytes, bit: int) -> bytes:
    """Return the bytes with one bit flipped."""
    damaged = bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def cut(content: bytes, size: int) -> bytes:
    """Return the first bytes."""
    return content[:size]


def undetected(made: Made, name: str, damage: Callable[[bytes, int], bytes], share: int, unit: int) -> list[Any]:
    """Return the places of undetected harmful damage, and of damage that another file is blamed for."""
    read, weight = READERS[name]
    (path,) = made.folder.glob(name)
    rng = np.random.default_rng([5, unit, len(name)])
    places = rng.integers(0, path.stat().st_size * unit, size=share * weight // 100)
    passed = []
    for place in damages(path, damage, places):
        try:
            if not read(made):
                passed.append(place)
        except BadInput as error:
            if not str(error).startswith(f"{path}: ") or "\n" in str(error):
                passed.append((place, str(error)))
    read(made)  # without damage, there is no error
    return passed


def test_the_percentages_of_all_files_add_up_to_100() -> None:
    assert sum(weight for _, weight in READERS.values()) == 100


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", READERS)
def test_a_flipped_bit_is_detected_at_any_place(made: Made, name: str) -> None:
    assert undetected(made, name, flipped, FLIPS, unit=8) == []


@pytest.mark.parametrize("name", READERS)
def test_a_truncated_file_is_detected_at_any_length(made: Made, name: str) -> None:
    assert undetected(made, name, cut, CUTS, unit=1) == []


def test_no_corpus_is_made_from_damaged_text(made: Made, tmp_path: Path) -> None:
    (part,) = (made.folder / "text").glob("text-*.arrow")
    for _ in damages(part, flipped, np.array([8 * part.stat().st_size // 2])):
        with pytest.raises(BadInput, match=rf"^{part}: missing or damaged; [^\n]+$"):
            encode_corpus(
                made.folder / "text", made.folder / "vocab", Corpus(name="stories"), tmp_path / "corpus", HERE
            )
    assert not list((tmp_path / "corpus").iterdir())
