"""What would go wrong later with a recipe on a cluster: answers at once, without data, torch or a GPU.

The rules ask the parts for their facts and name no kind: a part that is added is checked by the same rules.
"""

import dataclasses
import typing
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, Final

from orchestration.config.error_messages import annotations, kind_of, options
from orchestration.config.overrides import flatten
from orchestration.config.recipe import Cluster, Recipe
from preprocessing.errors import BadInput
from preprocessing.objectives import Objective
from preprocessing.packing import Packing
from preprocessing.rows import impossible
from preprocessing.tokenization import TokenizerSpec, table_rows, vocab_from_file
from training.losses import check_losses
from training.optimizers import Optimizer, cycles, rate_at
from training.run import WARM_UP
from training.specs import Architecture

LEAST_LENGTH: Final = 8  # tokens of a row, as `Phase` has it


def check(recipe: Recipe, cluster: Cluster) -> list[str]:
    """What would go wrong later, one line each: where, what is given, what is allowed, what to do."""
    return [
        *_rows(recipe),
        *_vocabulary(recipe),
        *_losses(recipe),
        *_attention_mask(recipe),
        *_source(recipe),
        *_memory(recipe),
        *_tables(recipe),
        *_numbers(recipe, cluster),
        *_room(recipe),
        *_shared(recipe, cluster),
    ]


def find_ignored_keys(cluster: Cluster) -> list[str]:
    """Keys of a cluster file that are given and change nothing beside its other keys, one line each."""
    default = dict(flatten(dataclasses.asdict(Cluster(name=cluster.name))))
    given = [key for key, value in flatten(dataclasses.asdict(cluster)) if default.get(key) != value]
    why: dict[str, str] = {}
    if not cluster.ray_address:
        alone = "no ray_address is given: the Ray that is started here has one machine"
        why |= dict.fromkeys(("min_workers", "scale_up_interval_minutes"), alone)
    if cluster.loss_spikes.policy == "off":
        keys = (field.name for field in dataclasses.fields(cluster.loss_spikes) if field.name != "policy")
        why |= {f"loss_spikes.{key}": "loss_spikes.policy is off" for key in keys}
    if cluster.engine.zero_stage != 3:
        why["engine.param_persistence_threshold"] = f"engine.zero_stage is {cluster.engine.zero_stage}, it is of 3"
    beam = cluster.beam
    why |= {f"beam.options.{name}": f"beam.runner is {beam.runner}, it is of {of}" for name, of in beam.foreign.items()}
    return [f"cluster {cluster.name}: {key} changes nothing: {why[key]}" for key in given if key in why]


def _rows(recipe: Recipe) -> Iterator[str]:
    """Parts of the rows that do not fit each other."""
    needs: dict[str, frozenset[str]] = {loss.kind: loss.required_columns for loss in recipe.losses}
    if reason := impossible(recipe.data.packing, recipe.masking, recipe.objective, needs):
        yield reason


def _vocabulary(recipe: Recipe) -> Iterator[str]:
    """Special tokens and languages that the vocabulary lacks; a file of one that cannot be read, or does not fit."""
    segment, vocab = recipe.data.packing, recipe.data.tokenizer
    roles, whose = vocab.special_roles, f"data.tokenizer of kind {vocab.kind}"
    if vocab.path:
        try:
            roles, whose = frozenset(vocab_from_file(vocab).specials), vocab.path
        except BadInput as error:
            yield f"data.{error}"
            return
    for where, part in (("data.packing", segment), ("objective", recipe.objective)):
        if missing := next((role for role in part.specials if role not in roles), ""):
            remedy = _remedy(vocab, missing) if not vocab.path else _name_it(vocab, missing)
            yield f"{where}: {part.kind} needs a {missing} token, {whose} has none; {remedy}"
    if vocab.language_sampling_alpha < 1:
        named = segment.languages if "languages" in segment.possible_columns else vocab.languages
        if set(named) != set(vocab.languages):
            yield (
                f"data.tokenizer.languages is {list(vocab.languages)}, data.packing.languages {list(named)}; "
                "name the same in both"
            )


