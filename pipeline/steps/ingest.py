"""The first job: files -> cleaned, deduplicated, planned text.

The job writes to one directory. A killed job resumes: complete parts are reused. text.json is written last and marks
the directory as complete. Results do not depend on the Beam runner.
"""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import xxhash

from pipeline.readers import (
    EXPECTED,
    SKIPPED,
    InputSplit,
    Snapshot,
    Source,
    list_unread_files,
    make_change_error,
    plan_splits,
    recognise,
    recognise_reference,
    records,
)
from pipeline.runners import Report, beam, pipeline, report_progress
from pipeline.spec import Corpus, Decontaminate, Dedup
from pipeline.steps import line_dedup, substrings
from pipeline.steps.clean import CLEANER_VERSION, Cleaner, clean_split
from pipeline.steps.damage import SplitDamage, list_damage
from pipeline.steps.dedup import ELSEWHERE, addresses, bands, corpus_addresses, edges, write_first_of_each
from pipeline.steps.edited import DocumentEdit, find_repeats, strike
from pipeline.steps.output_folder import REJECTS, lock_directory, read_seal, sample_file, seal, sweep
from pipeline.steps.plan import (
    PLAN,
    TEXT,
    TextDirectory,
    plan_shards,
    remove_kept,
    rows_kept,
    text_hash,
    write_kept,
    write_plan,
)
from pipeline.steps.repeats import DROPPED_REPEATS, REPEATS
from preprocessing.dropped import DROPPED, DroppedSample, read_dropped, write_dropped
from preprocessing.errors import BadInput, DataError, Preempted
from preprocessing.files import npy, write_atomic
from preprocessing.manifest import FILE_NAME, Count, Ledger, Manifest
from preprocessing.schema import SPLITS
from preprocessing.text import fewest_words, ngram_hashes

_NGRAMS_VERSION: Final = 2  # increase this if the same evaluation sets yield other n-grams or another seal
_MOST_REASONS: Final = 5  # reasons that a message lists
_MOST_FILES: Final = 3
_MOST_INDENTED: Final = 0.2  # fraction of indented lines above which a text is regarded as code, also for poems

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TextPart:
    """A file of cleaned documents to write, and the split that it is made from.

    `number` is at least ELSEWHERE for reference corpora. `mixed` is the index of its mixture group, or None without a
    mixture.
    """

    number: int
    name: str
    split: InputSplit
    mixed: int | None = None


Found = tuple[int, dict[str, Iterable[Any]]]
"""The number of a part; the part itself, and everything that was found in it."""


class EditStep(NamedTuple):
    """A step that writes the kept documents again, without repeated lines or substrings."""

    kind: str  # first word of the names of its files
    reason: str  # of the bytes and documents that it drops
    apply: Callable[[Any, Path, Corpus, str], Any]  # parts -> edited parts


