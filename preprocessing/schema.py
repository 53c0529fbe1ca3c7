"""The data format shared by all layers: the columns of a document, of a training sequence and of a batch.

Axes (letters that the whole project uses): B sequences in a batch, S tokens of a sequence, T tokens of an unpadded
batch, M targets of a batch, D hidden size, H heads, K head dimension, V vocabulary, N documents.

Document, one row of a shard (Arrow):
  tokens            list<struct>            its tokens, without special tokens; each has the fields
    id              uint16 or uint32
    word_start      bool                    True where a word begins
    sentence_start  bool                    True where a sentence begins; always True for the first token
    unit_start      bool                    True where a phrase, or a word outside of phrases, begins; optional
  source            dictionary<string>      origin of the text (a name from the source: file, package, ...)
  key               fixed_size_binary(16)   xxh3-128 of the cleaned text, big-endian; a shard is sorted by it
  metadata          struct<string, ...>     fields that the sources keep, e.g. url; only if any source keeps fields

Sequence (`Row`), one training example, a dict of arrays over S (with special tokens):
  input_ids         int32 [S]
  token_type_ids    int8  [S]   0 and 1 in pairs of texts; more types if an objective assigns its own
  special_tokens_mask  bool [S]   True at [CLS], [SEP], <s>, </s>, end-of-text
  word_starts       bool  [S]   True at each special token and at the first token after one: no word crosses [SEP]
  sentence_starts   bool  [S]   the same for sentences; only if the objective needs them
  unit_starts       bool  [S]   the same for phrases and the words outside of them; only if the corpus has phrases
  counts            int64 [S]   occurrences of this token in a sample of the corpus; only if the masking needs them
  stream            uint  [T]   the tokens of a shard: an input of the objective, which removes it from the sequence
  next_sentence_label  int8 []  1 = the second segment is random or swapped, 0 = it is the next one, IGNORE = no label
  hits              int32 [S]   0 = not chosen, k = part of the k-th chosen unit (token, word or span); from the masking
  labels            int32 [S]   the token to predict at this position, or IGNORE; from the objective
  positions         int32 [S]   optional: position of each token, if it differs from its index in the sequence
  languages         int8  [S]   optional: number of the language of each token
  rank, reach       int32 [S]   optional: attention mask. i attends to j if rank[j] <= reach[i], and to itself
  source_input_ids  int32 [U]   optional: input of the encoder; then input_ids, labels, ... belong to the decoder
  source_positions, source_languages   positions and languages of source_input_ids
  source_seen       bool  [U]   optional: False where the decoder may not attend

Batch, arrays for the model. Padded: input_ids, positions, token_type_ids are [B, S]. Unpadded: [T], concatenated.
  input_ids, positions, token_type_ids   int64
  languages, rank, reach     int64, only if the sequences have them; rank is UNSEEN at padding
  lengths           int32 [B]   number of tokens of each sequence
  first_at          int64 [B]   flat index of the first token of each sequence
  targets_at        int64 [M]   flat index of each position that has a label
  targets           int64 [M]   its label
  next_sentence_label  int64 [B]   only if the sequences have one
  source_input_ids, source_positions, source_languages, source_seen   like input_ids, [B, U] or concatenated
  source_lengths    int32 [B]   only if the sequences have a source
  label, value, start, stop, option, right   [B]   columns of fine-tuning tasks (training/finetuning)
  slot              int64 []    only for models with a memory: the memory that this micro-batch continues
  fresh             bool  [B]   only for these: True if a sequence does not continue the previous one in this slot
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

IGNORE: Final = -100
"""The label of a position that is not predicted (torch's and transformers' convention)."""

UNSEEN: Final = np.iinfo(np.int32).max
"""The rank of a position that no other token attends to."""

PER_TOKEN: Final = ("input_ids", "token_type_ids", "positions", "languages", "rank", "reach")
"""The columns of a sequence with one number for each token that the model reads."""

PER_ROW: Final = ("next_sentence_label", "label", "value", "start", "stop", "option", "right")
"""The columns of a sequence with a single number; `value` is float32 in a batch, the others are int64."""

SPLITS: Final = ("train", "validation", "test")
SCHEMA_VERSION: Final = 2

OPTIONAL: Final = frozenset({"unit_starts"})
"""The columns of a sequence that depend on the corpus, not on the packing."""

ON_DEMAND: Final = frozenset({"sentence_starts", "counts", "stream"})
"""The columns that every packing can produce; they are only computed if the masking or the objective needs them."""

Metadata = Mapping[str, str | None]
"""The fields that stay with a document, e.g. its URL, by name; None if the document lacks a field."""

NO_METADATA: Final[Metadata] = {}

Ints = npt.NDArray[np.integer]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.floating]
Row = dict[str, np.ndarray]
Batch = dict[str, np.ndarray]
