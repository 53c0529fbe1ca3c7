"""Text generation with a run or a directory of transformers: continuations of prompts, or outputs for source texts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from orchestration import launch
from preprocessing.errors import BadInput
from preprocessing.files import read_object
from preprocessing.rng import key
from preprocessing.schema import Ints
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab
from training.evaluation import model_of, net_of
from training.generation import (
    BeamSearch,
    GeneratedText,
    GenerationLimits,
    GibbsDecoding,
    GreedyDecoding,
    MaskedPrompt,
    MaskPredict,
    Method,
    Prompt,
    SampledDecoding,
    fill,
    find,
    generate,
    novelties,
)
from training.model import Model
from training.run import load_stored_run
from training.specs import EngineSettings

Masked = Literal["", "gibbs", "mask_predict"]
HERE: Final = "___"  # marks the place of masks in a prompt; without it they follow the prompt
SIZES: Final = (1, 2, 3, 4, 5, 8)  # sizes of the n-grams that are searched in a corpus
LEAST: Final = 8  # minimum tokens of a copied passage that is reported


def generate_texts(
    folder: Path,
    prompts: Sequence[str],
    *,
    values: dict[str, Any],
    max_new_tokens: int,
    seed: int,
    masked: Masked = "",
    novelty: bool = False,
) -> list[dict[str, Any]]:
    """One result per prompt: `prompt`, generated `text`, `score` in nats, `ended`, `begins`, and whether the prompt is
    a `source`.

    `begins` is the special token that a decoder reads before the prompt, as before each text of its pretraining.

    The same call returns the same results. `values` are parameters of a decoding method, by default of
    `SampledDecoding`: `{"greedy": True}`, `{"num_beams": 4}`, `{"top_p": .9}`. With `masked`, a model with masked
    tokens fills in `max_new_tokens` tokens by this method, at ___ in the prompt or after it. With `novelty`, a result
    also has the n-grams that the corpus contains and the longest passage that is copied from it.

    Raises BadInput if the run is not finished, or if the model cannot generate in this way. BadInput is also raised if
    `novelty` is set for a directory of `transformers`, whose corpus is unknown.
    """
    if novelty and not is_run_directory(folder):
        raise BadInput(f"generate --novelty: the training corpus of {folder} is unknown; use a run of Sesame")
    net = net_of(folder)
    vocab, model = net.vocab, model_of(net, seed=0, machine=EngineSettings())
    start = _start(folder) if model.spec.model.reads_source else None
    if masked:
        rows = _fill_masks(model, vocab, prompts, masked, values, max_new_tokens, seed)
    else:
        rows = _generate(model, vocab, prompts, start, _method(values), max_new_tokens, seed)
    texts = [_without_special(row.ids, vocab) for row in rows]
    begins = "" if masked or start is not None else "".join(vocab.piece(id) for id in _sep(vocab))
    results = [
        {"prompt": prompt, "text": vocab.decode(ids), "score": row.score, "ended": row.ended}
        | {"source": start is not None, "begins": begins}
        for prompt, ids, row in zip(prompts, texts, rows, strict=True)
    ]
    if novelty:
        store = TokenStore.open(Path(load_stored_run(folder).corpus), "train")
        results = [each | {"novelty": _measure_novelty(store, ids)} for each, ids in zip(results, texts, strict=True)]
    return results


def select_set(**options: Any) -> dict[str, Any]:
    """The options of a decoding method that are set: neither None nor False.

    >>> select_set(greedy=False, num_beams=None, temperature=0)
    {'temperature': 0}
    """
    return {name: value for name, value in options.items() if value is not None and value is not False}


def format_generated(row: Mapping[str, Any], masked: Masked = "") -> str:
    """A result of `generate_texts` as text for people.

    >>> format_generated({"prompt": "the ___ sat", "text": "cat", "source": False}, "gibbs")
    'the [cat] sat'
    >>> format_generated({"prompt": "the house", "text": "das Haus", "source": True})
    'the house -> das Haus'
    """
    prompt, text = row["prompt"], row["text"]
    if masked and HERE in prompt:
        return str(prompt.replace(HERE, f"[{text.strip()}]", 1))
    return f"{prompt}{' -> ' if row['source'] else ' [...] ' if masked else ''}{text}"


def describe_special_start(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """A note on the special tokens before the prompts, which the tokenizer of `transformers` does not add.

    >>> describe_special_start([{"begins": "</s>"}, {"begins": "</s>"}])[0].partition(";")[0]
    '</s> is added before each prompt, as before each text of the pretraining'
    """
    tokens = dict.fromkeys(row["begins"] for row in results if row["begins"])
    return [
        f"{token} is added before each prompt, as before each text of the pretraining; for a pipeline of transformers, "
        f"add {token!r} too"
        for token in tokens
    ]


def is_run_directory(folder: Path) -> bool:
    """Whether this is the directory of a run, and not one of `transformers`."""
    return (folder / launch.RUN).is_file()


def _generate(
    model: Model,
    vocab: Vocab,
    prompts: Sequence[str],
    start: int | None,
    method: Method,
    max_new_tokens: int,
    seed: int,
) -> list[GeneratedText]:
    """Texts from a model that generates from left to right."""
    barred = set(_list_forbidden_tokens(vocab, start)) | set(range(vocab.size, model.spec.vocab_size))
    limits = GenerationLimits(max_new_tokens=max_new_tokens, ends=tuple(_sep(vocab)), barred=tuple(sorted(barred)))
    encoded = [_prompt(text, vocab, start) for text in prompts]
    return list(generate(model, encoded, limits, method=method, key=key(seed, "task")))


def _fill_masks(
    model: Model,
    vocab: Vocab,
    prompts: Sequence[str],
    masked: Masked,
    values: dict[str, Any],
    max_new_tokens: int,
    seed: int,
) -> list[GeneratedText]:
    """Texts from a model that fills in masks."""
    if vocab.mask is None:
        raise BadInput(
            "generate --masked-decoding: this vocabulary has no mask token; use a masked language model such as BERT"
        )
    wrong = values.keys() - ({"temperature", "top_k"} if masked == "gibbs" else set())
    if wrong:
        allowed = "only --temperature and --top-k" if masked == "gibbs" else "no option of a decoding method"
        option = f"--{min(wrong).replace('_', '-')}"
        raise BadInput(f"generate --masked-decoding {masked}: got {option}, expected {allowed}; leave {option} out")
    try:
        method = GibbsDecoding(**values) if masked == "gibbs" else MaskPredict()
    except ValueError as error:
        raise BadInput(f"generate: {error}") from None
    first, last, _ = vocab.around
    rows = []
    for text in prompts:
        before, _, behind = text.partition(HERE)
        ids = [np.array(each, np.int64) for each in ([*first, *vocab.encode(before)], vocab.encode(behind))]
        rows.append(MaskedPrompt(ids[0], max_new_tokens, np.array([*ids[1], *last], np.int64)))
    barred = sorted({*vocab.special_ids, *range(vocab.size, model.spec.vocab_size)})
    return fill(model, rows, method, mask=vocab.mask, barred=barred, key=key(seed, "task"))


def _without_special(ids: Iterable[int], vocab: Vocab) -> Ints:
    """The tokens without special tokens."""
    unspoken = _special_tokens(vocab)
    return np.array([int(id) for id in ids if int(id) not in unspoken], np.int64)


def _measure_novelty(store: TokenStore, ids: Ints) -> dict[str, Any]:
    """Fractions of the n-grams of each size that the corpus contains, and the longest passage of a document."""
    shares = {each.size: each.share for each in novelties(store, [ids], SIZES) if each.written}
    passages = find(store, ids, least=LEAST, most=1)
    return {"found": shares, "longest": [asdict(each) | {"key": each.key.hex()} for each in passages]}


def format_novelty(novelty: dict[str, Any]) -> str:
    """The novelty of a text in one line.

    >>> format_novelty({"found": {1: 1.0, 2: 0.5}, "longest": []})
    'the corpus contains 100 % of its tokens, 50 % of its 2-grams; no passage of 8 tokens or more'
    """
    units = {1: "tokens"}
    shares = [f"{100 * share:.0f} % of its {units.get(n, f'{n}-grams')}" for n, share in novelty["found"].items()]
    summary = f"the corpus contains {', '.join(shares)}" if shares else "no text was generated"
    if not novelty["longest"]:
        return f"{summary}; no passage of {LEAST} tokens or more"
    (longest,) = novelty["longest"]
    source = f" ({longest['source']})" if longest["source"] else ""
    where = f"document {longest['document']} of {longest['shard']}{source}"
    return f"{summary}; tokens {longest['start']} to {longest['stop']} are in {where}"


def _sep(vocab: Vocab) -> list[int]:
    """The token that ends a text; [] if there is none."""
    return [] if vocab.sep is None else [vocab.sep]


def _special_tokens(vocab: Vocab) -> set[int]:
    """Special tokens that are not text. The sentinels of T5 count as text: T5 writes them between the spans that it
    fills in."""
    return set(vocab.special_ids) - set(range(vocab.size - vocab.sentinels, vocab.size))


def _list_forbidden_tokens(vocab: Vocab, start: int | None) -> set[int]:
    """Special tokens that are never generated. After its start token, BART may generate the token that begins a
    text."""
    return _special_tokens(vocab) - set(_sep(vocab)) - ({vocab.cls} if start is not None else set())


def _method(values: dict[str, Any]) -> Method:
    """The decoding method with these parameters. Raises BadInput if they belong to several methods, or a value is
    invalid."""
    try:
        if values.get("greedy"):
            return GreedyDecoding(**{name: value for name, value in values.items() if name != "greedy"})
        return BeamSearch(**values) if "num_beams" in values else SampledDecoding(**values)
    except TypeError:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in values)
        raise BadInput(f"generate: {options} belong to several decoding methods; use the options of one") from None
    except ValueError as error:
        raise BadInput(f"generate: {error}") from None


def _start(folder: Path) -> int:
    """The token that the decoder of an encoder-decoder starts with, according to its export."""
    config = (folder / launch.EXPORT if is_run_directory(folder) else folder) / "config.json"
    if not config.is_file():
        raise BadInput(f"{folder}: the export with the start token of the decoder is missing; use BART, T5 or PEGASUS")
    start = read_object(config, "export the run again").get("decoder_start_token_id")
    if start is None:
        raise BadInput(
            f"{config}: decoder_start_token_id is missing; add the ID of the token that its decoder starts with"
        )
    return int(start)


def _prompt(text: str, vocab: Vocab, start: int | None) -> Prompt:
    """The tokens of a prompt. Without a start token, the prompt begins a document; with one, it is the source text of
    an encoder-decoder."""
    ids, sep = vocab.encode(text), _sep(vocab)
    if start is None:
        return Prompt(np.array([*sep, *ids], np.int64))
    before, behind, _ = vocab.around
    # T5 reads no special token before the source, even if an older export has one
    before = () if start == vocab.pad else before
    return Prompt(np.array([start], np.int64), np.array([*before, *ids, *behind], np.int64))
