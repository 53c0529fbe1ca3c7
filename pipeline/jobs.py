"""The three named jobs: files -> cleaned, planned text -> vocabulary -> corpus. Each reads from top to bottom.

A job owns one folder. Parts that are whole stay and are not made again, so a killed job goes on where it was; the last
file (text.json, made_from.json, manifest.json) makes the folder what it is. Results do not depend on the runner.
"""

import hashlib
import json
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import reduce
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from pipeline.clean import clean_split
from pipeline.encode import ENCODER_VERSION, chained, check_fit, encode_shard
from pipeline.engine import Report, beam, pipeline, watched
from pipeline.plan import PLAN, TEXT, Kept, Texts, addresses, first_of_each, planned_shards, text_hash, write_plan
from pipeline.sources import Split, plan_splits
from pipeline.spec import Clean, Corpus
from pipeline.stage import owned, sealed, sweep
from preprocessing.errors import BadInput
from preprocessing.files import write_atomic
from preprocessing.manifest import FILE_NAME, Count, Ledger, Manifest, ShardInfo
from preprocessing.schema import SCHEMA_VERSION
from preprocessing.vocab import Vocab, VocabSpec, train

SAMPLE_MB: Final = 100  # of text to train a vocabulary on: more changes few pieces
_MADE_FROM: Final = "made_from.json"
_SHARD_SHARE: Final = 0.75  # size of a shard as a share of its text: about 2.3 bytes a token


def read_text(corpus: Corpus, out: Path | str, beam_args: Sequence[str] = (), report: Report | None = None) -> Texts:
    """Read, clean and deduplicate the sources of `corpus` into `out`, and plan the shards of the corpus to come.

    Raises BadInput where a source is missing, nothing usable is left, or the disk is too small.
    """
    if not corpus.sources:
        raise BadInput(f"corpus {corpus.name}: names no text; give some with --data PATH, or choose another corpus")
    out = Path(out)
    splits = plan_splits(corpus.sources, corpus.clean)
    names = [split.name for split in splits]
    work = sum(split.weight for split in splits)
    with owned(out, need=sum(split.weight for split in splits if not (out / split.name).exists())):
        identity = _digest([sorted(names), corpus.validation, corpus.test, corpus.shard_mb, corpus.dedup])
        if (texts := _finished(out, identity)) is not None:
            return texts
        (out / TEXT).unlink(missing_ok=True)  # what it says is true no more
        sweep(out, names)
        with watched("text", out, names, report), pipeline(out, work, beam_args) as graph:
            (
                graph
                | "Splits" >> beam.Create(list(enumerate(splits)))
                | "Clean" >> beam.FlatMap(_clean, str(out), corpus.clean)
                | "By key" >> beam.GroupByKey()
                | "First of each" >> beam.Map(first_of_each, corpus.dedup).with_output_types(Kept)
                | "Together" >> beam.combiners.ToList()
                | "Plan" >> beam.Map(write_plan, str(out), corpus)
            )
        texts = _text(out, identity, names)
        texts.save()
    return texts


def _clean(split: tuple[int, Split], out: str, clean: Clean) -> Iterator[tuple[int, bytes]]:
    """Clean one split, then pass on the addresses of its documents."""
    number, what = split
    clean_split(what, out, clean)
    yield from addresses(Path(out) / what.name, number)


def _text(out: Path, identity: str, names: list[str]) -> Texts:
    """What the seals and the plan add up to; BadInput where no document is left."""
    seals = [_seal(out / name) for name in names]
    ledger = reduce(Ledger.merge, (Ledger.from_dict(seal["ledger"]) for seal in seals), Ledger())
    documents, size = _seal(out / PLAN)["duplicates"]
    if documents:
        ledger.drop("duplicate", documents, bytes=size)
        ledger.kept -= Count(documents, size)
    if not ledger.kept.documents:
        sweep(out, ())
        (out / PLAN).unlink()
        (out / PLAN).with_suffix(".json").unlink()
        why = ", ".join(f"{count.documents} {reason}" for reason, count in ledger.dropped.items() if count.documents)
        raise BadInput(
            f"no usable text in {ledger.seen.documents} documents ({why or 'none'}); give other text with --data"
        )
    repaired = {
        "documents": sum(seal["repaired"][0] for seal in seals),
        "sequences": sum(seal["repaired"][1] for seal in seals),
    }
    texts = Texts(out, identity, "", tuple(names), (), ledger, repaired)
    plan_N = texts.plan_N
    assert ledger.balanced(), f"not accounted for: {ledger.unexplained}"
    assert len(plan_N) == ledger.kept.documents, "the plan and the ledger disagree"
    return replace(texts, hash=text_hash(plan_N), shards=planned_shards(plan_N))


