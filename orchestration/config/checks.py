"""Finds problems of a recipe on a cluster before it runs, without data, torch or a GPU.

The rules read the facts of parts (class variables), not their kinds, so they also check new
parts.
"""

import dataclasses
import importlib.util
import typing
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from orchestration.config.error_messages import annotations, invalid, kind_of, options
from orchestration.config.overrides import flatten
from orchestration.config.part_checks import describe_failure
from orchestration.config.recipe import Cluster, Recipe
from orchestration.trackers import find_missing
from preprocessing.errors import BadInput
from preprocessing.objectives import Objective
from preprocessing.packing import Packing
from preprocessing.part_combinations import impossible
from preprocessing.spec import InvalidValue
from preprocessing.tokenization import TokenizerSpec, table_rows, vocab_from_file
from training.losses import check_losses
from training.optimizers import Optimizer, count_decay_steps, cycles, has_stable_phase, rate_at
from training.run import WARM_UP
from training.specs import Architecture

_MOST_TRIED: Final = 1_024  # degrees of parallelism that a message searches
MIN_LENGTH: Final = 8  # tokens; the limit of Phase.seq_length


def check(recipe: Recipe, cluster: Cluster) -> list[str]:
    """The problems of a recipe on a cluster, one line each: the key, its value, the expected value, and a remedy."""
    if broken := list(_check_masking(recipe)):
        return broken  # other checks use these facts
    return [
        *_check_sequences(recipe),
        *_check_vocabulary(recipe),
        *_check_losses(recipe),
        *_check_attention_mask(recipe),
        *_check_source(recipe),
        *_check_memory(recipe),
        *_check_embeddings(recipe),
        *_check_numbers(recipe, cluster),
        *_check_lengths(recipe),
        *_check_parallelism(recipe, cluster),
        *_check_trackers(cluster),
        *_check_fp8(cluster),
    ]


def find_ignored_keys(cluster: Cluster) -> list[str]:
    """The keys of a cluster file that have no effect because of its other keys, one line each."""
    default = dict(flatten(dataclasses.asdict(Cluster(name=cluster.name))))
    changed = [key for key, value in flatten(dataclasses.asdict(cluster)) if default.get(key) != value]
    reasons: dict[str, str] = {}
    if not cluster.ray_address:
        alone = "without ray_address, Ray starts on this machine only"
        reasons |= dict.fromkeys(("min_workers", "scale_up_interval_minutes"), alone)
    if cluster.loss_spikes.policy == "off":
        keys = (field.name for field in dataclasses.fields(cluster.loss_spikes) if field.name != "policy")
        reasons |= {f"loss_spikes.{key}": "loss_spikes.policy is off" for key in keys}
    if cluster.engine.zero_stage != 3:
        stage = cluster.engine.zero_stage
        reasons["engine.param_persistence_threshold"] = f"only engine.zero_stage 3 reads it, but zero_stage is {stage}"
    beam = cluster.beam
    reasons |= {
        f"beam.options.{name}": f"only beam.runner {runner} reads it, but beam.runner is {beam.runner}"
        for name, runner in beam.foreign.items()
    }
    return [f"cluster {cluster.name}: {key} has no effect: {reasons[key]}" for key in changed if key in reasons]


def _check_trackers(cluster: Cluster) -> Iterator[str]:
    """Trackers whose packages are not installed."""
    for tracker in find_missing(cluster.trackers):
        remedy = f"run `pip install {tracker.package}`, or leave it out"
        yield invalid("cluster.trackers", tracker.kind, f"the package {tracker.package} to be installed", remedy)


def _check_fp8(cluster: Cluster) -> Iterator[str]:
    """FP8 without its package."""
    recipe = cluster.engine.fp8_recipe
    if recipe != "none" and importlib.util.find_spec("torchao") is None:
        remedy = "run `pip install 'sesame-pretraining[fp8]'`, or set it to none"
        yield invalid("cluster.engine.fp8_recipe", recipe, "the package torchao to be installed", remedy)


