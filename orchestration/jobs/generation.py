"""Text generation with a run or a directory of transformers: continuations of prompts, or outputs for source texts."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from orchestration import launch
from orchestration.jobs.text_stream import TextStream
from preprocessing.errors import BadInput, with_article
from preprocessing.files import parse_json, read_object, write_atomic
from preprocessing.rng import key
from preprocessing.schema import Ints
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab
from training.evaluation import model_of, net_of
from training.evaluation.generation import (
    Address,
    BeamSearch,
    GeneratedText,
    GenerationLimits,
    GibbsDecoding,
    GreedyDecoding,
    MaskedPrompt,
    MaskPredict,
    Method,
    OnToken,
    Prompt,
    SampledDecoding,
    can_fill_masks,
    check_prompts,
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
MOST_ROWS: Final = 64  # maximum sequences that are decoded together
MOST_TOKENS: Final = 16_384  # maximum tokens of these sequences, which bounds the memory of their keys and values


def generate_texts(
    folder: Path,
    prompts: Sequence[str],
    *,
    values: dict[str, Any],
    max_new_tokens: int,
    seed: int,
    masked: Masked = "",
    novelty: bool = False,
    num_return_sequences: int = 1,
    repetition_penalty: float = 1.0,
    write: Callable[[str], object] | None = None,
    report: Callable[[int, int], object] | None = None,
) -> list[dict[str, Any]]:
    """`num_return_sequences` results per prompt: `prompt`, number of the `sample`, generated `text`, `score` in nats,
    `ended`, `begins`, the `seed`, and whether the prompt is a `source`.

    `begins` is the special token that a decoder reads before the prompt, as before each text of its pretraining.

    The same call returns the same results. A result depends only on its own prompt, the number of the sample and the
    seed, not on other prompts. `values` are parameters of a decoding method, by default of `SampledDecoding`:
    `{"greedy": True}`, `{"num_beams": 4}`, `{"top_p": .9}`. With `masked`, a model with masked tokens fills in
    `max_new_tokens` tokens by this method, at ___ or the mask token in the prompt, or after it. With `novelty`, a
    result also has the n-grams that the corpus contains and the longest passage that is copied from it. `write`
    receives the texts of `format_generated` in parts, as soon as tokens are chosen; `report` the number of finished
    texts, and of all.

    Raises BadInput if the run is not finished, or if the model cannot generate in this way. BadInput is also raised if
    `novelty` is set for a directory of `transformers`, whose corpus is unknown.
    """
    if novelty and not is_run_directory(folder):
        raise BadInput(f"generate --novelty: the training corpus of {folder} is unknown; use a run of Sesame")
    _check_samples(num_return_sequences, values, masked)
    _check_texts(prompts)
    net = net_of(folder)
    vocab, model = net.vocab, model_of(net, seed=0, machine=EngineSettings())
    if not masked and vocab.mask is not None and _only_fills_gaps(model):
        raise BadInput(
            f"{folder.name} is {with_article(model.spec.model.kind)}, which fills gaps; add --masked-decoding gibbs, "
            "or use a model that predicts the next token"
        )
    if masked and vocab.mask is not None:
        prompts = [prompt.replace(vocab.piece(vocab.mask), HERE) for prompt in prompts]
    start = _start(folder) if model.spec.model.reads_source else None
    asked = [(prompt, sample) for prompt in prompts for sample in range(num_return_sequences)]
    addresses = [_address(prompt, sample) for prompt, sample in asked]
    if masked:
        given = values if repetition_penalty == 1 else values | {"repetition_penalty": repetition_penalty}
        rows = _fill_masks(
            model, vocab, [prompt for prompt, _ in asked], masked, given, max_new_tokens, seed, addresses, report
        )
    else:
        encoded = [_prompt(text, vocab, start) for text in prompts]
        check_prompts(model, encoded)
        stream = None
        if write is not None:
            heads = [f"{prompt}{_joint(start is not None)}" for prompt, _ in asked]
            stream = TextStream(heads, lambda ids: vocab.decode(_without_special(ids, vocab)), write)
        limits = _limits(model, vocab, start, max_new_tokens, repetition_penalty)
        each = [prompt for prompt in encoded for _ in range(num_return_sequences)]
        rows = _generate(model, each, limits, _method(values), seed, addresses, stream, report)
    texts = [_without_special(row.ids, vocab) for row in rows]
    begins = "" if masked or start is not None else "".join(vocab.piece(id) for id in _sep(vocab))
    results = [
        {"prompt": prompt, "sample": sample, "text": vocab.decode(ids), "score": row.score, "ended": row.ended}
        | {"source": start is not None, "begins": begins, "seed": seed}
        for (prompt, sample), ids, row in zip(asked, texts, rows, strict=True)
    ]
    if novelty:
        store = TokenStore.open(Path(load_stored_run(folder).corpus), "train")
        results = [each | {"novelty": _measure_novelty(store, ids)} for each, ids in zip(results, texts, strict=True)]
    return results


def can_stream(values: Mapping[str, Any], masked: Masked) -> bool:
    """Whether the tokens of a text are chosen in their order, and never changed.

    >>> can_stream({"greedy": True}, ""), can_stream({"num_beams": 2}, ""), can_stream({}, "gibbs")
    (True, False, False)
    """
    return not masked and "num_beams" not in values


def read_prompts(path: Path) -> list[str]:
    """The prompts of a file: one per line, without blank lines, or the field `prompt` of each line of a .jsonl file.

    Raises BadInput if the file cannot be read, a line of it is invalid, or it has no prompt.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadInput(f"--prompts {path}: cannot be read ({error.strerror}); check the path") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"--prompts {path}: not UTF-8 (byte {error.start}); convert it to UTF-8") from None
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise BadInput(f"--prompts {path}: no prompt; write one per line")
    if path.suffix.lower() != ".jsonl":
        return [line.removesuffix("\r") for _, line in lines]
    return [_prompt_of_json(line, f"--prompts {path}, line {number}") for number, line in lines]


