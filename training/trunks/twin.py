"""ELECTRA (arXiv:2003.10555): a small generator fills in the masks, a discriminator looks for what it changed."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from training.score import Score
from training.specs import Twin
from training.trunks.layers import layout
from training.trunks.transformer import Tables, Tower, Transformer, blocks

FROZEN = "trunk.frozen."  # what the weights begin with that never change


class Frozen(nn.Module):
    """A generator that has learnt: its net and its head."""

    def __init__(self, trunk: Twin, vocab_size: int, head: nn.Module) -> None:
        super().__init__()
        self.net = Transformer(trunk.generator_net, vocab_size)
        self.head = head


class TwinNet(Tables):
    """Two towers over one embedding; the discriminator is what is kept of them (3.1).

    What is sampled comes from torch's global generator: seed it, and the same batch gives the same scores.
    """

    def __init__(self, trunk: Twin, vocab_size: int, frozen_head: nn.Module | None) -> None:
        """`frozen_head` fills in the masks for a generator that is frozen, and belongs to it."""
        super().__init__(trunk.discriminator_net, vocab_size)
        self.trunk = trunk
        self.discriminator = Tower(trunk.discriminator_net, blocks(trunk.discriminator_net))
        self.generator: Tower | None = None
        self.frozen = Frozen(trunk, vocab_size, frozen_head) if frozen_head is not None else None
        if trunk.samples == "generator":
            alike = trunk.shared == "all"
            net = trunk.generator_net
            self.generator = self.discriminator if alike else Tower(net, blocks(net))

    @property
    def table(self) -> Tensor:
        """The token table, looked up at each call: ZeRO-3 gathers a partitioned tensor on attribute access."""
        return self.tokens.weight

    def scores(self, batch: Mapping[str, Tensor], heads: nn.ModuleDict) -> dict[str, Score]:
        """Scores of `masked_tokens`, which the generator is asked, and of `replaced`, which the discriminator is.

        `adversarial`, in place of the former, rewards the generator for what the discriminator gets wrong. And
        `replaced_share`, which is no loss: how many tokens were replaced, as its number of right answers. The batch is
        masked; its `targets` at `targets_at` say what was there. The discriminator reads the text with a sample at each
        of these places, masked or not. No gradient goes through a sample.
        """
        rows = layout(batch, "full")
        found: dict[str, Score] = {}
        if self.frozen is not None:
            sampled_M = self._frozen(batch)
        elif self.generator is None:
            sampled_M = self._uniform(batch)
        else:
            filled = self.generator(self.embed(batch), rows)
            if "masked_tokens" in heads:
                found["masked_tokens"] = heads["masked_tokens"](filled, batch, self.table)
            sampled_M = self._sampled(filled, batch, _sampler(heads), self.table)
        read = {**batch, "ids": _put(batch["ids"], batch["targets_at"], sampled_M)}
        hidden = self.discriminator(self.embed(read), rows)
        score = found["replaced"] = heads["replaced"](hidden, read, self.table)
        if "adversarial" in heads:
            reward_M = heads["replaced"].surprise(hidden, read)  # type: ignore[operator]  # a method
            found["adversarial"] = heads["adversarial"](filled, batch, self.table, sampled_M, reward_M)
        num_replaced = (sampled_M != batch["targets"]).sum()
        return found | {"replaced_share": Score(torch.zeros_like(score.loss), score.count, num_replaced)}

    @torch.no_grad()
    def _frozen(self, batch: Mapping[str, Tensor]) -> Tensor:
        assert self.frozen is not None
        self.frozen.eval()  # no dropout
        return self._sampled(self.frozen.net(batch), batch, self.frozen.head, self.frozen.net.table)

    @torch.no_grad()
    def _sampled(self, hidden: Tensor, batch: Mapping[str, Tensor], head: nn.Module, table_VD: Tensor) -> Tensor:
        barred_M = None if self.trunk.allow_correct else batch["targets"]
        return head.sample(hidden, batch, table_VD, barred_M)  # type: ignore[operator]  # a method

    def _uniform(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Any token of the vocabulary, or any but the right one."""
        target_M, size = batch["targets"], self.tokens.num_embeddings
        if self.trunk.allow_correct:
            return torch.randint_like(target_M, size)
        return (target_M + torch.randint_like(target_M, 1, size)) % size

    def summary(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The discriminator's state of each row's first token [B, D], for a classifier."""
        hidden = self.discriminator(self.embed(batch), layout(batch, "full"))
        return hidden.flatten(0, -2)[batch["first_at"]]

    def std(self, name: str) -> float:
        """Deviation that a tensor begins with."""
        return self.trunk.init_std

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile the towers: what lies between them differs in size from batch to batch."""
        self.discriminator.compile(*args, **kwargs)
        if self.generator not in (None, self.discriminator):
            self.generator.compile(*args, **kwargs)


def _sampler(heads: nn.ModuleDict) -> nn.Module:
    """The head of the generator that says what stands behind a mask."""
    return heads["masked_tokens"] if "masked_tokens" in heads else heads["adversarial"]


def _put(ids: Tensor, at_M: Tensor, token_M: Tensor) -> Tensor:
    """The ids with other tokens at flat positions."""
    return ids.flatten().scatter(0, at_M, token_M).view_as(ids)
