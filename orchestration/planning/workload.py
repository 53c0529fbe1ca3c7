"""The demands of a recipe, independent of its layout: weights, sequences, work and FLOPs of its phases."""

from dataclasses import dataclass, replace
from functools import reduce

from orchestration.config import Recipe
from preprocessing.tokenization import table_rows
from training import meter
from training.specs import BatchWork, BlockSpec, Phase, Weights, count_weights


@dataclass(frozen=True)
class Workload:
    """The sizes of a recipe."""

    recipe: Recipe
    vocab_size: int  # rows of the token table
    weights: Weights  # weights of the model and its heads

    @property
    def heads(self) -> int:
        """Weights of the heads."""
        return _count_heads(self.recipe, self.vocab_size).total

    @property
    def parameters(self) -> int:
        return self.weights.total

    @property
    def token_table(self) -> float:
        """Weights of the token table, which workers split by rows; an untied output table has as many."""
        return self.weights.tables / (1 if self.recipe.model.tie_word_embeddings else 2)

    @property
    def borrowed_table(self) -> float:
        """Weights of the token table that the last stage of a pipeline borrows from the first."""
        return self.token_table if self.recipe.model.tie_word_embeddings else 0.0

    def tables_at(self, *, first: bool, last: bool) -> int:
        """Number of such tables on the first or the last stage of a pipeline, or on a stage that is both."""
        return int(first) + int(last and not self.recipe.model.tie_word_embeddings)

    @property
    def longest(self) -> Phase:
        """The phase with the longest sequences."""
        return max(self.recipe.phases, key=lambda phase: phase.seq_length)

    def row_tokens(self, length: int) -> int:
        """Tokens that the loader counts for a sequence of this length: twice the length if an encoder reads a second
        text."""
        return 2 * length if self.recipe.objective.two_sided else length

    def micro_rows(self, micro_tokens: int, phase: Phase, replicas: int) -> int:
        """Maximum sequences in a micro-batch of a phase, with `replicas` replicas."""
        return max(1, min(micro_tokens // self.row_tokens(phase.seq_length), -(-phase.global_batch_size // replicas)))

    def work(self, rows: float, length: int) -> BatchWork:
        """The work of `rows` sequences without padding."""
        masking, objective = self.recipe.masking, self.recipe.objective
        reads, writes = objective.shares(masking)
        predicted = 1.0 if objective.two_sided else masking.predicted
        tokens, source_tokens = writes * rows * length, reads * rows * length
        return BatchWork(
            tokens=round(tokens),
            squares=round(tokens * writes * length),
            targets=round(predicted * tokens),
            source_tokens=round(source_tokens),
            source_squares=round(source_tokens * reads * length),
            crossed=round(tokens * reads * length),
        )

    def flops(self, rows: float, length: int) -> float:
        """FLOPs of one forward and backward pass over `rows` sequences (training/meter.py)."""
        return meter.flops(self.recipe.model, self.vocab_size, self.work(rows, length))

    def flops_of_heads(self, rows: float, length: int) -> float:
        """FLOPs of one forward and backward pass that compare states with the token table."""
        work = self.work(rows, length)
        return self.flops(rows, length) - meter.flops(self.recipe.model, self.vocab_size, replace(work, targets=0))

    def flops_of_pairs(self, rows: float, length: int) -> float:
        """FLOPs of the products of queries, keys and values. If attention is causal, half of the pairs are counted."""
        trunk, total = self.recipe.model, 0.0
        visible = 0.5 if trunk.attention_mask == "causal" and not trunk.reads_source else 1.0
        for stack in self.blocks(rows, length):
            passes = 3 if stack.backward else 1
            total += passes * 4 * stack.number * stack.heads_width * (visible * stack.pairs + stack.source_pairs)
        return min(total, self.flops(rows, length) - self.flops_of_heads(rows, length))

    @property
    def training_flops(self) -> float:
        """FLOPs of the whole run."""
        return sum(phase.steps * self.flops(phase.global_batch_size, phase.seq_length) for phase in self.recipe.phases)

    def blocks(self, rows: float, length: int) -> tuple[BlockSpec, ...]:
        """The stacks of blocks that `rows` sequences pass through."""
        return self.recipe.model.blocks(self.work(rows, length))


def workload_of(recipe: Recipe) -> Workload:
    """
    >>> from orchestration.config import load
    >>> workload_of(load("mt_nlg_530b")).parameters
    529600819200
    """
    rows = table_rows(recipe.data.tokenizer)
    return Workload(recipe, rows, recipe.model.weights(rows) + _count_heads(recipe, rows))


def _count_heads(recipe: Recipe, rows: int) -> Weights:
    """Numbers of weights of all heads, with `rows` rows in the token table."""
    heads = (count_weights(loss.tensors(recipe.model, rows)) for loss in recipe.losses)
    return reduce(Weights.__add__, heads)