def read_text(
    corpus: Corpus, out: Path | str, beam_args: Sequence[str] = (), report: Report | None = None
) -> TextDirectory:
    """Read, clean and deduplicate the sources of `corpus` into `out`, and plan the shards of the corpus.

    Raises BadInput if a source is missing, no usable document remains or the disk is too small. Raises DataError if too
    much of the input is unreadable; `out`/rejects lists the reasons.
    """
    if not corpus.sources:
        raise BadInput(f"corpus {corpus.name}: no sources; pass --data PATH or choose another corpus")
    if corpus.groups_without_text:
        raise BadInput(
            f"corpus {corpus.name}: mixture groups without text: {', '.join(corpus.groups_without_text)}; "
            "pass --data GROUP=PATH or remove the group from the corpus file"
        )
    out = Path(out).absolute()  # remote workers have another working directory
    ngrams = _ngram_file(corpus)
    cleaner = Cleaner.of_corpus(corpus, ngrams and str(out / ngrams))
    snapshot = _snapshot(corpus)
    snapshot.require_apart(out)
    parts = _parts(corpus, cleaner, ngrams)
    ours = [part for part in parts if part.number < ELSEWHERE]
    others = [part.name for part in parts if part.number >= ELSEWHERE]
    known = [path for path in corpus.dedup.reference_corpora if _is_corpus(path)]
    mixed = _assign_groups(corpus, ours)
    made_of: list[Any] = [
        sorted(part.name for part in parts),
        _select_plan_keys(corpus),
        [Manifest.load(k).digest for k in known],
    ]
    if mixed:  # the order of the groups determines which one keeps a shared document
        made_of += [sorted(zip([part.name for part in ours], mixed, strict=True)), [g.name for g in corpus.mixture]]
    identity = _digest(made_of)
    numbers = [sorted(set(mixed)).index(name) for name in mixed]
    plan = partial(write_plan, mixed_P=numbers)
    names = [part.name for part in parts]
    steps = _edit_steps(corpus)
    stages = _stages(ours, steps, identity)
    files = [[part.name for part in stage] for stage in stages]
    work = sum(part.split.weight for part in parts)
    with lock_directory(out, need=sum(part.split.weight for part in parts if not (out / part.name).exists())):
        if (finished := _load_finished(out, identity)) is not None:
            return finished
        (out / TEXT).unlink(missing_ok=True)  # it describes the previous content of the directory
        sweep(out, {*names, *chain.from_iterable(files), ngrams})
        with _require_unchanged(snapshot, out, parts, ngrams):
            _write_ngrams(corpus.decontaminate, cleaner)
        remove_kept(out)
        with (
            _require_unchanged(snapshot, out, parts, ngrams),
            report_progress("text", out, names, report),
            pipeline(out, work, beam_args) as graph,
        ):
            cleaned = graph | "Parts" >> beam.Create(parts) | "Clean" >> beam.Map(_clean, str(out), cleaner)
            keyed = [cleaned | "Keys" >> beam.FlatMap(_addresses, str(out))]
            if known:
                keyed += [graph | "Known" >> beam.Create(known) | "Known keys" >> beam.FlatMap(corpus_addresses)]
            near = graph | "No bands" >> beam.Create([])
            if corpus.dedup.minhash:
                near = (
                    cleaned
                    | "Bands" >> beam.FlatMap(_bands, str(out), corpus.dedup)
                    | "By band" >> beam.GroupByKey()
                    | "Edges" >> beam.Map(edges)
                )
            write = write_kept if steps else plan
            _distinct(keyed, out, corpus) | "Plan" >> beam.Map(
                write, beam.pvalue.AsList(near), str(out), corpus, files[:1], others
            )
        for number, step in enumerate(steps, 1):
            with pipeline(out, work, beam_args) as graph:
                edited = step.apply(graph | "Parts" >> beam.Create(stages[number - 1]), out, corpus, identity)
                keyed = [edited | "Keys" >> beam.FlatMap(_addresses, str(out))]
                write = write_kept if number < len(steps) else plan
                _distinct(keyed, out, corpus) | "Plan" >> beam.Map(
                    write, [], str(out), corpus, files[: number + 1], [], step.reason
                )
        remove_kept(out)
        planned = _text(out, identity, corpus, ours, steps, files, mixed)
        _warn_about_unreadable_references(out, [part for part in parts if part.number >= ELSEWHERE])
        planned.save()
    return planned


def _snapshot(corpus: Corpus) -> Snapshot:
    """The state of all files that a corpus depends on, before any of them is read."""
    paths = [*corpus.dedup.reference_corpora, *corpus.decontaminate.paths]
    others = [source for path in paths if not _is_corpus(path) for source in recognise(path)]
    return Snapshot([*corpus.sources, *others])


