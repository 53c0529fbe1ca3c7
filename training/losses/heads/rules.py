"""Rules: losses of a target that replace its cross-entropy. A head with a rule keeps no logits in memory.

A rule gets three vectors float32 [M] (cross_entropy.Rule): `log_z`, the logarithm of the sum of exp(logits); `logit`,
that of the target; and `mean`, the mean of all logits of the row. The cross-entropy is `log_z - logit`.
"""

from torch import Tensor

from training.losses.heads.cross_entropy import Rule


def cross_entropy(log_z_M: Tensor, logit_M: Tensor, mean_M: Tensor) -> Tensor:
    """The negative log-likelihood of the targets, which heads compute without a rule.

    >>> import torch
    >>> logits, target = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([2])
    >>> log_z, logit, mean = logits.logsumexp(-1), logits[0, target], logits.mean(-1)
    >>> torch.allclose(cross_entropy(log_z, logit, mean), torch.nn.functional.cross_entropy(logits, target)[None])
    True
    """
    return log_z_M - logit_M


def smooth_labels(fraction: float) -> Rule:
    """Label smoothing (arXiv:1512.00567, 7): `fraction` of each target is spread evenly over all tokens."""

    def rule(log_z_M: Tensor, logit_M: Tensor, mean_M: Tensor) -> Tensor:
        return log_z_M - (1 - fraction) * logit_M - fraction * mean_M

    return rule


def add_z_loss(weight: float, rule: Rule = cross_entropy) -> Rule:
    """A rule plus `weight` times log^2 Z, which keeps Z, the sum of exp(logits), close to 1.

    It is the z-loss of PaLM (arXiv:2204.02311, 5), where the weight is 1e-4, and of the code of T5 (Mesh TensorFlow).

    >>> import torch
    >>> logits, target = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([2])
    >>> log_z, logit, mean = logits.logsumexp(-1), logits[0, target], logits.mean(-1)
    >>> torch.allclose(add_z_loss(1e-4)(log_z, logit, mean), log_z - logit + 1e-4 * log_z**2)
    True
    """

    def penalize(log_z_M: Tensor, logit_M: Tensor, mean_M: Tensor) -> Tensor:
        return rule(log_z_M, logit_M, mean_M) + weight * log_z_M.square()

    return penalize