def _name_it(vocab: TokenizerSpec, role: str) -> str:
    """What to change so that a vocabulary of a file has a special token."""
    if role == "sentinel":
        return "set data.tokenizer.extra_ids to as many as it has"
    return f"say which it is by {role}_token in its tokenizer_config.json, or name another file"


def _remedy(vocab: TokenizerSpec, role: str) -> str:
    """What to change so that a vocabulary has a special token: a key of its kind, or another kind."""
    if key := vocab.roles.get(role):
        return f"set data.tokenizer.{key}"
    having = [member for member in typing.get_args(TokenizerSpec) if role in member.roles]
    return f"use kind {' or '.join(map(kind_of, having))}"


def _losses(recipe: Recipe) -> Iterator[str]:
    """Losses that do not fit the net."""
    trunk, losses = recipe.model, recipe.losses
    for loss in losses:
        if trunk.attention_mask not in loss.sees:
            kinds = " or ".join(_kinds(Architecture, "attention_mask", one) for one in sorted(loss.sees))
            yield (
                f"losses: {loss.kind} needs {' or '.join(sorted(loss.sees))} attention_mask, "
                f"model {trunk.kind} has {trunk.attention_mask}; use model kind {kinds}"
            )
        if not loss.reads & trunk.nets:
            yield (
                f"losses: {loss.kind} reads a {' or '.join(sorted(loss.reads))}, model {trunk.kind} has a "
                f"{' and a '.join(sorted(trunk.nets))}; use model kind {_having(loss.reads)}"
            )
    try:
        check_losses(trunk, losses)
    except ValueError as error:
        yield str(error)


def _attention_mask(recipe: Recipe) -> Iterator[str]:
    """Rows whose attention mask the net cannot follow, or does not get."""
    trunk, objective = recipe.model, recipe.objective
    if objective.attention != "model" and trunk.attention_mask != "per_sequence":
        yield (
            f"model.attention_mask is {trunk.attention_mask}, objective {objective.kind} needs another one for each "
            f"sequence; use per_sequence, or model kind {_kinds(Architecture, 'hides_own_token', True)}"
        )
    elif objective.attention == "model" and trunk.attention_mask == "per_sequence":
        yield (
            f"model.attention_mask is per_sequence, objective {objective.kind} makes no attention mask; "
            f"use objective kind {_kinds(Objective, 'attention', 'rows')} or "
            f"{_kinds(Objective, 'attention', 'queries')}"
        )
    elif objective.attention != "model" and (objective.attention == "queries") != trunk.hides_own_token:
        queries, hiding = _kinds(Objective, "attention", "queries"), _kinds(Architecture, "hides_own_token", True)
        yield (
            f"objective {objective.kind} with model {trunk.kind}: only {hiding} hides a token from itself, as "
            f"{queries} needs it, and other objectives mask it; use {queries} with model kind {hiding}, "
            f"{_kinds(Objective, 'attention', 'rows')} with kind "
            f"{_kinds(Architecture, 'attention_mask', 'bidirectional')}"
        )


def _source(recipe: Recipe) -> Iterator[str]:
    """A source that no encoder reads, or an encoder without one."""
    trunk, objective = recipe.model, recipe.objective
    if objective.two_sided and not trunk.reads_source:
        yield (
            f"objective {objective.kind} makes a source and a target, model {trunk.kind} reads one row; "
            f"use model kind {_kinds(Architecture, 'reads_source', True)}"
        )
    if trunk.reads_source and not objective.two_sided:
        yield (
            f"objective {objective.kind} makes no source, model {trunk.kind} reads one; "
            f"use objective kind {_kinds(Objective, 'two_sided', True)}"
        )


