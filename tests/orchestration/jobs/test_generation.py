"""`sesame generate`: what the net of a finished run writes, and what is refused in a line."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orchestration import launch
from orchestration.cli import main
from orchestration.jobs import generation as module
from orchestration.jobs.generation import _prompt, generate_texts
from preprocessing import tokenization
from preprocessing.errors import BadInput
from preprocessing.manifest import Count, Ledger, Manifest
from preprocessing.masking import NoMasking, TokenMasking
from preprocessing.objectives import CausalLM, Denoising, MaskedLM
from preprocessing.packing import Contiguous
from preprocessing.sampling import ExampleSpec
from preprocessing.shards import shard_name, write_shard
from preprocessing.tokenization import Vocab
from tests.training.encoder_decoders import BART
from tests.training.parity import ONE_PAD, built, hf, weights
from training.formats import save_weights, to_transformers
from training.generation import GeneratedText
from training.losses import MaskedTokens, NextToken
from training.model import ModelSpec
from training.optimizers import AdamW
from training.run import Run
from training.specs import Decoder, Encoder, EngineSettings, LearnedPositions, Phase

TEXT = ["The quick brown fox jumps over the lazy dog."]
DECODER = ModelSpec(
    model=Decoder(
        num_hidden_layers=1,
        hidden_size=32,
        num_attention_heads=4,
        position_embedding=LearnedPositions(max_position_embeddings=48),
    ),
    losses=(NextToken(),),
    vocab_size=320,
)
STACKS = replace(DECODER, model=BART)
SAMPLED = ExampleSpec(packing=Contiguous(unit="token"), masking=NoMasking(), objective=CausalLM())
NOISED = ExampleSpec(packing=Contiguous(unit="sentence"), masking=NoMasking(), objective=Denoising())


def finished(spec: ModelSpec, folder: Path, **changes: Any) -> Path:
    """A run folder as the first worker leaves it."""
    kind = tokenization.ByteLevelBPE(vocab_size=300) if spec is DECODER else ONE_PAD
    tokenization.train(kind, TEXT).save(folder / "corpus" / "vocab")
    run = Run(
        model=spec.model,
        losses=spec.losses,
        optimizer=AdamW(learning_rate=1e-3),
        phases=(Phase(seq_length=16, global_batch_size=2, steps=1),),
        corpus=str(folder / "corpus"),
        vocab_size=spec.vocab_size,
        folder=str(folder),
        engine=EngineSettings(),
        **({"sampling": SAMPLED if spec is DECODER else NOISED} | changes),
    )
    (folder / launch.RUN).write_text(run.to_json())
    save_weights(weights(built(spec)), spec, folder / launch.WEIGHTS)
    where = folder / "corpus" / "vocab", folder / launch.EXPORT
    to_transformers(weights(built(spec)), spec, *where, rows=run.sampling)
    return folder


def test_each_method_writes_its_own_and_the_same_again(tmp_path: Path) -> None:
    folder = finished(DECODER, tmp_path / "run")
    methods: list[dict[str, Any]] = [{}, {"greedy": True}, {"num_beams": 3}, {"temperature": 2.0, "top_k": 50}]
    texts = set()
    for values in methods:
        first, again = (
            generate_texts(folder, ["The fox", ""], values=values, max_new_tokens=9, seed=0) for _ in range(2)
        )
        assert first == again
        assert [row["prompt"] for row in first] == ["The fox", ""]
        texts.add(first[0]["text"])
    assert len(texts) >= 3
    other = generate_texts(folder, ["The fox"], values={}, max_new_tokens=9, seed=1)
    assert other[0]["text"] != generate_texts(folder, ["The fox"], values={}, max_new_tokens=9, seed=0)[0]["text"]


def test_no_special_token_and_no_row_without_a_piece_is_written(tmp_path: Path) -> None:
    folder = finished(
        STACKS,
        tmp_path / "run",
        sampling=ExampleSpec(packing=Contiguous(unit="token"), masking=TokenMasking(), objective=Denoising()),
    )
    rows = generate_texts(folder, ["The fox"] * 40, values={"temperature": 5.0}, max_new_tokens=12, seed=0)
    pieces = Vocab.load(folder / "corpus" / "vocab")
    assert not any(pieces.piece(id) in row["text"] for row in rows for id in pieces.special_ids)
    assert all(row["source"] for row in rows)


def test_the_command_prints_prompt_and_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = finished(DECODER, tmp_path / "runs" / "mine")
    words = [
        "generate",
        str(folder),
        "The fox",
        "A dog",
        "--max-new-tokens",
        "5",
        "--greedy",
        "--output-dir",
        str(tmp_path),
    ]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["samples"]
    assert [row["prompt"] for row in found] == ["The fox", "A dog"]
    assert main(words) == 0
    assert found[0]["prompt"] + found[0]["text"].split("\n")[0].rstrip() in capsys.readouterr().out


@pytest.mark.parametrize("spec", [DECODER, STACKS], ids=["decoder", "two stacks"])
def test_a_folder_of_transformers_writes_what_the_run_does(
    spec: ModelSpec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = finished(spec, tmp_path / "run")
    asked: dict[str, Any] = {"values": {"greedy": True}, "max_new_tokens": 9, "seed": 0}
    assert generate_texts(run / launch.EXPORT, ["The fox"], **asked) == generate_texts(run, ["The fox"], **asked)
    words = ["generate", str(run / launch.EXPORT), "The fox", "--output-dir", str(tmp_path)]
    assert main(words) == 0
    assert "The fox" in capsys.readouterr().out
    assert main([*words, "--novelty"]) == 2
    assert "is unknown; use a run of Sesame" in capsys.readouterr().err


def test_what_cannot_be_sampled_is_refused_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = finished(DECODER, tmp_path / "run")
    for values, message in (
        ({"greedy": True, "top_k": 3}, "belong to several decoding methods"),
        ({"num_beams": 2, "top_p": 0.5}, "belong to several decoding methods"),
        ({"top_p": 2.0}, "top_p is 2.0, expected"),
    ):
        with pytest.raises(BadInput, match=message):
            generate_texts(folder, ["The fox"], values=values, max_new_tokens=5, seed=0)
    assert main(["generate", str(folder), "fox " * 60, "--output-dir", str(tmp_path)]) == 2
    assert "expected fewer than 48; shorten it" in capsys.readouterr().err
    (folder / launch.WEIGHTS / "spec.json").unlink()
    assert main(["generate", str(folder), "The fox", "--output-dir", str(tmp_path)]) == 2
    assert "the run is not finished" in capsys.readouterr().err
    both = ModelSpec(
        model=Encoder(num_hidden_layers=1, hidden_size=32, num_attention_heads=4),
        losses=(MaskedTokens(),),
        vocab_size=320,
    )
    masked = ExampleSpec(packing=Contiguous(unit="sentence"), masking=TokenMasking(), objective=MaskedLM())
    with pytest.raises(BadInput, match="attention_mask of this encoder: got 'bidirectional', expected 'causal'"):
        generate_texts(finished(both, tmp_path / "both", sampling=masked), ["x"], values={}, max_new_tokens=5, seed=0)


ENCODER = ModelSpec(
    model=Encoder(
        num_hidden_layers=1,
        hidden_size=32,
        num_attention_heads=4,
        position_embedding=LearnedPositions(max_position_embeddings=32),
    ),
    losses=(MaskedTokens(),),
    vocab_size=320,
)
MASKED = ExampleSpec(packing=Contiguous(unit="sentence"), masking=TokenMasking(), objective=MaskedLM())


def test_a_net_that_fills_in_masks_writes_as_many_tokens_as_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = finished(ENCODER, tmp_path / "run", sampling=MASKED)
    for masked in ("gibbs", "mask_predict"):
        keys = {"temperature": 5.0} if masked == "gibbs" else {}
        asked: dict[str, Any] = {"values": keys, "max_new_tokens": 5, "seed": 0, "masked": masked}
        first, again = (generate_texts(folder, ["The ___ fox", ""], **asked) for _ in range(2))
        assert first == again
        assert [row["prompt"] for row in first] == ["The ___ fox", ""]
        assert all(row["score"] < 0 for row in first)
    words = [
        "generate",
        str(folder),
        "The fox",
        "--masked-decoding",
        "gibbs",
        "--max-new-tokens",
        "3",
        "--output-dir",
        str(tmp_path),
    ]
    assert main(words) == 0
    assert "The fox [...] " in capsys.readouterr().out
    for values, masked, message in (
        ({"top_p": 0.5}, "gibbs", "got --top-p, expected only --temperature and --top-k"),
        ({"greedy": True}, "mask_predict", "got --greedy, expected no option of a decoding method"),
    ):
        with pytest.raises(BadInput, match=message):
            generate_texts(folder, ["x"], values=values, max_new_tokens=3, seed=0, masked=masked)  # type: ignore[arg-type]
    assert main([*words[:-4], "--max-new-tokens", "40", "--output-dir", str(tmp_path)]) == 2
    assert "invalid number of masks: got 40, expected 1 to" in capsys.readouterr().err
    decoder = finished(DECODER, tmp_path / "decoder")
    with pytest.raises(BadInput, match="has no mask"):
        generate_texts(decoder, ["x"], values={}, max_new_tokens=3, seed=0, masked="gibbs")


def test_novelty_says_what_the_corpus_has_and_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = finished(DECODER, tmp_path / "run")
    corpus, pieces = folder / "corpus", Vocab.load(folder / "corpus" / "vocab")
    ids = np.random.default_rng(0).integers(5, 200, 40)
    starts = np.arange(len(ids)) == 0
    path = corpus / shard_name("train", 0, 1)
    info = write_shard(path, [ids], [starts], [starts], ["mine"], [bytes(16)], vocab_size=pieces.size)
    total = Count(1, 0, len(ids))
    about = {"kind": pieces.kind, "size": pieces.size, "hash": pieces.hash, "specials": pieces.specials}
    Manifest("mine", "", "", about, {}, (info,), Ledger(total, total)).save(corpus)
    copied = GeneratedText(np.array([*ids[20:32], *ids[3:5], pieces.sep]), -1.0, ended=True)
    monkeypatch.setattr(module, "generate", lambda *given, **keys: [copied])
    (plain,) = generate_texts(folder, ["The fox"], values={}, max_new_tokens=12, seed=0)
    assert "novelty" not in plain
    (row,) = generate_texts(folder, ["The fox"], values={}, max_new_tokens=12, seed=0, novelty=True)
    assert row["novelty"]["found"] == {1: 1.0, 2: 12 / 13, 3: 10 / 12, 4: 9 / 11, 5: 8 / 10, 8: 5 / 7}
    (longest,) = row["novelty"]["longest"]
    assert (longest["source"], longest["at"], longest["start"], longest["stop"]) == ("mine", 20, 0, 12)
    assert main(["generate", str(folder), "The fox", "--novelty", "--output-dir", str(tmp_path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "the corpus contains 100 % of its tokens, 92 % of its 2-grams" in said
    assert "tokens 0 to 12 are in document 0 of train-00000-of-00001.arrow (mine)" in said


def test_a_source_of_t5_has_no_token_before_it() -> None:
    pieces = tokenization.train(tokenization.Unigram(vocab_size=36, extra_ids=2), TEXT)
    assert pieces.cls is not None
    found = _prompt("The fox", pieces, pieces.pad)
    assert found.source_ids is not None
    assert found.source_ids.tolist() == [*pieces.encode("The fox"), pieces.sep]
    begins = _prompt("The fox", pieces, pieces.sep).source_ids
    assert begins is not None
    assert begins[0] == pieces.cls


def test_what_stands_before_a_prompt_is_said_and_a_pipeline_that_has_it_writes_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = finished(DECODER, tmp_path / "run")
    prompts = ["The fox", "The quick", "lazy dog"]
    words = ["generate", str(run), *prompts, "--max-new-tokens", "8", "--greedy", "--output-dir", str(tmp_path)]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["samples"]
    assert {row["begins"] for row in found} == {"<|endoftext|>"}
    assert main(words) == 0
    assert "<|endoftext|> is added before each prompt" in " ".join(capsys.readouterr().out.split())
    net, tokenizer = (
        auto.from_pretrained(run / launch.EXPORT) for auto in (hf().AutoModelForCausalLM, hf().AutoTokenizer)
    )
    for row in found:
        given = tokenizer(row["begins"] + row["prompt"], return_tensors="pt")
        made = net.generate(**given, max_new_tokens=8, do_sample=False, suppress_tokens=[*range(len(tokenizer), 320)])[
            0, given["input_ids"].shape[1] :
        ]
        assert tokenizer.decode(made, skip_special_tokens=True) == row["text"]
