"""ELECTRA (arXiv:2003.10555): a small generator fills masked positions, a discriminator detects replaced tokens."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from training.architectures.backbone import MaskHead, T
from training.architectures.layout import layout
from training.architectures.linears import Table
from training.architectures.transformer import EmbeddingTables, InputEmbeddings, Transformer, TransformerStack
from training.score import Score
from training.specs import Architecture, Encoder, GeneratorDiscriminator, Init, LossFacts


class FrozenGenerator(nn.Module):
    """A trained generator: its backbone and its head."""

    def __init__(self, trunk: GeneratorDiscriminator, vocab_size: int, head: nn.Module) -> None:
        super().__init__()
        self.net = Transformer(trunk.generator_net, vocab_size)
        self.head = head


class GeneratorDiscriminatorModel(InputEmbeddings):
    """Two stacks that share the embeddings; downstream tasks use only the discriminator (3.1).

    With gradient-disentangled sharing (DeBERTaV3, arXiv:2111.09543, 3.3), the embeddings are those of the generator.
    The discriminator adds its tables of differences to them, and no gradient of its loss reaches the generator's.

    Samples are drawn from torch's global random generator: with the same seed, a batch has the same scores.
    """

    trunk: GeneratorDiscriminator
    frozen_modules: ClassVar[tuple[str, ...]] = ("frozen",)

    def __init__(self, trunk: GeneratorDiscriminator, vocab_size: int, frozen_head: nn.Module | None) -> None:
        """`frozen_head` is the masked-token head of a frozen generator."""
        super().__init__(trunk.discriminator_net, vocab_size)
        self.trunk, has_difference = trunk, trunk.weight_sharing == "disentangled"
        self.difference = EmbeddingTables(trunk.discriminator_net, vocab_size) if has_difference else None
        self.discriminator = TransformerStack(trunk.discriminator_net)
        self.generator: TransformerStack | None = None
        self.frozen = FrozenGenerator(trunk, vocab_size, frozen_head) if frozen_head is not None else None
        if trunk.sample_from == "generator":
            alike = trunk.weight_sharing == "all"
            net = trunk.generator_net
            self.generator = self.discriminator if alike else TransformerStack(net)

    @classmethod
    def build(cls, trunk: Architecture, vocab_size: int, mask_head: MaskHead) -> Self | None:
        if not isinstance(trunk, GeneratorDiscriminator):
            return None
        is_frozen = trunk.sample_from == "frozen"
        return cls(trunk, vocab_size, mask_head(trunk.generator_net, vocab_size) if is_frozen else None)

    @property
    def layers(self) -> tuple[nn.Module, ...]:
        """The layers of the discriminator."""
        return tuple(self.discriminator.blocks)

    @property
    def above_layers(self) -> Mapping[str, int]:
        return {"discriminator.final_norm": len(self.discriminator.blocks)}

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        """States of the discriminator for an unmasked batch."""
        return self.discriminator(self.embed_for_discriminator(batch), layout(batch, "bidirectional"))

    def embed_for_discriminator(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Embeddings [..., E] of a batch that the discriminator reads."""
        if self.difference is None:
            return self.embed(batch)
        with torch.no_grad():
            shared = self.look_up(batch)
        return self.difference.finish(shared + self.difference.look_up(batch))

    def scores(
        self, batch: Mapping[str, Tensor], heads: nn.ModuleDict, losses: Sequence[LossFacts]
    ) -> dict[str, Score]:
        """Scores of the loss of the discriminator, and of the loss of the generator if it is trained.

        The batch is masked; its `targets` are the original tokens at the positions `targets_at`. The head of the
        generator samples a token for each of these positions, masked or not (`sample`), and the discriminator reads
        the text with these tokens. No gradient flows through a sample. If the generator is rewarded for errors of the
        discriminator (`surprise`), its head also takes the samples and the reward.
        """
        rows = layout(batch, "bidirectional")
        detects = next(loss for loss in losses if "discriminator" in loss.reads)
        generates = next((loss for loss in losses if "generator" in loss.reads), None)
        scores: dict[str, Score] = {}
        filled: Tensor | None = None
        if self.generator is None or generates is None:
            sampled_M = self._sample_uniform(batch) if self.frozen is None else self._sample_frozen(batch)
        else:
            filled = self.generator(self.embed(batch), rows)
            if not generates.rewarded:
                scores[generates.kind] = heads[generates.head_name](filled, batch, self.table)
            sampled_M = self._sample(filled, batch, heads[generates.head_name], self.table)
        read = {**batch, "input_ids": _replace_tokens(batch["input_ids"], batch["targets_at"], sampled_M)}
        hidden = self.discriminator(self.embed_for_discriminator(read), rows)
        scores[detects.kind] = heads[detects.head_name](hidden, read, self.table)
        if generates is not None and generates.rewarded:
            reward_M = heads[detects.head_name].surprise(hidden, read)  # type: ignore[operator]  # a method
            scores[generates.kind] = heads[generates.head_name](filled, batch, self.table, sampled_M, reward_M)
        return scores

    @torch.no_grad()
    def _sample_frozen(self, batch: Mapping[str, Tensor]) -> Tensor:
        assert self.frozen is not None
        self.frozen.eval()  # no dropout
        return self._sample(self.frozen.net(batch), batch, self.frozen.head, self.frozen.net.table)

    @torch.no_grad()
    def _sample(self, hidden: Tensor, batch: Mapping[str, Tensor], head: nn.Module, table_VD: Table) -> Tensor:
        excluded_M = None if self.trunk.allow_correct else batch["targets"].clamp(min=0)  # filler has negative targets
        uniform_M = None if self.training else draw_uniform(batch)
        return head.sample(hidden, batch, table_VD, excluded_M, uniform_M)  # type: ignore[operator]  # a method

    def _sample_uniform(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Sample tokens uniformly from the vocabulary; `allow_correct` decides whether the correct token can occur."""
        target_M, size = batch["targets"], self.tokens.num_embeddings
        if not self.training:
            uniform_M = draw_uniform(batch)
            if self.trunk.allow_correct:
                return (uniform_M * size).long()
            return (target_M + 1 + (uniform_M * (size - 1)).long()) % size
        if self.trunk.allow_correct:
            return torch.randint_like(target_M, size)
        return (target_M + torch.randint_like(target_M, 1, size)) % size

    def summary_at(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The first token of each sequence."""
        return batch["first_at"]

    def adapt_weights(self, state: Mapping[str, T], theirs: Architecture) -> dict[str, T]:
        """Copy a masked language model into both the frozen generator and the discriminator (3.2)."""
        if self.frozen is None or not isinstance(theirs, Encoder):
            return dict(state)
        renamed = {}
        for name, tensor in state.items():
            if name.startswith("heads.masked_tokens."):
                renamed[name.replace("heads.masked_tokens.", "trunk.frozen.head.")] = tensor
            elif name.startswith("trunk."):
                renamed[name.replace("trunk.", "trunk.frozen.net.")] = tensor
                in_stack = name.startswith(("trunk.blocks.", "trunk.widen.", "trunk.final_norm."))
                renamed[name.replace("trunk.", "trunk.discriminator.") if in_stack else name] = tensor
        return renamed

    def init(self, name: str) -> Init:
        """With BERT's truncated normal distribution, two linear layers use Glorot initialization.

        The authors' code leaves them at TensorFlow's default: embeddings_project (modeling.py) and the last layer of
        discriminator_predictions (run_pretraining.py).
        """
        is_default = name.endswith("widen.weight") or name == "heads.replaced.classify.weight"
        return "xavier" if is_default and self.trunk.init_method == "truncated_normal" else self.trunk.init_method

    def std(self, name: str) -> float:
        """Differences of tables are 0 at the start."""
        return 0.0 if name.startswith("trunk.difference.") else self.trunk.init_std

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile only the two stacks, because tensors between them have a different size in each batch."""
        self.discriminator.compile(*args, **kwargs)
        if self.generator not in (None, self.discriminator):
            self.generator.compile(*args, **kwargs)


def draw_uniform(batch: Mapping[str, Tensor]) -> Tensor:
    """A pseudo-random number in [0, 1) for each of `targets_at`, float32 [M], for samples in an evaluation.

    It is a hash of the sequence and of the position in it. Samples are therefore independent of the worker and of the
    other sequences in the batch.
    """
    ids, at_M = batch["input_ids"], batch["targets_at"]
    lengths_B = batch["lengths"].to(ids.device).long()
    row_T = torch.repeat_interleave(torch.arange(len(lengths_B), device=ids.device), lengths_B)
    place_T = torch.arange(len(row_T), device=ids.device) - (lengths_B.cumsum(0) - lengths_B)[row_T]
    if ids.ndim == 1:
        id_T, row_M, place_M = ids, row_T[at_M], place_T[at_M]
    else:
        id_T, row_M, place_M = ids[row_T, place_T], at_M // ids.shape[1], at_M % ids.shape[1]
    hash_B = torch.zeros_like(lengths_B).index_add_(0, row_T, _hash(id_T * 1_000_003 + place_T))
    return (_hash(hash_B[row_M] + _hash(place_M)) & 0xFFFFFF).float() / (1 << 24)


def _hash(number: Tensor) -> Tensor:
    """Hash int64 numbers with the finalizer of MurmurHash3."""
    for factor in (-0xAE502812AA7333, -0x3B314601E57A13AD):  # 0xFF51AFD7ED558CCD and 0xC4CEB9FE1A85EC53 as int64
        number = (number ^ ((number >> 33) & 0x7FFFFFFF)) * factor
    return number ^ ((number >> 33) & 0x7FFFFFFF)


def _replace_tokens(ids: Tensor, at_M: Tensor, token_M: Tensor) -> Tensor:
    """Replace the token IDs at flat positions."""
    return ids.flatten().scatter(0, at_M, token_M).view_as(ids)
