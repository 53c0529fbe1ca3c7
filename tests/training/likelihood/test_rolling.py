"""Perplexities: those of transformers in the same windows; a memory that holds all is one long row."""

from typing import Any

import pytest
import torch

from preprocessing.errors import BadInput
from tests.training.likelihood.nets import LONG, exported, net, vocabulary
from tests.training.parity import TEXT
from training.likelihood import Text
from training.likelihood.nets import perplexity


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return exported("gpt2", tmp_path_factory.mktemp("gpt2"))


@torch.no_grad()
def plainly(oracle: Any, text: str, window: int, stride: int) -> float:
    """-log p of a text: each token from as many as stand before it in the first window that has it as a target."""
    ids, total, done = [vocabulary("gpt2").sep, *vocabulary("gpt2").encode(text)], 0.0, 1
    while done < len(ids):
        stop = min(len(ids), done + (window if done == 1 else stride))
        begin = max(0, stop - 1 - window)
        log_p = oracle(torch.tensor([ids[begin : stop - 1]])).logits[0].log_softmax(-1)
        total -= sum(float(log_p[at - 1 - begin, ids[at]]) for at in range(done, stop))
        done = stop
    return total


@pytest.mark.parametrize(("window", "stride"), [(32, 32), (32, 7), (5, 1), (1, 1), (0, 0)])
def test_texts_have_the_perplexity_that_transformers_gives_them(oracle: Any, window: int, stride: int) -> None:
    found = perplexity(
        net("gpt2"), vocabulary("gpt2"), [Text(LONG), Text(TEXT[0])], window=window, stride=stride, micro_tokens=50
    )
    wanted = sum(plainly(oracle, text, window or 32, stride or 32) for text in (LONG, TEXT[0]))
    assert found.nats == pytest.approx(wanted, rel=1e-5)
    assert found.tokens == sum(len(vocabulary("gpt2").encode(text)) for text in (LONG, TEXT[0]))
    assert (found.window, found.stride, found.memory) == (window or 32, stride or 32, 0)


def test_words_and_bytes_are_those_of_the_original() -> None:
    text = Text("naive, not", original="na\N{LATIN SMALL LETTER I WITH DIAERESIS}ve , not")
    found = perplexity(net("gpt2"), vocabulary("gpt2"), [text])
    assert (found.words, found.bytes) == (3, 12)
    assert "3 words, 12 bytes; windows of 32 tokens, 32 new ones each" in found.describe()


@pytest.mark.parametrize("kind", ["xl", "adaptive"])
def test_windows_with_a_memory_of_everything_are_one_long_row(kind: str) -> None:
    text = [Text(" ".join(TEXT)), Text("Pack my box")]
    tokens = max(len(vocabulary(kind).encode(each.text)) for each in text)
    assert 20 < tokens <= 64  # the memory
    whole = perplexity(net(kind), vocabulary(kind), text, window=tokens)
    carried = perplexity(net(kind), vocabulary(kind), text, window=6, carry=True)
    cut = perplexity(net(kind), vocabulary(kind), text, window=6)
    assert carried.nats == pytest.approx(whole.nats, rel=1e-5)
    assert abs(cut.nats - whole.nats) > 1e-2
    assert (carried.memory, whole.memory) == (64, 0)
    assert "a memory of 64 tokens carried along" in carried.describe()


@pytest.mark.parametrize(
    ("kind", "keys", "said"),
    [
        ("gpt2", {"carry": True}, "no memory to carry"),
        ("gpt2", {"window": 33}, "window is 33, allowed is 1 to 32"),
        ("gpt2", {"window": 8, "stride": 9}, "stride is 9, allowed is 1 to 8"),
        ("xl", {"window": 8, "stride": 4, "carry": True}, "stride is 4, allowed is 8"),
        ("bert", {}, "gives no likelihood"),
    ],
)
def test_numbers_that_do_not_fit_are_refused_in_one_line(kind: str, keys: dict[str, int], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        perplexity(net(kind), vocabulary(kind), [Text("fox")], **keys)
