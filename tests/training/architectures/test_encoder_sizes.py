"""Encoders of published sizes: their numbers of weights, reference/family.md B2.6 and D4, on the meta device."""

from typing import Any

import pytest
import torch

from training.losses import MaskedTokens, SentencePair, SpanBoundary
from training.model import Model
from training.specs import Encoder, LearnedPositions, SlidingWindow

BOTH = (MaskedTokens(), SentencePair())
PLAIN = (MaskedTokens(transform=False),)


def encoder(layers: int, width: int, heads: int, **keys: Any) -> Encoder:
    return Encoder(num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads, **keys)


ALBERTS = {"embedding_size": 128, "parameter_sharing": "all"}
ROBERTAS = {"position_embedding": LearnedPositions(max_position_embeddings=514, offset=2), "type_vocab_size": 1}
WINDOW = SlidingWindow(size=512, global_tokens="first")
LONG = {
    "position_embedding": LearnedPositions(max_position_embeddings=4098, offset=2),
    "type_vocab_size": 1,
    "attention_window": WINDOW,
}
XLMS = {"type_vocab_size": 0}
BOUNDARY = (MaskedTokens(), SpanBoundary())
SIZES = {  # trunk, vocabulary, weights without heads (with BERT's pooler), losses, weights with their heads
    "bert-base-uncased": (encoder(12, 768, 12), 30_522, 109_482_240, BOTH, 110_106_428),
    "bert-base-cased": (encoder(12, 768, 12), 28_996, 108_310_272, BOTH, 108_932_934),
    "bert-large-uncased": (encoder(24, 1024, 16), 30_522, 335_141_888, BOTH, 336_226_108),
    "bert-large-cased": (encoder(24, 1024, 16), 28_996, 333_579_264, BOTH, 334_661_958),
    "bert-tiny": (encoder(2, 128, 2), 30_522, 4_385_920, BOTH, 4_433_468),
    "bert-mini": (encoder(4, 256, 4), 30_522, 11_170_560, BOTH, 11_267_900),
    "bert-small": (encoder(4, 512, 8), 30_522, 28_763_648, BOTH, 29_058_876),
    "bert-medium": (encoder(8, 512, 8), 30_522, 41_373_184, BOTH, 41_668_412),
    "bert-wwm-zh": (encoder(12, 768, 12), 21_128, 102_267_648, BOTH, 102_882_442),
    "ernie": (
        encoder(12, 768, 12, position_embedding=LearnedPositions(max_position_embeddings=513)),
        18_000,
        99_866_112,
        BOTH,
        100_477_778,
    ),
    "roberta-base": (encoder(12, 768, 12, **ROBERTAS), 50_265, 124_645_632, (MaskedTokens(),), 124_697_433),
    "roberta-large": (encoder(24, 1024, 16, **ROBERTAS), 50_265, 355_359_744, (MaskedTokens(),), 355_412_057),
    # the published sum also counts BERT's pooler, which no loss trains
    "spanbert-base": (encoder(12, 768, 12), 28_996, 108_310_272, BOUNDARY, 110_891_072 - 590_592),
    "spanbert-large": (encoder(24, 1024, 16), 28_996, 333_579_264, BOUNDARY, 338_048_576 - 1_049_600),
    "albert-base": (encoder(12, 768, 12, **ALBERTS), 30_000, 11_683_584, BOTH, 11_813_810),
    "albert-large": (encoder(24, 1024, 16, **ALBERTS), 30_000, 17_683_968, BOTH, 17_847_474),
    "albert-xlarge": (encoder(24, 2048, 16, **ALBERTS), 30_000, 58_724_864, BOTH, 59_021_490),
    "albert-xxlarge": (encoder(12, 4096, 64, **ALBERTS), 30_000, 222_595_584, BOTH, 223_158_450),
    "xlm-en-2048": (encoder(12, 2048, 16, **XLMS), 30_145, 667_088_896, PLAIN, 667_119_041),
    "xlm-xnli15-1024": (encoder(12, 1024, 8, num_languages=15, **XLMS), 95_000, 248_976_384, PLAIN, 249_071_384),
    "xlm-enfr-1024": (encoder(6, 1024, 8, num_languages=2, **XLMS), 64_139, None, PLAIN, 141_848_203),
    "megatron-bert-345m": (encoder(24, 1024, 16, norm_position="pre"), 29_056, 333_640_704, BOTH, 334_723_458),
    "longformer-base": (encoder(12, 768, 12, **LONG), 50_265, 148_659_456, (MaskedTokens(),), 148_711_257),
    "longformer-large": (encoder(24, 1024, 16, **LONG), 50_265, 434_600_960, (MaskedTokens(),), None),
    "unilm-large": (
        encoder(24, 1024, 16, type_vocab_size=6, attention_mask="per_sequence"),
        28_996,
        None,
        BOTH,
        334_666_054,
    ),
}


@pytest.mark.parametrize("name", SIZES)
def test_model_has_the_published_number_of_weights(name: str) -> None:
    trunk, vocab_size, body, losses, whole = SIZES[name]
    with torch.device("meta"):
        model = Model(trunk, losses, vocab_size, seed=0)
    assert whole is None or model.num_parameters == whole
    # A published trunk includes the pooler of the pair head, which has the size of one linear layer; XLM has no pooler.
    pooler = (trunk.hidden_size + 1) * trunk.hidden_size if trunk.type_vocab_size else 0
    found = sum(weight.numel() for weight in model.trunk.parameters()) + pooler
    assert body is None or found == body


@pytest.mark.parametrize(
    ("embedding", "sharing", "count"),
    [
        (128, "all", 11_683_584),
        (128, "attention", 63_647_232),
        (128, "feed_forward", 37_686_528),
        (128, "none", 89_650_176),
        (768, "all", 31_114_752),
        (768, "attention", 83_078_400),
        (768, "feed_forward", 57_117_696),
        (768, "none", 109_081_344),
        (64, "all", 9_681_408),
        (256, "all", 15_687_936),
        (64, "none", 87_648_000),
        (256, "none", 93_654_528),
    ],
)
def test_albert_has_the_published_sizes_for_each_parameter_sharing(embedding: int, sharing: Any, count: int) -> None:
    """ALBERT 4.4 and 4.5: embeddings as wide as the blocks (768) need no projection to the hidden size."""
    with torch.device("meta"):
        model = Model(encoder(12, 768, 12, embedding_size=embedding, parameter_sharing=sharing), BOTH, 30_000, seed=0)
    pooler = sum(weight.numel() for weight in model.heads["pair_label"].pooler.parameters())
    assert sum(weight.numel() for weight in model.trunk.parameters()) + pooler == count


def test_more_groups_have_more_weights() -> None:
    with torch.device("meta"):
        one, two = (
            Model(encoder(12, 768, 12, **ALBERTS, num_hidden_groups=groups), BOTH, 30_000, seed=0) for groups in (1, 2)
        )
    assert two.num_parameters - one.num_parameters == 2_363_904 + 4_723_968
