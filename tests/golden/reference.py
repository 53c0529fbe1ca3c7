"""Run the data scripts of the reference BERT and ALBERT; write what they make to tests/golden/reference_scripts.json.

Another person repeats it beside checkouts of google-research/bert (eedf571) and google-research/albert (b772393), with
the package `six` installed, from the root of this repository:

    python -m tests.golden.reference CHECKOUTS ../shared/data

where CHECKOUTS is the folder that holds `bert` and `albert`. TensorFlow is not needed: of it the scripts use flags,
files and logging only, and small stand-ins give them these. Nothing of the references is in this repository.
"""

import hashlib
import importlib
import json
import random
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import numpy as np

HERE: Final = Path(__file__).parent
FILE: Final = HERE / "reference_scripts.json"

# The vocabulary of a made-up text: it must hold pieces that go on a word, so that words are of 1 to 4 tokens.
PIECES: Final = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("sun", "rain", "wind", "hill", "river", "walk", "sing", "small", "green", "old", "and", "."),
    *("##s", "##ing", "##er", "##ed", "##est"),
)
NUM_ORDINARY: Final = 12  # pieces behind the special ones that begin a word

# Flags as the scripts name them; for each corpus these runs, `numpy_seed` is what np.random.seed gets before an ALBERT.
BERT_RUNS: Final = (
    {"max_seq_length": 128, "random_seed": 12345, "dupe_factor": 10, "do_whole_word_mask": False},
    {"max_seq_length": 128, "random_seed": 12345, "dupe_factor": 10, "do_whole_word_mask": True},
    {"max_seq_length": 512, "random_seed": 1, "dupe_factor": 10, "max_predictions_per_seq": 77},
    {"max_seq_length": 512, "random_seed": 1, "dupe_factor": 2, "do_whole_word_mask": True, "short_seq_prob": 0.5},
    {"max_seq_length": 24, "random_seed": 7, "dupe_factor": 3, "do_whole_word_mask": True, "masked_lm_prob": 0.4},
)
ALBERT_RUNS: Final = (
    {"max_seq_length": 512, "random_seed": 12345, "dupe_factor": 40, "numpy_seed": 0},
    {"max_seq_length": 128, "random_seed": 12345, "dupe_factor": 10, "numpy_seed": 1, "random_next_sentence": True},
    {"max_seq_length": 128, "random_seed": 1, "dupe_factor": 10, "numpy_seed": 1, "favor_shorter_ngram": False},
    {"max_seq_length": 128, "random_seed": 1, "dupe_factor": 10, "numpy_seed": 2, "do_whole_word_mask": False},
    {"max_seq_length": 24, "random_seed": 7, "dupe_factor": 3, "numpy_seed": 3, "ngram": 5, "masked_lm_prob": 0.4},
)


def made_up_text() -> str:
    """Seven documents of one to nine sentences, a line each, blank lines between."""
    draw = random.Random(0)
    ordinary, inner = PIECES[5 : 5 + NUM_ORDINARY - 1], PIECES[5 + NUM_ORDINARY :]
    documents = []
    for num_sentences in (4, 1, 9, 2, 1, 6, 3):
        lines = []
        for _ in range(num_sentences):
            words = [
                draw.choice(ordinary) + "".join(piece[2:] for piece in draw.choices(inner, k=draw.choice((0, 0, 1, 3))))
                for _ in range(draw.randint(2, 14))
            ]
            lines.append(" ".join(words) + " .")
        documents.append("\n".join(lines))
    return "\n\n".join(documents) + "\n"