def _memory(recipe: Recipe) -> Iterator[str]:
    """A memory without rows that continue each other, or such rows without a memory; weights that a net begins with."""
    trunk, segment = recipe.model, recipe.data.packing
    streams = _kinds(Packing, "ordered", True)
    if trunk.begins_trained and not recipe.init_checkpoint:
        yield f"{trunk.begins_trained}: set init_checkpoint to weights of an encoder of these sizes that fills in masks"
    if trunk.mem_len and not segment.ordered:
        yield (
            f"model.position_embedding.mem_len is {trunk.mem_len}, rows of packing {segment.kind} do not continue each "
            f"other; "
            f"use packing kind {streams}, or mem_len 0"
        )
    if trunk.mem_len and segment.ordered and segment.reuse_len != trunk.reuse_len:
        yield (
            f"model.position_embedding.reuse_len is {trunk.reuse_len}, data.packing.reuse_len is {segment.reuse_len}: "
            f"a row continues "
            f"the first "
            f"{segment.reuse_len} tokens of the row before, and the memory must hold no others; "
            f"set model.position_embedding.reuse_len to {segment.reuse_len}"
        )
    if segment.ordered and not trunk.mem_len:
        yield (
            f"data.packing: {segment.kind} gives rows that continue each other, the model has no memory; "
            f"set model.position_embedding.mem_len, which model kind {_offering('mem_len')} can have, or use another "
            f"packing kind"
        )


def _tables(recipe: Recipe) -> Iterator[str]:
    """Tables of the net with fewer rows than there are things to tell apart."""
    trunk, segment, vocab = recipe.model, recipe.data.packing, recipe.data.tokenizer
    parts: tuple[tuple[str, Any], ...] = (("data.packing", segment), ("objective", recipe.objective))
    where, part = max(parts, key=lambda one: one[1].segments)
    if part.segments > max(trunk.type_vocab_size, 1):
        yield (
            f"{where}: {part.kind} marks {part.segments} segments, model {trunk.kind} tells {trunk.type_vocab_size} "
            f"apart; "
            f"use model kind {_having_key(Architecture, 'type_vocab_size')} with type_vocab_size {part.segments}"
        )
    num_languages = len(segment.languages)
    if num_languages > 1 and num_languages > trunk.num_languages:
        yield (
            f"model.num_languages is {trunk.num_languages}, data.packing names {num_languages}; "
            f"raise model.num_languages to {num_languages}"
        )
    if trunk.cutoffs and trunk.cutoffs[-1] >= vocab.vocab_size:
        yield (
            f"model.token_embedding.cutoffs ends with {trunk.cutoffs[-1]}, data.tokenizer.vocab_size is "
            f"{vocab.vocab_size}; "
            f"lower the cutoffs"
        )
    if trunk.cutoffs and not vocab.path and vocab.token_order != "frequency":
        yield (
            f"model.token_embedding.cutoffs needs frequent tokens first, data.tokenizer of kind {vocab.kind} has "
            f"another order; "
            f"use data.tokenizer kind {_kinds(TokenizerSpec, 'token_order', 'frequency')}, or token_order frequency "
            f"with "
            f"kind "
            f"{_having_key(TokenizerSpec, 'token_order')}, or leave out model.token_embedding"
        )