def _prompt_of_json(line: str, where: str) -> str:
    try:
        found = parse_json(line)
    except ValueError as error:
        raise BadInput(f'{where}: not JSON ({error}); write an object such as {{"prompt": "The"}}') from None
    prompt = found.get("prompt") if isinstance(found, dict) else None
    if not isinstance(prompt, str):
        has = f"the fields {', '.join(found) or 'none'}" if isinstance(found, dict) else type(found).__name__
        raise BadInput(f"{where}: got {has}, expected an object with the text `prompt`; rename the field")
    return prompt


def write_results(path: Path, results: Sequence[Mapping[str, Any]]) -> None:
    """Write results as JSON lines."""
    lines = (json.dumps(row, ensure_ascii=False) for row in results)
    write_atomic(path, "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace"))


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
    return f"{prompt}{' [...] ' if masked else _joint(row['source'])}{text}"


def _joint(is_source: bool) -> str:
    """The text between a prompt and the generated text."""
    return " -> " if is_source else ""


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


def _only_fills_gaps(model: Model) -> bool:
    """Whether a model predicts masked tokens and not the next token."""
    trunk = model.spec.model
    return can_fill_masks(model) and trunk.attention_mask == "bidirectional" and not trunk.reads_source


def is_run_directory(folder: Path) -> bool:
    """Whether this is the directory of a run, and not one of `transformers`."""
    return (folder / launch.RUN).is_file()


def _check_samples(number: int, values: Mapping[str, Any], masked: Masked) -> None:
    """Raise BadInput if several texts are requested of a method that has only one text for a prompt."""
    if number < 1:
        raise BadInput(f"invalid num_return_sequences: got {number}, expected at least 1; change the number")
    deterministic = {"greedy": values.get("greedy"), "num_beams": values.get("num_beams")}
    option = next((f"--{name.replace('_', '-')}" for name, value in deterministic.items() if value), "")
    option = "--masked-decoding mask_predict" if masked == "mask_predict" else option
    if number > 1 and option:
        raise BadInput(
            f"generate {option}: got --num-return-sequences {number}, expected 1, since this method has one text "
            f"for a prompt; leave {option} out to sample texts"
        )


