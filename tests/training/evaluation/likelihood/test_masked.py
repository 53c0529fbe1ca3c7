"""Pseudo-log-likelihoods equal those of transformers' BERT, one mask at a time and without batches."""

from pathlib import Path
from typing import Any

import pytest
import torch

from preprocessing.errors import BadInput
from tests.training.evaluation.likelihood.nets import LONG, exported, net, vocabulary
from tests.training.parity import hf
from training.evaluation.likelihood import PSEUDO_KINDS, PseudoKind, Request
from training.evaluation.likelihood.models import score_masked

TEXTS = ["The quick brown fox jumps over dogs.", "jugs", "liquor boxes, lazy!"]


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("bert")
    return exported("bert", folder), hf().AutoTokenizer.from_pretrained(folder / "net")


@torch.no_grad()
def expected(oracle: Any, text: str, kind: PseudoKind, context: str = "") -> tuple[float, int]:
    """The pseudo-log-likelihood of the tokens after the context, and their number."""
    model, tokenizer = oracle
    encoded = tokenizer(text, return_offsets_mapping=True)
    ids, words, total, count = encoded["input_ids"], encoded.word_ids(), 0.0, 0
    for at, word in enumerate(words):
        if word is None or encoded["offset_mapping"][at][1] <= len(context):
            continue
        hidden = list(ids)
        for place, other in enumerate(words):
            if place == at or (kind == "within_word_l2r" and other == word and place > at):
                hidden[place] = tokenizer.mask_token_id
        segments = torch.zeros(1, len(ids), dtype=torch.long)
        log_p = model(torch.tensor([hidden]), token_type_ids=segments).logits[0, at].log_softmax(-1)
        total, count = total + float(log_p[ids[at]]), count + 1
    return total, count


@pytest.mark.parametrize("kind", PSEUDO_KINDS)
@pytest.mark.parametrize("micro_tokens", [1, 30, 16_384])
def test_texts_have_the_pseudo_log_likelihood_of_transformers(oracle: Any, kind: PseudoKind, micro_tokens: int) -> None:
    requests = [Request("", text) for text in TEXTS]
    found = score_masked(net("bert"), vocabulary("bert"), requests, kind=kind, micro_tokens=micro_tokens)
    wanted = [expected(oracle, text, kind) for text in TEXTS]
    assert [each.nats for each in found] == pytest.approx([nats for nats, _ in wanted], abs=1e-4)
    assert [each.tokens for each in found] == [count for _, count in wanted]


@pytest.mark.parametrize("kind", PSEUDO_KINDS)
def test_only_the_continuation_is_predicted(oracle: Any, kind: PseudoKind) -> None:
    found = score_masked(net("bert"), vocabulary("bert"), [Request("The quick brown ", "foxes jump")], kind=kind)
    nats, count = expected(oracle, "The quick brown foxes jump", kind, "The quick brown")
    assert (found[0].nats, found[0].tokens) == (pytest.approx(nats, abs=1e-4), count)


def test_within_word_l2r_masks_the_rest_of_a_word() -> None:
    """The two variants differ for a word of several tokens, and are equal for words of one token."""
    pieces = vocabulary("bert")
    whole = [word for word in ("the", "over", "fox", "a", ".") if len(pieces.encode(word)) == 1]
    apart = "jugular"
    assert len(whole) >= 2
    assert len(pieces.encode(apart)) > 1
    for text, differs in ((" ".join(whole), False), (apart, True)):
        one, other = (score_masked(net("bert"), pieces, [Request("", text)], kind=kind)[0] for kind in PSEUDO_KINDS)
        assert (abs(one.nats - other.nats) > 1e-3) == differs


def test_long_contexts_are_truncated_at_their_beginning() -> None:
    pieces = vocabulary("bert")
    (found,) = score_masked(net("bert"), pieces, [Request(LONG, " fox.")])
    assert found.cut == len(pieces.encode(LONG + " fox.")) + 2 - 40
    with pytest.raises(BadInput, match=r"continuation too long: got \d+ tokens, expected at most \d+; shorten it"):
        score_masked(net("bert"), pieces, [Request("", LONG)])


def test_a_decoder_is_refused() -> None:
    with pytest.raises(BadInput, match="cannot compute likelihoods"):
        score_masked(net("gpt2"), vocabulary("gpt2"), [Request("", "fox")])


def test_the_exported_tokenizer_has_the_mask_token(oracle: Any, tmp_path: Path) -> None:
    assert oracle[1].mask_token_id == vocabulary("bert").mask