def _numbers(recipe: Recipe, cluster: Cluster) -> Iterator[str]:
    trunk, num_workers = recipe.model, cluster.count_workers(recipe)
    num_groups = num_workers // cluster.engine.workers_per_row  # those of a group read the same rows
    room = cluster.engine.micro_batch_tokens
    longest, shortest = (pick(phase.seq_length for phase in recipe.phases) for pick in (max, min))
    if cluster.ray_address and not cluster.num_workers:
        yield "cluster.num_workers is 0, allowed with an address is a number from 1 up: it counts this machine alone"
    for number, phase in enumerate(recipe.phases):
        at = f"phases.{number}"
        if phase.seq_length > trunk.longest:
            yield (
                f"{at}.seq_length is {phase.seq_length}, model has {trunk.longest} positions; raise "
                f"model.position_embedding.max_position_embeddings"
            )
        if phase.global_batch_size < num_groups:
            who = "workers" if num_groups == num_workers else "groups of workers"
            yield (
                f"{at}.global_batch_size is {phase.global_batch_size}, fewer rows than the {num_groups} {who}; lower "
                f"cluster.num_workers"
            )
        if phase.batch_unit == "token" and recipe.data.packing.ordered:
            kind = recipe.data.packing.kind
            yield f"{at}.batch_unit is token, packing {kind} has batches of so many rows; set batch_unit sequence"
        if phase.seq_length > room:
            yield (
                f"{at}.seq_length is {phase.seq_length}, cluster.engine.micro_batch_tokens is {room}: less than one "
                f"row; "
                f"raise it"
            )
    if reason := trunk.attention_window.fits(longest):
        yield reason
    for place, tokens in (
        ("data.packing.reuse_len", recipe.data.packing.reuse_len),
        ("objective.perm_size", recipe.objective.perm_size),
    ):
        if tokens > shortest:
            yield f"{place} is {tokens}, rows have {shortest} tokens; lower it"
    if cluster.profile_steps > (most := max(0, recipe.num_steps - WARM_UP)):
        yield (
            f"cluster.profile_steps is {cluster.profile_steps} steps, the run has {most} behind its first {WARM_UP}; "
            f"lower it"
        )
    if late := [step for step in cluster.skip_steps if step > recipe.num_steps]:
        yield f"cluster.skip_steps has {late[0]}, the whole run has {recipe.num_steps} steps; leave it out"
    yield from _schedules(recipe)


def _room(recipe: Recipe) -> Iterator[str]:
    """Rows that the segment cannot make, or that can want more sentinels than there are, be it one in a million."""
    segment, masking, objective = recipe.data.packing, recipe.masking, recipe.objective
    for number, phase in enumerate(recipe.phases):
        at, tokens = (
            f"phases.{number}.seq_length is {phase.seq_length}",
            objective.raw_length(phase.seq_length, masking),
        )
        if tokens < segment.least:
            more = phase.seq_length + segment.least - tokens
            yield f"{at}, rows of packing {segment.kind} have {segment.least} tokens at least; raise it to {more}"
        has, wanted = recipe.data.tokenizer.extra_ids, objective.most_sentinels(tokens, masking)
        if wanted > has > 0:
            shorter_ones = range(LEAST_LENGTH, phase.seq_length)
            fits = LEAST_LENGTH - 1 + bisect_right(shorter_ones, has, key=lambda length: _sentinels_of(recipe, length))
            shorter = f", or the length to {fits}" if fits >= LEAST_LENGTH else ""
            yield (
                f"{at}: a row can have {wanted} spans, each behind a sentinel, data.tokenizer.extra_ids is {has}; "
                f"raise "
                f"that to {wanted}, or lower masking.rate{shorter}"
            )


def _sentinels_of(recipe: Recipe, length: int) -> int:
    """Sentinels that rows of this length can want."""
    masking, objective = recipe.masking, recipe.objective
    return objective.most_sentinels(objective.raw_length(length, masking), masking)


def find_remarks(recipe: Recipe, cluster: Cluster) -> list[str]:
    """What is not wrong and still other than one may think, one line each."""
    precision, objective = cluster.engine.precision, recipe.objective
    found = [f"objective {objective.kind}: {objective.remark}"] if objective.remark else []
    if rate_at(recipe.optimizer, recipe.phases, 0) == 0:
        found.append(
            "optimizer.warmup_steps: the first update has learning rate 0, as in the reference code: it changes no "
            "weight"
        )
    if precision != "fp32":
        found.append(
            f"engine.precision {precision}: the first weights are rounded to {precision} once, and float32 ones are "
            "kept from there on"
        )
    return found


