"""Each reader of user files reports a file that is a pointer or an HTML page."""

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestration.config import strict_yaml
from pipeline.steps.encode import phrases_of
from preprocessing.errors import BadInput
from preprocessing.tokenization import Unigram, WordPiece, vocab_from_file
from preprocessing.tokenization.folder import of_folder
from tests.preprocessing.test_stand_ins import LFS, PAGE
from training.evaluation.files.archives import contents
from training.formats import sharded, weights


def _phrases(path: Path) -> object:
    return phrases_of(str(path))


def _yaml(path: Path) -> object:
    return strict_yaml.read(path, str(path))


def _task(path: Path) -> object:
    return list(contents(path.parent, path.name))


def _word_pieces(path: Path) -> object:
    return vocab_from_file(WordPiece(vocab_size=100, path=str(path)))


def _unigrams(path: Path) -> object:
    return vocab_from_file(Unigram(vocab_size=100, path=str(path)))


def _tokenizer(path: Path) -> object:
    return of_folder(path.parent)


def _tensors(path: Path) -> object:
    return sharded.read(path.parent, path.name.removesuffix(".safetensors"))


def _index(path: Path) -> object:
    return sharded.weight_files(path.parent, path.name.removesuffix(".safetensors.index.json"))


def _config(path: Path) -> object:
    return weights.read_json(path)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("phrases.txt", _phrases),
        ("recipe.yaml", _yaml),
        ("task.jsonl", _task),
        ("task.csv", _task),
        ("vocab.txt", _word_pieces),
        ("spiece.model", _unigrams),
        ("tokenizer.json", _tokenizer),
        ("vocab.txt", _tokenizer),
        ("tokenizer_config.json", _tokenizer),
        ("model.safetensors", _tensors),
        ("model.safetensors.index.json", _index),
        ("config.json", _config),
    ],
)
@pytest.mark.parametrize("content", [LFS, PAGE])
def test_each_reader_of_user_files_names_pointers_and_html_pages(
    tmp_path: Path, name: str, read: Callable[[Path], object], content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=rf"^[^\n]*{name}: unexpected content: an? (?:Git LFS pointer|HTML page)[^\n]+$"):
        read(tmp_path / name)
