"""`Session.predict`: the most probable tokens at a blank, with the probabilities of `transformers`."""

from pathlib import Path

import pytest
import torch

import sesame
from orchestration.evaluation.prediction import predict_tokens
from orchestration.launch import EXPORT
from preprocessing.errors import BadInput
from preprocessing.tokenization import Vocab, token_texts
from tests.orchestration.jobs.test_generation import DECODER, ENCODER, MASKED, NOISED, STACKS, write_finished_run
from training.evaluation import net_of

ALL = 10_000


@pytest.mark.parametrize("is_masked", [False, True], ids=["decoder", "encoder"])
def test_probabilities_are_those_of_transformers(is_masked: bool, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    spec, text = (ENCODER, "The ___ fox") if is_masked else (DECODER, "The quick")
    folder = write_finished_run(spec, tmp_path / "run", **({"sampling": MASKED} if is_masked else {}))
    (found,) = predict_tokens(folder, [text], ALL)
    vocab = net_of(folder).vocab
    if is_masked:
        theirs = AutoModelForMaskedLM.from_pretrained(folder / EXPORT).eval()
        first, last, _ = vocab.around
        ids = [*first, *vocab.encode("The"), vocab.mask, *vocab.encode(" fox"), *last]
        at = ids.index(vocab.mask)
    else:
        theirs = AutoModelForCausalLM.from_pretrained(folder / EXPORT).eval()
        ids = [vocab.sep, *vocab.encode(text)]
        at = len(ids) - 1
    with torch.no_grad():
        logits_V = theirs(torch.tensor([ids])).logits[0, at, : vocab.size]
    logits_V[list(vocab.special_ids)] = -torch.inf
    expected = sorted(logits_V.softmax(-1).tolist(), reverse=True)
    assert [p for _, p in found.tokens] == pytest.approx(expected, rel=1e-4, abs=1e-9)
    assert found.tokens[0][0] == token_texts(vocab, [int(logits_V.argmax())])[0]


@pytest.mark.parametrize(("spec", "sampling", "text"), [(DECODER, None, "The"), (ENCODER, MASKED, "The ___ fox")])
def test_probabilities_sum_to_one_and_special_tokens_have_none(
    spec: object, sampling: object, text: str, tmp_path: Path
) -> None:
    folder = write_finished_run(spec, tmp_path / "run", **({"sampling": sampling} if sampling else {}))  # type: ignore[arg-type]
    (found,) = predict_tokens(folder, [text], ALL)
    assert sum(p for _, p in found.tokens) == pytest.approx(1, abs=1e-5)
    vocab = Vocab.load(folder / "corpus" / "vocab")
    special = {vocab.piece(id) for id in vocab.special_ids}
    assert all(p == 0 for token, p in found.tokens if token in special)


def test_a_blank_and_the_mask_token_are_the_same_place(tmp_path: Path) -> None:
    folder = write_finished_run(ENCODER, tmp_path / "run", sampling=MASKED)
    vocab = Vocab.load(folder / "corpus" / "vocab")
    mask = vocab.piece(vocab.mask or 0)
    blank, masked, other = predict_tokens(folder, ["The ___ fox", f"The {mask} fox", "The fox ___"], 3)
    assert blank.tokens == masked.tokens != other.tokens
    assert [len(one.tokens) for one in (blank, masked, other)] == [3, 3, 3]
    assert str(blank).startswith("The ___ fox -> ")


def test_a_space_before_a_blank_is_part_of_the_predicted_token(tmp_path: Path) -> None:
    folder = write_finished_run(DECODER, tmp_path / "run")
    assert net_of(folder).vocab.encode("The quick ") != net_of(folder).vocab.encode("The quick")
    blank, end = predict_tokens(folder, ["The quick ___", "The quick"], 3)
    assert blank.tokens == end.tokens


def test_a_text_without_a_place_or_of_a_model_that_cannot_predict_is_refused(tmp_path: Path) -> None:
    encoder = write_finished_run(ENCODER, tmp_path / "encoder", sampling=MASKED)
    stacks = write_finished_run(STACKS, tmp_path / "stacks", sampling=NOISED)
    vocab = net_of(encoder).vocab
    mask = vocab.piece(vocab.mask or 0)
    for folder, text, message in (
        (encoder, "The fox", "got 0 blanks, expected one; write ___ at its place"),
        (encoder, "The ___ is ___", "got 2 blanks, expected one"),
        (encoder, "The fox " * 30 + "___", "tokens, expected at most 32; shorten it"),
        (encoder, f"{mask} is {mask}", "got 2 blanks, expected one"),
        (stacks, "The ___ fox", "predict: this encoder_decoder cannot predict a single word; use"),
    ):
        with pytest.raises(BadInput, match=message) as refusal:
            predict_tokens(folder, [text])
        assert "\n" not in str(refusal.value)


def test_a_session_of_a_run_generates_predicts_and_needs_no_text(tmp_path: Path) -> None:
    folder = write_finished_run(DECODER, tmp_path / "runs" / "gpt2_tiny-00000001")
    (folder / "stage.json").write_text("{}")
    session = sesame.open(folder.name, output_dir=tmp_path, progress="none")
    assert session.folder == folder
    assert len(session.predict("The quick", top_k=2)[0].tokens) == 2
    assert repr(session.predict("The quick")).startswith("The quick -> ")
    texts = session.generate("The fox", greedy=True, max_new_tokens=5)
    assert texts == session.generate("The fox", greedy=True, max_new_tokens=5)
    assert repr(texts).startswith("The fox")
    assert sum(weight.numel() for weight in session.model().parameters()) > 0
    for call, message in (
        (lambda: session.predict("x", top_k=0), "invalid top_k: got 0"),
        (lambda: session.predict(), "invalid texts: got none, expected at least one text; pass one"),
        (lambda: session.predict([]), "invalid texts: got none, expected at least one text; pass one"),
        (lambda: session.generate(), "invalid prompts: got none, expected at least one text; pass one"),
        (lambda: session.generate(3), "invalid prompts: got 3"),  # type: ignore[arg-type]
        (lambda: session.train(steps=3), "invalid steps: got 3 for a run that exists"),
    ):
        with pytest.raises(BadInput, match=message):
            call()