def _check_masking(recipe: Recipe) -> Iterator[str]:
    """Facts of a masking scheme that cannot be computed, because its class does not validate its values."""
    masking = recipe.masking
    facts: Mapping[str, Callable[[int], object]] = {
        "predicted": lambda _: masking.predicted,
        "span_mean": lambda _: masking.span_mean,
        "most_runs": masking.most_runs,
        "describe": lambda _: masking.describe(),
    }
    for name, fact in facts.items():
        try:
            for phase in recipe.phases:
                fact(phase.seq_length)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            yield describe_failure(error, f"masking: `{name}` of kind {masking.kind}")


def _check_sequences(recipe: Recipe) -> Iterator[str]:
    """Packing, masking, objective and losses that do not fit together."""
    needs: dict[str, frozenset[str]] = {loss.kind: loss.required_columns for loss in recipe.losses}
    if reason := impossible(recipe.data.packing, recipe.masking, recipe.objective, needs):
        yield reason


def _check_vocabulary(recipe: Recipe) -> Iterator[str]:
    """Special tokens and languages that the vocabulary lacks; a vocabulary file that is unreadable or does not fit."""
    packing, tokenizer = recipe.data.packing, recipe.data.tokenizer
    roles, vocabulary = tokenizer.special_roles, f"kind {tokenizer.kind}"
    if tokenizer.path:
        try:
            roles, vocabulary = frozenset(vocab_from_file(tokenizer).specials), tokenizer.path
        except BadInput as error:
            yield f"data.{error}"
            return
    for where, part in (("data.packing", packing), ("objective", recipe.objective)):
        if missing := next((role for role in part.specials if role not in roles), ""):
            remedy = _remedy_in_file(tokenizer, missing) if tokenizer.path else _remedy(tokenizer, missing)
            yield invalid(
                "data.tokenizer",
                f"no {missing} token in {vocabulary}",
                f"one, because {where} {part.kind} needs it",
                remedy,
            )
    if tokenizer.language_sampling_alpha < 1:
        languages = packing.languages if "languages" in packing.possible_columns else tokenizer.languages
        if set(languages) != set(tokenizer.languages):
            yield invalid(
                "data.tokenizer.languages",
                str(list(tokenizer.languages)),
                f"those of data.packing.languages, {list(languages)}",
                "write the same languages in both",
            )


def _remedy_in_file(tokenizer: TokenizerSpec, role: str) -> str:
    """A remedy for a special token that a vocabulary file lacks."""
    if role == "sentinel":
        return "set data.tokenizer.extra_ids to the number of sentinels in the file"
    return f"set {role}_token in the tokenizer_config.json next to the file, or use another file"


def _remedy(tokenizer: TokenizerSpec, role: str) -> str:
    """A remedy for a special token that a tokenizer kind lacks: a key of this kind, or another kind."""
    if key := tokenizer.roles.get(role):
        return f"set data.tokenizer.{key}"
    having = [member for member in typing.get_args(TokenizerSpec) if role in member.roles]
    return f"use kind {' or '.join(map(kind_of, having))}"


def _check_losses(recipe: Recipe) -> Iterator[str]:
    """Losses that do not fit the model."""
    model, losses = recipe.model, recipe.losses
    for loss in losses:
        if model.attention_mask not in loss.sees:
            kinds = " or ".join(_kinds(Architecture, "attention_mask", mask) for mask in sorted(loss.sees))
            yield invalid(
                "model.attention_mask",
                model.attention_mask,
                f"{' or '.join(sorted(loss.sees))} for the loss {loss.kind}",
                f"use model kind {kinds}",
            )
        if not loss.reads & model.nets:
            yield invalid(
                "losses",
                f"{loss.kind} with model kind {model.kind}",
                f"a model with a {' or a '.join(sorted(loss.reads))}",
                f"use model kind {_list_kinds(loss.reads)}",
            )
    try:
        check_losses(model, losses)
    except InvalidValue as error:
        yield invalid(error.key, error.got, error.expected, "correct the list")
    except ValueError as error:
        yield str(error)


