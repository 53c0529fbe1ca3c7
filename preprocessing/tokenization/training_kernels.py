"""Compiles the kernels that train tokenizers, by training small ones."""

from preprocessing.tokenization import byte_level_bpe
from preprocessing.tokenization.wordpiece import WordPiece

_TEXT = "The cat's two dogs saw the cat, and the dog saw 2 caf\u00e9s.\n"


def compile_training_kernels() -> None:
    """Compile all kernels that train tokenizers, unless they are compiled; needs numba."""
    WordPiece(vocab_size=100).train_with_kernels([_TEXT])
    byte_level_bpe.train_with_kernels([_TEXT], 300, "gpt2")
