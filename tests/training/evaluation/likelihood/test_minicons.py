"""minicons gives the same pseudo-log-likelihoods of texts.

minicons is not a dependency: `make witness` runs this test, with minicons 0.3.39.
"""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from preprocessing.tokenization import Vocab, WordPiece, vocab_from_file
from tests.training.parity import built, hf, loaded, weights
from training.evaluation.likelihood import PSEUDO_KINDS, PseudoKind, Request
from training.evaluation.likelihood.models import score_masked
from training.formats import to_transformers
from training.losses import MaskedTokens
from training.model import Model
from training.model_spec import ModelSpec
from training.specs import Encoder, LearnedPositions

pytestmark = [pytest.mark.shared, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
TRUNK = Encoder(
    num_hidden_layers=2,
    hidden_size=64,
    num_attention_heads=4,
    position_embedding=LearnedPositions(max_position_embeddings=128),
)


@pytest.fixture(scope="module")
def net(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Vocab, Path]:
    """A random BERT with BERT's vocabulary, and its directory for transformers."""
    folder = tmp_path_factory.mktemp("net")
    vocab = vocab_from_file(WordPiece(path=str(shared / "tokenizers/bert-uncased/vocab.txt")))
    model = built(ModelSpec(model=TRUNK, losses=(MaskedTokens(),), vocab_size=vocab.size))
    vocab.save(folder / "vocab")
    (folder / "net").mkdir()
    to_transformers(weights(model), model.spec, folder / "vocab", folder / "net")
    return model, vocab, folder / "net"


def sentences(archive: Path) -> list[str]:
    """One pair from each set of BLiMP, and a few texts with rare and joined words."""
    with zipfile.ZipFile(archive) as opened:
        names = sorted(name for name in opened.namelist() if name.startswith("data/") and name.endswith(".jsonl"))
        pairs = [json.loads(opened.read(name).split(b"\n")[7]) for name in names]
    found = [pair[f"sentence_{which}"] for pair in pairs for which in ("good", "bad")]
    return [*found, "Antidisestablishmentarianism won't stop-and-go.", "souvenirs"]


@pytest.mark.parametrize("kind", PSEUDO_KINDS)
def test_texts_have_the_pseudo_log_likelihoods_of_minicons(
    kind: PseudoKind, net: tuple[Model, Vocab, Path], shared: Path
) -> None:
    scorer = pytest.importorskip("minicons.scorer")
    model, vocab, folder = net
    tokenizer: Any = hf().AutoTokenizer.from_pretrained(folder)
    # the released wheel calls this method
    type(tokenizer).batch_encode_plus = lambda self, *given, **keys: self(*given, **keys)
    theirs = scorer.MaskedLMScorer(loaded(folder), "cpu", tokenizer=tokenizer)
    texts = sentences(shared / "downstream/blimp/BLiMP.zip")
    wanted = [
        theirs.sequence_score([text], PLL_metric=kind, reduction=lambda nats: nats.sum(0).item())[0] for text in texts
    ]
    found = score_masked(model, vocab, [Request("", text) for text in texts], kind=kind)
    off = max(abs(one.nats - other) for one, other in zip(found, wanted, strict=True))
    print(f"{kind}: {len(texts)} texts, largest difference {off:.1e}")
    assert off < 1e-4