def _check_attention_mask(recipe: Recipe) -> Iterator[str]:
    """Attention masks of the objective that the model does not read, or that the objective does not produce."""
    model, objective = recipe.model, recipe.objective
    hiding = _kinds(Architecture, "hides_own_token", True)
    queries, masks = _kinds(Objective, "attention", "queries"), _kinds(Objective, "attention", "rows")
    if objective.attention != "model" and model.attention_mask != "per_sequence":
        yield invalid(
            "model.attention_mask",
            model.attention_mask,
            f"per_sequence, because objective {objective.kind} has its own mask for each sequence",
            f"set it to per_sequence, or use model kind {hiding}",
        )
    elif objective.attention == "model" and model.attention_mask == "per_sequence":
        yield invalid(
            "model.attention_mask",
            "per_sequence",
            f"another value, because objective {objective.kind} produces no mask",
            f"change it, or use objective kind {masks} or {queries}",
        )
    elif objective.attention != "model" and (objective.attention == "queries") != model.hides_own_token:
        yield invalid(
            "objective",
            f"{objective.kind} with model kind {model.kind}",
            f"{queries} and {hiding} only together, because only {hiding} hides a token from itself",
            f"use {queries} with model kind {hiding}, or {masks} with kind "
            f"{_kinds(Architecture, 'attention_mask', 'bidirectional')}",
        )


def _check_source(recipe: Recipe) -> Iterator[str]:
    """A source that no encoder reads, or an encoder without a source."""
    model, objective = recipe.model, recipe.objective
    if objective.two_sided and not model.reads_source:
        yield invalid(
            "objective",
            f"{objective.kind} with model kind {model.kind}, which reads one sequence",
            "a model that reads a source and a target",
            f"use model kind {_kinds(Architecture, 'reads_source', True)}",
        )
    if model.reads_source and not objective.two_sided:
        yield invalid(
            "objective",
            f"{objective.kind} without a source, with model kind {model.kind}",
            "an objective with a source",
            f"use objective kind {_kinds(Objective, 'two_sided', True)}",
        )


def _check_memory(recipe: Recipe) -> Iterator[str]:
    """A memory without consecutive sequences, or consecutive sequences without a memory; missing initial weights."""
    model, packing = recipe.model, recipe.data.packing
    if model.begins_trained and not recipe.init_checkpoint:
        yield invalid(
            "init_checkpoint",
            "no value",
            f"weights, because {model.begins_trained}",
            "set it to the directory of a masked language model of the generator's size",
        )
    if model.mem_len and not packing.ordered:
        yield invalid(
            "model.position_embedding.mem_len",
            str(model.mem_len),
            f"0 with packing {packing.kind}, whose sequences do not continue each other",
            f"set it to 0, or use packing kind {_kinds(Packing, 'ordered', True)}",
        )
    if model.mem_len and packing.ordered and packing.reuse_len != model.reuse_len:
        yield invalid(
            "model.position_embedding.reuse_len",
            str(model.reuse_len),
            f"{packing.reuse_len}, as in data.packing.reuse_len, because the memory holds the tokens that a sequence "
            "continues",
            "make both equal",
        )
    if packing.ordered and not model.mem_len:
        yield invalid(
            "model.position_embedding.mem_len",
            "no memory",
            f"a number above 0 with packing {packing.kind}, whose sequences continue each other",
            f"set it, with model kind {_list_kinds_with_positions('mem_len')}, or use another packing kind",
        )


