"""A finished corpus in an object store, which `--data ADDRESS` names. A job links it, instead of building a corpus."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestration.jobs.stages import JobStage
from preprocessing.errors import BadInput
from preprocessing.folders import is_address
from preprocessing.manifest import Manifest
from preprocessing.object_store import hide_login
from preprocessing.remote_corpus import fetch_manifest, is_remote_corpus, link_corpus
from preprocessing.shard_cache import CacheSettings
from preprocessing.tokenization import TokenizerSpec, table_rows
from training.specs import Phase


@dataclass(frozen=True)
class LinkedCorpus:
    """The address of a finished corpus, and its manifest."""

    address: str
    manifest: Manifest

    def plan(self, out: Path) -> JobStage:
        """The stage of the directory with its manifest, vocabulary and address."""
        return JobStage("corpus", out / "corpora", self.manifest.name, {"manifest": self.manifest.digest})

    def build(self, stage: JobStage, cache: CacheSettings) -> Manifest:
        """Make this directory. Raises BadInput if the store has another corpus by now."""
        manifest = link_corpus(self.address, stage.folder, cache)
        if manifest.digest != self.manifest.digest:
            raise BadInput(f"{self.address}: has changed while this command ran; repeat the command")
        stage.finish()
        return manifest

    def describe(self) -> str:
        splits = self.manifest.splits
        parts = [f"{one['tokens']:,} tokens in {one['shards']:,} shards ({name})" for name, one in splits.items()]
        size = sum(shard.bytes for shard in self.manifest.shards) / 1e9
        return f"{self.address}: a finished corpus of {size:,.2f} GB: {', '.join(parts)}"

    def estimate_batches(self, phase: Phase) -> float:
        """The number of batches of one epoch, without special tokens and packing."""
        tokens = self.manifest.splits.get("train", {}).get("tokens", 0)
        return tokens / (phase.seq_length * phase.global_batch_size)

    def require_tokenizer(self, recipe: str, tokenizer: TokenizerSpec) -> None:
        """Raise BadInput if the token IDs are not those of such a tokenizer."""
        kind, size = self.manifest.vocab["kind"], self.manifest.vocab["size"]
        if kind != tokenizer.kind or size > table_rows(tokenizer):
            raise BadInput(
                f"{recipe}: invalid data.tokenizer: got {tokenizer.kind} with {table_rows(tokenizer):,} rows, expected "
                f"{kind} with at least {size:,}, as in {self.address}; set these keys, or name another corpus"
            )


def find_linked(data: Sequence[str], holdout_ratio: float | None) -> LinkedCorpus | None:
    """The finished corpus that --data names; None if it names text.

    Raises BadInput if there is other text beside it, or if it should hold out other documents.
    """
    addresses = [given for given in data if "://" in given and is_address(given)]
    address = next((given for given in addresses if is_remote_corpus(given)), "")
    if not address:
        return None
    if hide_login(address) != address:
        raise BadInput(f"--data {hide_login(address)}: contains a login; give credentials in the environment")
    if len(data) > 1:
        raise BadInput(f"--data {address}: is a finished corpus, which no text can join; use it as the only --data")
    if holdout_ratio is not None:
        raise BadInput(f"--holdout-ratio: {address} is a finished corpus with its own splits; leave it out")
    return LinkedCorpus(address.rstrip("/"), fetch_manifest(address)[0])
