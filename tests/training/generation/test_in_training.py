"""What a net writes while it is trained."""

from preprocessing.vocab import ByteBPE, train
from tests.training.parity import built
from training.generation import samples
from training.losses import NextToken
from training.model import ModelSpec
from training.specs import Decoder, LearnedCausal


def test_a_prompt_that_loses_its_beginning_says_so() -> None:
    vocab = train(ByteBPE(size=280), ["a b c d e f g h"] * 3)
    trunk = Decoder(layers=1, width=8, heads=1, positions=LearnedCausal(max=16), dropout=0.0)
    model = built(ModelSpec(trunk=trunk, losses=(NextToken(),), vocab_size=vocab.size))
    text = " ".join("abcdefghijklmnopqrstuvwxyz")
    lost = len(vocab.encode(text)) - 8
    short, cut = samples(model, vocab, ["a b", text], seed=0)
    assert short.startswith("a b")
    assert lost > 0
    head = f"[the prompt without its first {lost} tokens] "
    assert cut.startswith(head + vocab.decode(vocab.encode(text)[-8:]))
