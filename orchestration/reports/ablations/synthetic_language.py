"""Text in a made-up language for ablation tables at small scale.

In a few minutes on two cores, a model learns little from real text. On the installed documentation of Python, ALBERT
has a masked-token accuracy of 14 % after 4,000 steps at tiny scale, so a table of such models compares noise. In the
made-up language a few minutes are enough, and the structure to learn is known:

* Topics and names show which sentences belong to the same document, and stages show their order.
* The particle at the end of a sentence agrees in number with the determiner at its beginning.
* Some pairs of words are phrases.

The tables use this text if the command has no `--data`.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np

from pipeline.readers import JsonlReader
from pipeline.spec import Corpus
from preprocessing.files import write_atomic
from preprocessing.schema import Ints

Units = Literal["", "names", "phrases"]

NUM_DOCUMENTS: Final = 8_000
SEED: Final = 0
VALIDATION, TEST = 0.03, 0.45  # a probe needs thousands of pairs that no model was trained on
_SYLLABLES: Final = [consonant + vowel for consonant in "bdfghjklmnprstvz" for vowel in "aeiou"]  # 80
_NUM: Final = {  # number of words of each kind, over all four topics
    "determiner": 2,
    "particle": 2,
    "function": 20,
    "marker": 30,
    "name": 120,
    "noun": 4 * 24,
    "verb": 4 * 2 * 12,
    "first": 4 * 12,
    "second": 4 * 12,
}
AT: Final = dict(zip(_NUM, np.cumsum([0, *_NUM.values()]).tolist(), strict=False))  # first word of each kind
NUM_WORDS: Final = sum(_NUM.values())


@dataclass(frozen=True)
class SyntheticLanguage:
    """Concatenated documents: the words as numbers, words per sentence, and sentences per document."""

    word_T: Ints
    num_words_M: Ints
    num_sentences_N: Ints


def build_language(seed: int, num_documents: int) -> SyntheticLanguage:
    """Documents of 8 to 14 sentences of 7 to 12 words; the same arguments give the same words.

    A sentence consists of a determiner, a name or noun, a verb, a marker of the stage, a phrase of two words, filler
    words and a particle. A document has one of four topics, three names that recur, and ten stages in order. Each topic
    has its own nouns, verbs and phrases, all with a Zipf distribution. Each stage has three markers.
    """
    rng = np.random.default_rng(seed)
    num_sentences_N = rng.integers(8, 15, num_documents)
    document_M = np.repeat(np.arange(num_documents), num_sentences_N)  # M sentences
    count = len(document_M)
    place_M = np.arange(count) - (np.cumsum(num_sentences_N) - num_sentences_N)[document_M]
    stage_M = 10 * place_M // num_sentences_N[document_M]
    topic_M = rng.integers(4, size=num_documents)[document_M]
    name_M = rng.integers(120, size=(num_documents, 3))[document_M, rng.integers(3, size=count)]
    number_M, num_words_M = rng.integers(2, size=count), 7 + rng.binomial(5, 0.32, count)
    phrase_M = 12 * topic_M + _zipf(rng, 12, count)

    def noun_M() -> Ints:
        return AT["noun"] + 24 * topic_M + _zipf(rng, 24, count)

    def function_M() -> Ints:
        return AT["function"] + _zipf(rng, 20, count)

    def draw_filling_M() -> Ints:
        return _either(rng, 0.75, function_M(), noun_M())

    has_phrase_M = rng.random(count) < 0.9
    columns = [
        AT["determiner"] + number_M,
        _either(rng, 0.6, AT["name"] + name_M, noun_M()),
        AT["verb"] + 24 * topic_M + 12 * number_M + _zipf(rng, 12, count),
        _either(rng, 0.9, AT["marker"] + 3 * stage_M + rng.integers(3, size=count), function_M()),
        np.where(has_phrase_M, AT["first"] + phrase_M, draw_filling_M()),
        np.where(has_phrase_M, AT["second"] + phrase_M, draw_filling_M()),
        *(draw_filling_M() for _ in range(6)),
    ]
    word_MS = np.stack(columns, axis=1)
    word_MS[np.arange(count), num_words_M - 1] = AT["particle"] + number_M
    return SyntheticLanguage(word_MS[np.arange(12) < num_words_M[:, None]], num_words_M, num_sentences_N)


def spell_word(word: int) -> str:
    """The spelling of a word: two or three syllables, unique; names begin with a capital letter.

    >>> spell_word(0), spell_word(1), spell_word(AT["name"])
    ('baba', 'pofi', 'Simopu')
    """
    high, low = divmod(word * 1_013 % 6_400, 80)  # 1,013 and 6,400 have no common factor, so all spellings differ
    ending = _SYLLABLES[word % 79] if AT["name"] <= word < AT["noun"] else ""
    text = _SYLLABLES[low] + _SYLLABLES[high] + ending
    return text.capitalize() if ending else text


def write(folder: Path) -> Path:
    """Write the text as JSON lines, unless the file exists, and return its path.

    A document has one sentence per line in `text`, and the spans of its `names` and `phrases`. The span of a name
    includes the word before it, because SpanBERT's masking.py masks only units of two words or more as a whole.
    """
    path = folder / "mini_world.jsonl"
    if not path.exists():
        language = build_language(SEED, NUM_DOCUMENTS)
        sentences = iter(np.split(language.word_T, np.cumsum(language.num_words_M)[:-1]))
        lines = [_document([next(sentences).tolist() for _ in range(num)]) for num in language.num_sentences_N]
        write_atomic(path, "".join(lines).encode())
        os.utime(path, (0, 0))  # the identity of a corpus includes the times of its files
    return path


def corpus(folder: Path, units: Units = "") -> Corpus:
    """The corpus of this text in the directory `folder`; `units` selects the spans that are its phrases."""
    source = JsonlReader(path=str(write(folder).absolute()), spans_key=units)
    name = f"mini_world_{units}".rstrip("_")
    return Corpus(
        name=name,
        sources=(source,),
        phrases="given" if units else "",
        sentence_boundaries="lines",
        validation_ratio=VALIDATION,
        test_ratio=TEST,
    )


def _document(sentences: list[list[int]]) -> str:
    """A document and its spans, in characters, as one line of JSON."""
    words, names, phrases = list[str](), list[tuple[int, int]](), list[tuple[int, int]]()
    at = 0
    for sentence in sentences:
        for place, word in enumerate(sentence):
            text = spell_word(word) + ("\n" if place == len(sentence) - 1 else " ")
            stop = at + len(text) - 1
            if AT["name"] <= word < AT["noun"]:
                names.append((at - len(words[-1]), stop))
            if AT["second"] <= word:
                phrases.append((at - len(words[-1]), stop))
            words.append(text)
            at = stop + 1
    return json.dumps({"text": "".join(words).rstrip(), "names": names, "phrases": phrases}) + "\n"


def _zipf(rng: np.random.Generator, num_words: int, count: int) -> Ints:
    weight = 1 / np.arange(1, num_words + 1)
    return rng.choice(num_words, size=count, p=weight / weight.sum())


def _either(rng: np.random.Generator, first_prob: float, first: Ints, second: Ints) -> Ints:
    return np.where(rng.random(len(first)) < first_prob, first, second)
