"""Texts that are generated during training."""

from preprocessing.tokenization import ByteLevelBPE, train
from tests.training.parity import built
from training.evaluation.generation import generate_samples
from training.losses import NextToken
from training.model_spec import ModelSpec
from training.specs import Decoder, LearnedPositions


def test_a_truncated_prompt_is_marked() -> None:
    vocab = train(ByteLevelBPE(vocab_size=280), ["a b c d e f g h"] * 3)
    trunk = Decoder(
        num_hidden_layers=1,
        hidden_size=8,
        num_attention_heads=1,
        position_embedding=LearnedPositions(max_position_embeddings=16),
        hidden_dropout=0.0,
    )
    model = built(ModelSpec(model=trunk, losses=(NextToken(),), vocab_size=vocab.size))
    text = " ".join("abcdefghijklmnopqrstuvwxyz")
    lost = len(vocab.encode(text)) - 8
    short, cut = generate_samples(model, vocab, ["a b", text], seed=0)
    assert short.startswith("a b")
    assert lost > 0
    head = f"[prompt without its first {lost} tokens] "
    assert cut.startswith(head + vocab.decode(vocab.encode(text)[-8:]))
