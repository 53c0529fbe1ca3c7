"""The generator and discriminator of ELECTRA."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Annotated, ClassVar, Literal

from preprocessing.spec import BY_KIND, AtMost, ScaleOverrides, key, merge_scales, require, spec
from training.specs.blocks import BlockSpec
from training.specs.disentangled import DisentangledPositions
from training.specs.encoder import Encoder
from training.specs.mask_head import list_mask_head
from training.specs.part import Init, LossFacts, NetName, Visibility, Writing
from training.specs.position_embedding import LearnedPositions
from training.specs.stack import Stack
from training.specs.tensors import ModelTensors
from training.specs.work import BatchWork


@spec
class GeneratorDiscriminator(Stack):
    """Generator and discriminator (ELECTRA, arXiv:2003.10555).

    A small generator fills in the masks, and the discriminator detects the replaced tokens. The sizes are those of the
    discriminator; both models share their embeddings. With gradient-disentangled sharing (DeBERTaV3, arXiv:2111.09543,
    3.3), the tables of the discriminator are those of the generator, which its loss does not change, plus tables of
    differences, which start at zero. Each model then has its own norm of the embeddings.

    Samples of a frozen generator are the second of two stages (3.2). In the first, an encoder of the discriminator's
    sizes is trained to fill in masks. Both models start with its weights (`init_checkpoint`), embeddings included, and
    those of the generator do not change.
    """

    kind: Literal["generator_discriminator"] = "generator_discriminator"
    embedding_size: int = key(default=0, doc="Size of the embeddings, if not hidden_size (ALBERT 3.1); 0: hidden_size.")
    position_embedding: Annotated[LearnedPositions | DisentangledPositions, BY_KIND] = key(
        default=LearnedPositions(max_position_embeddings=512), doc="Type of position embedding."
    )
    init_method: Init = key(
        default="normal", doc="Initialization of the weights; truncated_normal is cut at 2 standard deviations."
    )
    type_vocab_size: int = key(default=2, doc="Number of token types (segments).")
    # Its heads and feed-forward size follow.
    generator_size_ratio: float = key(
        default=0.25, doc="Hidden size of the generator as a fraction of the discriminator's."
    )
    # DeBERTaV3: half the layers, of the same size.
    generator_num_hidden_layers: int = key(
        default=0, doc="Number of Transformer blocks of the generator; 0: as the discriminator."
    )
    # `all`: one model; the generator must have the discriminator's size (2, table 5).
    weight_sharing: Literal["embeddings", "disentangled", "all"] = key(
        default="embeddings", doc="Weights that generator and discriminator share."
    )
    sample_from: Literal["generator", "frozen", "uniform"] = key(
        default="generator",
        doc="Source of replacement tokens: the generator, a frozen generator, or all tokens uniformly.",
    )
    allow_correct: bool = key(default=True, doc="Whether a sampled token may equal the original token.")

    label: ClassVar[str] = "generator and discriminator"
    family: ClassVar[int] = 1
    nets: ClassVar[frozenset[NetName]] = frozenset({"generator", "discriminator"})
    attention_mask: ClassVar[Visibility] = "bidirectional"
    writes: ClassVar[Writing] = ""
    # At hidden size 64, a generator of a quarter of the size is too weak: all its tokens are easy to detect. Without
    # shared weights, a discriminator learns in an hour little more than the fraction of replaced tokens.
    scale_overrides: ClassVar[ScaleOverrides] = merge_scales(
        Stack.scale_overrides,
        {
            "tiny": {
                "init_method": "normal",
                "embedding_size": AtMost(32),
                "generator_size_ratio": 1.0,
                "generator_num_hidden_layers": AtMost(1),
            },
            "small": {
                "init_method": "normal",
                "embedding_size": AtMost(128),
                "generator_size_ratio": 1.0,
                "generator_num_hidden_layers": 0,
                "weight_sharing": "all",
            },
        },
    )

    def __post_init__(self) -> None:
        Stack.__post_init__(self)
        require(
            0 < self.generator_size_ratio <= 1,
            "model.generator_size_ratio",
            self.generator_size_ratio,
            "a fraction above 0 and at most 1",
        )
        layers, sharing = self.generator_num_hidden_layers, self.weight_sharing
        require(layers >= 0, "model.generator_num_hidden_layers", layers, "an integer of at least 0")
        equal = self.generator_size_ratio == 1 and layers in (0, self.num_hidden_layers)
        allowed = "embeddings, or all with model.generator_size_ratio 1.0 and as many layers in both models"
        require(sharing != "all" or equal, "model.weight_sharing", sharing, allowed)
        samples = sharing != "disentangled" or self.sample_from == "generator"
        require(samples, "model.sample_from", self.sample_from, "generator with model.weight_sharing disentangled")
        alike = equal and self.weight_sharing == "embeddings"
        allowed = "frozen with model.generator_size_ratio 1.0 and model.weight_sharing embeddings"
        require(self.sample_from != "frozen" or alike, "model.sample_from", self.sample_from, allowed)
        width, heads = (
            round(self.generator_size_ratio * self.hidden_size),
            max(1, round(self.generator_size_ratio * self.num_attention_heads)),
        )
        fits = self.head_dim > 0 or width % heads == 0
        require(
            fits,
            "model.generator_size_ratio",
            self.generator_size_ratio,
            f"a fraction for which the number of heads ({heads}) divides the hidden size ({width})",
        )

    @property
    def table_width(self) -> int:
        return self.embedding_size or self.hidden_size

    @property
    def begins_trained(self) -> str:
        return (
            "model.sample_from is frozen, so that the generator keeps its initial weights"
            if self.sample_from == "frozen"
            else ""
        )

    @property
    def discriminator_net(self) -> Encoder:
        """The discriminator, which is the final model, as an Encoder with its own tables."""
        common = {field.name for field in fields(Encoder)} & {field.name for field in fields(self)} - {"kind"}
        return Encoder(**{name: getattr(self, name) for name in common})

    @property
    def generator_net(self) -> Encoder:
        """The generator as an Encoder with its own tables; hidden size, heads and feed-forward size are scaled."""
        return replace(
            self.discriminator_net,
            hidden_size=round(self.generator_size_ratio * self.hidden_size),
            num_hidden_layers=self.generator_num_hidden_layers or self.num_hidden_layers,
            num_attention_heads=max(1, round(self.generator_size_ratio * self.num_attention_heads)),
            intermediate_size=round(self.generator_size_ratio * self.inner_width),
            embedding_size=self.table_width,
        )

    def net(self, name: NetName) -> Encoder:
        return self.generator_net if name == "generator" else self.discriminator_net

    def fits(self, losses: Sequence[LossFacts]) -> str:
        """Each trained model needs one loss. An adversarial generator also needs a discriminator that detects replaced
        tokens in its samples."""
        kinds = sorted(loss.kind for loss in losses)
        trained = ["discriminator"] + ["generator"] * (self.sample_from == "generator")
        of_each = {name: [loss for loss in losses if name in loss.reads] for name in ("generator", "discriminator")}
        if len(losses) != len(trained) or any(len(of_each[name]) != 1 for name in trained):
            allowed = " and ".join(f"one loss of the {name}" for name in sorted(trained, reverse=True))
            return f"invalid losses: got {kinds}, expected {allowed} with model.sample_from {self.sample_from}"
        if self.weight_sharing == "disentangled" and not all(loss.rewards for loss in of_each["discriminator"]):
            return f"invalid losses: got {kinds}, expected predict replaced with model.weight_sharing disentangled"
        plain = self.allow_correct and self.weight_sharing == "embeddings" and any(loss.rewards for loss in losses)
        rewarded = [loss.kind for loss in losses if loss.rewarded]
        if rewarded and not plain:
            allowed = f"{rewarded[0]} with allow_correct true, weight_sharing embeddings and a loss of replaced tokens"
            return f"invalid losses: got {kinds}, expected {allowed}"
        return ""

    def split_over(self, workers: int) -> str:
        """The heads of the generator must be a multiple of `workers`, too."""
        generator = self.generator_net.split_over(workers) if self.sample_from != "uniform" else ""
        return Stack.split_over(self, workers) or (generator and f"in the generator, {generator}")

    def chunks_over(self, workers: int) -> str:
        generator = self.generator_net.heads_over(workers) if self.sample_from != "uniform" else ""
        return self.discriminator_net.chunks_over(workers) or (generator and f"in the generator, {generator}")

    def tensors(self, vocab_size: int) -> ModelTensors:
        """Both models share their embeddings; a frozen generator has its own tables and head."""
        embeddings = ModelTensors(self.discriminator_net.embeddings(vocab_size), ())
        both = embeddings + self.discriminator_net.tower().inside("discriminator")
        if self.weight_sharing == "disentangled":
            both += embeddings.inside("difference")
        if self.sample_from == "generator" and self.weight_sharing != "all":
            return both + self.generator_net.tower().inside("generator")
        if self.sample_from == "frozen":
            head = list_mask_head(self.generator_net, self.table_width, vocab_size)
            return both + self.generator_net.tensors(vocab_size).inside("frozen.net") + head.inside("frozen.head")
        return both

    def products(self, work: BatchWork) -> float:
        """A frozen generator has no backward pass, which is two thirds of the work."""
        generator = self.generator_net.products(work)
        share = {"generator": 1.0, "frozen": 1 / 3, "uniform": 0.0}[self.sample_from]
        return self.discriminator_net.products(work) + share * generator

    def blocks(self, work: BatchWork) -> tuple[BlockSpec, ...]:
        learns = self.sample_from == "generator"
        generator = () if self.sample_from == "uniform" else self.generator_net.blocks(work)
        return (*self.discriminator_net.blocks(work), *(replace(stack, backward=learns) for stack in generator))
