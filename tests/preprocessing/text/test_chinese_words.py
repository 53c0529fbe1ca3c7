import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from preprocessing.text import chinese_word_starts
from preprocessing.text import chinese_words as chinese_words_module
from preprocessing.text.chinese_words import chinese_words


def test_only_runs_of_chinese_characters_are_segmented() -> None:
    assert chinese_words("plain text, \u304b\u306a, \ud55c\uad6d 12\uff0c") == []
    text = "x\u4eca\u5929\u597dy\u4f60"  # x, today, good, y, you
    assert chinese_words(text) == [1, 3, 5]


def test_a_word_starts_at_the_first_token_of_its_first_character() -> None:
    text = "a\u4eca\u5929\u597db"
    begin_S = np.array([0, 1, 1, 2, 3, 4])  # the first character has two tokens
    pieces_S = np.array([True, True, True, True, True, False])
    assert chinese_word_starts(text, begin_S, pieces_S).tolist() == [True, True, False, False, True, True]


def test_text_without_chinese_keeps_its_words() -> None:
    pieces_S = np.array([True, False, True])
    assert chinese_word_starts("ab c", np.array([0, 1, 3]), pieces_S).tolist() == pieces_S.tolist()
    assert chinese_word_starts("", np.zeros(0, int), np.zeros(0, bool)).tolist() == []


def test_segmentation_writes_no_files_and_prints_nothing(tmp_path: Path) -> None:
    code = "from preprocessing.text.chinese_words import chinese_words; print(chinese_words('\u4eca\u5929\u597d'))"
    run = subprocess.run(
        [sys.executable, "-c", code], env={"TMPDIR": str(tmp_path), "PYTHONPATH": "."}, capture_output=True, text=True
    )
    assert (run.stdout, run.stderr, list(tmp_path.iterdir())) == ("[0, 2]\n", "", [])


def gold_words(path: Path) -> Iterator[list[str]]:
    """Yield the words of each sentence of a CoNLL-U file."""
    for sentence in path.read_text(encoding="utf-8").strip().split("\n\n"):
        rows = [line.split("\t") for line in sentence.splitlines() if line[:1].isdigit()]
        yield [row[1] for row in rows if row[0].isdigit()]


def spans_of(words: list[str]) -> set[tuple[int, int]]:
    ends = np.cumsum([0, *map(len, words)]).tolist()
    return set(pairwise(ends))


@pytest.mark.shared
def test_most_words_agree_with_a_treebank(shared: Path) -> None:
    both = found = wanted = 0
    for words in gold_words(shared / "zh" / "zh_seg" / "zh_gsdsimp-ud-test.conllu"):
        text = "".join(words)
        begin_S = np.array([token.start() for token in re.finditer(r"[A-Za-z0-9.]+|.", text)])
        cuts = [*begin_S[chinese_word_starts(text, begin_S, np.ones(len(begin_S), bool))].tolist(), len(text)]
        ours, gold = set(pairwise(cuts)), spans_of(words)
        both, found, wanted = both + len(ours & gold), found + len(ours), wanted + len(gold)
    assert 2 * both / (found + wanted) > 0.79  # 0.795 with jieba 0.42.1; words of the treebank are shorter


def test_long_runs_of_unknown_characters_are_segmented_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each unknown character jieba copies the whole path, so a run of them takes quadratic time."""
    asked = list[int]()
    tokenizer = chinese_words_module._jieba()
    whole = tokenizer.cut

    def cut(run: str) -> Iterator[str]:
        asked.append(len(run))
        return whole(run)

    monkeypatch.setattr(tokenizer, "cut", cut)
    text = "\u9f98" * 2_500 + "\uff0c" + "\u6211\u4eec"
    starts = chinese_words_module.chinese_words(text)
    assert asked == [1_000, 1_000, 500, 2]
    assert starts[-1] == 2_501
    assert starts == sorted(set(starts))