@contextmanager
def _require_unchanged(snapshot: Snapshot, out: Path, parts: Sequence[TextPart], ngrams: str) -> Iterator[None]:
    """Raise BadInput if files change while they are read, even if another error occurred. Removes their output."""
    planned = [file for part in parts for piece in part.split.pieces for file in piece.files]

    def check() -> None:
        if changes := snapshot.changes(planned):
            for part in parts:
                if changes.keys() & {file.path for piece in part.split.pieces for file in piece.files}:
                    for made in (out / part.name, (out / part.name).with_suffix(".json")):
                        made.unlink(missing_ok=True)
            if ngrams:
                (out / ngrams).unlink(missing_ok=True)
            raise make_change_error(changes) from None

    try:
        yield
    except Preempted:
        raise
    except Exception:
        check()
        raise
    check()


def _distinct(keyed: list[Any], out: Path, corpus: Corpus) -> Any:
    """Deduplicate the documents by key; returns the names of the result files."""
    return (
        keyed
        | "All keys" >> beam.Flatten()
        | "By key" >> beam.GroupByKey()
        | "First of each" >> beam.Map(write_first_of_each, str(out), corpus.dedup.exact)
        | "Kept" >> beam.combiners.ToList()
    )


def _parts(corpus: Corpus, cleaner: Cleaner, ngrams: str) -> list[TextPart]:
    """The parts of the corpus, followed by those of the reference corpora."""
    clean = {name: value for name, value in corpus.clean.causes.items() if name != "max_unreadable_ratio"}
    how = [CLEANER_VERSION, clean, cleaner.with_spans, ngrams]
    against = _find_references([path for path in corpus.dedup.reference_corpora if not _is_corpus(path)])
    parts = list[TextPart]()
    splits = plan_splits(corpus.sources)
    if corpus.mixture:  # the choice among equal documents of a group then does not depend on paths
        splits = sorted(splits, key=lambda split: _group_of(corpus, split))
    for number, split in enumerate(splits):
        mixed = [group.name for group in corpus.mixture].index(_group_of(corpus, split)) if corpus.mixture else None
        parts.append(TextPart(number, _name("text", split.name, how), split, mixed))
    for number, split in enumerate(plan_splits(against), ELSEWHERE):
        parts.append(TextPart(number, _name("text", split.name, how), split))
    return parts


def _find_references(paths: Sequence[str]) -> list[Source]:
    """The sources at paths of reference texts. Logs which of their files are not read."""
    sources = [source for path in paths for source in recognise(path)]
    for line in list_unread_files(sources):
        log.warning("%s", line)
    return sources


def _assign_groups(corpus: Corpus, parts: Sequence[TextPart]) -> list[str]:
    """The name of the mixture group of each part; [] without a mixture."""
    return [_group_of(corpus, part.split) for part in parts] if corpus.mixture else []


def _group_of(corpus: Corpus, split: InputSplit) -> str:
    return next(group.name for group in corpus.mixture if split.source in group.sources)


def _name(kind: str, *made_of: Any) -> str:
    """A file name that is a hash of everything that determines the content of a part."""
    return f"{kind}-{xxhash.xxh3_64_hexdigest(json.dumps(made_of).encode())}.arrow"


def _edit_steps(corpus: Corpus) -> list[EditStep]:
    """The steps that edit documents, in order."""
    steps = list[EditStep]()
    if corpus.dedup.line_min_chars:
        steps.append(EditStep(line_dedup.KIND, line_dedup.REASON, _without_repeated_lines))
    if corpus.dedup.substring_min_tokens:
        steps.append(EditStep(substrings.KIND, substrings.REASON, _without_repeated_substrings))
    return steps


def _stages(parts: Sequence[TextPart], steps: Sequence[EditStep], identity: str) -> list[list[TextPart]]:
    """The parts as cleaned, and after each step that edits documents."""
    stages = [list(parts)]
    for step in steps:
        stages.append([_name_edited(part, step.kind, identity) for part in stages[-1]])
    return stages


