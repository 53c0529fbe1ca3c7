"""Each trunk, and its positions, windows and embeddings, state their own facts: no other module lists the kinds."""

import json
import subprocess
import sys
from dataclasses import asdict, is_dataclass, replace
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from preprocessing.spec import part
from tests import facts
from tests.training import modern
from tests.training.batches import collate_unpadded, random_rows
from training.architectures import NETS, build
from training.losses import Loss, MaskedTokens, NextToken
from training.model import Model
from training.specs import (
    AdaptiveEmbedding,
    AlibiPositions,
    AlternatingWindow,
    Architecture,
    ArchitecturePart,
    AttentionKind,
    AttentionPart,
    AttentionWindow,
    BatchWork,
    CausalSlidingWindow,
    Decoder,
    DisentangledPositions,
    Encoder,
    EncoderAlternatingWindow,
    EncoderDecoder,
    FeedForwardKind,
    FeedForwardPart,
    FullAttention,
    GatedAttention,
    GatedFeedForward,
    GeneratorDiscriminator,
    LearnedPositions,
    LinearScaling,
    Llama3Scaling,
    NoScaling,
    PlainAttention,
    PlainEmbedding,
    PlainFeedForward,
    PositionEmbedding,
    RelativeBias,
    RelativePositions,
    RopeScaling,
    RotaryPositions,
    ScalingPart,
    Seq2SeqLearnedPositions,
    Seq2SeqSinusoidalPositions,
    SinusoidalPositions,
    SlidingWindow,
    TokenEmbedding,
    TwoStream,
    TwoStreamRelativePositions,
    YarnScaling,
)

SIZES: dict[str, Any] = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4}
SMALL: dict[str, Any] = SIZES | {"hidden_dropout": 0.0, "attention_dropout": 0.0, "init_std": 0.2}
ADAPTIVE = AdaptiveEmbedding(cutoffs=(10, 20), div_val=2)
TRUNKS: tuple[Architecture, ...] = (
    Encoder(**SIZES),
    Encoder(
        **SIZES, position_embedding=SinusoidalPositions(), embedding_size=16, parameter_sharing="all", num_languages=3
    ),
    Encoder(**SIZES, attention_window=SlidingWindow(size=4, global_tokens="first")),
    Decoder(**SIZES),
    Decoder(
        **SIZES,
        position_embedding=LearnedPositions(max_position_embeddings=64),
        attention_window=AlternatingWindow(size=3),
    ),
    Decoder(**SIZES, norm_position="post", position_embedding=RelativePositions(mem_len=8), token_embedding=ADAPTIVE),
    EncoderDecoder(**SIZES),
    EncoderDecoder(**SIZES, position_embedding=RelativeBias(), norm_position="pre", norm_type="rmsnorm"),
    EncoderDecoder(**SIZES, position_embedding=Seq2SeqSinusoidalPositions()),
    TwoStream(**SIZES, position_embedding=TwoStreamRelativePositions(mem_len=8, reuse_len=4)),
    GeneratorDiscriminator(**SIZES, generator_size_ratio=0.5),
    GeneratorDiscriminator(**SIZES, generator_size_ratio=1.0, sample_from="frozen"),
    *modern.TRUNKS.values(),
    GeneratorDiscriminator(
        **SIZES,
        generator_num_hidden_layers=1,
        position_embedding=DisentangledPositions(),
        weight_sharing="disentangled",
    ),
)
POSITIONS: tuple[PositionEmbedding, ...] = (
    LearnedPositions(max_position_embeddings=8),
    LearnedPositions(max_position_embeddings=8, offset=2),
    Seq2SeqLearnedPositions(max_position_embeddings=8),
    SinusoidalPositions(),
    Seq2SeqSinusoidalPositions(),
    RelativePositions(mem_len=4, same_length=True),
    TwoStreamRelativePositions(),
    RelativeBias(),
    RotaryPositions(partial_rotary_factor=0.25),
    AlibiPositions(),
    DisentangledPositions(),
)
WINDOWS: tuple[AttentionWindow, ...] = (
    FullAttention(),
    SlidingWindow(size=4),
    SlidingWindow(size=4, global_tokens="first"),
    AlternatingWindow(size=3),
    CausalSlidingWindow(size=8),
    EncoderAlternatingWindow(size=4),
)
ATTENTIONS: tuple[AttentionKind, ...] = (PlainAttention(), GatedAttention())
FEED_FORWARDS: tuple[FeedForwardKind, ...] = (PlainFeedForward(), GatedFeedForward())
SCALINGS: tuple[RopeScaling, ...] = (
    NoScaling(),
    LinearScaling(factor=2.0),
    Llama3Scaling(factor=8.0, original_max_position_embeddings=16),
    YarnScaling(factor=4.0, original_max_position_embeddings=16),
)
TABLES: tuple[TokenEmbedding, ...] = (PlainEmbedding(), ADAPTIVE)
INNER = (
    [(one, PositionEmbedding) for one in POSITIONS]
    + [(one, AttentionWindow) for one in WINDOWS]
    + [(one, TokenEmbedding) for one in TABLES]
    + [(one, AttentionPart) for one in ATTENTIONS]
    + [(one, FeedForwardPart) for one in FEED_FORWARDS]
    + [(one, ScalingPart) for one in SCALINGS]
)

