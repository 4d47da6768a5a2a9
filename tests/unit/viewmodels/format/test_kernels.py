"""Short names of kernels, from the names that they had on an H200."""

import pytest

from app.viewmodels.format.naming import short_kernel_names
from tests.fakes.reference import load_reference

SWAP = "SwapDimension1And2InTensor3UsingTiles"
EIGEN = (
    "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<Eigen::TensorAssignOp<Eigen::TensorMap<…>, "
    "Eigen::TensorCwiseBinaryOp<Eigen::internal::scalar_product_op<float, float>, "
    "Eigen::TensorConversionOp<float, …>>>>>(…)"
)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (f"void tensorflow::functor::{SWAP}<float, 256, 32, 32, false>(float const*, float*)", SWAP),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_nn>(T1::Params)",
            "cutlass_80_tensorop_s1688gemm_64x64_nn",
        ),
        (
            "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
            "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x32_k_off",
        ),
        ("void tensorflow::(anonymous namespace)::SplitOpKernel<float>(float const*, int)", "SplitOpKernel"),
        (
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
        ),
        ("_ZN17cutlass__5x_cudnn6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS1_11EE", "ImplicitGemmConvolution"),
        (EIGEN, "Eigen product, Conversion"),
        ("main_kernel", "main_kernel"),
        ("<", "<"),
    ],
)
def test_a_name_is_shortened_to_what_identifies_the_kernel(name: str, short: str) -> None:
    assert short_kernel_names([name]) == [short]


def test_kernels_that_differ_in_their_arguments_are_told_apart() -> None:
    names = [f"void cudnn::bn<float, {size}>(int)" for size in (32, 128)]
    assert short_kernel_names(names) == ["bn<float, 32>", "bn<float, 128>"]
    assert short_kernel_names([f"void pad<{'float, ' * 20}>(int)", f"void pad<{'half, ' * 20}>(int)"]) == [
        "pad #1",
        "pad #2",
    ]


def test_all_names_of_the_reference_are_short_and_unique(tmp_path_factory: pytest.TempPathFactory) -> None:
    for run in load_reference(tmp_path_factory.mktemp("reference")):
        assert run.evidence is not None
        short = short_kernel_names([kernel.name for kernel in run.evidence.kernels])
        assert len(set(short)) == len(short)
        assert max(map(len, short)) < 120