def _name_edited(part: TextPart, kind: str, identity: str) -> TextPart:
    """The part that a step makes of a part."""
    return replace(part, name=_name(kind, part.name, part.number, identity))


def _is_corpus(path: str) -> bool:
    return (Path(path) / FILE_NAME).is_file()


def _select_plan_keys(corpus: Corpus) -> dict[str, Any]:
    """The keys that determine the plan for a given cleaned text."""
    return {
        "splits": [corpus.validation_ratio, corpus.test_ratio, corpus.max_shard_mb, corpus.document_order],
        "dedup": corpus.dedup.causes | {"reference_corpora": 0},
    }


def _clean(part: TextPart, out: str, cleaner: Cleaner) -> TextPart:
    clean_split(part.split, Path(out) / part.name, cleaner)
    return part


def _addresses(part: TextPart, out: str) -> Iterator[tuple[int, bytes]]:
    return addresses(Path(out) / part.name, part.number, part.mixed or 0)


def _bands(part: TextPart, out: str, dedup: Dedup) -> Iterator[tuple[int, bytes]]:
    return bands(Path(out) / part.name, part.number, dedup)


def _without_repeated_lines(parts: Any, out: Path, corpus: Corpus, identity: str) -> Any:
    """The parts with their kept documents, without repeated lines."""
    repeated = (
        parts
        | "Lines" >> beam.FlatMap(_line_hashes, str(out), corpus.dedup.line_min_chars)
        | "By line" >> beam.GroupByKey()
        | "Repeated" >> beam.FlatMap(find_repeats)
    )
    edit = line_dedup.without_lines
    return _with_parts(parts, repeated, "lines") | "Strike" >> beam.Map(
        _strike, str(out), corpus, line_dedup.KIND, edit, identity
    )


def _without_repeated_substrings(parts: Any, out: Path, corpus: Corpus, identity: str) -> Any:
    """The parts with their kept documents, without repeated substrings."""
    least = corpus.dedup.substring_min_tokens
    prints = (
        parts
        | "Fingerprints" >> beam.FlatMap(_fingerprints, str(out), least)
        | "By fingerprint" >> beam.GroupByKey()
        | "Repeated fingerprints" >> beam.FlatMap(substrings.find_repeated_prints)
    )
    repeated = (
        _with_parts(parts, prints, "fingerprints")
        | "Windows" >> beam.FlatMap(_windows, str(out), least)
        | "By window" >> beam.GroupByKey()
        | "Repeated windows" >> beam.FlatMap(find_repeats, least)
    )
    edit = partial(substrings.without_windows, least=least)
    return _with_parts(parts, repeated, "windows") | "Strike" >> beam.Map(
        _strike, str(out), corpus, substrings.KIND, edit, identity
    )


def _with_parts(parts: Any, found: Any, what: str) -> Any:
    """Each part with everything that was found for its number."""
    numbered = parts | f"Number of {what}" >> beam.Map(lambda part: (part.number, part))
    return {"parts": numbered, "found": found} | f"By part of {what}" >> beam.CoGroupByKey()


def _line_hashes(part: TextPart, out: str, least: int) -> Iterator[tuple[int, bytes]]:
    folder = Path(out)
    rows = rows_kept(folder, part.number)
    return line_dedup.line_hashes(folder / part.name, part.number, rows, least, part.mixed)


def _strike(
    group: Found, out: str, corpus: Corpus, kind: str, edit: Callable[..., DocumentEdit], identity: str
) -> TextPart:
    (part,), struck, folder = group[1]["parts"], group[1]["found"], Path(out)
    left = _name_edited(part, kind, identity)
    strike(folder / part.name, rows_kept(folder, part.number), struck, edit, folder / left.name, corpus.clean)
    return left


def _fingerprints(part: TextPart, out: str, least: int) -> Iterator[tuple[int, bytes]]:
    folder = Path(out)
    return substrings.fingerprints(folder / part.name, part.number, rows_kept(folder, part.number), least)


