"""What kernels are, by the names they had on an H200 and in TensorFlow's, XLA's and cuDNN's own traces."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from tests.fakes.reference import copy_reference
from workloads.kernels import KernelClass, classify, on_tensor_cores

EIGEN = "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<Eigen::TensorAssignOp<Eigen::TensorMap<…>"
KERNELS: list[tuple[str, KernelClass, bool | None]] = [
    ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4", "gemm", False),
    ("nvjet_tst_128x128_64x4_1x2_h_bz_coopA_NTT", "gemm", True),
    ("ampere_sgemm_128x64_tn", "gemm", False),
    ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", "gemm", True),
    ("void gemv2T_kernel_val<int, int, float, float, float, 128, 16, 4, 4, false>(…)", "gemm", False),
    ("void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float>(…)", "gemm", None),
    ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x64x32", "convolution", True),
    ("sm90_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64", "convolution", True),
    ("void convolve_common_engine_float_NHWC<float, float, 128, 6, 7, 3, 3, 5, true, false>(…)", "convolution", False),
    ("void wgrad_alg0_engine_NHWC<float, 128, 6, 7, 3, 3, 5, false, 512>(…)", "convolution", False),
    ("turing_fp16_s1688cudnn_fp16_128x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1", "convolution", True),
    ("void cudnn::cnn::conv2d_grouped_direct_kernel<false, true, float, float, float, 0>(…)", "convolution", None),
    ("void conv_kernel_common<float>(…)", "convolution", None),
    ("cudnn-conv-bw-filter.1", "convolution", None),
    ("Conv", "convolution", None),
    ("my_model_reduce_then_conv_embedding", "other", None),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1", "attention", True),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_1x4x1", "attention", True),
    ("void cudnn::fusion::compute_dot_do_o_specialized<true, 64>(void const*, void const*, …)", "attention", None),
    ("void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, …>>", "attention", True),
    ("fmha_cutlassB_bf16_aligned_64x64_k64_dropout_sm80(…)", "attention", True),
    ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(…)", "attention", None),
    ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention", None),
    ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(…)", "layer_norm", None),
    ("void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<…>(…)", "layer_norm", None),
    ("void at::native::(anonymous namespace)::cunn_SoftMaxBackward<8, c10::BFloat16, …>(…)", "reduction", None),
    ("void elemWiseRNNcell<float, float, float, (cudnnRNNMode_t)2, (cudnnRNNBiasMode_t)2>(…)", "rnn", None),
    ("void GENERIC_elementWise_bp2<float, float, float, 4, (cudnnRNNBiasMode_t)2>(int, int, float*, …)", "rnn", None),
    ("void RNNInputRearrangement<float, float, 512, false>(float*, float*, int, int, int, …)", "rnn", None),
    ("void tensorflow::GatherOpKernel<tensorflow::AlignedVector<float, 4>, long, true>(…)", "copy", None),
    ("void GRU_elementWise_bp1<float, float, float, (cudnnRNNBiasMode_t)2>(…)", "rnn", None),
    ("void LSTM_elementWise_bp1<float, float, float, (cudnnRNNBiasMode_t)2>(…)", "rnn", None),
    ("void tensorflow::(anonymous namespace)::lstm_gates<float, true, (GateLayout)1>(…)", "rnn", None),
    ("void tensorflow::functor::SwapDimension1And2InTensor3UsingTiles<unsigned int, 1024>(…)", "transpose", None),
    ("void tensorflow::functor::ShuffleInTensor3Simple<float, 2, 1, 0, false>(…)", "transpose", None),
    ("void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)>", "transpose", None),
    ("input_transpose_fusion_4", "transpose", None),
    ("MemcpyD2D", "copy", None),
    ("MemcpyP2P", "communication", None),
    ("Memcpy PtoP (Device -> Device)", "communication", None),
    ("c10d::allreduce_", "communication", None),
    ("Memset", "copy", None),
    ("loop_dynamic_update_slice_fusion_3", "copy", None),
    ("wrapped_concatenate", "copy", None),
    ("void cudnn::engines_precompiled::scalePackedTensor_kernel<float, float>(…)", "pointwise", None),
    ("loop_slice_tanh_fusion", "pointwise", None),
    ("void tensorflow::functor::ApplyAdamKernel<float>(int, float*, float*)", "pointwise", None),
    ("void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<Eigen::TensorAssignOp<…>>>(…)", "pointwise", None),
    ("void cudnn::bn_fw_tr_1C11_singleread<float, 512, true, 1, 2, 0>(…)", "batch_norm", None),
    ("void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 128, true, 1>(…)", "batch_norm", None),
    ("_MklNativeFusedBatchNormGradV3", "batch_norm", None),
    ("_MklNativeAvgPoolGrad", "pooling", None),
    ("loop_reduce_window_fusion", "pooling", None),
    (f"{EIGEN}, Eigen::TensorReductionOp<Eigen::internal::SumReducer<float>>>>(…)", "reduction", None),
    (f"{EIGEN}, Eigen::TensorSlicingOp<Eigen::DSizes<long, 2> const>>>(…)", "copy", None),
    (f"{EIGEN}, Eigen::TensorCwiseNullaryOp<Eigen::internal::scalar_constant_op<float>>>>(…)", "copy", None),
    (f"{EIGEN}, Eigen::TensorGeneratorOp<tensorflow::generator::ReverseGenerator<float, int, 3>>>>(…)", "copy", None),
    (f"{EIGEN}, Eigen::TensorShufflingOp<Eigen::array<int, 3>>>>(…)", "transpose", None),
    ("main_kernel", "pointwise", None),
    ("void cudnn::engines_precompiled::convertTensor_kernel<float, float, float>(…)", "pointwise", None),
    ("void tensorflow::functor::RowReduceKernel<float const*, float*, …>(…)", "reduction", None),
    ("void tensorflow::functor::ColumnReduceMax16ColumnsKernel<float*, float*, …>(…)", "reduction", None),
    ("void cub::CUB_200805_SM___CUDA_ARCH_LIST__::DeviceSegmentedReduceKernel<…>(…)", "reduction", None),
    ("void tensorflow::BiasGradNHWC_SharedAtomics<float>(int, float const*, float*, int)", "reduction", None),
    ("void tensorflow::BiasNHWCKernel<float>(int, float const*, float const*, float*, int)", "pointwise", None),
    ("void tensorflow::(anonymous namespace)::GenerateNormalizedProb<float, float, 4>(…)", "reduction", None),
    ("input_reduce_select_fusion_7", "reduction", None),
    ("SparseSoftmaxCrossEntropyWithLogits", "reduction", None),
    ("void tensorflow::functor::PadInputCustomKernelNHWC<float, 4>(…)", "copy", None),
    ("void nhwcAddPaddingKernel<float, float, float, true, (cudnnKernelDataType_t)2>(…)", "copy", None),
    ("void cudnn::winograd_nonfused::winogradWgradDelta4x4<float, float>(…)", "convolution", None),
    ("_ZN17cutlass__5x_cudnn6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS6_4warp11MmaTensorOpINS7_ILi32E…",
     "convolution", True),
    ("void cutlass__5x_cudnn::Kernel<cutlass__5x_cudnn::reduction::kernel::ReduceSplitK<…>>(…)", "gemm", None),
    ("_MklMatMul", "gemm", None),
    ("bitcast_dot_fusion", "gemm", None),
    ("CudnnRNNV3", "rnn", None),
    ("BlockLSTMGradV2", "rnn", None),
    ("convert_convert_fusion", "pointwise", None),
    ("ynn_fusion", "other", None),
    ("CollectiveReduceV2", "communication", None),
    ("ConcatV2", "copy", None),
    ("ResourceApplyAdam", "pointwise", None),
    ("Mean", "reduction", None),
    ("Maximum", "pointwise", None),
    ("fusion_806", "other", None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "tensor_cores"), KERNELS)
def test_a_kernels_name_tells_what_it_is(name: str, kind: KernelClass, tensor_cores: bool | None) -> None:
    assert (classify(name), on_tensor_cores(name)) == (kind, tensor_cores)


@pytest.mark.parametrize("name", ["cnn", "lstm", "scaling", "xla"])
def test_hardly_any_kernel_time_of_a_stored_run_is_of_no_class(tmp_path: Path, name: str) -> None:
    """Every name of the reference runs' kernels: at most 0.12 % of the kernel time of a run is left over as other.

    XLA calls some `fusion_496`.
    """
    copy_reference(name, tmp_path / "runs.db")
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as connection:
        kernels = connection.execute("SELECT run, name, time_ns FROM kernels").fetchall()
    totals, other = dict[int, int](), dict[int, int]()
    for run, kernel, time_ns in kernels:
        totals[run] = totals.get(run, 0) + time_ns
        other[run] = other.get(run, 0) + (time_ns if classify(kernel) == "other" else 0)
    assert len(totals) > 5
    assert max(other[run] / totals[run] for run in totals) < 0.0012
