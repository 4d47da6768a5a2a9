"""What kernels are, by the names they had on an H200 and in TensorFlow's, XLA's and cuDNN's own traces."""

import pytest

from workloads.protocol import KernelClass
from workloads.tensorflow.evidence.kernels import classify, on_tensor_cores

XMMA = "tilesize128x128x32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x"
KERNELS: list[tuple[str, KernelClass, bool | None]] = [
    (f"sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_{XMMA}_cublas", "gemm", True),
    (f"sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_{XMMA}_cudnn", "gemm", True),
    (f"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_{XMMA}_cublas", "gemm", True),
    ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4", "gemm", False),
    ("nvjet_tst_128x128_64x4_1x2_h_bz_coopA_NTT", "gemm", True),
    ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x64_32x6_nn_align4>(T1::Params)", "gemm", True),
    ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>(T1::Params)", "gemm", False),
    ("ampere_sgemm_128x64_tn", "gemm", False),
    ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", "gemm", True),
    ("void gemv2T_kernel_val<int, int, float, float, float, 128, 16, 4, 4, false>(…)", "gemm", False),
    ("void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float>(…)", "gemm", None),
    ("gemm_fusion_dot_12_0", "gemm", None),
    ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x64x32", "convolution", True),
    ("sm90_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64", "convolution", True),
    ("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_f16_s16816fprop_optimized_f16_128x128>(…)", "convolution", True),
    ("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816gemm_bf16_128x128_64x3_nt>(…)", "gemm", True),
    ("ampere_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", "convolution", False),
    ("void implicit_convolve_sgemm<float, float, 128, 5, 5, 3, 3, 3, 1>(…)", "convolution", False),
    ("turing_fp16_s1688cudnn_fp16_128x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1", "convolution", True),
    ("void elemWiseRNNcell<float, float, float, (cudnnRNNMode_t)2, (cudnnRNNBiasMode_t)2>(…)", "rnn", None),
    ("void GENERIC_elementWise_bp2<float, float, float, 4, (cudnnRNNBiasMode_t)2>(int, int, float*, …)", "rnn", None),
    ("void RNNInputRearrangement<float, float, 512, false>(float*, float*, int, int, int, …)", "rnn", None),
    ("void tensorflow::GatherOpKernel<tensorflow::AlignedVector<float, 4>, long, true>(…)", "copy", None),
    ("void RNN_blockPersist_fp_LSTM<__half, float, float, 512>(…)", "rnn", None),
    ("void LSTM_elementWise_bp1<float, float, float, (cudnnRNNBiasMode_t)2>(…)", "rnn", None),
    ("void tensorflow::(anonymous namespace)::lstm_gates<float, true, (GateLayout)1>(…)", "rnn", None),
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication", None),
    ("void tensorflow::functor::SwapDimension1And2InTensor3UsingTiles<unsigned int, 1024>(…)", "transpose", None),
    ("void tensorflow::functor::ShuffleInTensor3Simple<float, 2, 1, 0, false>(…)", "transpose", None),
    ("void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)>", "transpose", None),
    ("input_transpose_fusion_4", "transpose", None),
    ("MemcpyD2D", "copy", None),
    ("MemcpyP2P", "communication", None),
    ("MEMCPYH2D", "copy", None),
    ("Memset", "copy", None),
    ("loop_dynamic_update_slice_fusion_3", "copy", None),
    ("wrapped_concatenate", "copy", None),
    ("loop_add_fusion_3", "pointwise", None),
    ("loop_slice_tanh_fusion", "pointwise", None),
    ("Sigmoid_GPU_DT_FLOAT_DT_FLOAT_kernel", "pointwise", None),
    ("void tensorflow::functor::ApplyAdamKernel<float>(int, float*, float*)", "pointwise", None),
    ("void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<Eigen::TensorAssignOp<…>>>(…)", "pointwise", None),
    ("void cudnn::bn_fw_tr_1C11_singleread<float, 512, true, 1, 2, 0>(…)", "other", None),
    ("_MklMatMul", "gemm", None),
    ("_MklNativeFusedMatMul", "gemm", None),
    ("bitcast_dot_fusion", "gemm", None),
    ("CudnnRNNV3", "rnn", None),
    ("BlockLSTMGradV2", "rnn", None),
    ("_MklNativeConv2DBackpropFilter", "convolution", None),
    ("convert_convert_fusion", "pointwise", None),
    ("ynn_fusion", "other", None),
    ("_MklTranspose", "transpose", None),
    ("CollectiveReduceV2", "communication", None),
    ("ConcatV2", "copy", None),
    ("ResourceApplyAdam", "pointwise", None),
    ("Mean", "other", None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "tensor_cores"), KERNELS)
def test_a_kernels_name_tells_what_it_is(name: str, kind: KernelClass, tensor_cores: bool | None) -> None:
    assert (classify(name), on_tensor_cores(name)) == (kind, tensor_cores)