every_trunk = pytest.mark.parametrize("trunk", TRUNKS, ids=lambda trunk: trunk.describe())
every_inner_part = pytest.mark.parametrize(("inner", "protocol"), INNER, ids=repr)


def test_every_trunk_of_the_union_is_tested() -> None:
    facts.assert_covers(TRUNKS, Architecture)


def test_all_positions_windows_and_embeddings_are_tested() -> None:
    allowed = {kind for trunk in get_args(Architecture) for kind in inner_kinds(trunk)}
    assert {type(inner) for inner, _ in INNER} == allowed


def inner_kinds(member: Any) -> set[type]:
    """The classes of parts that may be nested in a class of parts, at any depth."""
    hints = [hint for hint in get_type_hints(member).values() if hint is not None]
    hints = [get_args(hint)[0] if get_origin(hint) is ClassVar else hint for hint in hints]
    found = {kind for hint in hints for kind in (get_args(hint) or (hint,)) if is_dataclass(kind)}
    return found | {deeper for kind in found for deeper in inner_kinds(kind)}


@every_trunk
def test_every_trunk_has_every_fact(trunk: Architecture) -> None:
    facts.assert_every_fact(trunk, ArchitecturePart)


@every_inner_part
def test_every_nested_part_of_a_trunk_has_every_fact(inner: Any, protocol: Any) -> None:
    facts.assert_every_fact(inner, protocol)


@every_trunk
def test_a_scale_sets_only_keys_of_the_trunk(trunk: Architecture) -> None:
    facts.assert_shrinks_its_keys(trunk)


@every_inner_part
def test_a_scale_sets_only_keys_of_the_nested_part(inner: Any, protocol: Any) -> None:
    facts.assert_shrinks_its_keys(inner)


def test_trunks_of_different_kinds_have_different_descriptions() -> None:
    facts.assert_described(TRUNKS)


@pytest.mark.parametrize("parts", [POSITIONS, WINDOWS, TABLES, ATTENTIONS, FEED_FORWARDS, SCALINGS])
def test_parts_of_different_kinds_have_different_descriptions(parts: tuple[Any, ...]) -> None:
    facts.assert_described(parts)


@every_trunk
def test_all_descriptions_of_a_trunk_are_one_line(trunk: Architecture) -> None:
    names = [name for name in facts.facts_of(ArchitecturePart) if name.startswith("describe")]
    assert len(names) == 7
    for name in names:
        line = getattr(trunk, name)()
        assert 0 < len(line) < facts.LONGEST_LINE
        assert "\n" not in line


@pytest.mark.parametrize(
    ("trunk", "name", "words"),
    [
        (TRUNKS[0], "describe", "encoder, 2 layers, width 32, 4 heads, post-norm"),
        (TRUNKS[1], "describe_positions", "sinusoidal absolute positions"),
        (TRUNKS[1], "describe_sharing", "all parameters shared by all layers"),
        (TRUNKS[1], "describe_tables", "factorized token embeddings of size 16"),
        (TRUNKS[2], "describe_attention", "a sliding window of 4 tokens, with global attention on the first token"),
        (TRUNKS[4], "describe_attention", "a band of 3 tokens in every second layer"),
        (TRUNKS[5], "describe_memory", "a memory of 8 tokens"),
        (TRUNKS[5], "describe_tables", "adaptive token embeddings and softmax, with clusters that end at 10, 20"),
        (TRUNKS[7], "describe_positions", "relative position biases in 32 buckets"),
        (TRUNKS[7], "describe_norm", "RMSNorm"),
    ],
)
def test_descriptions_of_a_trunk_use_standard_terms(trunk: Architecture, name: str, words: str) -> None:
    assert getattr(trunk, name)() == words


