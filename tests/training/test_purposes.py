"""The purpose of kernels, with names as torch, cuBLAS, cuDNN, NCCL and torch.compile give them on a GPU."""

import pytest

from training.purposes import PURPOSES, purpose_of

MATMUL, ATTENTION, NORM = "matrix products", "attention", "norms"
SUMS, MOVES, HEAD = "activations and sums", "index, gather, cat and copy", "head: loss"

BY_NAME = {
    "nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_NTN": MATMUL,
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off": MATMUL,
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_nn_align8>(...)": MATMUL,
    "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(...)": MATMUL,
    "triton_tem_fused_addmm_gelu_5": MATMUL,
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, cutlass::bfloat16_t>>": ATTENTION,
    "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<...>::Params)": ATTENTION,
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1": ATTENTION,
    "triton_tem_fused_flex_attention_2": ATTENTION,
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(...)": NORM,
    "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<...>": NORM,
    "triton_per_fused_add_native_dropout_native_layer_norm_3": NORM,
    "triton_poi_fused_gelu_4": SUMS,
    "triton_poi_fused__to_copy_add_cat_9": SUMS,
    "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(...)>": SUMS,
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, ...>>": SUMS,
    "triton_poi_fused__to_copy_index_select_12": MOVES,
    "void at::native::indexFuncLargeIndex<float, long, unsigned int, 2, 2, -2, true, ...>(...)": MOVES,
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<...>": MOVES,
    "Memcpy DtoD (Device -> Device)": MOVES,
    "Memset (Device)": MOVES,
    "Memcpy HtoD (Pageable -> Device)": "copies from and to the host",
    "Memcpy DtoH (Device -> Pinned)": "copies from and to the host",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "communication",
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<...FusedAdamMathFunctor...>": "optimizer",
    "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<c10::BFloat16, float, unsigned int>": "dropout",
    "void at::native::(anonymous namespace)::embedding_backward_feature_kernel<...>": "embedding",
    "triton_red_fused__log_softmax_nll_loss_forward_7": HEAD,
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, LogSoftMaxForwardEpilogue>": HEAD,
    "Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs": MATMUL,  # of AMD
    "void fbgemm_gpu::permute_2D_lengths_kernel<int>(int, int, int const*)": "other",
    "void cub::DeviceScanKernel<cub::AgentScanPolicy<128, 15, int>>": "other",
}


def test_names_of_kernels_are_enough_without_a_recorded_launch() -> None:
    assert {name: purpose_of(name, (), (), "backward") for name in BY_NAME} == BY_NAME
    assert set(BY_NAME.values()) | {"head: matrix products"} == set(PURPOSES)


ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4>"


@pytest.mark.parametrize(
    ("kernel", "operators", "modules", "phase", "expected"),
    [
        ("unknown", ("aten::addmm", "aten::linear"), ("trunk", "trunk.blocks.*"), "forward", MATMUL),
        ("unknown", ("aten::bmm", "aten::matmul"), ("trunk.blocks.*.attention",), "forward", ATTENTION),
        ("gemm", ("aten::addmm",), ("trunk.blocks.*.attention", "trunk.blocks.*.attention.qkv"), "forward", MATMUL),
        (ELEMENTWISE, ("aten::_softmax", "aten::softmax"), ("trunk",), "forward", ATTENTION),
        (ELEMENTWISE, ("aten::pow",), ("trunk.blocks.*.attention_norm",), "forward", NORM),
        (ELEMENTWISE, ("aten::add_", "autograd::engine::evaluate_function: AddBackward0"), (), "backward", SUMS),
        (ELEMENTWISE, ("aten::copy_", "aten::_to_copy", "aten::to"), ("trunk",), "forward", MOVES),
        ("gemm_like_index", ("aten::index_add_", "IndexSelectBackward0"), (), "backward", MOVES),
        ("gemm", ("aten::mm",), ("heads.next_token",), "backward", "head: matrix products"),
        (ELEMENTWISE, ("aten::exp",), ("heads.next_token", "heads.next_token.norm"), "forward", HEAD),
        (ELEMENTWISE, ("aten::mul_",), (), "optimizer", "optimizer"),
        ("Memcpy HtoD (Pageable -> Device)", ("aten::copy_",), (), "optimizer", "optimizer"),
        ("ncclDevKernel_AllGather", (), (), "optimizer", "communication"),
        ("", ("aten::embedding",), ("trunk",), "forward", "embedding"),
        ("", ("aten::native_dropout", "aten::dropout"), ("trunk",), "forward", "dropout"),
    ],
)
def test_operators_modules_and_phases_decide_before_names(kernel, operators, modules, phase, expected) -> None:
    assert purpose_of(kernel, operators, modules, phase) == expected