def _check_texts(prompts: Sequence[str]) -> None:
    """Raise BadInput, with the number of the prompt, for half of a character: a byte or an escape that is not UTF-8."""
    for number, prompt in enumerate(prompts, 1):
        try:
            prompt.encode()
        except UnicodeEncodeError as error:
            got = f"\\u{ord(prompt[error.start]):04x} at character {error.start + 1}"
            raise BadInput(f"prompt {number}: invalid text: got {got}, expected UTF-8; correct the text") from None


def _address(prompt: str, sample: int) -> Address:
    """The random numbers of a text depend on its prompt and its number, and not on other prompts."""
    digest = hashlib.sha256(prompt.encode()).digest()
    return int.from_bytes(digest[:8], "little"), sample


def _limits(
    model: Model, vocab: Vocab, start: int | None, max_new_tokens: int, repetition_penalty: float
) -> GenerationLimits:
    barred = set(_list_forbidden_tokens(vocab, start)) | set(range(vocab.size, model.spec.vocab_size))
    try:
        return GenerationLimits(
            max_new_tokens=max_new_tokens,
            ends=tuple(_sep(vocab)),
            barred=tuple(sorted(barred)),
            repetition_penalty=repetition_penalty,
        )
    except ValueError as error:
        raise BadInput(f"generate: {error}; change the option") from None


def _generate(
    model: Model,
    prompts: Sequence[Prompt],
    limits: GenerationLimits,
    method: Method,
    seed: int,
    addresses: Sequence[Address],
    stream: OnToken | None,
    report: Callable[[int, int], object] | None,
) -> list[GeneratedText]:
    """Texts from a model that generates from left to right. Prompts of similar length are decoded together, unless the
    texts are streamed in their order."""
    order = range(len(prompts)) if stream else sorted(range(len(prompts)), key=lambda number: _size(prompts[number]))
    sizes = [min(_size(prompt) + limits.max_new_tokens, model.spec.model.longest) for prompt in prompts]
    found = dict[int, GeneratedText]()
    for numbers in _batches(order, sizes):
        texts = generate(
            model,
            [prompts[number] for number in numbers],
            limits,
            method=method,
            key=key(seed, "task"),
            batch=len(numbers),
            addresses=[addresses[number] for number in numbers],
            on_token=None if stream is None else _renumber(stream, numbers),
        )
        found |= dict(zip(numbers, texts, strict=True))
        if report is not None:
            report(len(found), len(prompts))
    return [found[number] for number in range(len(prompts))]


def _renumber(stream: OnToken, numbers: Sequence[int]) -> OnToken:
    return lambda row, token, is_last: stream(numbers[row], token, is_last)


def _size(prompt: Prompt) -> int:
    """The tokens of a prompt, or of its source if that is longer."""
    return max(len(prompt.ids), 0 if prompt.source_ids is None else len(prompt.source_ids))


def _batches(order: Sequence[int], sizes: Sequence[int]) -> Iterator[list[int]]:
    """Divide sequences, in this order, into batches of at most MOST_ROWS and about MOST_TOKENS.

    >>> [len(batch) for batch in _batches(range(70), [100] * 69 + [20_000])]
    [64, 5, 1]
    """
    batch = list[int]()
    for number in order:
        longest = max(sizes[one] for one in (*batch, number))
        if batch and (len(batch) == MOST_ROWS or longest * (len(batch) + 1) > MOST_TOKENS):
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def _fill_masks(
    model: Model,
    vocab: Vocab,
    prompts: Sequence[str],
    masked: Masked,
    values: dict[str, Any],
    max_new_tokens: int,
    seed: int,
    addresses: Sequence[Address],
    report: Callable[[int, int], object] | None,
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
    found = list[GeneratedText]()
    for each in fill(model, rows, method, mask=vocab.mask, barred=barred, key=key(seed, "task"), addresses=addresses):
        found.append(each)
        if report is not None:
            report(len(found), len(rows))
    return found


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