def test_each_kind_has_its_own_position_in_the_table_of_models() -> None:
    places = [trunk.family for trunk in get_args(Architecture)]
    assert sorted(places) == list(range(len(places)))


@every_trunk
def test_the_work_of_a_trunk_grows_with_the_tokens(trunk: Architecture) -> None:
    work = BatchWork(tokens=8, squares=32, targets=2, source_tokens=8, source_squares=32, crossed=32)
    assert trunk.products(work) > 8 * 2 * SIZES["hidden_size"] ** 2


@every_trunk
def test_the_models_of_a_trunk_are_trunks_of_one_model(trunk: Architecture) -> None:
    for name in trunk.nets:
        net = trunk.net(name)
        assert net.nets == {"net"}
        assert net.table_width == trunk.table_width


@every_trunk
def test_a_trunk_survives_json(trunk: Architecture) -> None:
    assert part(Architecture, json.loads(json.dumps(asdict(trunk)))) == trunk


@every_trunk
def test_the_recipe_loader_reads_a_trunk_with_its_nested_parts(trunk: Architecture) -> None:
    assert TypeAdapter(type(trunk)).validate_json(json.dumps(asdict(trunk)), strict=True) == trunk


@pytest.mark.parametrize(
    ("positions", "key"),
    [
        ({"kind": "relative", "max_position_embeddings": 4}, "max_position_embeddings"),
        ({"kind": "learned", "max_position_embeddings": 9, "mem_len": 4}, "mem_len"),
        ({"kind": "relative_bias"}, "position_embedding"),
    ],
)
def test_unsupported_combinations_are_refused(positions: dict[str, Any], key: str) -> None:
    given = {"kind": "decoder", **SIZES, "norm_position": "post", "position_embedding": positions}
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(Decoder).validate_json(json.dumps(given), strict=True)
    (error,) = refused.value.errors()
    assert key in error["loc"]


def test_specs_do_not_import_torch() -> None:
    code = "import sys, training.specs; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Models.


@every_trunk
def test_a_trunk_is_built_by_exactly_one_class(trunk: Architecture) -> None:
    with torch.device("meta"):
        made = [net for kind in NETS if (net := kind.build(trunk, 50, MaskedTokens().head)) is not None]
    assert len(made) == 1
    assert isinstance(made[0], NETS)


@every_trunk
def test_a_model_without_a_memory_has_no_memory_state(trunk: Architecture) -> None:
    net = build(trunk, 50, MaskedTokens().head)
    net.load_memory_state({}, torch.device("cpu"))
    assert net.memory_state() == {}


@pytest.mark.parametrize(
    ("trunk", "loss"),
    [
        (Decoder(**SMALL, norm_position="post", position_embedding=RelativePositions(mem_len=8)), NextToken()),
        (TwoStream(**SMALL, position_embedding=TwoStreamRelativePositions(mem_len=8)), MaskedTokens()),
    ],
)
def test_a_memory_is_transferred_by_its_state(trunk: Architecture, loss: Loss) -> None:
    net, other = (Model(trunk, (loss,), 50, seed=0).trunk for _ in range(2))
    rows = random_rows([6, 6], 50)
    with torch.no_grad():
        net(with_memory(rows, fresh=True))
        other.load_memory_state(net.memory_state(), torch.device("cpu"))
        wanted, found, anew = (
            one(with_memory(rows, fresh)) for one, fresh in ((net, False), (other, False), (net, True))
        )
    assert torch.equal(found, wanted)
    assert not torch.equal(anew, wanted)


def with_memory(rows: Any, fresh: bool) -> dict[str, torch.Tensor]:
    """The sequences as a batch of slot 0. They continue the previous sequences, or start without a memory if
    `fresh`."""
    return collate_unpadded(rows) | {"slot": torch.tensor(0), "fresh": torch.full((len(rows),), fresh)}


def test_only_the_frozen_generator_of_electra_never_changes() -> None:
    assert {net.__name__: net.frozen_modules for net in NETS if net.frozen_modules} == {
        "GeneratorDiscriminatorModel": ("frozen",)
    }


def test_a_window_with_relative_positions_is_refused() -> None:
    relative = replace(Decoder(**SIZES), norm_position="post", position_embedding=RelativePositions())
    with pytest.raises(ValueError, match=r"invalid model.attention_window.kind: got 'alternating', expected full with"):
        replace(relative, attention_window=AlternatingWindow(size=3))
