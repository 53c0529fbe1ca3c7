"""Small models with random weights, their vocabularies, and texts to score."""

from functools import cache
from pathlib import Path
from typing import Any

from preprocessing import tokenization
from preprocessing.tokenization import Vocab
from tests.training.parity import TEXT, built, loaded, weights
from training.evaluation.likelihood import Request
from training.formats import to_transformers
from training.losses import MaskedTokens, NextToken
from training.model import Model
from training.model_spec import ModelSpec
from training.specs import AdaptiveEmbedding, Decoder, Encoder, LearnedPositions, RelativePositions

SIZES: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "init_std": 0.2,
    "hidden_dropout": 0.3,
    "attention_dropout": 0.3,
}
GPT2 = Decoder(**SIZES, position_embedding=LearnedPositions(max_position_embeddings=32))
GPT1 = Decoder(
    **SIZES,
    position_embedding=LearnedPositions(max_position_embeddings=32),
    norm_position="post",
    activation="gelu_tanh",
)
BERT = Encoder(**SIZES, position_embedding=LearnedPositions(max_position_embeddings=40))
XL = Decoder(**SIZES, position_embedding=RelativePositions(mem_len=64), norm_position="post", activation="relu")
ADAPTIVE = Decoder(
    **SIZES,
    position_embedding=RelativePositions(mem_len=64),
    norm_position="post",
    activation="relu",
    token_embedding=AdaptiveEmbedding(cutoffs=(50, 150), div_val=2),
)
TRUNKS = {"gpt2": GPT2, "gpt1": GPT1, "xl": XL, "adaptive": ADAPTIVE}

LONG = " ".join(TEXT * 3)
REQUESTS = [
    Request("", "The quick brown fox jumps"),
    Request("", " The quick brown fox jumped over the dog"),
    Request("The quick brown", " fox"),
    Request("The quick brown", " box with jugs"),
    Request("The quick brown ", "fox"),
    Request("The quick brown", " fox"),
    Request("Pack", " my liquor jugs!"),
    Request("The qu", "ick"),
    Request(LONG, " dog."),
    Request(LONG, " fox jumps."),
]


@cache
def vocabulary(kind: str) -> Vocab:
    spec = tokenization.WordPiece(vocab_size=100) if kind == "bert" else tokenization.ByteLevelBPE(vocab_size=300)
    return tokenization.train(spec, TEXT)


@cache
def net(kind: str) -> Model:
    """A model in training mode, so that scoring must switch to evaluation mode."""
    trunk = BERT if kind == "bert" else TRUNKS[kind]
    losses = (MaskedTokens(),) if kind == "bert" else (NextToken(bias=kind == "adaptive"),)
    return built(ModelSpec(model=trunk, losses=losses, vocab_size=vocabulary(kind).size + 3)).train()


def exported(kind: str, folder: Path) -> Any:
    """The same model in transformers."""
    vocabulary(kind).save(folder / "vocab")
    out = folder / "net"
    out.mkdir()
    to_transformers(weights(net(kind)), net(kind).spec, folder / "vocab", out)
    return loaded(out)
