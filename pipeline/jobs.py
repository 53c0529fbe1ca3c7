"""Jobs that build a corpus: text (steps/ingest.py), then a tokenizer, then token IDs.

The text job cleans the documents and plans the split and the shard of each one.

Each job writes to one directory. A killed job resumes: complete parts are reused. The last file that a job writes
(text.json, made_from.json, manifest.json) marks the directory as complete. Results do not depend on the Beam runner.
"""

import hashlib
import json
import logging
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import reduce
from importlib.metadata import PackageNotFoundError, version
from itertools import repeat
from pathlib import Path
from typing import Any, Final

import numpy as np

from pipeline.readers import Source, portable
from pipeline.runners import Report, beam, pipeline, report_progress
from pipeline.spec import Corpus
from pipeline.steps import (
    ENCODER_VERSION,
    BoundarySettings,
    TextDirectory,
    chain_ledgers,
    check_fit,
    count_hosts,
    describe_accent_loss,
    encode_shard,
    find_url_field,
    implausible_sentences,
    lock_directory,
    phrases_of,
    read_seal,
    read_text,
    require_room,
    reuse_part,
    seal_of,
    sum_hosts,
    sweep,
    try_encoder,
    write_hosts,
    write_sample,
)
from preprocessing.characters import UNICODE
from preprocessing.errors import BadInput
from preprocessing.files import TEMPORARY, write_atomic
from preprocessing.manifest import FILE_NAME, Ledger, Manifest, MixtureGroupStats, ShardInfo
from preprocessing.schema import SCHEMA_VERSION
from preprocessing.tokenization import TokenizerSpec, Vocab, keeps_whitespace, train, without_whitespace

__all__ = ["encode_corpus", "read_text", "require_room", "train_vocab"]

log = logging.getLogger(__name__)

_MADE_FROM: Final = "made_from.json"
_READ_AT_ONCE: Final = 1000  # documents
_SHARD_TO_TEXT: Final = 0.75  # size of a shard / size of its text; a token takes about 2.3 bytes in a shard


def train_vocab(
    text_dir: Path | str,
    spec: TokenizerSpec,
    out: Path | str,
    beam_args: Sequence[str] = (),
    report: Report | None = None,
    sample_mb: int = 0,
) -> Vocab:
    """Train a tokenizer on training documents, or load it if `spec` names a file. Returns the vocabulary.

    The sample is the training documents with the smallest keys, about `sample_mb` MB. Keys are hashes of the text, so
    the sample is random but does not depend on how the text was read. With `sample_mb` 0, the tokenizer type and the
    memory determine the size. `spec.language_sampling_alpha` determines the fraction of each language. The sample is
    read lazily, a few MB at a time.

    Raises BadInput if the text or the file cannot provide such a vocabulary.
    """
    texts, out = TextDirectory.load(Path(text_dir).absolute()), Path(out).absolute()
    sample_mb = sample_mb or spec.sample_mb
    wanted = json.loads(json.dumps(asdict(spec)))  # as JSON returns it: tuples become lists
    made_from = {"text": texts.hash, "spec": wanted, "sample_mb": sample_mb, "tokenizers": version("tokenizers")}
    with lock_directory(out, need=1 << 20):
        try:
            if not spec.path and made_from.items() <= json.loads((out / _MADE_FROM).read_bytes()).items():
                return Vocab.load(out)
        except (OSError, ValueError, AttributeError):
            pass
        (out / _MADE_FROM).unlink(missing_ok=True)
        if report:
            report({"stage": "vocabulary"})
        with pipeline(out, 0, beam_args) as graph:
            (
                graph
                | "Vocabulary" >> beam.Create([spec])
                | "Train" >> beam.Map(_train, str(texts.folder), str(out), sample_mb)
            )
        vocab = Vocab.load(out)
        with suppress(PackageNotFoundError):  # it changes no byte, so another version does not train again
            made_from["numba"] = version("numba")
        write_atomic(out / _MADE_FROM, json.dumps(made_from, indent=1, sort_keys=True).encode() + b"\n")
    return vocab


