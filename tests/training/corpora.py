"""A finished corpus of the mini-world and a run on it, for tests that train."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from preprocessing import vocab
from preprocessing.choose import Nothing, Tokens
from preprocessing.manifest import Count, Ledger, Manifest, ShardInfo
from preprocessing.rewrite import Cloze, Noise, Shift
from preprocessing.sampling import Sampling
from preprocessing.segment import Packed, Pair
from preprocessing.shards import shard_name, write_shard
from tests.mini_world import VOCAB_SIZE, world
from training.losses import MaskedTokens, NextToken, PairLabel, Replaced
from training.optim import AdamW
from training.run import Run
from training.specs import Buckets, Decoder, Encoder, EncoderDecoder, Learned, LearnedCausal, Machine, Phase, Twin


def mini_corpus(folder: Path, num_train: int = 60, num_validation: int = 12) -> Path:
    """Write documents of the mini-world as a corpus of two shards; pieces of its vocabulary are called w5, w6, ..."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{id}" for id in range(5, VOCAB_SIZE))]
    folder.mkdir(parents=True)
    (folder / "pieces.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    words = vocab.train(vocab.WordPiece(size=VOCAB_SIZE, file=str(folder / "pieces.txt")), ())
    words.save(folder / "vocab")
    shards = (_shard(folder, "train", num_train, seed=0), _shard(folder, "validation", num_validation, seed=1))
    total = Count(sum(shard.rows for shard in shards), 0, sum(shard.tokens for shard in shards))
    about = {"kind": words.kind, "size": words.size, "hash": words.hash, "specials": words.specials}
    Manifest("mini_world", "", "", about, {}, shards, Ledger(total, total)).save(folder)
    return folder


def _shard(folder: Path, split: str, num_documents: int, seed: int) -> ShardInfo:
    text = world(seed, num_documents)
    cuts = np.cumsum(text.num_tokens_N)[:-1]
    ids = np.split(text.ids_T, cuts)
    word_starts, sentence_starts = np.split(text.word_starts_T, cuts), np.split(text.sentence_starts_T, cuts)
    keys = [bytes(15) + bytes([document]) for document in range(num_documents)]
    path = folder / shard_name(split, 0, 1)
    return write_shard(
        path, ids, word_starts, sentence_starts, ["mini_world"] * num_documents, keys, vocab_size=VOCAB_SIZE
    )


def mini_run(corpus: Path, folder: Path, **changes: Any) -> Run:
    """Twenty steps of BERT, two layers of width 32, with nine ragged rows of at most 48 tokens a step."""
    run = Run(
        trunk=Encoder(
            layers=2, width=32, heads=2, positions=Learned(max=48), dropout=0, attention_dropout=0, init_std=0.1
        ),
        losses=(MaskedTokens(), PairLabel()),
        optim=AdamW(peak=1e-2, warmup=2),
        phases=(Phase(length=48, batch=9, steps=20),),
        sampling=Sampling(segment=Pair(negative="random", short=0.5), choose=Tokens(), rewrite=Cloze()),
        corpus=str(corpus),
        vocab_size=VOCAB_SIZE,
        folder=str(folder),
        machine=Machine(),
        log_every=1,
        save_every=0,
        eval_every=0,
    )
    return replace(run, **changes)


def resampled(run: Run, **changes: Any) -> Run:
    """The same run on other rows."""
    return replace(run, sampling=replace(run.sampling, **changes))


def gpt(run: Run) -> Run:
    """The same run with GPT instead of BERT."""
    return replace(
        resampled(run, segment=Packed(fill="tokens"), choose=Nothing(), rewrite=Shift()),
        trunk=Decoder(
            layers=2, width=32, heads=2, positions=LearnedCausal(max=48), dropout=0, attention_dropout=0, init_std=0.1
        ),
        losses=(NextToken(),),
    )


def electra(run: Run) -> Run:
    """The same run with ELECTRA instead of BERT."""
    return replace(
        resampled(run, segment=Packed(fill="tokens"), rewrite=Cloze(mask=0.85, swap=0.0)),
        trunk=Twin(
            layers=2,
            width=32,
            heads=2,
            embedding=16,
            generator=0.5,
            positions=Learned(max=48),
            dropout=0,
            attention_dropout=0,
            init_std=0.1,
        ),
        losses=(MaskedTokens(), Replaced(weight=5.0)),
    )


def two_stages(run: Run) -> Run:
    """The second stage of ELECTRA in two: its generator does not learn."""
    run = electra(run)
    assert isinstance(run.trunk, Twin)
    return replace(run, trunk=replace(run.trunk, samples="frozen", generator=1.0), losses=(Replaced(weight=5.0),))


def two_sided(run: Run) -> Run:
    """The same run with T5 filling in gaps instead of BERT: its table, and what its layers share, are used twice."""
    return replace(
        resampled(run, segment=Packed(fill="tokens"), choose=Nothing(), rewrite=Noise(edits=("infill",))),
        trunk=EncoderDecoder(
            layers=2,
            width=32,
            heads=2,
            norm="pre",
            norm_kind="rms",
            bias=False,
            scale_attention=False,
            scale_output=True,
            embedding_norm=False,
            positions=Buckets(),
            dropout=0,
            attention_dropout=0,
            init_std=0.1,
        ),
        losses=(NextToken(),),
    )
