"""The contract between the layers: the columns of a document, of a row and of a batch.

Axes (the alphabet of the whole project): B rows in a batch, S tokens of a row, T tokens of an unpadded batch,
M targets of a batch, D width, H heads, K width of a head, V vocabulary, N documents.

Document, one row of a shard (Arrow):
  tokens            list<struct>            its tokens, without any special token; of each one
    id              uint16 or uint32
    word_start      bool                    True where a word begins
    sentence_start  bool                    True where a sentence begins; the first token always is True
    unit_start      bool                    True where a phrase, or a word outside of phrases, begins; optional
  source            dictionary<string>      where the text is from (the name the source gives: file, package, ...)
  key               fixed_size_binary(16)   xxh3-128 of the cleaned text, big-endian; a shard is sorted by it

Row, one training sample, a dict of arrays over S (special tokens are in):
  ids               int32 [S]
  segments          int8  [S]   0 or 1 (BERT's token types)
  special           bool  [S]   True at [CLS], [SEP], <s>, </s>, end-of-text
  word_starts       bool  [S]   True at each special token and at the first token after one: no word crosses [SEP]
  unit_starts       bool  [S]   the same for phrases and the words outside of them; only where the corpus has units
  pair_label        int8  []    1 = the second segment is not the next one (random, or swapped); only segment Pair
  hits              int32 [S]   0 = not chosen, k = part of the k-th chosen unit (token, word or span); from choose
  labels            int32 [S]   the answer at this position or IGNORE; from rewrite

Batch, arrays for the model. Padded: ids, positions, segments are [B, S]. Unpadded: [T], rows end to end.
  ids, positions, segments   int64
  lengths           int32 [B]   tokens of each row
  first_at          int64 [B]   flat index of each row's first token
  targets_at        int64 [M]   flat index of each position that has a label
  targets           int64 [M]   its label
  pair_label        int64 [B]   only where the rows have one
"""

from typing import Final

import numpy as np
import numpy.typing as npt

IGNORE: Final = -100
"""The label of a position that is not asked (torch's and transformers' convention)."""

SPLITS: Final = ("train", "validation", "test")
SCHEMA_VERSION: Final = 2

OPTIONAL: Final = frozenset({"unit_starts"})
"""The columns of a row that depend on the corpus, not on the segment."""

Ints = npt.NDArray[np.integer]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.floating]
Row = dict[str, np.ndarray]
Batch = dict[str, np.ndarray]
