"""Classifies kernels by name: what they compute, and whether on tensor cores.

The names are those of NVIDIA's libraries, XLA, TensorFlow, PyTorch and its Inductor; on the CPU those of TensorFlow's
and PyTorch's operations and of XLA's instructions. The tables say where each word comes from. The first pattern that
matches decides. Stored runs are classified whenever they are read, so a better table improves them too.
"""

import re
from functools import lru_cache
from typing import Literal, NamedTuple

KernelClass = Literal[
    "gemm",
    "convolution",
    "rnn",
    "attention",
    "batch_norm",
    "layer_norm",
    "pooling",
    "reduction",
    "pointwise",
    "transpose",
    "copy",
    "communication",
    "other",
]


class _ClassPattern(NamedTuple):
    kind: KernelClass
    pattern: re.Pattern[str]
    source: str


class _TensorCorePattern(NamedTuple):
    tensor: bool
    pattern: re.Pattern[str]
    source: str


_CLASS_PATTERNS: tuple[_ClassPattern, ...] = (
    _ClassPattern(
        "communication",
        re.compile(r"(?i:nccl)|Collective|AllReduce|all-reduce|^psum|(?i:^memcpy ?p(to|2)p)|^c10d::"),
        "NCCL; collectives of TensorFlow, PyTorch (c10d) and JAX (psum); CUPTI's copies between GPUs, `Memcpy PtoP`",
    ),
    _ClassPattern(
        "rnn",
        re.compile(
            r"CudnnRNN|BlockLSTM|LSTMBlockCell|RNNcell|(LSTM|GRU|GENERIC)_elementWise|[pP]ersist.*(RNN|LSTM|GRU)|persistRNN|RNN_|lstm_gates"
            r"|RNN(In|Out)putRearrangement|(lstm|gru)_cell|_cudnn_rnn|mkldnn_rnn"
        ),
        "cuDNN's recurrent kernels; PyTorch's cells; TensorFlow's CudnnRNN and block LSTM operations (lstm_ops_gpu)",
    ),
    _ClassPattern(
        "attention",
        re.compile(r"sdpa|fmha|(?i:flash_?(attn|fwd|bwd))|attention|dot_do_o|convert_dq"),
        "cuDNN's scaled dot product attention, FlashAttention's, CUTLASS's (fmha), with sums and casts of its gradient",
    ),
    _ClassPattern(
        "convolution",
        re.compile(r"fprop|dgrad|wgrad|[Cc]onv(?=ol|[A-Z\d]|_kernel|_general)|^Conv$|cudnn-conv|[a-z0-9]cudnn_|winograd|fft2d|flip_filter"),
        "cuDNN and CUTLASS name the forward pass fprop and the gradients dgrad, wgrad; scudnn, s1688cudnn: cuDNN's own;"
        " TensorFlow's Conv2D, XLA's and JAX's convolutions: `conv` alone is a word of anyone's kernels",
    ),
    _ClassPattern(
        "batch_norm",
        re.compile(r"\bbn_(fw|bw)_|[bB]atch_?[nN]orm"),
        "cuDNN's bn_fw_tr_…, bn_bw_…; TensorFlow's FusedBatchNorm; XLA makes it of reductions and point-wise kernels",
    ),
    _ClassPattern(
        "layer_norm",
        re.compile(r"(?i:(layer|rms|group)_?norm)|GammaBeta|RowwiseMoments|ComputeFusedParams"),
        "PyTorch's layer, RMS and group norms, with the gradients of weights and biases (GammaBetaBackward)",
    ),
    _ClassPattern(
        "pooling",
        re.compile(r"pooling_(fw|bw)_|[pP]ooling|(Avg|Max)_?Pool|(avg|max)_pool|reduce[-_]window|select[-_]and[-_]scatter"),
        "cuDNN's pooling_fw_4d_kernel, pooling_bw_kernel_avg; TensorFlow; XLA's reduce-window and its gradient",
    ),
    _ClassPattern(
        "gemm",
        re.compile(r"gemm|gemv|MatMul|matmul|^aten::(add|b|badd)?mm$|nvjet|splitK|(^|[^a-z])dot([^a-z]|$)|Einsum|::Kernel2?<cutlass"),
        "cuBLAS, cuBLASLt (nvjet, splitKreduce), CUTLASS, Triton's gemm_fusion_dot; TensorFlow; XLA's dot",
    ),
    _ClassPattern(
        "transpose",
        re.compile(r"[tT]ranspose|nchwToNhwc|nhwcToNchw|SwapDimension|ShuffleInTensor|MetaKernel(?!.*scalar_).*Shuffling"),
        "cuDNN's layout changes; TensorFlow's transpose_functor_gpu.cu.cc and conv_2d_gpu.h; Eigen; XLA's fusions",
    ),
    _ClassPattern(
        "reduction",
        re.compile(
            r"(Row|Column|Block|Segmented|Device)Reduce|reduce_1Block|CleanupSegments|TensorReductionOp|BiasAdd_?Grad|BiasGrad"
            r"|[sS]oft[mM]ax|NormalizedProb|(^|_)reduce(?!_precision)(_\w+)?_fusion|^(wrapped_)?reduce[._\d]*$"
            r"|^_?(Mkl)?(Sum|Mean|Max|Min|Prod|ArgMax|ArgMin|All|Any|L2Loss)$"
            r"|at::native::reduce_kernel|^triton_(red|per)_|^aten::(sum|mean|max|_log_softmax|nll_loss)|nll_loss|mse_loss"
        ),
        "sums over an axis, of batch norm, biases and losses: TensorFlow's reduction_gpu_kernels.cu.h, Eigen, CUB, XLA",
    ),
    _ClassPattern(
        "copy",
        re.compile(
            r"(?i:^mem(cpy|set))|^(wrapped_|loop_)?((dynamic[-_](update[-_])?)?(slice|copy|concatenate|gather|pad|reverse"
            r"|bitcast|broadcast|iota)_?)+(fusion)?[._\d]*$|^_?(Mkl)?(Concat|Split|Gather|Pack|Unpack|Slice|StridedSlice"
            r"|Pad|Reverse|TensorList|Tile|Fill|Identity|(Read|Assign)Variable|AssignAdd)|concat_|GatherOpKernel|[sS]plit\w*[kK]ernel"
            r"|^aten::(copy_|cat|clone|fill_|zero_|_to_copy|constant_pad_nd|select_backward|slice_backward)$|CatArrayBatchedCopy"
            r"|PadInput|AddPadding|EigenMetaKernel(?=.*(Slicing|Broadcasting|Padding|Chipping|Concatenation|Reverse|scalar_const))"
            r"(?!.*(scalar_(?!const)|Tensor(Conversion|Scan|Select)|(?<!Reverse)Generator<))"
        ),
        "CUPTI's copies; XLA's, TensorFlow's and cuDNN's names of what moves values and computes none; Eigen's slices",
    ),
    _ClassPattern(
        "pointwise",
        re.compile(
            r"_GPU_DT_|^main_kernel$|EigenMetaKernel|convertTensor|scalePackedTensor|^(loop|wrapped)_|Apply[A-Z]\w*Kernel|Bias(NHWC|NCHW)|(?<!ynn)_fusion(_|\.|$)|^ResourceApply"
            r"|^_?(Mkl)?(Native)?(Add|Sub|Mul|Div|RealDiv|Neg|Square|Sqrt|Rsqrt|Exp|Log|Sigmoid|Tanh|Relu|Select|Cast"
            r"|Less|Greater|Equal|NotEqual|Logical|Maximum|Minimum|IsFinite|BiasAdd$)"
            r"|elementwise_kernel|multi_tensor_apply|^triton_poi_|^aten::_?(fused_(sgd|adam)|add|sub|mul|div|neg|sqrt|sigmoid|tanh"
            r"|threshold_backward|clamp_min|relu)"
        ),
        "TensorFlow's generated kernels (Mul_GPU_DT_FLOAT…; main_kernel, made at run time: ReLU, sigmoid), Eigen,"
        " optimizers; cuDNN's casts and scaling; XLA's loop fusions",
    ),
)  # fmt: skip

