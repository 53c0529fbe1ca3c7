"""Samples of a run or a folder of transformers: what its net writes behind a prompt, with an encoder for a source."""

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
from training.run import stored_run
from training.specs import EngineSettings

Masked = Literal["", "gibbs", "mask_predict"]
HERE: Final = "___"  # where in a prompt masks stand; else they stand behind it
SIZES: Final = (1, 2, 3, 4, 5, 8)  # of the n-grams that are looked up in a corpus
LEAST: Final = 8  # tokens of a passage that is worth naming


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
    """One row for each prompt: `prompt`, `text` behind it, `score` in nats, `ended`, and whether it is a `source`.

    `begins` is the special token that a decoder reads before the prompt, as before each text of its pretraining.

    The same call gives the same rows. `values` are keys of a method, of `SampledDecoding` where there are none of
    another: `{"greedy": True}`, `{"num_beams": 4}`, `{"top_p": .9}`. With `masked` a net that fills in masks writes
    `max_new_tokens` tokens in one of these ways, where the prompt has ___, else behind it. With `novelty` a row has too
    which n-grams of its text the corpus has, and the longest passage that is from there. BadInput where the run is not
    finished, its net does not write so, or novelty is asked for of a net whose corpus is not known: that of a folder of
    `transformers`.
    """
    if novelty and not is_run_directory(folder):
        raise BadInput(f"generate --novelty: {folder} does not say what it was trained on; sample from a run of ours")
    net = net_of(folder)
    vocab, model = net.vocab, model_of(net, seed=0, machine=EngineSettings())
    start = _start(folder) if model.spec.model.reads_source else None
    if masked:
        rows = _filled(model, vocab, prompts, masked, values, max_new_tokens, seed)
    else:
        rows = _written(model, vocab, prompts, start, _method(values), max_new_tokens, seed)
    texts = [_spoken(row.ids, vocab) for row in rows]
    begins = "" if masked or start is not None else "".join(vocab.piece(id) for id in _sep(vocab))
    found = [
        {"prompt": prompt, "text": vocab.decode(ids), "score": row.score, "ended": row.ended}
        | {"source": start is not None, "begins": begins}
        for prompt, ids, row in zip(prompts, texts, rows, strict=True)
    ]
    if novelty:
        store = TokenStore.open(Path(stored_run(folder).corpus), "train")
        found = [each | {"novelty": _novelty(store, ids)} for each, ids in zip(found, texts, strict=True)]
    return found


def format_generated(row: Mapping[str, Any], masked: Masked = "") -> str:
    """A row of `sample` as a person reads it.

    >>> format_generated({"prompt": "the ___ sat", "text": "cat", "source": False}, "gibbs")
    'the [cat] sat'
    >>> format_generated({"prompt": "the house", "text": "das Haus", "source": True})
    'the house -> das Haus'
    """
    prompt, text = row["prompt"], row["text"]
    if masked and HERE in prompt:
        return str(prompt.replace(HERE, f"[{text.strip()}]", 1))
    return f"{prompt}{' -> ' if row['source'] else ' [...] ' if masked else ''}{text}"


