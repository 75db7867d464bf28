"""The words that arguments may be, as enumerations. A plain string does everywhere as well."""

from __future__ import annotations

from enum import Enum, EnumMeta
from typing import Any

from .. import devices


class _Contains(EnumMeta):
    def __contains__(cls, item: Any) -> bool:
        """Whether `item` is a member, or a member's value."""
        return any(item is member or item == member.value for member in cls)  # type: ignore[var-annotated]


class Choice(Enum, metaclass=_Contains):
    """An enumeration whose members print as their values, and which values are `in`."""

    def __str__(self) -> str:
        return str(self.value)

    @classmethod
    def list(cls) -> list[str]:
        """The values."""
        return [str(member) for member in cls]


class PrecisionType(str, Choice):
    """`mixed_precision`."""

    NO = "no"
    FP8 = "fp8"
    FP16 = "fp16"
    BF16 = "bf16"


class RNGType(Choice):
    """`rng_types`: random states shared between processes."""

    TORCH = "torch"
    CUDA = devices.CUDA.name
    MLU = devices.MLU.name
    SDAA = devices.SDAA.name
    MUSA = devices.MUSA.name
    NPU = devices.NPU.name
    XLA = devices.XLA.name
    XPU = devices.XPU.name
    HPU = devices.HPU.name
    NEURON = devices.NEURON.name
    GENERATOR = "generator"


class ComputeEnvironment(str, Choice):
    """`compute_environment` of a launch config."""

    LOCAL_MACHINE = "LOCAL_MACHINE"
    AMAZON_SAGEMAKER = "AMAZON_SAGEMAKER"


class DynamoBackend(str, Choice):
    """`dynamo_backend`: what `torch.compile` compiles with. Which of them there are depends on what is installed."""

    NO = "NO"
    EAGER = "EAGER"
    AOT_EAGER = "AOT_EAGER"
    INDUCTOR = "INDUCTOR"
    AOT_TS_NVFUSER = "AOT_TS_NVFUSER"
    NVPRIMS_NVFUSER = "NVPRIMS_NVFUSER"
    CUDAGRAPHS = "CUDAGRAPHS"
    OFI = "OFI"
    FX2TRT = "FX2TRT"
    ONNXRT = "ONNXRT"
    TENSORRT = "TENSORRT"
    AOT_TORCHXLA_TRACE_ONCE = "AOT_TORCHXLA_TRACE_ONCE"
    TORCHXLA_TRACE_ONCE = "TORCHXLA_TRACE_ONCE"
    TVM = "TVM"
    HPU_BACKEND = "HPU_BACKEND"
    NEURON = "NEURON"


class DDPCommunicationHookType(Choice):
    """`comm_hook` and `comm_wrapper` of DistributedDataParallelKwargs: in what form gradients are exchanged."""

    NO = "no"
    FP16 = "fp16"
    BF16 = "bf16"
    POWER_SGD = "power_sgd"
    BATCHED_POWER_SGD = "batched_power_sgd"


class FP8BackendType(str, Enum):
    """The engines of fp8. A string too: `FP8BackendType.AO == "AO"`."""

    NO = "NO"
    TE = "TE"
    MSAMP = "MSAMP"
    AO = "AO"
