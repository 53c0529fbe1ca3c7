"""The steps of a corpus job in order: ingest, clean, dedup, line_dedup, substrings, plan, encode, domains, static_rows.

Each step writes to a directory that it locks (output_folder.py), so a killed job resumes with its next part. sample.py
reads samples of the text before the job. repeats.py lists the documents that repeat others. text_search.py searches the
cleaned documents.
"""

from pipeline.steps.domains import count_hosts, find_url_field, sum_hosts, write_hosts
from pipeline.steps.encode import (
    ENCODER_VERSION,
    BoundarySettings,
    chain_ledgers,
    check_fit,
    describe_accent_loss,
    encode_shard,
    implausible_sentences,
    phrases_of,
    try_encoder,
    write_sample,
)
from pipeline.steps.ingest import read_text, seal_of
from pipeline.steps.output_folder import lock_directory, read_seal, reuse_part, sweep
from pipeline.steps.plan import TextDirectory
from pipeline.steps.sample import require_room
from pipeline.steps.static_rows import StaticExampleSpec, materialise
from pipeline.steps.text_search import find_repeats, find_text

__all__ = [
    "ENCODER_VERSION",
    "BoundarySettings",
    "StaticExampleSpec",
    "TextDirectory",
    "chain_ledgers",
    "check_fit",
    "count_hosts",
    "describe_accent_loss",
    "encode_shard",
    "find_repeats",
    "find_text",
    "find_url_field",
    "implausible_sentences",
    "lock_directory",
    "materialise",
    "phrases_of",
    "read_seal",
    "read_text",
    "require_room",
    "reuse_part",
    "seal_of",
    "sum_hosts",
    "sweep",
    "try_encoder",
    "write_hosts",
    "write_sample",
]
