"""Sesame's whole job, as in `sesame corpus`: cleaning, deduplication, planning, sentences, words, and a token store."""

from task import Task, begin, end, stage

from pipeline.jobs import encode_corpus, train_vocab
from pipeline.readers import JsonlReader
from pipeline.spec import Corpus, Dedup
from pipeline.steps import read_text
from preprocessing.manifest import Manifest
from preprocessing.tokenization import WordPiece


def whole(task: Task) -> Corpus:
    dedup = Dedup(minhash=True, line_min_chars=20) if task.near else Dedup()
    return Corpus(name="benchmark", sources=(JsonlReader(path=str(task.input)),), dedup=dedup)


def work(task: Task, corpus: Corpus) -> Manifest:
    beam_args = [f"--direct_num_workers={task.cores}"]
    stage("text")
    read_text(corpus, task.out / "text", beam_args)
    stage("vocabulary")
    spec = WordPiece(vocab_size=task.train) if task.train else WordPiece(path=str(task.tokenizer))
    train_vocab(task.out / "text", spec, task.out / "vocab")
    stage("corpus")
    return encode_corpus(task.out / "text", task.out / "vocab", corpus, task.out / "corpus", beam_args)


def main() -> None:
    task = begin()
    manifest = work(task, whole(task))
    end(manifest.ledger.kept.documents, manifest.ledger.kept.tokens, digest=manifest.digest)


if __name__ == "__main__":
    main()