def _check_embeddings(recipe: Recipe) -> Iterator[str]:
    """Embedding tables of the model that have too few rows for the data."""
    model, packing, tokenizer = recipe.model, recipe.data.packing, recipe.data.tokenizer
    parts: tuple[tuple[str, Any], ...] = (("data.packing", packing), ("objective", recipe.objective))
    where, part = max(parts, key=lambda one: one[1].segments)
    if part.segments > max(model.type_vocab_size, 1):
        yield invalid(
            "model.type_vocab_size",
            str(model.type_vocab_size),
            f"{part.segments} or more, the number of segments of {where} {part.kind}",
            f"use model kind {_list_kinds_with_key(Architecture, 'type_vocab_size')} with type_vocab_size "
            f"{part.segments}",
        )
    num_languages = len(packing.languages)
    if num_languages > 1 and num_languages > model.num_languages:
        yield invalid(
            "model.num_languages",
            str(model.num_languages),
            f"{num_languages}, the number of data.packing.languages",
            f"raise it to {num_languages}",
        )
    if model.cutoffs and model.cutoffs[-1] >= tokenizer.vocab_size:
        yield invalid(
            "model.token_embedding.cutoffs",
            f"{model.cutoffs[-1]} as the last one",
            f"numbers below data.tokenizer.vocab_size, {tokenizer.vocab_size}",
            "lower the cutoffs",
        )
    if model.cutoffs and not tokenizer.path and tokenizer.token_order != "frequency":
        yield invalid(
            "data.tokenizer",
            f"kind {tokenizer.kind}",
            "one that orders tokens by frequency, because of model.token_embedding.cutoffs",
            f"use data.tokenizer kind {_kinds(TokenizerSpec, 'token_order', 'frequency')}, or token_order frequency "
            f"with kind {_list_kinds_with_key(TokenizerSpec, 'token_order')}, or remove model.token_embedding",
        )


def _check_numbers(recipe: Recipe, cluster: Cluster) -> Iterator[str]:
    """Lengths, batch sizes and steps that do not fit the model, the packing or the cluster."""
    model, packing, num_workers = recipe.model, recipe.data.packing, cluster.count_workers(recipe)
    num_groups = num_workers // cluster.engine.workers_per_row  # the workers of a group read the same sequences
    micro_batch = cluster.engine.micro_batch_tokens  # a number, or auto, which is at least one sequence
    longest, shortest = (pick(phase.seq_length for phase in recipe.phases) for pick in (max, min))
    if cluster.ray_address and not cluster.num_workers:
        yield invalid(
            "cluster.num_workers",
            "0, which counts the workers of this machine only",
            "a number of at least 1 with ray_address",
            "set it to the number of workers of the Ray cluster",
        )
    for number, phase in enumerate(recipe.phases):
        at = f"phases.{number}"
        if phase.seq_length > model.longest:
            yield invalid(
                f"{at}.seq_length",
                str(phase.seq_length),
                f"at most {model.longest}, the number of positions of the model",
                "lower it, or raise model.position_embedding.max_position_embeddings",
            )
        if phase.global_batch_size < num_groups:
            groups = "workers" if num_groups == num_workers else "groups of workers"
            yield invalid(
                f"{at}.global_batch_size",
                str(phase.global_batch_size),
                f"at least {num_groups}, the number of {groups}",
                "raise it, or lower cluster.num_workers",
            )
        if phase.batch_unit == "token" and packing.ordered:
            yield invalid(
                f"{at}.batch_unit",
                "token",
                f"sequence with packing {packing.kind}, whose batches have a fixed number of sequences",
                "set it to sequence",
            )
        if micro_batch != "auto" and phase.seq_length > micro_batch:
            yield invalid(
                "cluster.engine.micro_batch_tokens",
                str(micro_batch),
                f"at least {phase.seq_length}, the tokens of one sequence of {at}",
                "raise it",
            )
    if reason := model.attention_window.fits(longest):
        yield reason
    for place, tokens in (
        ("data.packing.reuse_len", packing.reuse_len),
        ("objective.perm_size", recipe.objective.perm_size),
    ):
        if tokens > shortest:
            yield invalid(place, str(tokens), f"at most {shortest}, the tokens of a sequence", "lower it")
    if cluster.profile_steps > (most := max(0, recipe.num_steps - WARM_UP)):
        yield invalid(
            "cluster.profile_steps",
            str(cluster.profile_steps),
            f"at most {most}, the steps of the run after its first {WARM_UP}",
            "lower it",
        )
    if late := [step for step in cluster.skip_steps if step > recipe.num_steps]:
        yield invalid("cluster.skip_steps", str(late[0]), f"steps up to {recipe.num_steps}, the last one", "remove it")
    yield from check_schedules(recipe)