def facts(instances: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """Their number, a hash over all of them, and the first: (ids, segments, label, positions, targets)."""
    lines = "\n".join(json.dumps(list(instance), separators=(",", ":")) for instance in instances)
    return {
        "instances": len(instances),
        "sha256": hashlib.sha256(lines.encode()).hexdigest(),
        "first": list(instances[0]),
    }


class _Recording:
    """A tokenizer that remembers what it made, so that the documents can be written down as the script saw them."""

    def __init__(self, tokenizer: Any) -> None:
        self.vocab = tokenizer.vocab
        self.inner = tokenizer
        self.documents: list[list[list[int]]] = [[]]

    def tokenize(self, line: str) -> list[str]:
        tokens: list[str] = self.inner.tokenize(line)
        if not line:
            self.documents.append([])
        elif tokens:
            self.documents[-1].append(self.ids(tokens))
        return tokens

    def ids(self, tokens: list[str]) -> list[int]:
        return [int(id) for id in self.inner.convert_tokens_to_ids(tokens)]


def stand_ins() -> dict[str, ModuleType]:
    """What the scripts import of TensorFlow: flags with their defaults, files, logging."""
    given = SimpleNamespace()

    def define(name: str, default: Any, about: str) -> None:
        setattr(given, name, default)

    tensorflow = ModuleType("tensorflow")
    kinds = {f"DEFINE_{kind}": define for kind in ("string", "bool", "integer", "float")}
    tensorflow.flags = SimpleNamespace(FLAGS=given, **kinds)  # type: ignore[attr-defined]
    tensorflow.gfile = SimpleNamespace(GFile=open)  # type: ignore[attr-defined]
    tensorflow.logging = SimpleNamespace(info=lambda *given: None)  # type: ignore[attr-defined]
    compat = ModuleType("tensorflow.compat")
    return {
        "tensorflow": tensorflow,
        "tensorflow.compat": compat,
        "tensorflow.compat.v1": tensorflow,
        "tensorflow_hub": ModuleType("tensorflow_hub"),
    }


def runs(script: ModuleType, tokenizer: _Recording, text: Path, settings: Sequence[dict[str, Any]]) -> Iterator[dict]:
    """The facts of each run of the script's own create_training_instances."""
    defaults = dict(vars(script.FLAGS))
    for setting in settings:
        vars(script.FLAGS).update(defaults | setting)
        flags = script.FLAGS
        np.random.seed(setting.get("numpy_seed", 0))  # noqa: NPY002  # the script draws from the global generator
        made = script.create_training_instances(
            [str(text)],
            tokenizer,
            flags.max_seq_length,
            flags.dupe_factor,
            flags.short_seq_prob,
            flags.masked_lm_prob,
            flags.max_predictions_per_seq,
            random.Random(flags.random_seed),
        )
        instances = [
            (
                tokenizer.ids(one.tokens),
                list(one.segment_ids),
                int(one.is_random_next),
                list(one.masked_lm_positions),
                tokenizer.ids(one.masked_lm_labels),
            )
            for one in made
        ]
        yield {"flags": setting, **facts(instances)}
    vars(script.FLAGS).update(defaults)


def corpus(script: ModuleType, tokenizer: Any, text: Path, settings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The documents as the script's tokenizer gave them, and each run over them."""
    once = _Recording(tokenizer)  # each run reads the text again
    list(runs(script, once, text, settings[:1]))
    documents = [document for document in once.documents if document]
    return {"documents": documents, "runs": list(runs(script, _Recording(tokenizer), text, settings))}


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("shared", type=Path)
    given = parser.parse_args()
    sys.modules.update(stand_ins())
    found: dict[str, Any] = {"made_by": "python -m tests.golden.reference, bert at eedf571, albert at b772393"}
    with TemporaryDirectory() as folder:
        text, vocab = Path(folder, "text.txt"), Path(folder, "vocab.txt")
        text.write_text(made_up_text(), encoding="utf-8")
        vocab.write_text("\n".join(PIECES) + "\n", encoding="utf-8")
        sample = given.shared / "downstream" / "fixtures" / "bert" / "sample_text.txt"
        published = str(given.shared / "tokenizers" / "bert-uncased" / "vocab.txt")
        model = str(given.shared / "tokenizers" / "albert" / "spiece.model")

        sys.path.insert(0, str(given.checkouts / "bert"))
        script = importlib.import_module("create_pretraining_data")
        words = script.tokenization.FullTokenizer
        found["bert made up"] = corpus(script, words(str(vocab)), text, BERT_RUNS)
        found["bert sample"] = corpus(script, words(published), sample, BERT_RUNS)

        vars(sys.modules["tensorflow"].flags.FLAGS).clear()
        sys.path[0] = str(given.checkouts)
        script = importlib.import_module("albert.create_pretraining_data")
        words = script.tokenization.FullTokenizer
        found["albert made up"] = corpus(script, words(str(vocab)), text, ALBERT_RUNS)
        found["albert sample"] = corpus(script, words(published), sample, ALBERT_RUNS)
        script.FLAGS.spm_model_file = model
        pieces = words(None, spm_model_file=model)
        found["albert sample pieces"] = corpus(script, pieces, sample, ALBERT_RUNS)
    for name in ("albert made up", "albert sample"):
        if found[name]["documents"] != found[name.replace("albert", "bert")]["documents"]:
            raise SystemExit(f"{name}: other documents than BERT's")
        del found[name]["documents"]
    FILE.write_text(
        json.dumps(found, separators=(",", ":")).replace('"runs"', '\n"runs"').replace('{"flags"', '\n{"flags"') + "\n"
    )


if __name__ == "__main__":
    main()
