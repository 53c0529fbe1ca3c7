"""Sesame's whole job without Beam: the same functions in a pool of processes."""

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from sesame_job import whole
from task import begin, end, stage

from pipeline import jobs
from pipeline.spec import Corpus
from pipeline.steps import (
    ENCODER_VERSION,
    BoundarySettings,
    TextDirectory,
    check_fit,
    encode_shard,
    seal_of,
    try_encoder,
)
from pipeline.steps import ingest as read
from pipeline.steps.clean import Cleaner, clean_split
from pipeline.steps.dedup import addresses, write_first_of_each
from pipeline.steps.plan import PlannedShard, write_plan
from preprocessing.manifest import Manifest
from preprocessing.schema import SCHEMA_VERSION
from preprocessing.tokenization import Vocab, WordPiece, train


def clean(part: read.TextPart, out: str, cleaner: Cleaner) -> list[tuple[int, bytes]]:
    documents = Path(out) / part.name
    clean_split(part.split, documents, cleaner)
    return list(addresses(documents, part.number))


def read_text(corpus: Corpus, out: Path, pool: ProcessPoolExecutor) -> TextDirectory:
    out.mkdir()
    cleaner = Cleaner(corpus.clean)
    parts = read._parts(corpus, cleaner, "")
    work = [pool.submit(clean, part, str(out), cleaner) for part in parts]
    groups = defaultdict[int, list[bytes]](list)
    for done in work:
        for group, block in done.result():
            groups[group].append(block)
    names = [part.name for part in parts]
    kept = [write_first_of_each(group, str(out), corpus.dedup.exact) for group in groups.items()]
    write_plan(kept, [], str(out), corpus, [names])
    texts = read._text(out, "", corpus, parts, [], [names], [])
    texts.save()
    return texts


def encode(corpus: Corpus, texts: TextDirectory, vocab: Vocab, out: Path, pool: ProcessPoolExecutor) -> Manifest:
    marks = BoundarySettings(corpus.sentence_boundaries, corpus.word_segmentation, corpus.phrases)
    identity = {"text": texts.hash, "vocab": vocab.hash, "version": f"{SCHEMA_VERSION}.{ENCODER_VERSION}"}
    shards: Sequence[PlannedShard] = texts.shards
    encoder = try_encoder(vocab, texts, marks, sum(shard.bytes for shard in shards))
    check_fit(vocab.use_encoder(encoder), texts)
    vocab.save(out / "vocab")
    text, corpus_dir = str(texts.folder), str(out)
    work = [pool.submit(encode_shard, shard, text, corpus_dir, marks, encoder, **identity) for shard in shards]
    for done in work:
        done.result()
    manifest = jobs._manifest(corpus, texts, vocab, [seal_of(out / shard.name) for shard in shards], {})
    manifest.save(out)
    return manifest


def main() -> None:
    task = begin()
    corpus = whole(task)
    with ProcessPoolExecutor(task.cores) as pool:
        stage("text")
        texts = read_text(corpus, task.out / "text", pool)
        stage("vocabulary")
        vocab = train(WordPiece(path=str(task.tokenizer)), ())
        stage("corpus")
        manifest = encode(corpus, texts, vocab, task.out / "corpus", pool)
    end(manifest.ledger.kept.documents, manifest.ledger.kept.tokens, digest=manifest.digest)


if __name__ == "__main__":
    main()
