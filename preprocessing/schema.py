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
  input_ids         int32 [S]
  token_type_ids    int8  [S]   from 0 up: two in pairs of texts, more where an objective numbers them anew
  special_tokens_mask  bool [S]   True at [CLS], [SEP], <s>, </s>, end-of-text
  word_starts       bool  [S]   True at each special token and at the first token after one: no word crosses [SEP]
  sentence_starts   bool  [S]   the same for sentences; only where the objective needs them
  unit_starts       bool  [S]   the same for phrases and the words outside of them; only where the corpus has units
  counts            int64 [S]   how often the corpus has this token; only where the masking needs it
  stream            uint  [T]   the tokens of a shard: an input of the objective, not kept in the row
  next_sentence_label  int8 []  1 = the second segment is not the next one (random, or swapped), IGNORE = not predicted
  hits              int32 [S]   0 = not chosen, k = part of the k-th chosen unit (token, word or span); from the masking
  labels            int32 [S]   the token to predict at this position, or IGNORE; from the objective
  positions         int32 [S]   optional: where each token stands, when that is not its place in the row
  languages         int8  [S]   optional: number of its language
  rank, reach       int32 [S]   optional: attention mask. i attends to j where rank[j] <= reach[i], and to itself
  source_input_ids  int32 [U]   optional: what an encoder reads while input_ids, labels and so on are those of a decoder
  source_positions, source_languages   the same for these
  source_seen       bool  [U]   optional: False where the decoder may not attend

Batch, arrays for the model. Padded: input_ids, positions, token_type_ids are [B, S]. Unpadded: [T], rows end to end.
  input_ids, positions, token_type_ids   int64
  languages, rank, reach     int64, only where the rows have them; rank is UNSEEN at padding
  lengths           int32 [B]   tokens of each row
  first_at          int64 [B]   flat index of each row's first token
  targets_at        int64 [M]   flat index of each position that has a label
  targets           int64 [M]   its label
  next_sentence_label  int64 [B]   only where the rows have one
  source_input_ids, source_positions, source_languages, source_seen   like input_ids, [B, U] or the rows end to end
  source_lengths    int32 [B]   only where there is a source
  label, value, start, stop, option, right   [B]   only where the rows have them: of a task (training/finetuning)
  slot              int64 []    only for models with a memory: which of the memories this micro-batch goes on with
  fresh             bool  [B]   the same: True where a row does not go on from the row before it in this slot
"""

from typing import Final

import numpy as np
import numpy.typing as npt

IGNORE: Final = -100
"""The label of a position that is not predicted (torch's and transformers' convention)."""

UNSEEN: Final = np.iinfo(np.int32).max
"""The rank of a position that no token attends to."""

PER_TOKEN: Final = ("input_ids", "token_type_ids", "positions", "languages", "rank", "reach")
"""Columns of a row with a number for each token that the model reads."""

PER_ROW: Final = ("next_sentence_label", "label", "value", "start", "stop", "option", "right")
"""Columns of a row with one number; `value` is float32 in a batch, the others are int64."""

SPLITS: Final = ("train", "validation", "test")
SCHEMA_VERSION: Final = 2

OPTIONAL: Final = frozenset({"unit_starts"})
"""The columns of a row that depend on the corpus, not on the packing."""

ON_DEMAND: Final = frozenset({"sentence_starts", "counts", "stream"})
"""The columns that any row can have; they are made where the masking or the objective needs them."""

Ints = npt.NDArray[np.integer]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.floating]
Row = dict[str, np.ndarray]
Batch = dict[str, np.ndarray]
