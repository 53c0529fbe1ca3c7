"""GPT-1's three additional tokens: Start text Extract, and Start text Delim text Extract (GPT-1 3.3)."""

from typing import Final

from tokenizers import Tokenizer, processors

from preprocessing.tokenization.vocab import ROLES, Vocab

INSERTS: Final = ("<|start|>", "<|delimiter|>", "<|extract|>")


def with_inserts(vocab: Vocab, rows: int) -> Vocab:
    """Return the tokenizer with GPT-1's tokens around one text and around two texts.

    The new tokens follow the first `rows` rows of the model's token table. Rows
    of the table that have no token get tokens with unused names.
    """
    assert not vocab.sentinels, "sentinels must be the last tokens, so no token can follow them"
    tokenizer = Tokenizer.from_buffer(vocab.files["tokenizer.json"])
    start, delimiter, extract = INSERTS
    tokenizer.add_special_tokens([f"<|unused_{number}|>" for number in range(vocab.size, rows)])
    tokenizer.add_special_tokens(list(INSERTS))
    ids = {name: tokenizer.token_to_id(name) for name in INSERTS}
    assert list(ids.values()) == [rows, rows + 1, rows + 2], "the tokenizer already has tokens of these names"
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[start, "$A", extract],
        pair=[start, "$A", delimiter, "$B:1", f"{extract}:1"],
        special_tokens=list(ids.items()),
    )
    files = {**vocab.files, "tokenizer.json": tokenizer.to_str().encode()}
    del files["specials.json"]
    return Vocab.of(vocab.kind, rows + len(INSERTS), {role: getattr(vocab, role) for role in ROLES}, 0, files)
