"""Generation compared with transformers, and cached generation compared with uncached."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from preprocessing import tokenization
from preprocessing.collate import collate_unpadded
from preprocessing.errors import BadInput
from preprocessing.rng import key
from preprocessing.schema import IGNORE
from tests.training import modern
from tests.training.encoder_decoders import BART, MASS, MBART, PEGASUS, T5
from tests.training.encoder_decoders import VOCAB as TABLE
from tests.training.parity import ONE_PAD, built, loaded, vocabulary, weights
from training.engines import to_tensors
from training.evaluation.generation import (
    BeamSearch,
    GeneratedText,
    GenerationLimits,
    GreedyDecoding,
    MaskSlot,
    Method,
    Prompt,
    SampledDecoding,
    generate,
)
from training.formats import to_transformers
from training.losses import MaskedTokens, NextToken
from training.model import Model
from training.model_spec import ModelSpec
from training.specs import (
    AdaptiveEmbedding,
    AlternatingWindow,
    Architecture,
    Decoder,
    Encoder,
    LearnedPositions,
    RelativeBias,
    RelativePositions,
    Seq2SeqLearnedPositions,
    TwoStream,
)

LONGEST = 40
GPT2 = Decoder(
    num_hidden_layers=2,
    hidden_size=32,
    num_attention_heads=4,
    position_embedding=LearnedPositions(max_position_embeddings=LONGEST),
    hidden_dropout=0.0,
    attention_dropout=0.0,
    init_std=0.2,
)
GPT1 = replace(GPT2, norm_position="post")
TRUNKS: dict[str, Architecture] = {
    "gpt-1": GPT1,
    "gpt-2": GPT2,
    "opt": replace(
        GPT2,
        activation="relu",
        position_embedding=LearnedPositions(max_position_embeddings=LONGEST + 2, offset=2),
    ),
    "t5": T5,
    "mbart": replace(MBART, position_embedding=Seq2SeqLearnedPositions(max_position_embeddings=LONGEST + 2, offset=2)),
    "bart": replace(BART, position_embedding=Seq2SeqLearnedPositions(max_position_embeddings=LONGEST + 2, offset=2)),
}
XL = Decoder(
    num_hidden_layers=2,
    hidden_size=32,
    num_attention_heads=4,
    position_embedding=RelativePositions(),
    norm_position="post",
    activation="relu",
    hidden_dropout=0.0,
    init_std=0.2,
)
OTHERS: dict[str, Architecture] = {
    "transformer-xl": replace(XL, position_embedding=RelativePositions(mem_len=30, clamp_len=12)),
    "transformer-xl, no memory": XL,
    "transformer-xl, same length": replace(
        XL, position_embedding=RelativePositions(mem_len=8, eval_mem_len=6, eval_clamp_len=4)
    ),
    "transformer-xl, adaptive": replace(XL, token_embedding=AdaptiveEmbedding(cutoffs=(100, 200), div_val=2)),
    "xlnet": TwoStream(
        num_hidden_layers=3,
        hidden_size=32,
        num_attention_heads=4,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        type_vocab_size=3,
        init_std=0.2,
    ),
    "gpt-3": replace(
        GPT2,
        num_hidden_layers=4,
        position_embedding=LearnedPositions(max_position_embeddings=LONGEST),
        attention_window=AlternatingWindow(size=4),
    ),
    "pegasus": PEGASUS,
    "mass": replace(MASS, position_embedding=Seq2SeqLearnedPositions(max_position_embeddings=LONGEST)),
    **modern.DECODERS,
    "t5 1.1": modern.T5_1_1,
    "t5, far": replace(T5, position_embedding=RelativeBias(num_buckets=8, max_distance=6)),
}
END, START = 3, {"t5": 1, "t5 1.1": 1, "mbart": 1, "bart": 2}  # IDs in the vocabulary of this test: [PAD] and </s>
MANY = tuple(range(80))  # many end tokens, so that random models end sequences at all lengths
METHODS: dict[str, tuple[Method, GenerationLimits]] = {
    "greedy": (GreedyDecoding(), GenerationLimits(max_new_tokens=14, ends=(END,))),
    "greedy, limits": (
        GreedyDecoding(),
        GenerationLimits(
            max_new_tokens=14,
            min_new_tokens=5,
            ends=(END, 9),
            repetition_penalty=1.3,
            no_repeat_ngram_size=2,
            force_eos=True,
            barred=(7,),
        ),
    ),
    "beams": (BeamSearch(num_beams=3), GenerationLimits(max_new_tokens=12, ends=MANY)),
    "beams, long": (
        BeamSearch(num_beams=4, length_penalty=2.0),
        GenerationLimits(max_new_tokens=12, min_new_tokens=3, ends=(END, 11)),
    ),
    "beams, full": (
        BeamSearch(num_beams=2, length_penalty=0.5, stop="full"),
        GenerationLimits(max_new_tokens=12, ends=MANY),
    ),
    "beams, textbook": (
        BeamSearch(num_beams=3, length_penalty=0.0, stop="never"),
        GenerationLimits(max_new_tokens=12, ends=MANY),
    ),
    "beams, never": (BeamSearch(num_beams=3, stop="never"), GenerationLimits(max_new_tokens=12, ends=MANY)),
    "beams, limits": (
        BeamSearch(num_beams=3),
        GenerationLimits(
            max_new_tokens=12, ends=(END,), repetition_penalty=1.2, no_repeat_ngram_size=3, force_eos=True
        ),
    ),
}


def model_of(name: str) -> Model:
    trunk = (TRUNKS | OTHERS)[name]
    if isinstance(trunk, TwoStream):
        return built(ModelSpec(model=trunk, losses=(MaskedTokens(transform=False),), vocab_size=TABLE))
    return built(ModelSpec(model=trunk, losses=(NextToken(bias=name in OTHERS),), vocab_size=TABLE))


def prompts_of(name: str, lengths: Sequence[int] = (5, 2, 9, 1), seed: int = 0) -> list[Prompt]:
    """Prompts of these lengths; for encoder-decoders, sources of these lengths and a start token."""
    rng = np.random.default_rng(seed)
    texts = [rng.integers(4, TABLE, size=length) for length in lengths]
    if isinstance((TRUNKS | OTHERS)[name], Decoder | TwoStream):
        return [Prompt(text) for text in texts]
    return [Prompt(np.array([START.get(name, 2)]), text) for text in texts]


def assert_alike(found: list[GeneratedText], wanted: list[GeneratedText]) -> None:
    assert [row.ids.tolist() for row in found] == [row.ids.tolist() for row in wanted]
    assert [row.ended for row in found] == [row.ended for row in wanted]
    np.testing.assert_allclose([row.score for row in found], [row.score for row in wanted], atol=1e-4)


# With a cache and without one.


@pytest.mark.one_in(9)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", [*TRUNKS, *OTHERS])
def test_a_cache_does_not_change_the_tokens(name: str, method: str) -> None:
    how, limits = METHODS[method]
    model, prompts = model_of(name), prompts_of(name)
    cached = list(generate(model, prompts, limits, method=how))
    assert_alike(cached, list(generate(model, prompts, limits, method=how, cached=False)))
    assert all(1 <= len(row.ids) <= limits.max_new_tokens for row in cached)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", TRUNKS)
def test_a_sequence_does_not_depend_on_the_rest_of_its_batch(name: str, method: str) -> None:
    how, limits = METHODS[method]
    model, prompts = model_of(name), prompts_of(name)
    alone = list(generate(model, prompts, limits, method=how, batch=1))
    assert_alike(list(generate(model, prompts, limits, method=how)), alone)


@pytest.mark.parametrize("same_length", [False, True])
def test_a_cache_and_a_memory_drop_the_same_tokens(same_length: bool) -> None:
    """The model reads far more tokens than its memory holds, one by one, through the memory of training and through a
    cache."""
    trunk = replace(XL, position_embedding=RelativePositions(mem_len=5, clamp_len=3, same_length=same_length))
    model = built(ModelSpec(model=trunk, losses=(NextToken(),), vocab_size=TABLE))
    net, ids_BS = model.trunk, torch.from_numpy(np.random.default_rng(0).integers(TABLE, size=(2, 200)))
    begun = {"lengths": torch.ones(2, dtype=torch.int32), "first_at": torch.arange(2)}
    cache, sizes = net.begin(begun), set[int]()
    with torch.no_grad():
        for at in range(200):
            batch = begun | {"input_ids": ids_BS[:, at : at + 1], "positions": cache.positions(1)}
            found, cache = net.forward_cached(batch, cache)
            wanted = net(batch | {"slot": torch.tensor(0), "fresh": torch.tensor([at == 0] * 2)})
            torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
            sizes.add(cache.layers[0].shape[1])
    assert max(sizes) < 200
    assert cache.lengths_B.tolist() == [200, 200]


@pytest.mark.parametrize("method", [GreedyDecoding(), SampledDecoding(top_k=5), BeamSearch(num_beams=3)])
@pytest.mark.parametrize("name", ["t5", "bart"])
def test_an_encoder_runs_once_per_batch(name: str, method: Method) -> None:
    model, limits, calls = model_of(name), GenerationLimits(max_new_tokens=6), list[int]()
    encoder = model.get_submodule("trunk.encoder")
    encoder.register_forward_hook(lambda *_: calls.append(1))
    for cached, wanted in ((True, 2), (False, 12)):
        calls.clear()
        rows = list(
            generate(model, prompts_of(name), limits, method=method, key=key(0, "task"), batch=2, cached=cached)
        )
        assert [len(row.ids) for row in rows] == [6] * 4
        assert len(calls) == wanted


@pytest.mark.parametrize("method", [GreedyDecoding(), BeamSearch(num_beams=3)])
def test_no_repeat_in_new_allows_tokens_of_the_prompt(method: Method) -> None:
    """The prompt contains all tokens: if it counted, no token would be allowed."""
    model = built(ModelSpec(model=GPT2, losses=(NextToken(),), vocab_size=12))
    prompts, limits = (
        [Prompt(np.arange(12)), Prompt(np.array([1, 2]))],
        GenerationLimits(max_new_tokens=8, no_repeat_ngram_size=1),
    )
    rows = list(generate(model, prompts, replace(limits, no_repeat_in="new"), method=method))
    assert [len(set(row.ids.tolist())) for row in rows] == [8, 8]
    assert np.isfinite([row.score for row in rows]).all()
    assert len(set(next(generate(model, prompts, limits, method=method)).ids.tolist())) < 8


def test_samples_do_not_depend_on_batch_or_cache() -> None:
    model, prompts, limits = model_of("gpt-2"), prompts_of("gpt-2"), GenerationLimits(max_new_tokens=12, ends=(END,))
    ways: list[dict[str, Any]] = [{"batch": 1}, {"batch": 3}, {"cached": False}]
    how: dict[str, Any] = {"method": SampledDecoding(temperature=1.5, top_k=50, top_p=0.95), "key": key(0, "task")}
    first, *others = (list(generate(model, prompts, limits, **how, **way)) for way in ways)
    for other in others:
        assert_alike(other, first)
    again = list(generate(model, prompts, limits, method=how["method"], key=key(1, "task")))
    assert [row.ids.tolist() for row in again] != [row.ids.tolist() for row in first]


def test_sequences_end_at_the_last_position_of_the_model() -> None:
    model, prompts = model_of("gpt-2"), prompts_of("gpt-2", (LONGEST - 3, LONGEST - 1, 2))
    for method in (GreedyDecoding(), BeamSearch(num_beams=2)):
        rows = list(generate(model, prompts, GenerationLimits(max_new_tokens=6), method=method))
        assert [len(row.ids) for row in rows] == [3, 1, 6]
        assert not any(row.ended for row in rows)


def test_one_beam_equals_greedy_decoding() -> None:
    model, prompts, limits = model_of("gpt-2"), prompts_of("gpt-2"), GenerationLimits(max_new_tokens=10)
    beam = generate(model, prompts, limits, method=BeamSearch(num_beams=1, length_penalty=0.0))
    assert_alike(list(beam), list(generate(model, prompts, limits)))


def test_the_stopping_rule_changes_the_result_of_a_search() -> None:
    """Otherwise the comparisons with transformers could not distinguish the stopping rules."""
    model, prompts, found = model_of("gpt-2"), prompts_of("gpt-2", (5, 2, 9, 1) * 3), set[str]()
    for stop in ("hopeless", "never", "full"):
        rows = generate(
            model, prompts, GenerationLimits(max_new_tokens=12, ends=MANY), method=BeamSearch(num_beams=3, stop=stop)
        )
        found.add(str([row.ids.tolist() for row in rows]))
    assert len(found) == 3


def test_many_beams_find_the_best_sequence() -> None:
    """Two tokens of a vocabulary of twelve: with as many beams as tokens, the search is exhaustive."""
    model = built(ModelSpec(model=GPT2, losses=(NextToken(),), vocab_size=12))
    (found,) = generate(
        model,
        [Prompt(np.array([1, 2]))],
        GenerationLimits(max_new_tokens=2),
        method=BeamSearch(num_beams=12, length_penalty=0),
    )
    pairs = torch.cartesian_prod(torch.arange(12), torch.arange(12))
    ids = torch.cat([torch.tensor([[1, 2]]).expand(144, 2), pairs[:, :1]], dim=1)
    columns = {"input_ids": ids, "positions": torch.arange(3).expand(144, 3), "lengths": torch.full((144,), 3)}
    with torch.no_grad():
        log_p = (model.trunk(columns) @ model.trunk.table.T).log_softmax(-1)
    score = log_p[torch.arange(144), 1, pairs[:, 0]] + log_p[torch.arange(144), 2, pairs[:, 1]]
    assert found.ids.tolist() == pairs[score.argmax()].tolist()
    assert found.score == pytest.approx(float(score.max()), abs=1e-5)


# transformers.generate.


@pytest.fixture(scope="module")
def zero_pad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vocabulary(tokenization.ByteLevelBPE(vocab_size=300), tmp_path_factory.mktemp("zero"))


@pytest.fixture(scope="module")
def one_pad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vocabulary(ONE_PAD, tmp_path_factory.mktemp("one"))


def oracle_of(name: str, model: Model, pieces: Path, folder: Path) -> Any:
    to_transformers(weights(model), model.spec, pieces, folder)
    return loaded(folder)


def theirs(
    oracle: Any, prompts: list[Prompt], method: Method, limits: GenerationLimits
) -> tuple[list[list[int]], list[float]]:
    """New tokens of transformers up to the first end token, and the scores of beams."""
    many: dict[str, Any] = {
        "max_new_tokens": limits.max_new_tokens,
        "min_new_tokens": limits.min_new_tokens,
        "do_sample": False,
    }
    many |= {
        "repetition_penalty": limits.repetition_penalty,
        "no_repeat_ngram_size": limits.no_repeat_ngram_size,
        "num_beams": 1,
    }
    many |= {"eos_token_id": list(limits.ends), "pad_token_id": 1, "return_dict_in_generate": True}
    many |= {"forced_eos_token_id": limits.ends[0] if limits.force_eos else None, "top_k": None}
    many |= {"suppress_tokens": list(limits.barred) or None}
    if isinstance(method, BeamSearch):
        stop = {"hopeless": False, "never": "never", "full": True}[method.stop]
        many |= {"num_beams": method.num_beams, "length_penalty": method.length_penalty, "early_stopping": stop}
        many |= {"output_scores": True}
    if prompts[0].source_ids is not None:
        inputs = {"decoder_input_ids": torch.tensor(np.stack([prompt.ids for prompt in prompts]))}
        texts = [prompt.source_ids for prompt in prompts]
    else:
        inputs, texts = {}, [prompt.ids for prompt in prompts]
    longest, left = max(map(len, texts)), prompts[0].source_ids is None
    ids, mask = np.ones((len(texts), longest), np.int64), np.zeros((len(texts), longest), np.int64)
    for row, text in enumerate(texts):
        place = slice(longest - len(text), None) if left else slice(len(text))
        ids[row, place], mask[row, place] = text, 1
    inputs |= {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
    output = oracle.generate(**inputs, **many)
    begun = longest if left else 1
    scores = output.sequences_scores.tolist() if isinstance(method, BeamSearch) else []
    return [until(row[begun:], limits.ends) for row in output.sequences.tolist()], scores


def until(ids: list[int], ends: tuple[int, ...]) -> list[int]:
    """The tokens up to and including the first end token."""
    return ids[: next((at + 1 for at, id in enumerate(ids) if id in ends), len(ids))]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", TRUNKS)
def test_generation_equals_that_of_transformers(name: str, zero_pad: Path, one_pad: Path, tmp_path: Path) -> None:
    """The prompts have different lengths. They have equal lengths if n-grams may not repeat, because transformers
    counts padding there."""
    model = model_of(name)
    oracle = oracle_of(name, model, one_pad if prompts_of(name)[0].source_ids is not None else zero_pad, tmp_path)
    for method, limits in METHODS.values():
        prompts = prompts_of(name, (4,) * 12 if limits.no_repeat_ngram_size else (5, 2, 9, 1) * 3)
        found = list(generate(model, prompts, limits, method=method))
        wanted, scores = theirs(oracle, prompts, method, limits)
        assert [row.ids.tolist() for row in found] == wanted, (method, limits)
        if scores:
            np.testing.assert_allclose([row.score for row in found], scores, atol=1e-4)


# A model that predicts a mask after each sequence.


@pytest.mark.one_in(4)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("segments", "changes"), [(6, {"norm_position": "pre"}), (0, {"embedding_size": 16})])
def test_a_cache_does_not_change_the_tokens_of_a_masked_language_model(
    method: str, segments: int, changes: Any
) -> None:
    how, limits = METHODS[method]
    trunk = Encoder(
        num_hidden_layers=2,
        hidden_size=32,
        num_attention_heads=4,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        init_std=0.2,
        type_vocab_size=segments,
    )
    trunk = replace(
        trunk,
        position_embedding=LearnedPositions(max_position_embeddings=LONGEST),
        attention_mask="per_sequence",
        **changes,
    )
    model = built(ModelSpec(model=trunk, losses=(MaskedTokens(),), vocab_size=TABLE))
    blank = MaskSlot(mask=5, segments=(4, 5) if segments == 6 else (0, min(segments, 1)))
    prompts = [
        Prompt(np.random.default_rng(n).integers(6, TABLE, size=length)) for n, length in enumerate((5, 2, 9, 1))
    ]
    cached = list(generate(model, prompts, limits, method=how, blank=blank))
    assert_alike(cached, list(generate(model, prompts, limits, method=how, blank=blank, cached=False)))
    alone = [row for prompt in prompts for row in generate(model, [prompt], limits, method=how, blank=blank)]
    assert_alike(cached, alone)
    assert method != "greedy" or any(len(row.ids) > 3 for row in cached)


def test_a_mask_attends_to_the_text_before_it_and_a_prompt_only_to_the_prompt() -> None:
    """Each token is the best one at a mask after all previous tokens, by the model's own loss."""
    trunk = Encoder(
        num_hidden_layers=2,
        hidden_size=32,
        num_attention_heads=4,
        position_embedding=LearnedPositions(max_position_embeddings=LONGEST),
        hidden_dropout=0.0,
        attention_mask="per_sequence",
    )
    model, ids = built(ModelSpec(model=trunk, losses=(MaskedTokens(),), vocab_size=TABLE)), [7, 20, 9]
    (found,) = generate(model, [Prompt(np.array(ids))], GenerationLimits(max_new_tokens=2), blank=MaskSlot(mask=5))
    for step in range(2):
        row = [*ids, *found.ids[:step].tolist(), 5]
        rank = np.array([0] * len(ids) + list(range(len(ids), len(row))))
        scores = []
        for token in range(TABLE):
            labels = np.array([IGNORE] * (len(row) - 1) + [token])
            made = {
                "input_ids": np.array(row),
                "token_type_ids": np.zeros(len(row)),
                "labels": labels,
                "rank": rank,
                "reach": rank,
            }
            with torch.no_grad():
                batch = to_tensors(collate_unpadded([made]), torch.device("cpu"))
                scores.append(float(model(batch)["masked_tokens"].loss))
        assert int(np.argmin(scores)) == found.ids[step]