PRODUCTS: tuple[KernelClass, ...] = ("gemm", "convolution", "rnn", "attention")
"""The classes that do the main work."""

_TENSOR_CORE_PATTERNS: tuple[_TensorCorePattern, ...] = (
    _TensorCorePattern(True, re.compile(r"tensorop|MmaTensorOp"), "CUTLASS: the operator class tensorop"),
    _TensorCorePattern(False, re.compile(r"simt"), "CUTLASS: the operator class simt, on CUDA cores"),
    _TensorCorePattern(
        True, re.compile(r"nvjet"), "cuBLAS's kernels for Hopper and newer: all on warpgroup matrix instructions"
    ),
    _TensorCorePattern(
        True,
        re.compile(r"[a-z](884|1688|8816|16816|16832|161616)[a-z]"),
        "the shape of a matrix instruction (PTX ISA, mma: m8n8k4, m16n8k8, m16n8k16 …), as in s1688gemm",
    ),
    _TensorCorePattern(True, re.compile(r"[hig]mma|tensor\d+x\d+x\d+"), "the instructions HMMA, IMMA, (W)GMMA"),
    _TensorCorePattern(
        True,
        re.compile(r"sdpa|(?i:flash_?(attn|fwd|bwd))|fmha_cutlass[FB]_b?f16"),
        "cuDNN's attention and FlashAttention, for 16 bits and fewer; CUTLASS's name the type",
    ),
    _TensorCorePattern(False, re.compile(r"ffma"), "the CUDA cores' instruction FFMA"),
    _TensorCorePattern(
        True,
        re.compile(r"xmma_\w*?(tf32|bf16|f16|i8|e4m3|e5m2)"),
        "xmma kernels name their operands' types: of these, only tensor cores make products",
    ),
    _TensorCorePattern(
        False,
        re.compile(r"[sd]gemm|scudnn|gemv|winograd|fft2d|gemmSN|gemmk1"),
        "cuBLAS and cuDNN: single or double precision on CUDA cores",
    ),
    _TensorCorePattern(
        False,
        re.compile(r"([dw]grad(_alg\d)?|convolve_common)_engine"),
        "cuDNN's convolutions from before there were tensor cores, templates of their operands' types",
    ),
)