def _check_lengths(recipe: Recipe) -> Iterator[str]:
    """Lengths that are too short for the packing, or so long that a sequence can need more sentinels than there are.

    The second problem is an error even if only one sequence in a million has so many spans.
    """
    packing, masking, objective = recipe.data.packing, recipe.masking, recipe.objective
    for number, phase in enumerate(recipe.phases):
        key, length = f"phases.{number}.seq_length", phase.seq_length
        tokens = objective.raw_length(length, masking)
        if tokens < packing.least:
            least = length + packing.least - tokens
            yield invalid(key, str(length), f"at least {least} with packing {packing.kind}", f"raise it to {least}")
        num_sentinels, needed = recipe.data.tokenizer.extra_ids, objective.most_sentinels(tokens, masking)
        if needed > num_sentinels > 0:
            shorter = range(MIN_LENGTH, length)
            fits = MIN_LENGTH - 1 + bisect_right(shorter, num_sentinels, key=lambda one: _sentinels_of(recipe, one))
            lower = f", or lower {key} to {fits}" if fits >= MIN_LENGTH else ""
            yield invalid(
                "data.tokenizer.extra_ids",
                str(num_sentinels),
                f"at least {needed}, one sentinel for each span of a sequence of {key} {length}",
                f"raise it to {needed}, or lower masking.rate{lower}",
            )


def _sentinels_of(recipe: Recipe, length: int) -> int:
    """The maximum number of sentinels in a sequence of this length."""
    masking, objective = recipe.masking, recipe.objective
    return objective.most_sentinels(objective.raw_length(length, masking), masking)


def find_remarks(recipe: Recipe, cluster: Cluster) -> list[str]:
    """Facts that are correct but may surprise the user, one line each."""
    precision, objective = cluster.engine.precision, recipe.objective
    found = [f"objective {objective.kind}: {objective.remark}"] if objective.remark else []
    if rate_at(recipe.optimizer, recipe.phases, 0) == 0:
        found.append(
            "optimizer.warmup_steps: the learning rate of the first step is 0, so this step changes no weight; the "
            "reference code does the same"
        )
    if precision != "fp32":
        found.append(
            f"engine.precision {precision}: the model computes with weights in {precision}; the optimizer updates "
            f"copies in float32, whose initial values are also rounded to {precision}"
        )
    return found


def check_schedules(recipe: Recipe) -> Iterator[str]:
    """Learning rates that never reach their peak, and keys that contradict each other."""
    first, *others = cycles(recipe.optimizer, recipe.phases)
    until = "the steps before the next peak" if others else "the steps of the run"
    if recipe.phases[0].learning_rate:
        yield invalid(
            "phases.0.learning_rate",
            f"{recipe.phases[0].learning_rate:g}",
            "0, because optimizer.learning_rate is the peak of the first phase",
            "remove it",
        )
    elif first.warmup_steps >= first.total:
        yield invalid(
            "optimizer.warmup_steps", str(first.warmup_steps), f"less than {first.total}, {until}", "lower it"
        )
    if others and recipe.optimizer.lr_decay_steps:
        yield invalid(
            "optimizer.lr_decay_steps",
            str(recipe.optimizer.lr_decay_steps),
            "0, because each schedule ends at the next phase with a peak",
            "set it to 0",
        )
    is_checked = recipe.optimizer.lr_decay_steps > 0  # by the optimizer
    for cycle in (first, *others) if has_stable_phase(recipe.optimizer) and not is_checked else ():
        most = cycle.total - cycle.warmup_steps
        if count_decay_steps(cycle, cycle.total) > most > 0:
            yield invalid(
                "optimizer.num_decay_steps",
                f"{recipe.optimizer.num_decay_steps:.12g}",
                f"at most {most}, the {cycle.total} steps from step {cycle.begin} without the warmup",
                "lower it",
            )
    for cycle in others:
        if cycle.warmup_steps >= cycle.total > 0:
            yield invalid(
                "phases.warmup_steps",
                f"{cycle.warmup_steps} before the peak of {cycle.learning_rate:g}",
                f"less than {cycle.total}, the steps from that peak to the next one",
                "lower it",
            )


