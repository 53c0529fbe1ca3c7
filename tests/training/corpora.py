"""A finished corpus of the mini-world and a run on it, for tests that train."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from preprocessing import tokenization
from preprocessing.manifest import Count, Ledger, Manifest, ShardInfo
from preprocessing.masking import NoMasking, TokenMasking
from preprocessing.objectives import CausalLM, Denoising, MaskedLM
from preprocessing.packing import Contiguous, SegmentPair
from preprocessing.sampling import ExampleSpec
from preprocessing.shards import shard_name, write_shard
from tests.mini_world import VOCAB_SIZE, world
from training.losses import MaskedTokens, NextToken, ReplacedTokenDetection, SentencePair
from training.optimizers import AdamW
from training.run import Run
from training.specs import (
    Decoder,
    DisentangledPositions,
    Encoder,
    EncoderDecoder,
    EngineSettings,
    GeneratorDiscriminator,
    LearnedPositions,
    Phase,
    RelativeBias,
)


def mini_corpus(folder: Path, num_train: int = 60, num_validation: int = 12) -> Path:
    """Write documents of the mini-world as a corpus of two shards, with a vocabulary of tokens w5, w6, ..."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{id}" for id in range(5, VOCAB_SIZE))]
    folder.mkdir(parents=True)
    (folder / "pieces.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    words = tokenization.train(tokenization.WordPiece(vocab_size=VOCAB_SIZE, path=str(folder / "pieces.txt")), ())
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
    """Twenty steps of BERT with two layers of width 32 and, per step, nine sequences of at most 48 tokens."""
    run = Run(
        model=Encoder(
            num_hidden_layers=2,
            hidden_size=32,
            num_attention_heads=2,
            position_embedding=LearnedPositions(max_position_embeddings=48),
            hidden_dropout=0,
            attention_dropout=0,
            init_std=0.1,
        ),
        losses=(MaskedTokens(), SentencePair()),
        optimizer=AdamW(learning_rate=1e-2, warmup_steps=2),
        phases=(Phase(seq_length=48, global_batch_size=9, steps=20),),
        sampling=ExampleSpec(
            packing=SegmentPair(negatives="random", short_seq_prob=0.5), masking=TokenMasking(), objective=MaskedLM()
        ),
        corpus=str(corpus),
        vocab_size=VOCAB_SIZE,
        folder=str(folder),
        engine=EngineSettings(),
        log_every=1,
        save_every=0,
        eval_every=0,
    )
    return replace(run, **changes)


def resampled(run: Run, **changes: Any) -> Run:
    """The same run with other settings of packing, masking or objective."""
    return replace(run, sampling=replace(run.sampling, **changes))


def gpt(run: Run) -> Run:
    """The same run with GPT instead of BERT."""
    return replace(
        resampled(run, packing=Contiguous(unit="token"), masking=NoMasking(), objective=CausalLM()),
        model=Decoder(
            num_hidden_layers=2,
            hidden_size=32,
            num_attention_heads=2,
            position_embedding=LearnedPositions(max_position_embeddings=48),
            hidden_dropout=0,
            attention_dropout=0,
            init_std=0.1,
        ),
        losses=(NextToken(),),
    )


def electra(run: Run) -> Run:
    """The same run with ELECTRA instead of BERT."""
    return replace(
        resampled(
            run, packing=Contiguous(unit="token"), objective=MaskedLM(mask_replace_prob=0.85, random_replace_prob=0.0)
        ),
        model=GeneratorDiscriminator(
            num_hidden_layers=2,
            hidden_size=32,
            num_attention_heads=2,
            embedding_size=16,
            generator_size_ratio=0.5,
            position_embedding=LearnedPositions(max_position_embeddings=48),
            hidden_dropout=0,
            attention_dropout=0,
            init_std=0.1,
        ),
        losses=(MaskedTokens(), ReplacedTokenDetection(weight=5.0)),
    )


def deberta(run: Run) -> Run:
    """The same run with DeBERTaV3: a generator of one layer, whose tables the discriminator only adds to."""
    run = electra(run)
    assert isinstance(run.model, GeneratorDiscriminator)
    model = replace(
        run.model,
        num_attention_heads=4,
        generator_num_hidden_layers=1,
        weight_sharing="disentangled",
        type_vocab_size=0,
        position_embedding=DisentangledPositions(position_buckets=8, max_relative_positions=24),
    )
    detection = ReplacedTokenDetection(add_first_state=True)
    return replace(run, model=model, losses=(MaskedTokens(), detection))


def two_stages(run: Run) -> Run:
    """The second stage of a two-stage ELECTRA run, in which the generator does not learn."""
    run = electra(run)
    assert isinstance(run.model, GeneratorDiscriminator)
    return replace(
        run,
        model=replace(run.model, sample_from="frozen", generator_size_ratio=1.0),
        losses=(ReplacedTokenDetection(weight=5.0),),
    )


def two_sided(run: Run) -> Run:
    """The same run with T5 span corruption instead of BERT. Both sides use its embeddings and shared weights."""
    return replace(
        resampled(
            run,
            packing=Contiguous(unit="token"),
            masking=NoMasking(),
            objective=Denoising(noise_types=("text_infilling",)),
        ),
        model=EncoderDecoder(
            num_hidden_layers=2,
            hidden_size=32,
            num_attention_heads=2,
            norm_position="pre",
            norm_type="rmsnorm",
            bias=False,
            scale_attention=False,
            scale_decoder_outputs=True,
            embedding_norm=False,
            position_embedding=RelativeBias(),
            hidden_dropout=0,
            attention_dropout=0,
            init_std=0.1,
        ),
        losses=(NextToken(),),
    )
