"""The steps of a corpus, in the order in which they run: ingest, clean, dedup, line_dedup, plan, encode, static_rows.

Each works in one folder that it owns (output_folder.py), so that a killed job goes on with its next part. sample.py
looks ahead.
"""

from pipeline.steps.encode import (
    ENCODER_VERSION,
    BoundarySettings,
    chain_ledgers,
    check_fit,
    encode_shard,
    implausible_sentences,
    phrases_of,
    stripped_marks,
)
from pipeline.steps.ingest import read_text, seal_of
from pipeline.steps.output_folder import locked_directory, read_seal, sweep
from pipeline.steps.plan import TextDirectory
from pipeline.steps.sample import require_room
from pipeline.steps.static_rows import StaticExampleSpec, materialise

__all__ = [
    "ENCODER_VERSION",
    "BoundarySettings",
    "StaticExampleSpec",
    "TextDirectory",
    "chain_ledgers",
    "check_fit",
    "encode_shard",
    "implausible_sentences",
    "locked_directory",
    "materialise",
    "phrases_of",
    "read_seal",
    "read_text",
    "require_room",
    "seal_of",
    "stripped_marks",
    "sweep",
]
