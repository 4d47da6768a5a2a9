"""Made-up evidence of every state for tests: verified, in part, not verifiable, a mismatch; and from the CPU."""

from app.values.records import PortabilityResult
from workloads.kernels import KernelClass
from workloads.protocol import Evidence, Kernel

_GEMM = "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x"
_RNN = "float, float, float, (cudnnRNNMode_t)2, (cudnnRNNBiasMode_t)2"
_ADAM = "void tensorflow::functor::ApplyAdamKernel<float>(int, float*, float*, float*, float const*)"
_SPLIT = "void splitKreduce_kernel<32, 16, int, float, float, float, float, true, false, false>(…)"
_SHUFFLE = "void tensorflow::functor::ShuffleInTensor3Simple<unsigned int, 1, 0, 2, false>(…)"
_EIGEN = "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<Eigen::TensorAssignOp<…>>>(…)"
_H200: tuple[tuple[str, KernelClass, int, int, bool | None], ...] = (
    (f"{_GEMM}_cudnn", "gemm", 1000, 9_410_000, True),
    (f"void elemWiseRNNcell<{_RNN}>(…)", "rnn", 500, 3_240_000, None),
    ("void LSTM_elementWise_bp1<float, float, float, (cudnnRNNBiasMode_t)2>(…)", "rnn", 500, 2_960_000, None),
    (f"{_GEMM.replace('_tn_', '_nn_')}_cublas", "gemm", 505, 2_110_000, True),
    (_ADAM, "pointwise", 25, 890_000, None),
    ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x64_32x6_nn_align4>(…)", "gemm", 10, 402_000, True),
    (_SPLIT, "gemm", 10, 210_000, None),
    (_SHUFFLE, "transpose", 10, 187_000, None),
    ("void persistRNN_initialize<float>(…)", "rnn", 5, 101_000, None),
    ("MEMCPYD2D", "copy", 40, 96_000, None),
    ("MEMSET", "copy", 35, 61_000, None),
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication", 5, 58_000, None),
    (_EIGEN, "pointwise", 60, 55_000, None),
    *((f"Mul_GPU_DT_FLOAT_DT_FLOAT_kernel_{n}", "pointwise", 5, 9_000 - 300 * n, None) for n in range(12)),
)  # fmt: skip

AS_REQUESTED = Evidence(
    requested={"implementation": "cudnn", "precision": "tf32", "xla": "off", "device": "GPU", "replicas": "1"},
    actual={"implementation": "cudnn", "precision": "tf32", "xla": "off", "device": "GPU", "replicas": "1"},
    match=True,
    sources=("graph", "trace"),
    notes=("98 % of the time in products was on tensor cores.",),
    steps=5,
    span_ns=24_800_000,
    busy_ns=19_700_000,
    kernels=tuple(
        Kernel(name=name, kind=kind, count=count, time_ns=time_ns, tensor_cores=tensor_cores)
        for name, kind, count, time_ns, tensor_cores in _H200
    ),
)
"""A cuDNN LSTM on one H200, 25 kernels."""

MISLABELLED = Evidence(
    requested={"implementation": "cudnn", "precision": "float32", "xla": "off", "device": "GPU", "replicas": "1"},
    actual={"implementation": "standard", "precision": "float32", "xla": "off", "device": "GPU", "replicas": "1"},
    match=False,
    reason="What ran is not cudnn: it has 4 loops of 2 products per iteration.",
    sources=("graph", "trace"),
    steps=5,
    span_ns=205_000_000,
    busy_ns=61_000_000,
    kernels=(
        Kernel(name=f"{_GEMM}_cublas", kind="gemm", count=4000, time_ns=31_000_000, tensor_cores=True),
        Kernel(name="Sigmoid_GPU_DT_FLOAT_DT_FLOAT_kernel", kind="pointwise", count=1500, time_ns=4_500_000),
    ),
)

_SAME_GRAPH = "The executed graph looks the same for standard and gemm2."

IN_PART = Evidence(
    requested={"implementation": "gemm2", "precision": "tf32", "xla": "off", "device": "GPU", "replicas": "1"},
    actual={"precision": "tf32", "xla": "off", "device": "GPU", "replicas": "1"},
    unverified={"implementation": _SAME_GRAPH},
    match=None,
    reason=_SAME_GRAPH,
    sources=("graph",),
)
"""One of two implementations that leave the same graph."""

_NO_PRODUCT = "No matrix product was seen in what ran."

UNKNOWN = Evidence(
    requested={"implementation": "gemm2", "precision": "float32", "xla": "on"},
    actual={},
    unverified=dict.fromkeys(("implementation", "precision", "xla"), _NO_PRODUCT),
    match=None,
    reason=_NO_PRODUCT,
    sources=("graph",),
    notes=("The profiler saw no kernel: NVIDIA's libcupti is missing.",),
)

ON_CPU = Evidence(
    requested={"implementation": "standard", "precision": "float32", "xla": "off", "device": "CPU", "replicas": "1"},
    actual={"implementation": "standard", "precision": "float32", "xla": "off", "device": "CPU", "replicas": "1"},
    match=True,
    sources=("graph", "trace"),
    steps=2,
    span_ns=40_000_000,
    busy_ns=38_000_000,
    kernels=(
        Kernel(name="MatMul", kind="gemm", count=400, time_ns=30_000_000),
        Kernel(name="Mul", kind="pointwise", count=900, time_ns=10_000_000),
    ),
)

PORTABLE = (
    PortabilityResult(
        utc_ns=1,
        implementation="standard",
        device="cpu",
        device_name="Intel Xeon Platinum 8481C",
        precision="float32",
        max_difference=2.4e-4,
        max_output=1.31,
    ),
)