def describe_special_start(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """What stands before the prompts, which the tokenizer of `transformers` does not put there by itself.

    >>> describe_special_start([{"begins": "</s>"}, {"begins": "</s>"}])[0].partition(";")[0]
    '</s> stands before each prompt, as before a text of the pretraining'
    """
    tokens = dict.fromkeys(row["begins"] for row in found if row["begins"])
    return [
        f"{token} stands before each prompt, as before a text of the pretraining; for a pipeline of transformers write "
        f"{token!r} there too"
        for token in tokens
    ]


def is_run_directory(folder: Path) -> bool:
    """Whether it is the folder of a run; else one of `transformers`."""
    return (folder / launch.RUN).is_file()


def _written(
    model: Model,
    vocab: Vocab,
    prompts: Sequence[str],
    start: int | None,
    method: Method,
    max_new_tokens: int,
    seed: int,
) -> list[GeneratedText]:
    """What a net writes from left to right."""
    barred = set(_barred(vocab, start)) | set(range(vocab.size, model.spec.vocab_size))
    limits = GenerationLimits(max_new_tokens=max_new_tokens, ends=tuple(_sep(vocab)), barred=tuple(sorted(barred)))
    given = [_prompt(text, vocab, start) for text in prompts]
    return list(generate(model, given, limits, method=method, key=key(seed, "task")))


def _filled(
    model: Model,
    vocab: Vocab,
    prompts: Sequence[str],
    masked: Masked,
    values: dict[str, Any],
    max_new_tokens: int,
    seed: int,
) -> list[GeneratedText]:
    """What a net writes that fills in masks."""
    if vocab.mask is None:
        raise BadInput("generate --masked-decoding: this vocabulary has no mask; sample from a net such as BERT")
    wrong = values.keys() - ({"temperature", "top_k"} if masked == "gibbs" else set())
    if wrong:
        allowed = "--temperature and --top-k" if masked == "gibbs" else "no keys of a method"
        raise BadInput(
            f"generate --masked-decoding {masked}: --{min(wrong).replace('_', '-')} is given, allowed is {allowed}"
        )
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


def _spoken(ids: Iterable[int], vocab: Vocab) -> Ints:
    """Tokens that are text."""
    unspoken = _unspoken(vocab)
    return np.array([int(id) for id in ids if int(id) not in unspoken], np.int64)


def _novelty(store: TokenStore, ids: Ints) -> dict[str, Any]:
    """Of each size the share of n-grams that the corpus has, and the longest passage that is from a document."""
    shares = {each.size: each.share for each in novelties(store, [ids], SIZES) if each.written}
    passages = find(store, ids, least=LEAST, most=1)
    return {"found": shares, "longest": [asdict(each) | {"key": each.key.hex()} for each in passages]}


def format_novelty(novelty: dict[str, Any]) -> str:
    """The same in a line.

    >>> format_novelty({"found": {1: 1.0, 2: 0.5}, "longest": []})
    'the corpus has 100 % of its tokens, 50 % of its 2-grams; no passage of 8 tokens or more'
    """
    units = {1: "tokens"}
    shares = [f"{100 * share:.0f} % of its {units.get(n, f'{n}-grams')}" for n, share in novelty["found"].items()]
    said = f"the corpus has {', '.join(shares)}" if shares else "nothing is written"
    if not novelty["longest"]:
        return f"{said}; no passage of {LEAST} tokens or more"
    (longest,) = novelty["longest"]
    source = f" ({longest['source']})" if longest["source"] else ""
    where = f"document {longest['document']} of {longest['shard']}{source}"
    return f"{said}; tokens {longest['start']} to {longest['stop']} stand in {where}"


def _sep(vocab: Vocab) -> list[int]:
    """The token that ends a text, where there is one."""
    return [] if vocab.sep is None else [vocab.sep]


def _unspoken(vocab: Vocab) -> set[int]:
    """Special tokens, which are no text; T5 writes its sentinels between the spans that it fills in."""
    return set(vocab.special_ids) - set(range(vocab.size - vocab.sentinels, vocab.size))


def _barred(vocab: Vocab, start: int | None) -> set[int]:
    """Special tokens that are never written: behind its start token, BART writes the one that begins a text."""
    return _unspoken(vocab) - set(_sep(vocab)) - ({vocab.cls} if start is not None else set())


def _method(values: dict[str, Any]) -> Method:
    """The method that has these keys; BadInput where they are of several, or a value means nothing."""
    try:
        if values.get("greedy"):
            return GreedyDecoding(**{name: value for name, value in values.items() if name != "greedy"})
        return BeamSearch(**values) if "num_beams" in values else SampledDecoding(**values)
    except TypeError:
        given = ", ".join(f"--{name.replace('_', '-')}" for name in values)
        raise BadInput(f"generate: {given} are of several methods; give those of one") from None
    except ValueError as error:
        raise BadInput(f"generate: {error}") from None


def _start(folder: Path) -> int:
    """The token that the decoder of two stacks begins with, as its export says."""
    config = (folder / launch.EXPORT if is_run_directory(folder) else folder) / "config.json"
    if not config.is_file():
        raise BadInput(
            f"{folder}: has no export, which says what its decoder begins with; sample from BART, T5 or PEGASUS"
        )
    start = read_object(config, "export the run again").get("decoder_start_token_id")
    if start is None:
        raise BadInput(f"{config}: has no decoder_start_token_id, which its decoder begins with; put it there")
    return int(start)


def _prompt(text: str, vocab: Vocab, start: int | None) -> Prompt:
    """A text that begins a document, or, with a start token, the source of a row."""
    ids, sep = vocab.encode(text), _sep(vocab)
    if start is None:
        return Prompt(np.array([*sep, *ids], np.int64))
    before, behind, _ = vocab.around
    before = () if start == vocab.pad else before  # T5 reads none, whatever an older export has
    return Prompt(np.array([start], np.int64), np.array([*before, *ids, *behind], np.int64))