def _check_parallelism(recipe: Recipe, cluster: Cluster) -> Iterator[str]:
    """Degrees of tensor, pipeline and sequence parallelism that the model or the optimizer does not support."""
    engine = cluster.engine
    workers, chunks, stages = engine.tensor_parallel_size, engine.sequence_parallel_size, engine.pipeline_parallel_size
    model, num = recipe.model, cluster.num_workers
    if stages > 1 and model.stages_over(stages):
        yield _explain_unsupported("pipeline_parallel_size", stages, num, model.stages_over)
    if chunks > 1 and model.chunks_over(workers * chunks):
        yield _explain_unsupported(
            "sequence_parallel_size", chunks, num, lambda degree: model.chunks_over(workers * degree)
        )
    if workers == 1:
        return
    if model.split_over(workers):
        yield _explain_unsupported("tensor_parallel_size", workers, num, model.split_over)
    if not recipe.optimizer.takes_slices:
        yield invalid(
            "cluster.engine.tensor_parallel_size",
            str(workers),
            f"1 with optimizer kind {recipe.optimizer.kind}, which needs whole tensors",
            f"set it to 1, or use {_kinds(Optimizer, 'takes_slices', True)}",
        )
    if (rows := table_rows(recipe.data.tokenizer)) < workers:
        yield invalid(
            "cluster.engine.tensor_parallel_size",
            str(workers),
            f"at most {rows}, the number of rows of the token embedding",
            "lower it",
        )


def _explain_unsupported(key: str, degree: int, num_workers: int, explain: Callable[[int], str]) -> str:
    """The message for a degree of parallelism that the model does not support, with the largest lower ones that it
    supports and that divide `num_workers`. `explain` gives the reason for a degree, or ""."""
    expected = f"a degree that the model supports ({explain(degree)})"
    lower = range(min(degree, _MOST_TRIED) - 1, 1, -1)
    supported = [*(one for one in lower if num_workers % one == 0 and not explain(one)), 1]
    return invalid(f"cluster.engine.{key}", str(degree), expected, f"use {' or '.join(map(str, supported[:2]))}")


def _kinds(union: Any, fact: str, value: object) -> str:
    """The kinds of a union for which a fact has this value by default, as a message lists them."""
    return " or ".join(kind_of(member) for member in typing.get_args(union) if _fact(member, fact) == value)


def _list_kinds_with_key(union: Any, key: str) -> str:
    """The kinds of a union that have this key in a recipe."""
    return " or ".join(kind_of(member) for member in typing.get_args(union) if key in annotations(member))


def _list_kinds_with_positions(key: str) -> str:
    """The kinds of models with a position embedding that has this key."""
    found = [each for each in typing.get_args(Architecture) if "position_embedding" in annotations(each)]
    offers = {each: options(annotations(each)["position_embedding"]) for each in found}
    return " or ".join(kind_of(each) for each in found if any(key in annotations(one) for one in offers[each]))


def _list_kinds(nets: Iterable[str]) -> str:
    """The kinds of models that have one of these networks."""
    return " or ".join(kind_of(member) for member in typing.get_args(Architecture) if member.nets & set(nets))


def _fact(member: Any, name: str) -> Any:
    """The fact `name` of a class; if the class has a key of this name, the default of the key."""
    defaults = {field.name: field.default for field in dataclasses.fields(member)}
    return defaults[name] if name in defaults else getattr(member, name)