# Invalid prompts and models.


@pytest.mark.parametrize(
    ("name", "prompt", "message"),
    [
        ("gpt-2", Prompt(np.array([], int)), "prompt 1: no tokens"),
        (
            "gpt-2",
            Prompt(np.zeros(LONGEST, int)),
            "prompt 1: too long: got 40 tokens, expected fewer than 40; shorten it",
        ),
        ("gpt-2", Prompt(np.array([TABLE])), f"prompt 1: invalid token ID: got {TABLE}, expected less than {TABLE}"),
        ("gpt-2", Prompt(np.array([1]), np.array([1])), "prompt 1: invalid source; remove the source"),
        ("t5", Prompt(np.array([1])), "prompt 1: invalid source; add a source"),
        ("bart", Prompt(np.array([1]), np.array([], int)), "prompt 1: invalid source: got 0 tokens, expected 1 to"),
    ],
)
def test_an_invalid_prompt_is_refused_in_one_line(name: str, prompt: Prompt, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        list(generate(model_of(name), [prompt], GenerationLimits()))


def test_a_model_without_next_token_prediction_is_refused() -> None:
    trunk = Encoder(num_hidden_layers=1, hidden_size=8, num_attention_heads=1)
    model = Model(trunk, (MaskedTokens(),), TABLE, seed=0).eval()
    with pytest.raises(BadInput, match="attention_mask of this encoder: got 'bidirectional', expected 'causal'"):
        list(generate(model, [Prompt(np.array([1]))], GenerationLimits()))
    with pytest.raises(BadInput, match="attention_mask of this encoder: got 'bidirectional', expected 'causal'"):
        list(generate(model, [Prompt(np.array([1]))], GenerationLimits(), cached=False))
