"""What would go wrong later with a recipe on a cluster: answers at once, without data, torch or a GPU."""

from collections.abc import Iterator
from typing import Final

from orchestration.config.recipe import Cluster, Recipe
from preprocessing.compat import unfaithful
from preprocessing.rewrite import Rewrite
from preprocessing.rows import impossible
from preprocessing.vocab import ByteBPE, SentencePieceBPE, SingleBytes, Unigram, VocabSpec, WholeWords
from training.losses import Loss, check_losses
from training.specs import Decoder, Encoder, EncoderDecoder, Trunk, Twin, TwoStream

SEES: Final = {  # what tokens may see of each other under a loss, by what the loss says
    "masked_tokens": ("full", "rows"),
    "adversarial": ("full",),
    "pair_label": ("full", "rows"),
    "span_boundary": ("full",),
    "replaced": ("full",),
    "next_token": ("causal",),
}
SEGMENTS: Final = {"pair": 2, "stream_pair": 3, "unified": 6}  # numbers of segments that these parts tell apart
STREAMS: Final = ("stream", "stream_pair")


def check(recipe: Recipe, cluster: Cluster) -> list[str]:
    """What would go wrong later, one line each: where, what is given, what is allowed, what to do."""
    return [
        *_columns(recipe),
        *_losses(recipe.objective.losses, recipe.trunk),
        *_nets(recipe),
        *_tables(recipe),
        *_numbers(recipe, cluster),
    ]


def _columns(recipe: Recipe) -> Iterator[str]:
    """Parts of the rows that do not fit each other, or the vocabulary."""
    segment, vocab, objective = recipe.data.segment, recipe.data.vocab, recipe.objective
    needs: dict[str, frozenset[str]] = {loss.kind: loss.needs for loss in objective.losses}
    if reason := impossible(segment, objective.choose, objective.rewrite, needs):
        yield f"objective: {reason}"
    if objective.semantics == "compat" and (reason := unfaithful(segment, objective.choose, objective.rewrite)):
        yield f"objective: {reason}"
    for where, part in (("data.segment", segment), ("objective.rewrite", objective.rewrite)):
        missing = [name for name in part.specials if name not in _specials(vocab)]
        if "sentinel" in missing:
            yield f"{where}: {part.kind} needs sentinels, data.vocab has none; set data.vocab.sentinels (T5 has 100)"
        elif missing:
            has_none = "data.vocab.specials gpt2 has none; use roberta"
            if not isinstance(vocab, ByteBPE):
                has_none = f"data.vocab of kind {vocab.kind} has none; use kind wordpiece"
            yield f"{where}: {part.kind} needs a {missing[0]} token, {has_none}"
    if isinstance(vocab, SentencePieceBPE) and vocab.alpha < 1:
        named = getattr(segment, "languages", vocab.languages)
        if set(named) != set(vocab.languages):
            yield (
                f"data.vocab.languages is {list(vocab.languages)}, data.segment.languages {list(named)}; "
                "name the same in both"
            )


def _specials(vocab: VocabSpec) -> set[str]:
    """Special tokens that a vocabulary will have."""
    if isinstance(vocab, WholeWords | SingleBytes) or (isinstance(vocab, ByteBPE) and vocab.specials == "gpt2"):
        return {"sep", "unk"}
    has_sentinels = isinstance(vocab, Unigram | SentencePieceBPE) and vocab.sentinels > 0
    return {"pad", "unk", "cls", "sep", "mask"} | ({"sentinel"} if has_sentinels else set())


def _losses(losses: tuple[Loss, ...], trunk: Trunk) -> Iterator[str]:
    """Losses that do not fit the net."""
    kinds = {loss.kind for loss in losses}
    for loss in losses:
        if trunk.visibility not in SEES[loss.kind]:
            allowed = " or ".join(SEES[loss.kind])
            wanted = "decoder" if loss.visibility == "causal" else "encoder"
            yield (
                f"objective.losses: {loss.kind} needs {allowed} visibility, trunk {trunk.kind} has "
                f"{trunk.visibility}; use trunk kind {wanted}"
            )
    if "replaced" in kinds and not isinstance(trunk, Twin):
        yield f"objective.losses: replaced needs two nets, trunk {trunk.kind} is one; use trunk kind twin"
    try:
        check_losses(trunk, losses)
    except ValueError as error:
        yield f"objective.{error}"