def _windows(group: Found, out: str, least: int) -> Iterator[tuple[int, bytes]]:
    (part,), prints, folder = group[1]["parts"], group[1]["found"], Path(out)
    rows = rows_kept(folder, part.number)
    return substrings.windows(folder / part.name, part.number, rows, prints, least, part.mixed)


def _ngram_file(corpus: Corpus) -> str:
    """The file name for the n-grams of the evaluation sets; "" if there are none."""
    decontaminate = corpus.decontaminate
    if not decontaminate.paths:
        return ""
    found = [recognise_reference(path, "decontaminate.paths") for path in decontaminate.paths]
    splits = [split.name for sources in found for split in plan_splits(sources)]
    made_of = [sorted(splits), decontaminate.ngram_size, corpus.clean.fix_text, _NGRAMS_VERSION]
    return _name("ngrams", *made_of).replace(".arrow", ".npy")


def _write_ngrams(decontaminate: Decontaminate, cleaner: Cleaner) -> None:
    if cleaner.known_ngrams and read_seal(path := Path(cleaner.known_ngrams)) is None:
        unread, num = Counter[str](), Counter[str]()
        found = _texts_of(_find_references(decontaminate.paths), cleaner.clean.max_chars, unread)
        texts = map(cleaner.tidy_text, found)
        hashes = ngram_hashes(texts, decontaminate.ngram_size, num)
        least = fewest_words(decontaminate.ngram_size)
        if not len(hashes):
            todo = "set paths of readable evaluation sets, or none"
            if num["too_short"]:
                smaller = ", or reduce decontaminate.ngram_size" if least > 1 else ""
                todo = f"join each question and its answer to one text{smaller}"
            raise BadInput(
                f"decontaminate.paths: no text of at least {least} words in {', '.join(decontaminate.paths)} "
                f"({num['too_short']:,} are shorter); {todo}"
            )
        if num["too_short"]:
            smaller = ", or reduce decontaminate.ngram_size" if least > 1 else ""
            log.warning(
                "decontaminate.paths: %s of %s evaluation texts have fewer than %s words and are ignored; "
                "join each question and its answer to one text%s",
                f"{num['too_short']:,}", f"{num['texts']:,}", least, smaller,
            )  # fmt: skip
        if why := ", ".join(f"{count:,} {fault}" for fault, count in unread.items()):
            log.warning("decontaminate.paths: unreadable texts of the evaluation sets are ignored: %s", why)
        write_atomic(path, npy(hashes))
        seal(path, texts={name: num[name] for name in ("texts", "too_short")})


def _texts_of(sources: Sequence[Source], max_chars: int, unread: Counter[str]) -> Iterator[str]:
    """The documents of sources. Unreadable ones are counted in `unread` by their faults."""
    for split in plan_splits(sources):
        for record in records(split, max_chars):
            if record.fault in EXPECTED:
                continue
            if record.fault:
                unread[record.fault] += 1
            else:
                yield record.text


