"""Text processing before tokenization: pure functions on strings, no model to download.

Read tidy.py (normalization) and sentence_ends.py (sentence boundaries) first. abbreviations.py has language data,
sentence_lengths.py detects implausible sentences. Cleaning: repair.py, language_id.py, filters.py (C4 and Gopher),
fineweb.py, urls.py, pii.py. Duplicates: ngrams.py, minhash.py, decontaminate.py. Phrases and words: phrases.py,
chinese_words.py.
"""

from typing import TYPE_CHECKING, Final

from preprocessing.imports import import_on_use
from preprocessing.text.chinese_words import chinese_word_starts
from preprocessing.text.decontaminate import count_shared_ngrams, fewest_words, ngram_hashes
from preprocessing.text.filters import REASONS, RULES, apply_rules
from preprocessing.text.language_id import LANGUAGES, language, nearest_code
from preprocessing.text.minhash import components, hash_bands, shingles, sign_texts, signature
from preprocessing.text.ngrams import Tokens, find_tokens, hash_ngrams, is_inside_word
from preprocessing.text.phrases import Gazetteer, Spans, move_spans, num_without_token, phrase_starts, relocate_spans
from preprocessing.text.pii import Edits, mask_pii
from preprocessing.text.sentence_ends import lines_as_sentences, sentences
from preprocessing.text.sentence_lengths import describe_implausible, describe_unmarked
from preprocessing.text.tidy import Whitespace, decode, from_cesu8, normalize, text_key
from preprocessing.text.urls import UrlBlocklist, host_of

if TYPE_CHECKING:
    from preprocessing.text.repair import repair_text

__all__ = [
    "LANGUAGES",
    "REASONS",
    "RULES",
    "Edits",
    "Gazetteer",
    "Spans",
    "Tokens",
    "UrlBlocklist",
    "Whitespace",
    "apply_rules",
    "chinese_word_starts",
    "components",
    "count_shared_ngrams",
    "decode",
    "describe_implausible",
    "describe_unmarked",
    "fewest_words",
    "find_tokens",
    "from_cesu8",
    "hash_bands",
    "hash_ngrams",
    "host_of",
    "is_inside_word",
    "language",
    "lines_as_sentences",
    "mask_pii",
    "move_spans",
    "nearest_code",
    "ngram_hashes",
    "normalize",
    "num_without_token",
    "phrase_starts",
    "relocate_spans",
    "repair_text",
    "sentences",
    "shingles",
    "sign_texts",
    "signature",
    "text_key",
]

__getattr__: Final = import_on_use(__name__, {"repair": ("repair_text",)})  # ftfy takes 0.1 s