_AUXILIARY = re.compile(
    r"(?i)elem(ent)?wise|rearrangement|initialize|lstm_gates|splitKreduce|reduceSplitK|split_k_kernel|reduce_wgrad"
    r"|init_device_workspace|winograd_nonfused|dot_do_o|convert_dq"
)
"""cuDNN's and TensorFlow's kernels for the gates of a recurrent layer; the sum of a product that cuBLAS, CUTLASS or
cuDNN split; cuDNN's preparation of a convolution; sums and casts of attention's gradient."""


@lru_cache(maxsize=16_384)
def classify(name: str) -> KernelClass:
    return next((row.kind for row in _CLASS_PATTERNS if row.pattern.search(name)), "other")


def merging_compiler(name: str) -> str:
    """Return the compiler that fused operations into a kernel of that name, `XLA` or `Inductor`; "" for none."""
    if name.startswith(("triton_poi_", "triton_per_", "triton_red_")):
        return "Inductor"
    return "XLA" if "fusion" in name and "::" not in name else ""  # unlike cudnn::fusion


def makes_products(name: str) -> bool:
    """Return whether a kernel computes matrix products or convolutions, rather than preparing or finishing them."""
    return classify(name) in PRODUCTS and _AUXILIARY.search(name) is None


@lru_cache(maxsize=16_384)
def on_tensor_cores(name: str) -> bool | None:
    """Return whether a kernel's products run on tensor cores; None if its name does not say, or it has none."""
    if not makes_products(name):
        return None
    return next((row.tensor for row in _TENSOR_CORE_PATTERNS if row.pattern.search(name)), None)


_IMAGE_LAYOUT = re.compile(r"(?<![a-zA-Z])(nchw|nhwc|NCHW|NHWC)")
_ON_IMAGES = ("convolution", "batch_norm", "pooling")


@lru_cache(maxsize=16_384)
def image_layout(name: str) -> str | None:
    """Return the layout in which a kernel reads images, NCHW or NHWC; None if its name does not say, or it reads none.

    cuDNN names the operands one after another, images first: `nhwckrsc_nhwc`, `nchwkcrs_nchw`.
    """
    match = _IMAGE_LAYOUT.search(name) if classify(name) in _ON_IMAGES else None
    return match[1].upper() if match else None