def _schedules(recipe: Recipe) -> Iterator[str]:
    """Learning rates that never come to their peak, or of which two keys say different things."""
    first, *others = cycles(recipe.optimizer, recipe.phases)
    whole = "the phases before the next peak have" if others else "the whole run has"
    if recipe.phases[0].learning_rate:
        yield (
            f"phases.0.learning_rate is {recipe.phases[0].learning_rate:g}, that of the first phase is "
            f"optimizer.learning_rate; leave it out"
        )
    elif first.warmup_steps >= first.total:
        yield (
            f"optimizer.warmup_steps is {first.warmup_steps} steps, {whole} {first.total}; lower optimizer.warmup_steps"
        )
    if others and recipe.optimizer.lr_decay_steps:
        yield (
            f"optimizer.lr_decay_steps is {recipe.optimizer.lr_decay_steps}, schedules end before the next phase "
            f"with a peak; set it to 0"
        )
    for cycle in others:
        if cycle.warmup_steps >= cycle.total > 0:
            yield (
                f"phases: the warm-up to {cycle.learning_rate:g} has {cycle.warmup_steps} steps, the phases from there "
                f"on "
                f"{cycle.total}; lower phases.warmup_steps"
            )


def _shared(recipe: Recipe, cluster: Cluster) -> Iterator[str]:
    """What cannot be split over workers that share a net, its layers, or the tokens of their rows."""
    workers, sequence = cluster.engine.tensor_parallel_size, cluster.engine.sequence_parallel_size
    stages = cluster.engine.pipeline_parallel_size
    if stages > 1 and (reason := recipe.model.stages_over(stages)):
        yield (
            f"cluster.engine.pipeline_parallel_size is {stages}, {reason}; give another one, 1 where there are no "
            f"stages"
        )
    if sequence > 1 and (reason := recipe.model.chunks_over(workers * sequence)):
        yield (
            f"cluster.engine.sequence_parallel_size is {sequence}, {reason}; give another one, 1 where nothing is "
            f"shared"
        )
    if workers == 1:
        return
    given = f"cluster.engine.tensor_parallel_size is {workers}"
    if reason := recipe.model.split_over(workers):
        yield f"{given}, {reason}; give another tensor_parallel_size, 1 where nothing is split"
    if not recipe.optimizer.takes_slices:
        yield (
            f"{given}, optimizer.kind {recipe.optimizer.kind} looks at whole tensors; set tensor_parallel_size 1, or "
            f"use {_kinds(Optimizer, 'takes_slices', True)}"
        )
    if (rows := table_rows(recipe.data.tokenizer)) < workers:
        yield f"{given}, the token table has {rows} rows; lower tensor_parallel_size"


def _kinds(union: Any, fact: str, value: object) -> str:
    """The kinds of a union of which a fact holds, where a recipe says nothing else, as a message lists them."""
    return " or ".join(kind_of(member) for member in typing.get_args(union) if _fact(member, fact) == value)


def _having_key(union: Any, key: str) -> str:
    """The kinds of a union that have this key in a recipe."""
    return " or ".join(kind_of(member) for member in typing.get_args(union) if key in annotations(member))


def _offering(key: str) -> str:
    """The kinds of trunk of which some positions have this key."""
    found = [each for each in typing.get_args(Architecture) if "position_embedding" in annotations(each)]
    offers = {each: options(annotations(each)["position_embedding"]) for each in found}
    return " or ".join(kind_of(each) for each in found if any(key in annotations(one) for one in offers[each]))


def _having(nets: Iterable[str]) -> str:
    """The kinds of trunk that have one of these nets."""
    return " or ".join(kind_of(member) for member in typing.get_args(Architecture) if member.nets & set(nets))


def _fact(member: Any, name: str) -> Any:
    """A fact of a class, or what a key of it is by default."""
    defaults = {field.name: field.default for field in dataclasses.fields(member)}
    return defaults[name] if name in defaults else getattr(member, name)