def _train(spec: TokenizerSpec, text_dir: str, out: str, sample_mb: int) -> None:
    texts = TextDirectory.load(text_dir)
    if spec.path:
        sample: Iterator[str] = iter(())
    elif spec.language_sampling_alpha < 1:
        sample = _sample_of_languages(texts, sample_mb << 20, spec)
    else:
        sample = _sample(texts, sample_mb << 20)
    train(spec, sample).save(out)


def _sample(texts: TextDirectory, most: int) -> Iterator[str]:
    """The training documents with the smallest keys, up to `most` bytes.

    They are the first documents of the plan. The weights of a mixture are ignored, so all mixtures of the same text
    have the same tokenizer.
    """
    size, stop = 0, _num_training(texts)
    if any(shard.group for shard in texts.shards):
        order_N = np.lexsort([texts.plan_N[name][:stop].astype(np.uint64) for name in ("low", "high")])
        taken_N = np.zeros(stop, np.int64)
        taken_N[order_N] = np.cumsum(texts.plan_N["bytes"][:stop][order_N].astype(np.int64)) <= most
        yield from _times(texts, taken_N)
        return
    for start in range(0, stop, _READ_AT_ONCE):
        for document in texts.documents(start, min(start + _READ_AT_ONCE, stop)):
            size += len(document.text.encode())
            if size > most:
                return
            yield document.text


def _sample_of_languages(texts: TextDirectory, most: int, spec: TokenizerSpec) -> Iterator[str]:
    """Training documents, up to `most` bytes, with each language's fraction set by `language_sampling_alpha`.

    Each language contributes its first documents in the plan. If it has too few, they are repeated.
    """
    stop = _num_training(texts)
    bytes_N = texts.plan_N["bytes"][:stop].astype(np.int64)
    language_N = _languages(texts, stop, spec.languages)
    bytes_L = np.bincount(language_N, bytes_N)
    share_L = bytes_L**spec.language_sampling_alpha / (bytes_L**spec.language_sampling_alpha).sum()
    wanted_L = np.rint(share_L * min(most, (bytes_L / share_L).max(initial=0))).astype(np.int64)
    times_N = np.zeros(stop, np.int64)
    for language, (wanted, size) in enumerate(zip(wanted_L.tolist(), bytes_L.astype(np.int64).tolist(), strict=True)):
        of_language_K = np.flatnonzero(language_N == language)
        if any(shard.group for shard in texts.shards):  # the plan lists one group after another
            of_language_K = of_language_K[
                np.argsort(texts.plan_N["high"][of_language_K].astype(np.uint64), kind="stable")
            ]
        whole, rest = divmod(wanted, size)
        times_N[of_language_K] = whole + (np.cumsum(bytes_N[of_language_K]) <= rest)
    yield from _times(texts, times_N)


def _times(texts: TextDirectory, times_N: np.ndarray) -> Iterator[str]:
    """The first documents of the plan; document i is repeated `times_N[i]` times."""
    for start in range(0, len(times_N), _READ_AT_ONCE):
        times_K = times_N[start : start + _READ_AT_ONCE]
        if times_K.any():
            for document, times in zip(texts.documents(start, start + len(times_K)), times_K.tolist(), strict=True):
                yield from repeat(document.text, times)


def _languages(texts: TextDirectory, stop: int, languages: Sequence[str]) -> np.ndarray:
    """The language number of each of the first `stop` documents, from the language codes in the name of its source.

    A source that names several languages has a number of its own.
    """
    sources, source_N = texts.source_numbers(stop)
    named = [sorted(set(re.split(r"[^0-9A-Za-z]+", source)).intersection(languages)) for source in sources]
    groups = sorted({tuple(names) for names in named})
    return np.array([groups.index(tuple(names)) for names in named], np.int64)[source_N]


def _num_training(texts: TextDirectory) -> int:
    """Number of training documents; they come first in the plan."""
    return sum(shard.stop - shard.start for shard in texts.shards if shard.name.startswith("train"))


