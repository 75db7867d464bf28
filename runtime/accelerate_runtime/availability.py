"""What is there: packages, and kinds of accelerators. Asking imports no package and initialises no device."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from importlib import metadata

import torch

from . import devices
from .environment import parse_flag_from_env, patch_environment
from .versions import compare_versions, is_torch_version

Probe = Callable[[], bool]


def _installed(module: str, *distributions: str) -> str | None:
    """The version of the distribution that `module` is from (by default, of the same name); None if it is not there."""
    try:
        if importlib.util.find_spec(module) is None:
            return None
    except (ImportError, ValueError):  # its parent is missing, or it is being imported
        return None
    for name in distributions or (module,):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None  # a folder of that name


def _package(module: str, *distributions: str, least: str | None = None, below: str | None = None) -> Probe:
    """A function that tells whether a package is installed, in a version from `least` on and before `below`."""

    def is_available() -> bool:
        version = _installed(module, *distributions)
        if version is None:
            return False
        kind = torch.torch_version.TorchVersion(version)
        return not (
            (least is not None and compare_versions(kind, "<", least))
            or (below is not None and compare_versions(kind, ">=", below))
        )

    is_available.__doc__ = f"Whether `{module}` is installed."
    return is_available


is_4bit_bnb_available = _package("bitsandbytes", least="0.39.0")
is_8bit_bnb_available = _package("bitsandbytes", least="0.37.2")
is_aim_available = _package("aim", below="4.0.0")
is_amdsmi_available = _package("amdsmi")
is_boto3_available = _package("boto3")
is_clearml_available = _package("clearml")
is_comet_ml_available = _package("comet_ml", "comet_ml", "comet-ml")
is_datasets_available = _package("datasets")
is_deepspeed_available = _package("deepspeed")
is_dvclive_available = _package("dvclive")
is_import_timer_available = _package("import_timer")
is_lomo_available = _package("lomo_optim", "lomo_optim", "lomo-optim")
is_matplotlib_available = _package("matplotlib")
is_mlflow_available = _package("mlflow", "mlflow", "mlflow-skinny")
is_msamp_available = _package("msamp", "ms-amp", "msamp")
is_pandas_available = _package("pandas")
is_peft_available = _package("peft")
is_pynvml_available = _package("pynvml", "pynvml", "nvidia-ml-py")
is_pytest_available = _package("pytest")
is_sagemaker_available = _package("sagemaker")
is_schedulefree_available = _package("schedulefree")
is_swanlab_available = _package("swanlab")
is_timm_available = _package("timm")
is_torchao_available = _package("torchao", least="0.6.1")
is_torchdata_available = _package("torchdata")
is_torchdata_stateful_dataloader_available = _package("torchdata", least="0.8.0")
is_torchvision_available = _package("torchvision")
is_tqdm_available = _package("tqdm")
is_trackio_available = _package("trackio")
is_transformer_engine_available = _package("transformer_engine", "transformer-engine", "intel-transformer-engine")
is_transformers_available = _package("transformers")
is_triton_available = _package("triton", "triton", "triton-xpu", "pytorch-triton-xpu", "pytorch-triton")
is_wandb_available = _package("wandb")
_is_bitsandbytes_installed = _package("bitsandbytes")
_is_rich_installed = _package("rich")
_is_tensorboard_installed = _package("tensorboard")
_is_tensorboardx_installed = _package("tensorboardX", "tensorboardX", "tensorboardx")


def is_bnb_available(min_version: str | None = None) -> bool:
    """Whether `bitsandbytes` is installed, in version `min_version` or later."""
    return _package("bitsandbytes", least=min_version)()


def is_numpy_available(min_version: str = "1.25.0") -> bool:
    """Whether NumPy is installed, in version `min_version` or later."""
    return _package("numpy", least=min_version)()


def is_bitsandbytes_multi_backend_available() -> bool:
    """Whether `bitsandbytes` works on more than CUDA. Importing it is the only way to know."""
    if not _is_bitsandbytes_installed():
        return False
    return "multi_backend" in getattr(importlib.import_module("bitsandbytes"), "features", set())


def is_tensorboard_available() -> bool:
    """Whether `tensorboard` or `tensorboardX` is installed."""
    return _is_tensorboard_installed() or _is_tensorboardx_installed()


def is_rich_available() -> bool:
    """Whether `rich` is installed and wanted (ACCELERATE_ENABLE_RICH)."""
    return _is_rich_installed() and parse_flag_from_env("ACCELERATE_ENABLE_RICH")


def is_megatron_lm_available() -> bool:
    """Whether Megatron is installed and asked for (ACCELERATE_USE_MEGATRON_LM)."""
    wanted = parse_flag_from_env("ACCELERATE_USE_MEGATRON_LM")
    return wanted and _package("megatron", "megatron-core", "megatron_core", least="0.8.0")()


# Kinds of accelerators


def _accelerator(kind: devices.Kind) -> Callable[..., bool]:
    """A function that tells whether torch has a kind of accelerator, and one is here."""

    def is_available(check_device: bool = False) -> bool:
        return devices.is_here(kind, check_device)

    is_available.__doc__ = f"Whether there is a device of the kind `{kind.name}`."
    return is_available


is_hpu_available = _accelerator(devices.HPU)
is_mlu_available = _accelerator(devices.MLU)
is_musa_available = _accelerator(devices.MUSA)
is_neuron_available = _accelerator(devices.NEURON)
is_npu_available = _accelerator(devices.NPU)
is_sdaa_available = _accelerator(devices.SDAA)
is_xpu_available = _accelerator(devices.XPU)


def is_cuda_available() -> bool:
    """Whether there is a GPU of the kind "cuda" (ROCm's too). It can be asked before a fork."""
    with patch_environment(PYTORCH_NVML_BASED_CUDA_CHECK="1"):
        return devices.is_here(devices.CUDA)


def is_rocm_available() -> bool:
    """Whether the GPUs are AMD's."""
    return torch.version.hip is not None and is_cuda_available()


def is_mps_available(min_version: str = "1.12") -> bool:
    """Whether there is an Apple GPU, and torch is of version `min_version` or later."""
    return is_torch_version(">=", min_version) and devices.is_here(devices.MPS)


def is_torch_xla_available(check_is_tpu: bool = False, check_is_gpu: bool = False) -> bool:
    """Whether `torch_xla` is installed and not switched off by USE_TORCH_XLA=0; an argument asks what it runs on."""
    if not parse_flag_from_env("USE_TORCH_XLA", True) or _installed(devices.XLA.packages[0]) is None:
        return False
    if not (check_is_tpu or check_is_gpu):
        return True
    kind = importlib.import_module(f"{devices.XLA.packages[0]}.runtime").device_type()
    return bool(kind == "TPU" if check_is_tpu else kind in ("GPU", "CUDA"))


def is_habana_gaudi1() -> bool:
    """Whether the HPU is of the first generation."""
    if not is_hpu_available():
        return False
    kinds = importlib.import_module("habana_frameworks.torch.utils.experimental")
    return bool(kinds._get_device_type() == kinds.synDeviceType.synDeviceGaudi)


# What they can do


def is_torch_distributed_available() -> bool:
    """Whether torch was built with `torch.distributed`."""
    return torch.distributed.is_available()


def is_xccl_available() -> bool:
    """Whether torch was built with Intel's collectives."""
    return is_torch_distributed_available() and torch.distributed.distributed_c10d.is_xccl_available()


def is_pippy_available() -> bool:
    """Whether torch has pipeline parallelism (`torch.distributed.pipelining`); every supported one has."""
    return is_torch_distributed_available()


def is_weights_only_available() -> bool:
    """Whether `torch.load` can be kept from unpickling what it does not know; with every supported torch."""
    return True


def is_bf16_available(ignore_tpu: bool = False) -> bool:
    """Whether bfloat16 works on the device that training would use.

    Args:
        ignore_tpu: do not count a TPU's.
    """
    if is_torch_xla_available(check_is_tpu=True):
        return not ignore_tpu
    found = devices.accelerator()
    return found is None or devices.has_bfloat16(found)


def is_fp16_available() -> bool:
    """Whether float16 works on the device that training would use."""
    return not is_habana_gaudi1()


def is_fp8_available() -> bool:
    """Whether a package for 8-bit training is installed."""
    return is_torchao_available() or is_transformer_engine_available() or is_msamp_available()


def is_transformer_engine_mxfp8_available() -> bool:
    """Whether Transformer Engine is installed, and the GPU has blocks of 8-bit numbers that share their scale."""
    if not is_transformer_engine_available():
        return False
    return bool(importlib.import_module("transformer_engine.pytorch.fp8").check_mxfp8_support()[0])


def check_cuda_fp8_capability() -> bool:
    """Whether the first GPU computes with 8-bit floats (compute capability 8.9 or more)."""
    return devices.multiplies_in_8_bits()
