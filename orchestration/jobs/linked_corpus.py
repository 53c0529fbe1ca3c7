"""A finished corpus in an object store, which `--data ADDRESS` names. A job links it, instead of building a corpus."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from orchestration.jobs.stages import JobStage
from preprocessing.errors import BadInput
from preprocessing.folders import is_address
from preprocessing.manifest import FILE_NAME, Manifest
from preprocessing.object_store import hide_login
from preprocessing.remote_corpus import VOCAB, fetch_manifest, fetch_vocab, is_remote_corpus, link_corpus
from preprocessing.shard_cache import CacheSettings
from preprocessing.tokenization import TokenizerSpec, Vocab, table_rows, vocab_from_file


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

    def require_tokenizer(self, recipe: str, tokenizer: TokenizerSpec, out: Path) -> None:
        """Raise BadInput if the token IDs are not those of such a tokenizer.

        Its files are read in the directory of the linked corpus, if this exists, and else in the store.
        """
        kind, size = self.manifest.vocab["kind"], self.manifest.vocab["size"]
        if kind != tokenizer.kind or size > table_rows(tokenizer):
            raise BadInput(
                f"{recipe}: invalid data.tokenizer: got {tokenizer.kind} with {table_rows(tokenizer):,} rows, expected "
                f"{kind} with at least {size:,}, as in {self.address}; set these keys, or name another corpus"
            )
        if problem := _find_difference(self._load_vocab(out), tokenizer):
            raise BadInput(
                f"{recipe}: invalid data.tokenizer: {problem}, as in {self.address}; set the keys of data.tokenizer as "
                "it was made, or name another corpus"
            )

    def _load_vocab(self, out: Path) -> Vocab:
        if (stage := self.plan(out)).state == "done":
            return Vocab.load(stage.folder / VOCAB, self.manifest.vocab["hash"])
        with TemporaryDirectory(prefix="sesame-") as folder:
            fetch_vocab(self.address, Path(folder))
            return Vocab.load(Path(folder) / VOCAB, self.manifest.vocab["hash"])


def _find_difference(vocab: Vocab, tokenizer: TokenizerSpec) -> str:
    """What the keys of a tokenizer give, and what the files of a vocabulary of its kind say instead; "" if equal."""
    if tokenizer.path:
        given = vocab_from_file(tokenizer)
        is_same = given.hash == vocab.hash
        return "" if is_same else f"got {tokenizer.path} (hash {given.hash[:12]}), expected the hash {vocab.hash[:12]}"
    lowercase, lowers = getattr(tokenizer, "lowercase", None), "A" not in vocab.normalize("A")
    if lowercase not in (None, lowers):
        return f"got lowercase {str(lowercase).lower()}, expected {str(lowers).lower()}"
    roles = tokenizer.special_roles
    if roles and roles != set(vocab.specials):
        return f"got the special tokens {', '.join(sorted(roles))}, expected {', '.join(sorted(vocab.specials))}"
    if tokenizer.extra_ids != vocab.sentinels:
        return f"got extra_ids {tokenizer.extra_ids}, expected {vocab.sentinels}"
    return ""


def find_linked(data: Sequence[str], holdout_ratio: float | None) -> LinkedCorpus | None:
    """The finished corpus that --data names; None if it names text.

    Raises BadInput if there is other text beside it, or if it should hold out other documents. The directory of a
    corpus without `file://` is refused: it has no text.
    """
    for given in data:
        if "://" not in given and (Path(given) / FILE_NAME).is_file() and is_remote_corpus(str(Path(given).absolute())):
            place = Path(given).absolute()
            raise BadInput(f"--data {given}: is a finished corpus and not text; use --data {place.as_uri()}")
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