def encode_corpus(
    text_dir: Path | str,
    vocab_dir: Path | str,
    corpus: Corpus,
    out: Path | str,
    beam_args: Sequence[str] = (),
    report: Report | None = None,
    reuse: Sequence[Path] = (),
) -> Manifest:
    """Encode planned text into the shards of a corpus in `out`, and return the manifest.

    Equal shards of the corpora in `reuse`, e.g. with other weights of the groups, are linked instead. The tokenizer is
    written to `out`/vocab, and manifest.json last. Raises BadInput if the tokenizer does not fit the
    text or if the disk is too small.
    """
    texts, vocab, out = TextDirectory.load(Path(text_dir).absolute()), Vocab.load(vocab_dir), Path(out).absolute()
    names = [shard.name for shard in texts.shards]
    marks = BoundarySettings(
        corpus.sentence_boundaries,
        corpus.word_segmentation,
        corpus.phrases,
        _unit_hash(corpus, texts),
        _language(corpus),
    )
    identity = {"text": texts.hash, "vocab": vocab.hash, "version": f"{SCHEMA_VERSION}.{ENCODER_VERSION}"}
    fields = {"fields": texts.fields} if texts.fields else {}
    identity["how"] = _digest({**asdict(marks), "phrases": corpus.phrases and "phrases", **fields})
    bytes_left = sum(
        shard.bytes for shard in texts.shards if not any((folder / shard.name).exists() for folder in (out, *reuse))
    )
    with lock_directory(out, need=int(_SHARD_TO_TEXT * bytes_left)):
        sweep(out, names)
        due = [name for name in names if read_seal(out / name, **identity) is None]
        due = [name for name in due if not reuse_part(out / name, reuse, **identity)]
        encoder = ""
        if due:
            encoder = try_encoder(vocab, texts, marks, bytes_left, report)
            check_fit(vocab.use_encoder(encoder), texts)
            if corpus.clean.whitespace == "keep" and not keeps_whitespace(vocab):
                raise BadInput(without_whitespace(vocab.kind))
        vocab.save(out / "vocab")  # even if all shards are complete: the saved tokenizer may be damaged
        if due:
            (out / FILE_NAME).unlink(missing_ok=True)
            with report_progress("corpus", out, names, report), pipeline(out, bytes_left, beam_args) as graph:
                (
                    graph
                    | "Shards" >> beam.Create(texts.shards)
                    | "Encode" >> beam.Map(encode_shard, str(texts.folder), str(out), marks, encoder, **identity)
                )
        write_sample(texts, out, [seal_of(out / name) for name in names])
        hosts = _hosts(texts, out, beam_args)
        doubts = {
            "implausible_sentences": implausible_sentences(texts, marks),
            "stripped_marks": describe_accent_loss(texts, vocab),
        }
        doubts = {name: doubt for name, doubt in doubts.items() if doubt}
        for name, doubt in doubts.items():
            log.warning("%s of %s: %s", name.replace("_", " "), corpus.name, doubt)
        manifest = _manifest(corpus, texts, vocab, [seal_of(out / name) for name in names], {**hosts, **doubts})
        manifest.save(out)
    return manifest


def _hosts(texts: TextDirectory, out: Path, beam_args: Sequence[str]) -> dict[str, Any]:
    """{"domains": counts by host} if the documents have URLs, else {}."""
    field, counted = find_url_field(texts.fields), out / f"{TEMPORARY}hosts.json"
    if not field:
        return {}
    with pipeline(out, 0, beam_args) as graph:
        (
            graph
            | "Shards" >> beam.Create(texts.shards)
            | "Hosts" >> beam.FlatMap(count_hosts, str(texts.folder), str(out), field)
            | "By host" >> beam.GroupByKey()
            | "Sum" >> beam.Map(sum_hosts)
            | "All hosts" >> beam.combiners.ToList()
            | "Write" >> beam.Map(write_hosts, str(counted))
        )
    return {"domains": json.loads(counted.read_bytes())}