def _nets(recipe: Recipe) -> Iterator[str]:
    """Rows that the net cannot read."""
    trunk, segment, rewrite = recipe.trunk, recipe.data.segment, recipe.objective.rewrite
    yield from _two_sided(rewrite, trunk)
    says = "rank" in rewrite.emits
    if says and trunk.visibility != "rows":
        yield (
            f"trunk.visibility is {trunk.visibility}, rewrite {rewrite.kind} says for each row who sees whom; "
            "use trunk.visibility rows, or trunk kind two_stream"
        )
    if trunk.visibility == "rows" and not says:
        yield (
            f"trunk.visibility is rows, rewrite {rewrite.kind} does not say who sees whom; "
            "use rewrite kind unified or permute"
        )
    if says and trunk.visibility == "rows" and (rewrite.kind == "permute") != isinstance(trunk, TwoStream):
        yield (
            f"objective.rewrite: {rewrite.kind} with trunk {trunk.kind}: only two_stream hides a token from itself, as "
            "permute wants it, and unified masks it; use permute with trunk kind two_stream, unified with kind encoder"
        )
    if isinstance(trunk, Twin) and trunk.samples == "frozen" and not recipe.start:
        yield (
            "trunk.samples is frozen, and the generator has not learnt: set start to the weights of an encoder of "
            "these sizes that fills in masks"
        )
    memory = getattr(trunk, "memory", 0)
    if memory and segment.kind not in STREAMS:
        yield (
            f"trunk.memory is {memory}, rows of segment {segment.kind} do not go on from each other; "
            "use segment kind stream, or trunk.memory 0"
        )
    reuse, kept = getattr(segment, "reuse", 0), getattr(trunk, "reuse", 0)
    if memory and segment.kind in STREAMS and reuse != kept:
        yield (
            f"trunk.reuse is {kept}, data.segment.reuse is {reuse}: a row goes on from the first {reuse} tokens of the "
            f"row before, and the memory must hold no others; set trunk.reuse to {reuse}"
        )
    if segment.kind in STREAMS and not memory:
        yield (
            f"data.segment: {segment.kind} gives rows that go on from each other, the trunk remembers nothing; "
            "set trunk.memory (decoder with relative positions, or two_stream), or use segment kind packed"
        )


def _two_sided(rewrite: Rewrite, trunk: Trunk) -> Iterator[str]:
    has_source, reads_source = "source_ids" in rewrite.emits, isinstance(trunk, EncoderDecoder)
    if has_source and not reads_source:
        yield (
            f"objective.rewrite: {rewrite.kind} makes a source and a target, trunk {trunk.kind} reads one row; "
            "use trunk kind encoder_decoder"
        )
    if reads_source and not has_source:
        yield (
            f"objective.rewrite: {rewrite.kind} makes no source, trunk encoder_decoder reads one; "
            "use rewrite kind sentinel, noise, fragment, prefix or deshuffle"
        )


def _tables(recipe: Recipe) -> Iterator[str]:
    """Tables of the net with fewer rows than there are things to tell apart."""
    trunk, segment, vocab = recipe.trunk, recipe.data.segment, recipe.data.vocab
    marks = {part.kind: SEGMENTS.get(part.kind, 1) for part in (segment, recipe.objective.rewrite)}
    part, num_segments = max(marks.items(), key=lambda item: item[1])
    if num_segments > max(trunk.segments, 1):
        number = {2: "two", 3: "three", 6: "six"}[num_segments]
        where = "data.segment" if part == segment.kind else "objective.rewrite"
        yield (
            f"{where}: {part} marks {number} segments, trunk {trunk.kind} tells {trunk.segments} apart; "
            f"use an encoder with segments {num_segments}"
        )
    num_languages = len(getattr(segment, "languages", ()))
    if num_languages > 1 and num_languages > trunk.languages:
        yield (
            f"trunk.languages is {trunk.languages}, data.segment names {num_languages}; "
            f"raise trunk.languages to {num_languages}"
        )
    cutoffs = getattr(trunk, "cutoffs", ())
    if cutoffs and cutoffs[-1] >= vocab.size:
        yield f"trunk.cutoffs ends with {cutoffs[-1]}, data.vocab.size is {vocab.size}; lower the cutoffs"
    if cutoffs and not vocab.file and getattr(vocab, "order", "") != "frequency":
        yield (
            f"trunk.cutoffs wants frequent tokens first, data.vocab of kind {vocab.kind} will have another order; "
            "use data.vocab kind words, or wordpiece with order frequency, or trunk.cutoffs []"
        )


def _numbers(recipe: Recipe, cluster: Cluster) -> Iterator[str]:
    trunk, num_workers = recipe.trunk, cluster.num_workers(recipe)
    room = cluster.machine.micro_tokens
    longest = max(phase.length for phase in recipe.phases)
    for number, phase in enumerate(recipe.phases):
        at = f"phases.{number}"
        if phase.length > trunk.longest:
            yield f"{at}.length is {phase.length}, trunk has {trunk.longest} positions; raise trunk.max_positions"
        if phase.batch < num_workers:
            yield f"{at}.batch is {phase.batch}, fewer rows than the {num_workers} workers; lower cluster.workers"
        if phase.fill == "tokens" and (recipe.data.segment.ordered or recipe.objective.semantics == "compat"):
            kinds = f"segment {recipe.data.segment.kind} and semantics {recipe.objective.semantics}"
            yield f"{at}.fill is tokens, {kinds} have batches of so many rows; set fill rows"
        if phase.length > room:
            yield f"{at}.length is {phase.length}, cluster.machine.micro_tokens is {room}: less than one row; raise it"
    if isinstance(trunk, Encoder) and trunk.window // 2 >= longest:
        yield f"trunk.window is {trunk.window}, rows have at most {longest} tokens; lower it, or set 0: each sees all"
    if isinstance(trunk, Decoder) and trunk.band >= longest:
        yield f"trunk.band is {trunk.band}, rows have at most {longest} tokens; lower it, or set 0: each sees all"
    for where, part, name in (
        ("data.segment", recipe.data.segment, "reuse"),
        ("objective.rewrite", recipe.objective.rewrite, "block"),
    ):
        shortest = min(phase.length for phase in recipe.phases)
        if getattr(part, name, 0) > shortest:
            yield f"{where}.{name} is {getattr(part, name)}, rows have {shortest} tokens; lower it"
    if recipe.optim.warmup >= recipe.num_steps:
        yield f"optim.warmup is {recipe.optim.warmup} steps, the whole run has {recipe.num_steps}; lower optim.warmup"
