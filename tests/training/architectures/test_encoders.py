"""Encoders compared with transformers: logits, losses, gradients, and exact export and import of weights."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.training.batches import collate_padded, collate_unpadded, random_rows
from tests.training.parity import (
    ONE_PAD,
    ZERO_PAD,
    built,
    gradients,
    hf,
    inside,
    labels_of,
    loaded,
    randomized,
    vocabulary,
    weights,
)
from training.architectures.layout import layout
from training.formats import FORMATS, describe_export, to_transformers
from training.formats.load import from_transformers
from training.losses import Loss, MaskedTokens, NextToken, SentencePair, SpanBoundary
from training.model import Model
from training.model_spec import ModelSpec
from training.specs import Encoder, LearnedPositions, SinusoidalPositions, SlidingWindow

TABLE = 320  # rows of the embedding table, more than any tokenizer here has tokens
RAGGED = [5, 12, 1, 7]
BERT = Encoder(
    num_hidden_layers=4,
    hidden_size=32,
    num_attention_heads=4,
    position_embedding=LearnedPositions(max_position_embeddings=16),
    hidden_dropout=0.0,
    attention_dropout=0.0,
    init_std=0.2,
)
BOTH = (MaskedTokens(), SentencePair())
ALBERT = replace(BERT, embedding_size=16, parameter_sharing="all", activation="gelu_tanh")
MEGATRON = replace(BERT, norm_position="pre")
ROBERTA = replace(
    BERT, position_embedding=LearnedPositions(max_position_embeddings=18, offset=2), type_vocab_size=1, norm_eps=1e-5
)
LONGFORMER = replace(ROBERTA, attention_window=SlidingWindow(size=4, global_tokens="first"))
XLM = replace(BERT, type_vocab_size=0, num_languages=3)
PLAIN = (MaskedTokens(transform=False),)


def spec_of(trunk: Encoder, *losses: Loss) -> ModelSpec:
    return ModelSpec(model=trunk, losses=losses, vocab_size=TABLE)


SPECS = {
    "bert": spec_of(BERT, *BOTH),
    "bert, other sizes": spec_of(
        replace(BERT, num_hidden_layers=5, num_attention_heads=8, intermediate_size=64), *BOTH
    ),
    "ernie": spec_of(
        replace(
            BERT, activation="relu", norm_eps=1e-5, position_embedding=LearnedPositions(max_position_embeddings=17)
        ),
        *BOTH,
    ),
    "albert": spec_of(ALBERT, *BOTH),
    "albert without pairs": spec_of(ALBERT, MaskedTokens()),
    "albert in groups": spec_of(replace(ALBERT, num_hidden_groups=2), *BOTH),
    "albert, nothing shared": spec_of(replace(ALBERT, parameter_sharing="none"), *BOTH),
    "albert, attention shared": spec_of(replace(ALBERT, parameter_sharing="attention"), *BOTH),
    "albert, feed-forward shared in groups": spec_of(
        replace(ALBERT, parameter_sharing="feed_forward", num_hidden_groups=2), *BOTH
    ),
    "albert with wide tables": spec_of(replace(ALBERT, embedding_size=0), *BOTH),
    "megatron": spec_of(MEGATRON, *BOTH),
    "megatron without pairs": spec_of(MEGATRON, MaskedTokens()),
    "roberta": spec_of(ROBERTA, MaskedTokens()),
    "longformer": spec_of(LONGFORMER, MaskedTokens()),
    "xlm": spec_of(XLM, *PLAIN),
    "xlm, sinusoids": spec_of(replace(XLM, position_embedding=SinusoidalPositions(max_position_embeddings=16)), *PLAIN),
    "xlm, one language": spec_of(replace(XLM, num_languages=0, activation="relu"), *PLAIN),
    "xlm, causal": spec_of(replace(XLM, attention_mask="causal"), NextToken(bias=True)),
}
COPIED = ("albert, attention shared", "albert, feed-forward shared in groups", "albert with wide tables")


def batches(spec: ModelSpec) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Random sequences, unpadded and padded, without padding ids. XLM's have languages, and positions that restart in
    the middle (TLM)."""
    trunk, pad = spec.model, pad_of(spec)
    rows = [row | {"input_ids": row["input_ids"] + 2} for row in random_rows(RAGGED, spec.vocab_size - 2)]
    for row in rows:
        half = len(row["input_ids"]) // 2
        if trunk.type_vocab_size < 2:
            row["token_type_ids"] = row["token_type_ids"] * 0
        if not trunk.type_vocab_size:
            row["languages"] = (torch.arange(len(row["input_ids"])) >= half).numpy() * 2
            row["positions"] = torch.cat([torch.arange(half), torch.arange(len(row["input_ids"]) - half)]).numpy()
        if not any(loss.kind == "sentence_pair" for loss in spec.losses):
            del row["next_sentence_label"]
    return collate_unpadded(rows), collate_padded(rows, 14, pad=pad)


