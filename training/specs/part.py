"""The facts of an architecture. Modules, checks, the meter, scales and reports use only these facts."""

from collections.abc import Sequence
from typing import ClassVar, Literal, Protocol

from preprocessing.spec import ScaleOverrides
from training.specs.attention_window import AttentionWindow
from training.specs.blocks import BlockSpec
from training.specs.position_embedding import PositionEmbedding
from training.specs.tensors import ModelTensors
from training.specs.token_embedding import TokenEmbedding
from training.specs.weights import Weights
from training.specs.work import BatchWork

Visibility = Literal["bidirectional", "causal", "per_sequence"]
"""The attention mask. bidirectional: each token attends to all tokens; causal: to itself and earlier tokens;
per_sequence: as the columns `rank` and `reach` of the batch define (preprocessing/schema.py)."""

Writing = Literal["", "causal", "encoder_decoder", "masked"]
"""How a model generates text. causal: it continues a text; encoder_decoder: a decoder generates text for the source of
the encoder; masked: an encoder predicts masked tokens; "": it cannot generate text."""

NetName = Literal["net", "generator", "discriminator"]
"""The models of an architecture: one, or a generator and a discriminator."""

Init = Literal["normal", "truncated_normal", "pytorch_default", "xavier"]
"""Initialization of matrices and tables.

normal, truncated_normal: normal(0, init_std); the second is cut at two standard deviations (google-research/bert).
pytorch_default, xavier: tables are normal(0, 1 / sqrt(width)), and linear layers are uniform. pytorch_default uses the
bounds of torch, 1 / sqrt(inputs), for biases too (XLM). xavier uses the variance 2 / (inputs + outputs) (Glorot and
Bengio 2010), the default of TensorFlow (PEGASUS).
"""


class LossFacts(Protocol):
    """The facts of a loss that architectures use; training/losses/part.py describes them."""

    head_name: ClassVar[str]
    reads: ClassVar[frozenset[NetName]]
    rewarded: ClassVar[bool]

    @property
    def kind(self) -> str: ...

    @property
    def rewards(self) -> bool: ...


class ArchitecturePart(Protocol):
    """A member of the union Architecture: sizes, positions and attention of a model.

    Sizes are in tokens or elements.
    """

    family: ClassVar[int]
    """Order of this kind in the table of models, counted from 0."""
    scale_overrides: ClassVar[ScaleOverrides]
    """Keys that `--scale` changes, and their values. Positions, window and token tables have their own overrides."""
    nets: ClassVar[frozenset[NetName]]
    """Models whose hidden states losses can use."""
    reads_source: ClassVar[bool]
    """Whether it reads the `source_*` columns of a sequence, too."""
    hides_own_token: ClassVar[bool]
    """Whether predicted tokens do not attend to themselves, so that no token must be masked."""

    @property
    def kind(self) -> str:
        """Name in a recipe."""

    @property
    def num_hidden_layers(self) -> int: ...

    @property
    def hidden_size(self) -> int:
        """Size of the hidden states."""

    @property
    def num_attention_heads(self) -> int: ...

    @property
    def table_width(self) -> int:
        """Embedding size of the token table, which may be smaller than the hidden size."""

    @property
    def tie_word_embeddings(self) -> bool:
        """Whether the token table also predicts tokens; otherwise another table does, on the last pipeline stage."""

    @property
    def attention_mask(self) -> Visibility:
        """Attention mask of the predicted tokens."""

    @property
    def writes(self) -> Writing:
        """How it generates text."""

    @property
    def position_embedding(self) -> PositionEmbedding: ...

    @property
    def attention_window(self) -> AttentionWindow: ...

    @property
    def token_embedding(self) -> TokenEmbedding: ...

    @property
    def longest(self) -> int:
        """Maximum sequence length in tokens."""

    @property
    def mem_len(self) -> int:
        """Memory length: number of earlier tokens whose states each layer attends to; 0: no memory."""

    @property
    def reuse_len(self) -> int:
        """Number of first tokens of a sequence that the memory stores; the next sequence starts after them; 0: all."""

    @property
    def type_vocab_size(self) -> int:
        """Number of token types (segments); 0: none."""

    @property
    def num_languages(self) -> int:
        """Number of language embeddings; 0: none."""

    @property
    def cutoffs(self) -> tuple[int, ...]:
        """Token IDs at which the clusters of adaptive tables end; () if there is one table."""

    @property
    def init_method(self) -> Init:
        """Initialization of matrices and tables."""

    @property
    def begins_trained(self) -> str:
        """Reason why it must start with trained weights; "" if it need not."""

    @property
    def oracle(self) -> str:
        """The reference for tests of its hidden states, if no class of transformers computes them.

        It is "" if this depends on the keys.
        """

    def net(self, name: NetName) -> "ArchitecturePart":
        """One of its models as a separate architecture; `self` if it has only one model."""

    def fits(self, losses: Sequence[LossFacts]) -> str:
        """Reason why these losses cannot be combined with it, in one line; "" if they can."""

    def split_over(self, workers: int) -> str:
        """Reason why its layers cannot be split over `workers` (tensor parallelism, arXiv:1909.08053, 3), or ""."""

    def chunks_over(self, workers: int) -> str:
        """Reason why its tokens cannot be split over workers (sequence parallelism, arXiv:2309.14509), or "".

        Each of `workers` then computes some of the attention heads. `workers` is the product of the sequence-parallel
        and tensor-parallel sizes.
        """

    def stages_over(self, stages: int) -> str:
        """Reason why its layers cannot be divided into `stages` (pipeline parallelism, arXiv:1811.06965), or ""."""

    def answers(self, vocab_size: int) -> int:
        """Number of logits per target."""

    def tensors(self, vocab_size: int) -> ModelTensors:
        """All tensors without heads, with `vocab_size` rows in the token table. The modules are made from them."""

    def weights(self, vocab_size: int) -> Weights:
        """Numbers of weights without heads, which follow from the tensors."""

    def products(self, work: BatchWork) -> float:
        """Multiplications of a forward pass between the token table and the heads, counted as in arXiv:2104.04473.

        A token needs one per weight. A pair of tokens needs those of its attention score and of the weighted sum.
        """

    def blocks(self, work: BatchWork) -> tuple[BlockSpec, ...]:
        """The stacks of blocks, each with the work of a batch in one of its blocks."""

    def describe(self) -> str:
        """Kind and size, in one line: "encoder, 12 layers, width 768, 12 heads, post-norm"."""

    def describe_positions(self) -> str:
        """Position embeddings: "learned absolute positions"."""

    def describe_attention(self) -> str:
        """Attention window: "the full sequence"."""

    def describe_memory(self) -> str:
        """Memory: "no memory", "a memory of 150 tokens"."""

    def describe_tables(self) -> str:
        """Token embeddings: "token embeddings of the hidden size"."""

    def describe_sharing(self) -> str:
        """Parameter sharing: "no parameters shared between layers"."""

    def describe_norm(self) -> str:
        """Norms: "LayerNorm"."""
