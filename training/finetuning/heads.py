"""Heads of fine-tuning.

`summary_BD` is the summary state of a sequence; `hidden` has all states, [B, S, D] or [T, D]. D is the input width
of a head: the hidden size, or a multiple of it for several concatenated layers (features.py).
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from preprocessing.schema import IGNORE
from training.losses.heads import tokens_at
from training.score import Score
from training.specs import Architecture


class TaskHead(nn.Module):
    """A task head: `forward(hidden, batch, table)` returns a Score, like a pretraining head; `outputs` returns
    predictions."""

    def outputs(self, hidden: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """The predictions for each sequence or target of a batch, in float32."""
        raise NotImplementedError


class Summary(nn.Module):
    """The summary state of a sequence: a pooler (linear and tanh, BERT 3.1), or the state itself for a decoder.

    The states of `added` consecutive sequences are added: a pair in both orders (GPT-1 3.3).
    """

    def __init__(self, trunk: Architecture, width: int, dropout: float, added: int = 1) -> None:
        super().__init__()
        self.added = added
        self.pooler = None if trunk.attention_mask == "causal" else nn.Linear(width, trunk.hidden_size)
        self.dropout = nn.Dropout(dropout)
        self.width = width if self.pooler is None else trunk.hidden_size  # output width

    def forward(self, hidden: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        summary_BD = tokens_at(hidden, batch["summary_at"])
        if self.pooler is not None:
            summary_BD = torch.tanh(self.pooler(summary_BD))
        if self.added > 1:
            summary_BD = summary_BD.unflatten(0, (-1, self.added)).sum(1)
        return self.dropout(summary_BD)


class RowLabelHead(TaskHead):
    """A linear classifier of the summary state."""

    def __init__(self, trunk: Architecture, width: int, classes: int, dropout: float, added: int = 1) -> None:
        super().__init__()
        self.summary = Summary(trunk, width, dropout, added)
        self.classify = nn.Linear(self.summary.width, classes)

    def outputs(self, hidden: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Logits [B, classes], or [B / added, classes] if states of several sequences are added."""
        return self.classify(self.summary(hidden, batch)).float()

    def forward(self, hidden: Tensor, batch: Mapping[str, Tensor], table: Tensor) -> Score:
        logits_BC, label_B = self.outputs(hidden, batch), batch["label"][:: self.summary.added]
        loss = F.cross_entropy(logits_BC, label_B, ignore_index=IGNORE, reduction="sum")
        return Score(loss, int((label_B != IGNORE).sum()), (logits_BC.argmax(-1) == label_B).sum())