def _text(
    out: Path,
    identity: str,
    corpus: Corpus,
    parts: list[TextPart],
    steps: Sequence[EditStep],
    files: Sequence[Sequence[str]],
    mixed: list[str],
) -> TextDirectory:
    """Combine the seals and the plan of the text.

    Raises DataError if there are too many rejects, BadInput if no document remains.
    """
    seals = [seal_of(out / part.name) for part in parts]
    ledger = reduce(Ledger.merge, (Ledger.from_dict(facts["ledger"]) for facts in seals), Ledger())
    encodings = _encodings(seals)
    if encodings:
        listed = "; ".join(f"{name}, {files}" for name, files in encodings.items())
        log.warning(
            "text of %s: encodings other than UTF-8: %s (set `encoding` of a source to change this)",
            corpus.name,
            listed,
        )
    _warn_about_indentation(corpus, seals)
    _check_rejects(out, corpus, seals, ledger)
    _check_damage(out, corpus, SplitDamage.of([part.split for part in parts], seals))
    repeats = dict(seal_of(out / PLAN)["repeats"])
    repeats |= {
        step.reason: _sum_pairs(seal_of(out / name)["lost"] for name in names)
        for step, names in zip(steps, files[1:], strict=True)
    }
    _drop(ledger, repeats)
    _write_sample(out, corpus, parts)
    if not ledger.kept.documents:
        sweep(out, ())
        for name in (PLAN, REPEATS, DROPPED):
            (out / name).unlink()
        (out / PLAN).with_suffix(".json").unlink()
        raise BadInput(_nothing_left(ledger, parts))
    repaired = {
        "documents": sum(facts["repaired"][0] for facts in seals),
        "sequences": sum(facts["repaired"][1] for facts in seals),
    }
    masked = sum(facts["masked"] for facts in seals)
    phrases = _phrases(out, corpus, seals, steps, files)
    texts = TextDirectory(out, identity, "", tuple(files[-1]), (), ledger, repaired, masked, encodings, phrases)
    plan_N = texts.plan_N
    groups = _groups(out, corpus, parts, steps, files, plan_N)
    texts = replace(texts, evaluation_texts=_evaluation_texts(out, corpus), groups=groups)
    texts = replace(texts, fields=corpus.fields, substrings=_count_substrings(out, steps, files))
    assert ledger.is_balanced(), f"missing from the ledger: {ledger.unexplained}"
    assert len(plan_N) == ledger.kept.documents, "plan and ledger differ in the number of documents"
    shards = plan_shards(plan_N, mixed)
    if empty := sorted({group.name for group in corpus.mixture} - {shard.group for shard in shards}):
        raise BadInput(
            f"corpus {corpus.name}: mixture groups without training documents: {', '.join(empty)} (dropped or held "
            "out); add text or remove the group from the corpus file"
        )
    return replace(texts, hash=text_hash(plan_N), shards=shards)


def _sum_pairs(pairs: Iterable[Sequence[int]]) -> list[int]:
    """
    >>> _sum_pairs([[1, 10], [2, 20]])
    [3, 30]
    """
    listed = list(pairs)
    return [sum(pair[at] for pair in listed) for at in (0, 1)]


def _count_substrings(out: Path, steps: Sequence[EditStep], files: Sequence[Sequence[str]]) -> dict[str, int]:
    """Numbers of documents that remain without repeated substrings, and of the removed substrings."""
    for step, names in zip(steps, files[1:], strict=True):
        if step.reason == substrings.REASON:
            documents, removed = _sum_pairs(seal_of(out / name)["edited"] for name in names)
            return {"documents": documents, "removed": removed}
    return {}


def _write_sample(out: Path, corpus: Corpus, parts: Sequence[TextPart]) -> None:
    """Write the sample of the dropped documents: those of all parts, and the repeats."""
    sample = DroppedSample()
    for part in parts:
        if seal_of(out / part.name)["dropped"]:
            sample.update(read_dropped(sample_file(out / part.name)))
    sample.update(read_dropped(out / DROPPED_REPEATS))
    write_dropped(out / DROPPED, sample, corpus.fields)


def _evaluation_texts(out: Path, corpus: Corpus) -> dict[str, int]:
    """Numbers of evaluation texts: all, and those too short to be searched."""
    return dict(seal_of(out / ngrams)["texts"]) if (ngrams := _ngram_file(corpus)) else {}