def pad_of(spec: ModelSpec) -> int:
    return max(0, spec.model.position_embedding.offset - 1)


def oracle_output(oracle: Any, batch: dict[str, Tensor]) -> Any:
    """The output of transformers for a padded batch, with its loss."""
    given: dict[str, Tensor] = {"attention_mask": inside(batch).long(), "labels": labels_of(batch)}
    match oracle.config.model_type:
        case "xlm":
            given |= {"langs": batch["languages"], "position_ids": batch["positions"]}
        case "longformer":
            given["global_attention_mask"] = (torch.arange(14) == 0).long().expand_as(batch["input_ids"])
        case _:
            given["token_type_ids"] = batch["token_type_ids"]
    if "next_sentence_label" in batch:
        name = "sentence_order_label" if oracle.config.model_type == "albert" else "next_sentence_label"
        given[name] = batch["next_sentence_label"]
    return oracle(input_ids=batch["input_ids"], **given)


def our_logits(model: Model, batch: dict[str, Tensor]) -> list[Tensor]:
    """Logits over the vocabulary at each token, and the pair logits of each sequence, of an unpadded batch."""
    hidden_TD, heads = model.trunk(batch), model.heads
    head = heads["masked_tokens"] if "masked_tokens" in heads else heads["next_token"]
    features = head.features(hidden_TD) if "masked_tokens" in heads else hidden_TD
    logits = [F.linear(features, model.trunk.table, head.bias)]
    if "pair_label" in heads:
        logits.append(heads["pair_label"].logits(hidden_TD[batch["first_at"]]))
    return logits


def their_logits(output: Any, batch: dict[str, Tensor]) -> list[Tensor]:
    if "prediction_logits" not in output:
        return [output.logits[inside(batch)]]
    pair = output.sop_logits if "sop_logits" in output else output.seq_relationship_logits
    return [output.prediction_logits[inside(batch)], pair]


def format_of(oracle: Any) -> Any:
    return next(format for format in FORMATS if format.model_type == oracle.config.model_type)


def mean_loss(model: Model, batch: dict[str, Tensor]) -> Tensor:
    return sum((score.loss / score.count for score in model(batch).values()), torch.zeros(()))


@pytest.fixture(scope="module")
def vocabs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Vocabularies, indexed by their padding ID."""
    return [vocabulary(kind, tmp_path_factory.mktemp("vocab")) for kind in (ZERO_PAD, ONE_PAD)]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", SPECS)
def test_transformers_computes_our_logits_loss_and_gradients(name: str, vocabs: list[Path], tmp_path: Path) -> None:
    spec = SPECS[name]
    model = built(spec)
    to_transformers(weights(model), spec, vocabs[pad_of(spec)], tmp_path)
    oracle, (ours, theirs) = loaded(tmp_path), batches(spec)
    output = oracle_output(oracle, theirs)
    torch.testing.assert_close(our_logits(model, ours), their_logits(output, theirs), rtol=0, atol=1e-5)
    loss = mean_loss(model, ours)
    torch.testing.assert_close(loss, output.loss, rtol=1e-6, atol=1e-5)
    loss.backward()
    output.loss.backward()
    found, wanted = gradients(model), gradients(oracle)
    if name in COPIED:
        wanted = sum_of_copies(wanted, found, spec, format_of(oracle))
    else:
        found = format_of(oracle).theirs(found, spec)
        for key in untrained(spec):
            del wanted[key]
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)


def untrained(spec: ModelSpec) -> list[str]:
    """Weights that are fixed here but trained by their class: XLM's sinusoids."""
    return ["transformer.position_embeddings.weight"] if spec.model.position_embedding.kind == "sinusoidal" else []


def sum_of_copies(
    wanted: dict[str, Tensor], found: dict[str, Tensor], spec: ModelSpec, format: Any
) -> dict[str, Tensor]:
    """Gradients of their copies, summed if our model shares the weight."""
    total = {name: torch.zeros_like(gradient) for name, gradient in found.items()}
    one = replace(spec, model=replace(spec.model, parameter_sharing="none", num_hidden_groups=1))
    for name in total:
        for copy in {name_in_block(name, number, spec.model) for number in range(spec.model.num_hidden_layers)}:
            total[name] += format.ours(wanted, one, [copy])[copy]
    return total