class RowValueHead(TaskHead):
    """A linear layer from the summary state to one number."""

    def __init__(self, trunk: Architecture, width: int, dropout: float, added: int = 1) -> None:
        super().__init__()
        self.summary = Summary(trunk, width, dropout, added)
        self.regress = nn.Linear(self.summary.width, 1)

    def outputs(self, hidden: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Numbers [B], or [B / added] if states of several sequences are added."""
        return self.regress(self.summary(hidden, batch)).squeeze(-1).float()

    def forward(self, hidden: Tensor, batch: Mapping[str, Tensor], table: Tensor) -> Score:
        value_B = batch["value"][:: self.summary.added]
        has = ~value_B.isnan()
        error_N = (self.outputs(hidden, batch) - value_B)[has]
        return Score((error_N**2).sum(), len(error_N), torch.zeros((), dtype=torch.int64, device=error_N.device))


class TokenTagHead(TaskHead):
    """A linear classifier of each token that has a target."""

    def __init__(self, width: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.classify = nn.Linear(width, classes)

    def outputs(self, hidden: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Logits [M, classes] of the tokens at `targets_at`."""
        return self.classify(self.dropout(tokens_at(hidden, batch["targets_at"]))).float()

    def forward(self, hidden: Tensor, batch: Mapping[str, Tensor], table: Tensor) -> Score:
        logits_MC, target_M = self.outputs(hidden, batch), batch["targets"]
        loss = F.cross_entropy(logits_MC, target_M, reduction="sum")
        return Score(loss, len(target_M), (logits_MC.argmax(-1) == target_M).sum())


class AnswerSpanHead(TaskHead):
    """A linear layer from each token to two logits: for the first and for the last token of the answer.

    The softmax is over the tokens of a sequence. The reference BERT and transformers include padding in it, so their
    loss depends on the amount of padding.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.ends = nn.Linear(width, 2)

    def outputs(self, hidden: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Logits [B, S, 2] of the tokens of each sequence, where S is the longest; -inf after the end of a sequence."""
        flat_T2 = self.ends(hidden.flatten(0, -2)).float()
        length_B = batch["lengths"].to(flat_T2.device).long()
        place_S = torch.arange(int(length_B.max()), device=flat_T2.device)
        at_BS = (batch["first_at"][:, None] + place_S).clamp(max=len(flat_T2) - 1)
        return flat_T2[at_BS].masked_fill((place_S >= length_B[:, None])[..., None], -torch.inf)

    def forward(self, hidden: Tensor, batch: Mapping[str, Tensor], table: Tensor) -> Score:
        logits_BS2, start_B, stop_B = self.outputs(hidden, batch), batch["start"], batch["stop"]
        start_BS, stop_BS = logits_BS2.unbind(-1)
        loss = F.cross_entropy(start_BS, start_B, reduction="sum") + F.cross_entropy(stop_BS, stop_B, reduction="sum")
        right_B = (start_BS.argmax(-1) == start_B) & (stop_BS.argmax(-1) == stop_B)
        return Score(loss / 2, len(start_B), right_B.sum())


class OptionChoiceHead(TaskHead):
    """A linear layer from the summary state of each choice to one logit."""

    def __init__(self, trunk: Architecture, width: int, dropout: float) -> None:
        super().__init__()
        self.summary = Summary(trunk, width, dropout)
        self.rate = nn.Linear(self.summary.width, 1)

    def outputs(self, hidden: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Logits [G, choices] of G questions; -inf for choices that a question does not have."""
        logit_B = self.rate(self.summary(hidden, batch)).squeeze(-1).float()
        option_B = batch["option"]
        question_B = (option_B == 0).cumsum(0) - 1
        logits_GO = logit_B.new_full((int(question_B[-1]) + 1, int(option_B.max()) + 1), -torch.inf)
        return logits_GO.index_put((question_B, option_B), logit_B)

    def forward(self, hidden: Tensor, batch: Mapping[str, Tensor], table: Tensor) -> Score:
        logits_GO, right_G = self.outputs(hidden, batch), batch["right"][batch["option"] == 0]
        loss = F.cross_entropy(logits_GO, right_G, reduction="sum")
        return Score(loss, len(right_G), (logits_GO.argmax(-1) == right_G).sum())


class NoAnswerHead(TaskHead):
    """A linear layer from the first token of each sequence to one logit: high if the question has no answer.

    The head of google-research/electra (finetune/qa/qa_tasks.py) also reads the states weighted by the probability
    of an answer start.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.rate = nn.Linear(width, 1)

    def outputs(self, hidden: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Logits [B]."""
        return self.rate(tokens_at(hidden, batch["first_at"])).squeeze(-1).float()

    def forward(self, hidden: Tensor, batch: Mapping[str, Tensor], table: Tensor) -> Score:
        logit_B, has_none_B = self.outputs(hidden, batch), batch["label"] == 1
        loss = F.binary_cross_entropy_with_logits(logit_B, has_none_B.float(), reduction="sum")
        return Score(loss, len(logit_B), ((logit_B > 0) == has_none_B).sum())


class LanguageModelHead(nn.Module):
    """Predicts the next token with the tied embedding table; the loss of a sequence is the mean over its tokens.

    train.py of GPT-1 does the same.
    """

    def forward(self, hidden: Tensor, batch: Mapping[str, Tensor], table: Tensor) -> Score:
        length_B = batch["lengths"].to(hidden.device).long()
        row_T = torch.repeat_interleave(torch.arange(len(length_B), device=hidden.device), length_B)
        before_T = torch.arange(len(row_T) - 1, device=hidden.device)
        before_M = before_T[row_T[1:] == row_T[:-1]]  # tokens that have a successor in their sequence
        logits_MV = (hidden[before_M] @ table.T).float()
        target_M, share_M = batch["input_ids"][before_M + 1], 1 / (length_B - 1)[row_T[before_M]]
        loss = (F.cross_entropy(logits_MV, target_M, reduction="none") * share_M).sum()
        return Score(loss, len(length_B), (logits_MV.argmax(-1) == target_M).sum())