def _finished(out: Path, identity: str) -> Texts | None:
    """The text that is there, where it is this one and whole."""
    try:
        texts = Texts.load(out)
    except BadInput:
        return None
    whole = texts.identity == identity and all(sealed(out / name) is not None for name in (PLAN, *texts.splits))
    return texts if whole else None


def train_vocab(text_dir: Path | str, spec: VocabSpec, out: Path | str, sample_mb: int = SAMPLE_MB) -> Vocab:
    """Train (or load, where `spec` names a file) a vocabulary on the training documents with the smallest keys.

    That is a random sample of about `sample_mb` MB, the same one however the text was read.
    """
    texts, out = Texts.load(text_dir), Path(out)
    made_from = {"text": texts.hash, "spec": asdict(spec), "sample_mb": sample_mb, "tokenizers": version("tokenizers")}
    with owned(out, need=1 << 20):
        try:
            if not spec.file and json.loads((out / _MADE_FROM).read_bytes()) == made_from:
                return Vocab.load(out)
        except (OSError, ValueError):
            pass
        (out / _MADE_FROM).unlink(missing_ok=True)
        vocab = train(spec, () if spec.file else _sample(texts, sample_mb << 20))
        vocab.save(out)
        write_atomic(out / _MADE_FROM, json.dumps(made_from, indent=1, sort_keys=True).encode() + b"\n")
    return vocab


def _sample(texts: Texts, most: int) -> Iterator[str]:
    """The first training documents of the plan, up to `most` bytes."""
    size = 0
    for shard in texts.shards:
        for document in texts.documents(shard.start, shard.stop) if shard.name.startswith("train") else ():
            size += len(document.text.encode())
            if size > most:
                return
            yield document.text


def encode(
    text_dir: Path | str,
    vocab_dir: Path | str,
    corpus: Corpus,
    out: Path | str,
    beam_args: Sequence[str] = (),
    report: Report | None = None,
) -> Manifest:
    """Turn planned text into the shards of a corpus in `out`, the vocabulary in `out`/vocab, and manifest.json last.

    Raises BadInput where the vocabulary does not fit the text, or the disk is too small.
    """
    texts, vocab, out = Texts.load(text_dir), Vocab.load(vocab_dir), Path(out)
    names = [shard.name for shard in texts.shards]
    identity = {"text": texts.hash, "vocab": vocab.hash, "version": f"{SCHEMA_VERSION}.{ENCODER_VERSION}"}
    left = sum(shard.bytes for shard in texts.shards if not (out / shard.name).exists())
    with owned(out, need=int(_SHARD_SHARE * left)):
        sweep(out, names)
        if any(sealed(out / name, **identity) is None for name in names):
            check_fit(vocab, texts)
            (out / FILE_NAME).unlink(missing_ok=True)
            vocab.save(out / "vocab")
            with watched("corpus", out, names, report), pipeline(out, left, beam_args) as graph:
                (
                    graph
                    | "Shards" >> beam.Create(texts.shards)
                    | "Encode" >> beam.Map(encode_shard, str(text_dir), str(out), **identity)
                )
        manifest = _manifest(corpus, texts, vocab, [_seal(out / name) for name in names])
        manifest.save(out)
    return manifest


def _manifest(corpus: Corpus, texts: Texts, vocab: Vocab, seals: list[dict[str, Any]]) -> Manifest:
    shards = tuple(ShardInfo(**seal["info"]) for seal in seals)
    encoded = reduce(Ledger.merge, (Ledger.from_dict(seal["ledger"]) for seal in seals), Ledger())
    ledger = chained(texts.ledger, encoded)
    assert ledger.balanced(), f"not accounted for: {ledger.unexplained}"
    rows, tokens = sum(shard.rows for shard in shards), sum(shard.tokens for shard in shards)
    assert (ledger.kept.documents, ledger.kept.tokens) == (rows, tokens), "the shards and the ledger disagree"
    statistics = {name: sum(seal["statistics"][name] for seal in seals) for name in ("sentences", "words", "unknown")}
    return Manifest(
        name=corpus.name,
        spec_hash=_digest(_portable(corpus)),
        text_hash=texts.hash,
        vocab={"kind": vocab.kind, "size": vocab.size, "hash": vocab.hash, "specials": vocab.specials},
        versions={name: version(name) for name in ("tokenizers", "sentencepiece", "pyarrow")}
        | {"unicode": unicodedata.unidata_version},
        shards=shards,
        ledger=ledger,
        statistics=statistics | {"repaired": texts.repaired},
    )


def _portable(corpus: Corpus) -> dict[str, Any]:
    """A corpus without the paths of this machine and the order of its sources."""
    sources = [{name: value for name, value in asdict(source).items() if name != "path"} for source in corpus.sources]
    return asdict(corpus) | {"sources": sorted(sources, key=_digest)}


def _seal(part: Path) -> dict[str, Any]:
    facts = sealed(part)
    assert facts is not None, f"{part} was not written"
    return facts


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