def _groups(
    out: Path,
    corpus: Corpus,
    parts: Sequence[TextPart],
    steps: Sequence[EditStep],
    files: Sequence[Sequence[str]],
    plan_N: np.ndarray,
) -> dict[str, dict[str, Any]]:
    """Statistics of each mixture group: its ledger and the numbers of held-out documents."""
    found = dict[str, dict[str, Any]]()
    repeats = seal_of(out / PLAN)["repeats_of_groups"] if corpus.mixture else []
    for number, group in enumerate(corpus.mixture):
        of_group = [at for at, part in enumerate(parts) if part.mixed == number]
        ledgers = (Ledger.from_dict(seal_of(out / parts[at].name)["ledger"]) for at in of_group)
        ledger = reduce(Ledger.merge, ledgers, Ledger())
        lost = dict(repeats[number]) if number < len(repeats) else {}
        for step, names in zip(steps, files[1:], strict=True):
            lost[step.reason] = _sum_pairs(seal_of(out / names[at])["lost"] for at in of_group)
        _drop(ledger, lost)
        fold_K = plan_N["fold"][plan_N["group"] == number]
        assert ledger.is_balanced(), f"missing from the ledger of group {group.name}: {ledger.unexplained}"
        assert len(fold_K) == ledger.kept.documents, (
            f"plan and ledger of {group.name} differ in the number of documents"
        )
        held_out = {split: int((fold_K == fold).sum()) for fold, split in enumerate(SPLITS) if fold}
        found[group.name] = {"ledger": ledger.to_dict(), "held_out": held_out}
    return found


def _drop(ledger: Ledger, repeats: dict[str, list[int]]) -> None:
    """Move repeats from kept to dropped in the ledger, by reason."""
    for reason, (documents, size) in repeats.items():
        if documents or size:
            ledger.drop(reason, documents, bytes=size)
            ledger.kept -= Count(documents, size)


def _warn_about_indentation(corpus: Corpus, seals: list[dict[str, Any]]) -> None:
    """Warn if as many lines are indented as in source code, where white space has meaning."""
    lines, indented = (sum(facts["lines"][number] for facts in seals) for number in (0, 1))
    if corpus.clean.whitespace == "collapse" and indented > _MOST_INDENTED * lines:
        log.warning(
            "text of %s: %.0f %% of the lines are indented, as in source code, and cleaning removes the indentation; "
            "to keep it, set clean.whitespace: keep in the corpus file", corpus.name, 100 * indented / lines,
        )  # fmt: skip


def _phrases(
    out: Path,
    corpus: Corpus,
    seals: list[dict[str, Any]],
    steps: Sequence[EditStep],
    files: Sequence[Sequence[str]],
) -> dict[str, int]:
    """Counts of the phrases that sources mark in kept documents, and of lost ones by reason. Warns if any are lost."""
    if corpus.phrases != "given":
        return {}
    given, left = (sum(facts["phrases"][number] for facts in seals) for number in (0, 1))
    lost = {"changed": given - left}
    for step, names in zip(steps, files[1:], strict=True):
        lost[step.reason] = sum(seal_of(out / name)["lost_phrases"] for name in names)
    if why := ", ".join(f"{count:,} {reason}" for reason, count in lost.items() if count):
        log.warning(
            "phrases of %s: of %s marked phrases, %s are lost and will be masked as words (%s); cleaning "
            "removed the changed ones, or they overlap other phrases",
            corpus.name, f"{given:,}", f"{sum(lost.values()):,}", why,
        )  # fmt: skip
    return {"given": given, **lost}


def _encodings(seals: list[dict[str, Any]]) -> dict[str, str]:
    """Encodings other than UTF-8 in the input, each with its number of files and the first of them."""
    files: dict[str, set[str]] = {}
    for facts in seals:
        for name, found in facts["encodings"].items():
            files.setdefault(name, set()).update(found)
    return {name: _files(sorted(found)) for name, found in sorted(files.items())}


def _files(names: Sequence[str]) -> str:
    """The number of files, and the names of the first ones.

    >>> _files(["a.txt", "b.txt", "c.txt", "d.txt"])
    '4 files: a.txt, b.txt, c.txt, ...'
    """
    number = f"{len(names):,} files" if len(names) > 1 else "1 file"
    return f"{number}: {', '.join(names[:_MOST_FILES])}{', ...' if len(names) > _MOST_FILES else ''}"