def name_in_block(name: str, number: int, trunk: Encoder) -> str:
    """The name of a weight in block `number` if that block shares it; else the name itself."""
    parts = name.split(".")
    if parts[1] != "blocks" or not parts[3].startswith(trunk.parameter_sharing):
        return name
    group = [i * trunk.num_hidden_groups // trunk.num_hidden_layers for i in (int(parts[2]), number)]
    return ".".join([*parts[:2], str(number) if group[0] == group[1] else parts[2], *parts[3:]])


@pytest.mark.parametrize("name", SPECS)
def test_exported_weights_are_imported_bit_for_bit(name: str, vocabs: list[Path], tmp_path: Path) -> None:
    spec = SPECS[name]
    state = weights(built(spec))
    to_transformers(state, spec, vocabs[pad_of(spec)], tmp_path)
    found, back = from_transformers(tmp_path)
    trunk = replace(spec.model, intermediate_size=0 if name.startswith("xlm") else spec.model.inner_width)
    if name.startswith("albert, "):  # the copies are imported as separate weights
        trunk = replace(trunk, parameter_sharing="none", num_hidden_groups=1)
    assert found == replace(spec, model=trunk)
    assert state.keys() <= back.keys()
    assert all(torch.equal(tensor, back[key]) for key, tensor in state.items())


NAMES = (
    "ErnieForPreTraining",
    "AlbertForPreTraining",
    "MegatronBertForPreTraining",
    "LongformerForMaskedLM",
    "XLMWithLMHeadModel",
    "XLMRobertaForMaskedLM",
)


def config_of(name: str) -> Any:
    """The configuration of transformers for the class of this name."""
    configs = {
        "ErnieForPreTraining": hf().ErnieConfig(
            vocab_size=TABLE, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
            max_position_embeddings=513, hidden_act="relu", layer_norm_eps=1e-5, use_task_id=False,
        ),
        "AlbertForPreTraining": hf().AlbertConfig(
            vocab_size=TABLE, embedding_size=16, hidden_size=32, num_hidden_layers=6, num_hidden_groups=3,
            num_attention_heads=4, intermediate_size=64, hidden_act="gelu_new", max_position_embeddings=16,
        ),
        "MegatronBertForPreTraining": hf().MegatronBertConfig(
            vocab_size=TABLE, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128
        ),
        "LongformerForMaskedLM": hf().LongformerConfig(
            vocab_size=TABLE, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
            attention_window=[6, 6], type_vocab_size=1, max_position_embeddings=40,
        ),
        "XLMWithLMHeadModel": hf().XLMConfig(
            vocab_size=TABLE, emb_dim=32, n_layers=2, n_heads=4, n_langs=3, max_position_embeddings=16, pad_token_id=0
        ),
        "XLMRobertaForMaskedLM": hf().XLMRobertaConfig(
            vocab_size=TABLE, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
            type_vocab_size=1, max_position_embeddings=40, layer_norm_eps=1e-5,
        ),
    }  # fmt: skip
    return configs[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_model_of_transformers_has_the_same_logits_after_import(name: str, tmp_path: Path) -> None:
    config = config_of(name)
    config._attn_implementation = "eager"
    oracle = getattr(hf(), name)(config)
    randomized(oracle)
    oracle.save_pretrained(tmp_path)
    spec, state = from_transformers(tmp_path)
    model = Model(spec.model, spec.losses, spec.vocab_size, seed=0).eval()
    model.load_state_dict(state, strict=False)
    ours, theirs = batches(spec)
    with torch.no_grad():
        found, wanted = our_logits(model, ours), their_logits(oracle_output(oracle, theirs), theirs)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["ErnieForPreTraining", "ErnieForMaskedLM"])
def test_ernie_s_classes_compute_our_logits_loss_and_gradients(name: str, tmp_path: Path) -> None:
    config = config_of("ErnieForPreTraining")
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    config._attn_implementation = "eager"
    oracle = getattr(hf(), name)(config)
    randomized(oracle)
    oracle.save_pretrained(tmp_path)
    spec, state = from_transformers(tmp_path)
    assert [loss.kind for loss in spec.losses] == ["masked_tokens", "sentence_pair"][
        : 1 + (name == "ErnieForPreTraining")
    ]
    model = Model(spec.model, spec.losses, spec.vocab_size, seed=0).eval()
    model.load_state_dict(state, strict=False)
    ours, theirs = batches(spec)
    output, loss = oracle_output(oracle, theirs), mean_loss(model, ours)
    torch.testing.assert_close(our_logits(model, ours), their_logits(output, theirs), rtol=0, atol=1e-5)
    torch.testing.assert_close(loss, output.loss, rtol=1e-6, atol=1e-5)
    loss.backward()
    output.loss.backward()
    found, wanted = format_of(oracle).theirs(gradients(model), spec), gradients(oracle)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)


