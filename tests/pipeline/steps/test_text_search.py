"""The search for a text in cleaned documents, and for documents that repeat others."""

from pathlib import Path

import pytest

from pipeline.spec import Dedup
from pipeline.steps import TextDirectory, find_repeats, find_text
from preprocessing.text import text_key
from tests.pipeline.steps.test_dedup import edit, long_story, read


@pytest.mark.slow
def test_kept_and_repeated_documents_are_found(tmp_path: Path) -> None:
    words = long_story(0)
    first, near, other = " ".join(words), edit(words, 1, 0.02), " ".join(long_story(1))
    texts = read(tmp_path, [first, near, other, other], dedup=Dedup(minhash=True))
    shares = list[tuple[int, int]]()
    found = find_text(texts, first[:40], lambda done, total: shares.append((done, total)))
    assert set(found) == {text_key(text) for text in (first, near) if text.startswith(first[:40])}
    assert shares[-1][0] == shares[-1][1]
    (row,) = find_repeats(texts.folder, [text_key(other).hex()])
    assert (row["reason"], row["kept_key"]) == ("duplicate", text_key(other).hex())
    dropped = find_repeats(texts.folder, [text_key(text).hex() for text in (first, near)])
    assert [row["reason"] for row in dropped] == ["near_duplicate"]
    kept = {document.key.hex() for document in TextDirectory.load(texts.folder).documents(0, 2)}
    assert dropped[0]["kept_key"] in kept
    assert find_repeats(texts.folder, ["ffff"]) in ([], [row])
    assert find_text(texts, "no such text", lambda done, total: None) == {}