def _nothing_left(ledger: Ledger, parts: Sequence[TextPart]) -> str:
    """The error message for a text without documents: the files, their formats and what they contain."""
    read = {part.split.source.kind for part in parts}
    files = list(dict.fromkeys(piece.file.label for part in parts for piece in part.split.pieces))
    more = f" and {len(files) - _MOST_FILES} more" if len(files) > _MOST_FILES else ""
    names = f"{', '.join(files[:_MOST_FILES])}{more}, read as {', '.join(sorted(read))}"
    documents = ledger.seen.documents
    if documents:
        why = ", ".join(f"{count.documents} {reason}" for reason, count in ledger.dropped.items() if count.documents)
        return f"no usable text in {documents} documents ({why}) of {names}; pass other text with --data"
    what = ", ".join(f"{count.bytes:,} bytes {reason}" for reason, count in ledger.dropped.items() if count.bytes)
    return (
        f"no document in {names}: only {what or 'empty files'}; pass other text with --data, or set the format with "
        "KIND:PATH"
    )


def _check_rejects(out: Path, corpus: Corpus, seals: list[dict[str, Any]], ledger: Ledger) -> None:
    """Raise DataError if the fraction of unreadable documents exceeds `clean.max_unreadable_ratio`."""
    rejected: dict[str, int] = {}
    for facts in seals:
        for reason, count in facts["rejected"].items():
            rejected[reason] = rejected.get(reason, 0) + count
    num, most = sum(rejected.values()), corpus.clean.max_unreadable_ratio
    others = sum(count.documents for reason, count in ledger.dropped.items() if reason in SKIPPED)
    if num > most * (ledger.seen.documents - others):
        top = sorted(rejected.items(), key=lambda item: (-item[1], item[0]))[:_MOST_REASONS]
        raise DataError(
            f"corpus {corpus.name}: {num} of {ledger.seen.documents - others} documents are unreadable "
            f"({', '.join(f'{reason} {count}' for reason, count in top)}), at most {most:g} is allowed; "
            f"see {out / REJECTS}, then repair the input or raise clean.max_unreadable_ratio in the corpus file"
        )


def _warn_about_unreadable_references(out: Path, others: Sequence[TextPart]) -> None:
    """Warn about unreadable files of the reference corpora."""
    damaged = SplitDamage.of([part.split for part in others], [seal_of(out / part.name) for part in others])
    if damaged.damaged:
        log.warning("dedup.reference_corpora: unreadable parts are ignored in %s", list_damage(damaged.damaged))


def _check_damage(out: Path, corpus: Corpus, damaged: SplitDamage) -> None:
    """Raise DataError if the damaged fraction exceeds `clean.max_unreadable_ratio`; otherwise log warnings."""
    if why := damaged.error(corpus.clean.max_unreadable_ratio):
        raise DataError(
            f"corpus {corpus.name}: {why}, at most {corpus.clean.max_unreadable_ratio:g} is allowed; "
            "replace or exclude these files, or raise clean.max_unreadable_ratio in the corpus file; see "
            f"{out / REJECTS} for details"
        )
    for line in damaged.warnings():
        log.warning("text of %s: %s", corpus.name, line)


def _load_finished(out: Path, identity: str) -> TextDirectory | None:
    """The finished text in the directory, if it has this identity and is complete; else None."""
    try:
        texts = TextDirectory.load(out)
    except BadInput:
        return None
    whole = texts.identity == identity and all(read_seal(out / name) is not None for name in (PLAN, *texts.parts))
    return texts if whole else None


def seal_of(part: Path) -> dict[str, Any]:
    """The seal of a part that was just written."""
    facts = read_seal(part)
    assert facts is not None, f"{part} was not written"
    return facts


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