def test_names_of_ernie_weights_are_converted_both_ways() -> None:
    ernie = next(format for format in FORMATS if format.model_type == "ernie")
    spec, state = SPECS["ernie"], weights(built(SPECS["ernie"]))
    tensors = ernie.theirs(state, spec)
    assert all(name.startswith(("ernie.", "cls.")) for name in tensors)
    back = ernie.ours(tensors, spec, state)
    assert all(torch.equal(tensor, back[name]) for name, tensor in state.items())


# Attention masks given by the sequences (UniLM, arXiv:1905.03197).


def relation(mode: str, length: int) -> tuple[Tensor, Tensor]:
    """Rank and reach of each token of a sequence; a prefix is its first third."""
    at_S = torch.arange(length)
    match mode:
        case "full":
            rank_S = at_S * 0
        case "left to right":
            rank_S = at_S
        case "right to left":
            rank_S = -at_S
        case _:
            rank_S = at_S.where(at_S >= length // 3, torch.tensor(0))
    return rank_S, rank_S


def expected_mask(mode: str, length: int) -> Tensor:
    """The attention mask (rows: queries, columns: keys), written out."""
    seen_SS = torch.ones(length, length, dtype=torch.bool)
    match mode:
        case "left to right":
            return seen_SS.tril()
        case "right to left":
            return seen_SS.triu()
        case "prefix":
            seen_SS[:, length // 3 :] = False
            return (seen_SS | torch.ones(length, length, dtype=torch.bool).tril()) & (
                (torch.arange(length) < length // 3) | (torch.arange(length)[:, None] >= length // 3)
            )
        case _:
            return seen_SS


MODES = ["full", "left to right", "right to left", "prefix"]


def rows_of(modes: Sequence[str], lengths: Sequence[int]) -> list[dict[str, Any]]:
    rows = [row | {"input_ids": row["input_ids"] + 2} for row in random_rows(lengths, TABLE - 2)]
    for row, mode, length in zip(rows, modes, lengths, strict=True):
        row["rank"], row["reach"] = (column.numpy() for column in relation(mode, length))
    return rows


def expected_masks(modes: Sequence[str], lengths: Sequence[int], longest: int) -> Tensor:
    """Attention masks [B, S, S] of padded sequences: padding attends only to itself, and no token to padding."""
    seen_BSS = torch.eye(longest, dtype=torch.bool).repeat(len(lengths), 1, 1)
    for row_SS, mode, length in zip(seen_BSS, modes, lengths, strict=True):
        row_SS[:length, :length] = expected_mask(mode, length)
    return seen_BSS


def test_expected_mask_of_a_prefix() -> None:
    assert expected_mask("prefix", 6).int().tolist() == [
        [1, 1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 1, 0],
        [1, 1, 1, 1, 1, 1],
    ]


@pytest.mark.parametrize("in_rectangle", [False, True])
def test_layout_has_the_expected_mask_of_each_sequence(in_rectangle: bool) -> None:
    lengths = [6, 9, 4, 9]
    rows = rows_of(MODES, lengths)
    batch = collate_padded(rows, 9) if in_rectangle else collate_unpadded(rows)
    seen_BSS = layout(batch, "per_sequence").seen
    assert seen_BSS is not None
    here = torch.arange(9) < torch.tensor(lengths)[:, None]  # the mask of padding queries does not matter
    assert torch.equal(seen_BSS[:, 0][here], expected_masks(MODES, lengths, 9)[here])


def test_unilm_has_the_logits_and_gradients_of_bert_under_the_same_masks(vocabs: list[Path], tmp_path: Path) -> None:
    spec, lengths = spec_of(replace(BERT, attention_mask="per_sequence"), MaskedTokens()), [6, 12, 4, 9]
    model, rows = built(spec), rows_of(MODES, lengths)
    to_transformers(weights(model), spec, vocabs[0], tmp_path)
    oracle, batch = loaded(tmp_path), collate_padded(rows, 12)
    hidden = expected_masks(MODES, lengths, 12)[:, None].logical_not()
    additive = torch.zeros(hidden.shape).masked_fill(hidden, torch.finfo(torch.float32).min)
    output = oracle(
        input_ids=batch["input_ids"],
        token_type_ids=batch["token_type_ids"],
        attention_mask=additive,
        labels=labels_of(batch),
    )
    torch.testing.assert_close(
        our_logits(model, collate_unpadded(rows))[0], output.logits[inside(batch)], rtol=0, atol=1e-5
    )
    mean_loss(model, collate_unpadded(rows)).backward()
    output.loss.backward()
    torch.testing.assert_close(format_of(oracle).theirs(gradients(model), spec), gradients(oracle), rtol=0, atol=1e-5)


def test_left_to_right_equals_a_causal_encoder_and_full_equals_bert() -> None:
    lengths, by_rows = [6, 9, 4], built(spec_of(replace(BERT, attention_mask="per_sequence"), MaskedTokens())).trunk
    for mode, visibility in (("left to right", "causal"), ("full", "bidirectional")):
        batch = collate_unpadded(rows_of([mode] * 3, lengths))
        plain = built(spec_of(replace(BERT, attention_mask=visibility), MaskedTokens())).trunk
        torch.testing.assert_close(by_rows(batch), plain(batch), rtol=0, atol=1e-5)


def test_a_sequence_without_rank_and_reach_has_full_attention() -> None:
    batch = collate_unpadded(random_rows([6, 9, 4], TABLE))
    by_rows, plain = (
        built(spec_of(replace(BERT, attention_mask=v), MaskedTokens())).trunk for v in ("per_sequence", "bidirectional")
    )
    torch.testing.assert_close(by_rows(batch), plain(batch), rtol=0, atol=1e-5)


# Parameter sharing between layers (ALBERT, arXiv:1909.11942, 3.1).

SHARED = ["albert", "albert in groups", "albert, attention shared", "albert, feed-forward shared in groups"]


@pytest.mark.parametrize("name", SHARED)
def test_shared_model_equals_the_unshared_one_with_copies_and_sums_their_gradients(name: str) -> None:
    spec = SPECS[name]
    shared, batch = built(spec), batches(spec)[0]
    unshared = built(replace(spec, model=replace(spec.model, parameter_sharing="none", num_hidden_groups=1)))
    unshared.load_state_dict(shared.state_dict())  # a state_dict has the names of all layers, shared or not
    assert torch.equal(shared.trunk(batch), unshared.trunk(batch))
    for model in (shared, unshared):
        mean_loss(model, batch).backward()
    single = gradients(unshared)
    for name, weight in shared.named_parameters():
        aliases = [alias for alias, other in shared.named_parameters(remove_duplicate=False) if other is weight]
        torch.testing.assert_close(weight.grad, sum(single[alias] for alias in aliases), rtol=1e-5, atol=1e-5, msg=name)


def test_layers_of_a_group_are_the_same_object() -> None:
    blocks = Model(replace(ALBERT, num_hidden_layers=6, num_hidden_groups=2), BOTH, TABLE, seed=0).trunk.blocks
    assert len({id(block.attention.qkv.weight) for block in blocks}) == 2
    assert [block.feed_forward is blocks[0].feed_forward for block in blocks] == [True] * 3 + [False] * 3


def test_token_without_a_language_has_the_first_language() -> None:
    batch, trunk = collate_unpadded(random_rows([6, 9], TABLE)), built(SPECS["xlm"]).trunk
    assert torch.equal(trunk(batch), trunk(batch | {"languages": batch["input_ids"] * 0}))
    assert not torch.equal(trunk(batch), trunk(batch | {"languages": batch["input_ids"] * 0 + 1}))


def test_a_head_that_no_class_of_transformers_has_is_left_out_and_named(vocabs: list[Path], tmp_path: Path) -> None:
    spec = spec_of(replace(BERT, type_vocab_size=1), MaskedTokens(), SpanBoundary())
    model = built(spec)
    to_transformers(weights(model), spec, vocabs[0], tmp_path)
    assert describe_export(spec, pad=0).startswith("BertForMaskedLM, without its span_boundary head")
    assert isinstance(loaded(tmp_path), hf().BertForMaskedLM)
    found, back = from_transformers(tmp_path)
    assert found.losses == (MaskedTokens(),)
    assert all(torch.equal(tensor, weights(model)[name]) for name, tensor in back.items())
