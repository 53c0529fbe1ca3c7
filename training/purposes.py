"""The purpose of a kernel or an operator: what part of the training needs it.

The rules read the names of the kernel, of the operators around its launch, of the modules, and of the phase. If torch
did not record the launch, the name of the kernel decides alone. Names of kernels are those of torch, cuBLAS, cuDNN,
NCCL, Flash Attention, Apex and DeepSpeed, and of torch.compile, which lists the operators that a kernel replaces:
`triton_per_fused_add_native_layer_norm_3`. Such a kernel has the first purpose that fits.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

MATMUL, ATTENTION, NORM = "matrix products", "attention", "norms"
ELEMENTWISE, DROPOUT, EMBEDDING = "activations and sums", "dropout", "embedding"
HEAD_MATMUL, HEAD, OPTIMIZER = "head: matrix products", "head: loss", "optimizer"
MOVES, HOST_COPIES = "index, gather, cat and copy", "copies from and to the host"
COMMUNICATION, OTHER = "communication", "other"

PURPOSES: Final = (
    MATMUL, ATTENTION, NORM, ELEMENTWISE, DROPOUT, EMBEDDING, HEAD_MATMUL, HEAD, OPTIMIZER, MOVES, HOST_COPIES,
    COMMUNICATION, OTHER,
)  # fmt: skip

_IS_COMMUNICATION: Final = re.compile(r"^nccl|nccl:|gloo:|c10d::|record_param_comms", re.IGNORECASE)
_IS_HOST_COPY: Final = re.compile(r"^(Memcpy|Memset)? ?(HtoD|DtoH)|CopyHostToDevice|CopyDeviceToHost")
_IS_OPTIMIZER: Final = re.compile(r"multi_?tensor_apply|fused_?(adam|lamb|sgd|lion)|Optimizer\.step", re.IGNORECASE)
_IS_HEAD: Final = re.compile(r"log_?softmax|nll_loss|cross_entropy|logsumexp", re.IGNORECASE)
_IS_ATTENTION: Final = re.compile(r"attention|attn|sdpa|flash_|fmha|softmax", re.IGNORECASE)
_IS_BATCHED_MATMUL: Final = re.compile(r"::(bmm|baddbmm|einsum)")
_IS_NORM: Final = re.compile(
    r"layer_?norm|rms_?norm|group_?norm|RowwiseMoments|Gamma_?Beta|ComputeGradInput|ComputePartGrad", re.IGNORECASE
)
_IS_EMBEDDING: Final = re.compile(r"embedding", re.IGNORECASE)
_IS_DROPOUT: Final = re.compile(r"dropout|bernoulli|inductor_(random|seeds)|::rand|distribution_", re.IGNORECASE)
_MATMUL: Final = r"mm|addmm|bmm|baddbmm|matmul|linear|_linear\w*|einsum|mv|addmv|dot|_scaled_mm|_grouped_mm|_addmm_\w+"
_IS_MATMUL: Final = re.compile(rf"::({_MATMUL})$")
_IS_MATMUL_KERNEL: Final = re.compile(
    r"(?<!fb)gemm|gemv|Cijk_|xmma|cutlass|cublas|nvjet|wgmma|split_?k|triton_(mm|bmm)|_tem_fused_", re.IGNORECASE
)
_MOVES: Final = (
    "index", "index_select", "index_put", "index_add", "index_copy", "index_fill", "_index_put_impl", "gather",
    "gather_backward", "index_select_backward", "scatter", "scatter_add", "masked_scatter", "cat", "stack", "copy",
    "_to_copy", "clone", "contiguous", "fill", "zero", "zeros", "new_zeros", "full", "ones_like", "arange", "pad",
    "constant_pad_nd", "slice", "slice_backward", "slice_scatter", "select_backward", "select_scatter", "repeat",
    "repeat_interleave", "roll", "masked_select", "nonzero", "take", "unfold", "split_with_sizes_copy",
)  # fmt: skip
_VIEWS: Final = ("view", "reshape", "transpose", "permute", "expand", "unsqueeze", "squeeze", "select", "split", "t")
_IS_MOVE: Final = re.compile(rf"::({'|'.join(_MOVES)})_?$")
_MOVES_IN_FUSED: Final = re.compile("|".join(sorted((*_MOVES, *_VIEWS), key=len, reverse=True)))
_IS_MOVE_KERNEL: Final = re.compile(
    r"^Mem(cpy|set)|index|gather|scatter|CatArray|copy_(kernel|device)|FillFunctor|transpose", re.IGNORECASE
)
_IS_ELEMENTWISE_KERNEL: Final = re.compile(r"elementwise|reduce|triton_|Functor|gelu|silu|relu", re.IGNORECASE)


@lru_cache(maxsize=65_536)
def purpose_of(kernel: str, operators: Sequence[str], modules: Sequence[str], phase: str) -> str:
    """One of PURPOSES. `operators` starts with the innermost one, `modules` with the outermost one.

    For an operator of the host, `kernel` is empty.

    >>> purpose_of("nvjet_tst_128x256", ("aten::addmm", "aten::linear"), ("trunk",), "forward")
    'matrix products'
    >>> purpose_of("triton_poi_fused_gelu_4", (), (), "backward")
    'activations and sums'
    """
    names = " ".join((kernel, *operators))
    if _IS_COMMUNICATION.search(names):
        return COMMUNICATION
    if phase == "optimizer" or _IS_OPTIMIZER.search(names):
        return OPTIMIZER
    if _IS_HOST_COPY.search(kernel):
        return HOST_COPIES
    purpose = _purpose_of_names(kernel, operators, names, modules[-1] if modules else "")
    if _IS_HEAD.search(names) or any(name.split(".")[0] == "heads" for name in modules):
        return HEAD_MATMUL if purpose == MATMUL else HEAD
    return purpose


def _purpose_of_names(kernel: str, operators: Sequence[str], names: str, module: str) -> str:
    """The purpose of a kernel outside the head and the optimizer."""
    operator, last = next(iter(operators), ""), module.rsplit(".", 1)[-1]
    if _IS_DROPOUT.search(names) and not _IS_NORM.search(names):  # of attention weights, too
        return ATTENTION if _IS_ATTENTION.search(names) else DROPOUT
    if _IS_ATTENTION.search(names) or ("attention" in last and _IS_BATCHED_MATMUL.search(operator)):
        return ATTENTION
    if _IS_NORM.search(names) or last.endswith("norm"):
        return NORM
    if _IS_EMBEDDING.search(names):
        return EMBEDDING
    if _IS_MATMUL.search(operator) or (not _IS_MOVE.search(operator) and _IS_MATMUL_KERNEL.search(kernel)):
        return MATMUL
    if _IS_MOVE.search(operator) or _is_fused_move(kernel):
        return MOVES
    if not operator and _IS_MOVE_KERNEL.search(kernel) and not kernel.startswith("triton_"):
        return MOVES
    return ELEMENTWISE if operator or _IS_ELEMENTWISE_KERNEL.search(kernel) else OTHER


def _is_fused_move(kernel: str) -> bool:
    """Whether a kernel of torch.compile only moves or converts values.

    >>> _is_fused_move("triton_poi_fused__to_copy_cat_3"), _is_fused_move("triton_poi_fused__to_copy_mul_3")
    (True, False)
    """
    _, is_fused, names = kernel.partition("_fused_")
    return bool(is_fused) and not _MOVES_IN_FUSED.sub("", names).strip("_0123456789")