def _manifest(
    corpus: Corpus, texts: TextDirectory, vocab: Vocab, seals: list[dict[str, Any]], facts: dict[str, Any]
) -> Manifest:
    shards = tuple(ShardInfo(**seal["info"]) for seal in seals)
    encoded = reduce(Ledger.merge, (Ledger.from_dict(seal["ledger"]) for seal in seals), Ledger())
    ledger = chain_ledgers(texts.ledger, encoded)
    assert ledger.is_balanced(), f"records missing from the ledger: {ledger.unexplained}"
    rows, tokens = sum(shard.rows for shard in shards), sum(shard.tokens for shard in shards)
    assert (ledger.kept.documents, ledger.kept.tokens) == (rows, tokens), "the shards and the ledger disagree"
    statistics = {name: sum(seal["statistics"][name] for seal in seals) for name in ("sentences", "words", "unknown")}
    return Manifest(
        name=corpus.name,
        spec_hash=_digest(_portable(corpus)),
        text_hash=texts.hash,
        vocab={"kind": vocab.kind, "size": vocab.size, "hash": vocab.hash, "specials": vocab.specials},
        versions={name: version(name) for name in ("tokenizers", "sentencepiece", "pyarrow")} | {"unicode": UNICODE},
        shards=shards,
        ledger=ledger,
        mixture=_mixture(corpus, texts, shards),
        statistics=statistics
        | {"repaired": texts.repaired, "masked": texts.masked}
        | ({"encodings": texts.encodings} if texts.encodings else {})
        | ({"evaluation_texts": texts.evaluation_texts} if texts.evaluation_texts else {})
        | ({"phrases": _phrases(texts, seals)} if corpus.phrases else {})
        | ({"repeated_substrings": texts.substrings} if texts.substrings else {})
        | facts,
    )


def _phrases(texts: TextDirectory, seals: list[dict[str, Any]]) -> dict[str, int]:
    """Numbers of phrases: marked in the sources, lost in cleaning, and without a token that begins in them."""
    return texts.phrases | {"without_token": sum(seal["statistics"]["phrases_without_token"] for seal in seals)}


def _mixture(corpus: Corpus, texts: TextDirectory, shards: Sequence[ShardInfo]) -> dict[str, MixtureGroupStats]:
    """Statistics of each mixture group: its documents and tokens, and the number of epochs over it."""
    group_of = {shard.name: shard.group for shard in texts.shards if shard.group}
    tokens = {group.name: 0 for group in corpus.mixture}
    for shard in shards:
        if shard.name in group_of:
            tokens[group_of[shard.name]] += shard.tokens
    weights, groups = corpus.weigh(tokens), dict[str, MixtureGroupStats]()
    for group in corpus.mixture:
        shards_of_group = [shard for shard in shards if group_of.get(shard.name) == group.name]
        share = weights[group.name] / math.fsum(weights.values())
        groups[group.name] = MixtureGroupStats(
            weight=weights[group.name],
            share=share,
            documents=sum(shard.rows for shard in shards_of_group),
            tokens=tokens[group.name],
            epochs=share * sum(tokens.values()) / tokens[group.name],
            shards=tuple(shard.name for shard in shards_of_group),
            requested_epochs=group.epochs or 0.0,
            **texts.groups.get(group.name, {}),
        )
    return groups


def _portable(corpus: Corpus) -> dict[str, Any]:
    """A corpus as a dictionary, without local paths and independent of the order of its sources."""
    plain = corpus.causes | {"sources": _sort_sources(corpus.sources), "phrases": corpus.phrases and "phrases"}
    weights = corpus.weight_causes
    mixture = {group.name: [weights[group.name], _sort_sources(group.sources)] for group in corpus.mixture}
    del plain["mixture"]
    plain |= {"mixture": mixture} if mixture else {}
    plain["dedup"]["reference_corpora"], plain["decontaminate"]["paths"] = (), ()
    return plain


def _sort_sources(sources: Sequence[Source]) -> list[dict[str, object]]:
    return sorted((portable(source) for source in sources), key=_digest)


def _language(corpus: Corpus) -> str:
    """The language of all documents if cleaning keeps exactly one, else "": it is detected per document."""
    return corpus.clean.languages[0] if len(corpus.clean.languages) == 1 else ""


def _unit_hash(corpus: Corpus, texts: TextDirectory) -> str:
    """Hash of the source of the phrases: the input that marks them, or the contents of a phrase file."""
    if corpus.phrases in ("", "given"):
        return corpus.phrases and texts.identity
    return _digest(phrases_of(corpus.phrases))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
