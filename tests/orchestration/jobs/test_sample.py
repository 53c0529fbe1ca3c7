"""`sesame sample`: what the net of a finished run writes, and what is refused in a line."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestration import launch
from orchestration.cli import main
from orchestration.jobs.sample import sample
from preprocessing import vocab
from preprocessing.choose import Nothing, Tokens
from preprocessing.errors import BadInput
from preprocessing.rewrite import Cloze, Noise, Shift
from preprocessing.sampling import Sampling
from preprocessing.segment import Packed
from preprocessing.vocab import Vocab
from tests.training.encoder_decoders import BART
from tests.training.parity import ONE_PAD, built, weights
from training.formats import save_weights, to_transformers
from training.losses import MaskedTokens, NextToken
from training.model import ModelSpec
from training.optim import AdamW
from training.run import Run
from training.specs import Decoder, Encoder, LearnedCausal, Machine, Phase

TEXT = ["The quick brown fox jumps over the lazy dog."]
DECODER = ModelSpec(
    trunk=Decoder(layers=1, width=32, heads=4, positions=LearnedCausal(max=48)), losses=(NextToken(),), vocab_size=320
)
STACKS = replace(DECODER, trunk=BART)
SAMPLED = Sampling(segment=Packed(fill="tokens"), choose=Nothing(), rewrite=Shift())


def finished(spec: ModelSpec, folder: Path, **changes: Any) -> Path:
    """A run folder as the first worker leaves it."""
    kind = vocab.ByteBPE(size=300) if spec is DECODER else ONE_PAD
    vocab.train(kind, TEXT).save(folder / "corpus" / "vocab")
    run = Run(
        trunk=spec.trunk,
        losses=spec.losses,
        optim=AdamW(peak=1e-3),
        phases=(Phase(length=16, batch=2, steps=1),),
        corpus=str(folder / "corpus"),
        vocab_size=spec.vocab_size,
        folder=str(folder),
        machine=Machine(),
        **({"sampling": SAMPLED} | changes),
    )
    (folder / launch.RUN).write_text(run.to_json())
    save_weights(weights(built(spec)), spec, folder / launch.WEIGHTS)
    to_transformers(weights(built(spec)), spec, folder / "corpus" / "vocab", folder / launch.EXPORT)
    return folder


def test_each_method_writes_its_own_and_the_same_again(tmp_path: Path) -> None:
    folder = finished(DECODER, tmp_path / "run")
    methods: list[dict[str, Any]] = [{}, {"greedy": True}, {"beams": 3}, {"temperature": 2.0, "top_k": 50}]
    texts = set()
    for values in methods:
        first, again = (sample(folder, ["The fox", ""], values=values, max_new=9, seed=0) for _ in range(2))
        assert first == again
        assert [row["prompt"] for row in first] == ["The fox", ""]
        texts.add(first[0]["text"])
    assert len(texts) >= 3
    other = sample(folder, ["The fox"], values={}, max_new=9, seed=1)
    assert other[0]["text"] != sample(folder, ["The fox"], values={}, max_new=9, seed=0)[0]["text"]


def test_no_special_token_and_no_row_without_a_piece_is_written(tmp_path: Path) -> None:
    folder = finished(
        STACKS, tmp_path / "run", sampling=Sampling(segment=Packed(fill="tokens"), choose=Tokens(), rewrite=Noise())
    )
    rows = sample(folder, ["The fox"] * 40, values={"temperature": 5.0}, max_new=12, seed=0)
    pieces = Vocab.load(folder / "corpus" / "vocab")
    assert not any(pieces.piece(id) in row["text"] for row in rows for id in pieces.special_ids)
    assert all(row["source"] for row in rows)


def test_the_command_prints_prompt_and_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = finished(DECODER, tmp_path / "runs" / "mine")
    words = ["sample", str(folder), "The fox", "A dog", "--max-new", "5", "--greedy", "--out", str(tmp_path)]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["samples"]
    assert [row["prompt"] for row in found] == ["The fox", "A dog"]
    assert main(words) == 0
    assert found[0]["prompt"] + found[0]["text"].split("\n")[0].rstrip() in capsys.readouterr().out


def test_what_cannot_be_sampled_is_refused_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = finished(DECODER, tmp_path / "run")
    for values, message in (
        ({"greedy": True, "top_k": 3}, "are of several methods"),
        ({"beams": 2, "top_p": 0.5}, "are of several methods"),
        ({"top_p": 2.0}, "top_p is 2.0, allowed is"),
    ):
        with pytest.raises(BadInput, match=message):
            sample(folder, ["The fox"], values=values, max_new=5, seed=0)
    assert main(["sample", str(folder), "fox " * 60, "--out", str(tmp_path)]) == 2
    assert "the net's rows at most 48; shorten it" in capsys.readouterr().err
    (folder / launch.WEIGHTS / "spec.json").unlink()
    assert main(["sample", str(folder), "The fox", "--out", str(tmp_path)]) == 2
    assert "this run is not finished" in capsys.readouterr().err
    both = ModelSpec(trunk=Encoder(layers=1, width=32, heads=4), losses=(MaskedTokens(),), vocab_size=320)
    masked = Sampling(segment=Packed(fill="sentences"), choose=Tokens(), rewrite=Cloze())
    with pytest.raises(BadInput, match="attention of this encoder is 'full', allowed is 'causal'"):
        sample(finished(both, tmp_path / "both", sampling=masked), ["x"], values={}, max_new=5, seed=0)
