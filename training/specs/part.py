"""The facts that each trunk states about itself; nets, checks, the meter, scales and reports read them here only."""

from collections.abc import Sequence
from typing import ClassVar, Literal, Protocol

from preprocessing.spec import ScaleOverrides
from training.specs.attention_window import AttentionWindow
from training.specs.blocks import BlockSpec
from training.specs.position_embedding import PositionEmbedding
from training.specs.token_embedding import TokenEmbedding
from training.specs.weights import Weights
from training.specs.work import BatchWork

Visibility = Literal["bidirectional", "causal", "per_sequence"]
"""The attention mask. bidirectional: each token attends to each; causal: to those before it and itself; per_sequence:
to those that the batch says (`rank`, `reach` of preprocessing/schema.py)."""

Writing = Literal["", "causal", "encoder_decoder", "masked"]
"""How a net writes text. causal: what follows on a text; encoder_decoder: a decoder, about what an encoder has read;
masked: an encoder, what stands in masked places; "": not at all."""

NetName = Literal["net", "generator", "discriminator"]
"""The nets of a trunk: one, or a generator and a discriminator."""

Init = Literal["normal", "truncated_normal", "pytorch_default", "xavier"]
"""What matrices and tables begin with.

normal, truncated_normal: normal(0, init_std), cut at two deviations (google-research/bert). pytorch_default, xavier:
tables are normal(0, 1 / sqrt(width)), and linears uniform: with torch's own bounds 1 / sqrt(inputs), for biases too
(XLM), or with variance 2 / (inputs + outputs) (Glorot and Bengio 2010, TensorFlow's own: PEGASUS).
"""


class LossFacts(Protocol):
    """The facts of a loss that a trunk reads; training/losses/part.py has what they mean."""

    head_name: ClassVar[str]
    reads: ClassVar[frozenset[NetName]]
    rewarded: ClassVar[bool]

    @property
    def kind(self) -> str: ...

    @property
    def rewards(self) -> bool: ...


class ArchitecturePart(Protocol):
    """A part of the union Trunk: sizes of a net, its positions and its attention. Sizes are in tokens or elements."""

    family: ClassVar[int]
    """Place of its kind in the table of the family, from 0."""
    scale_overrides: ClassVar[ScaleOverrides]
    """What `--scale` puts into it; its positions, window and tables have their own."""
    nets: ClassVar[frozenset[NetName]]
    """Its nets, whose states losses read."""
    reads_source: ClassVar[bool]
    """Whether it reads the `source_*` columns of a row beside its own."""
    hides_own_token: ClassVar[bool]
    """Whether a predicted token does not attend to itself, so that no token has to be masked."""

    @property
    def kind(self) -> str:
        """Its name in a recipe."""

    @property
    def num_hidden_layers(self) -> int: ...

    @property
    def hidden_size(self) -> int:
        """Of a token's state."""

    @property
    def num_attention_heads(self) -> int: ...

    @property
    def table_width(self) -> int:
        """Of the token table, which may be narrower than the states."""

    @property
    def attention_mask(self) -> Visibility:
        """The attention mask of the tokens that are predicted."""

    @property
    def writes(self) -> Writing:
        """How it writes text."""

    @property
    def position_embedding(self) -> PositionEmbedding: ...

    @property
    def attention_window(self) -> AttentionWindow: ...

    @property
    def token_embedding(self) -> TokenEmbedding: ...

    @property
    def longest(self) -> int:
        """Longest row, in tokens, all of whose positions differ."""

    @property
    def mem_len(self) -> int:
        """Tokens before a row whose states each layer attends to, 0 where there is no memory."""

    @property
    def reuse_len(self) -> int:
        """First tokens of a row, which the next row goes on from and the memory keeps; 0 means all."""

    @property
    def type_vocab_size(self) -> int:
        """Segments of a row that it tells apart; 0 where it has no table of them."""

    @property
    def num_languages(self) -> int:
        """Rows of its table of languages, 0 where there is none."""

    @property
    def cutoffs(self) -> tuple[int, ...]:
        """Ids where clusters of its adaptive tables end; () where it has one table."""

    @property
    def init_method(self) -> Init:
        """What its matrices and tables begin with."""

    @property
    def begins_trained(self) -> str:
        """Why it must begin with trained weights, "" where it need not."""

    @property
    def oracle(self) -> str:
        """What its states are compared with where no class of transformers computes the same; "" where that depends on
        its keys."""

    def net(self, name: NetName) -> "ArchitecturePart":
        """One of its nets as a trunk of its own; itself where it has one net."""

    def fits(self, losses: Sequence[LossFacts]) -> str:
        """One line that says why these losses cannot be combined on it, "" where they can."""

    def split_over(self, workers: int) -> str:
        """One line that says why its layers cannot be split over so many workers (arXiv:1909.08053, 3), "" where they
        can."""

    def chunks_over(self, workers: int) -> str:
        """One line that says why its tokens cannot be shared by workers (arXiv:2309.14509), "" where they can. Each of
        `workers` then has some heads of an attention: those that share tokens times those that share a net."""

    def stages_over(self, stages: int) -> str:
        """One line that says why its layers cannot be divided into so many stages (arXiv:1811.06965), "" where they
        can."""

    def answers(self, vocab_size: int) -> int:
        """Rows of the token table that a target is compared with."""

    def weights(self, vocab_size: int) -> Weights:
        """How many it has, heads aside, with so many rows of the token table."""

    def products(self, work: BatchWork) -> float:
        """Multiplications of a forward pass between the token table and the heads, as arXiv:2104.04473 counts: one for
        a weight and a token, and for a pair of tokens as many as its score and the mix of its values take."""

    def blocks(self, work: BatchWork) -> tuple[BlockSpec, ...]:
        """The stacks that a batch goes through, each with what goes through one of its blocks."""

    def describe(self) -> str:
        """Kind and size, in one line: "encoder, 12 layers, width 768, 12 heads, post-norm"."""

    def describe_positions(self) -> str:
        """How it tells where a token stands: "learned absolute positions"."""

    def describe_attention(self) -> str:
        """What a token attends to: "the whole row"."""

    def describe_memory(self) -> str:
        """Its memory: "no memory", "a memory of 150 tokens"."""

    def describe_tables(self) -> str:
        """Its token embeddings: "token embeddings of the hidden size"."""

    def describe_sharing(self) -> str:
        """What its layers share: "no parameters shared between layers"."""

    def describe_norm(self) -> str:
        """Its norms: "LayerNorm"."""
