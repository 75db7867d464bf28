"""Kinds of devices, and all that this library knows of each. No other file names one.

What torch says of the accelerator in use (`torch.accelerator`) is asked there; here stands what it does not say. A kind
that is not in the table works as well, as far as torch knows it. torch is imported only where it is asked.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Kind:
    """One kind of device.

    Attributes:
        name: torch's, as in `torch.device(name)`.
        label: for people.
        spread: the distributed type of several processes that have one each.
        packages: modules that bring it to torch, in the order of import; none where torch has it itself.
        visible: the environment variable that says which of them a process may use.
        backend: the collectives of its process group, where torch names none.
        shared: whether several processes can use one.
        float64: whether it computes with 64-bit floats.
        dispatch: torch's name for its kernels, where torch must be asked whether it has one.
    """

    name: str
    label: str
    spread: str
    packages: tuple[str, ...] = ()
    visible: str | None = None
    backend: str | None = None
    shared: bool = True
    float64: bool = True
    dispatch: str | None = None


CPU = Kind("cpu", "CPU", "MULTI_CPU", backend="gloo", dispatch="CPU")
CUDA = Kind("cuda", "GPU", "MULTI_GPU", visible="CUDA_VISIBLE_DEVICES", backend="nccl", dispatch="CUDA")
MPS = Kind("mps", "Apple GPU", "MULTI_GPU", shared=False, float64=False, dispatch="MPS")
XPU = Kind("xpu", "Intel GPU", "MULTI_XPU", visible="ZE_AFFINITY_MASK", backend="xccl", dispatch="XPU")
NPU = Kind("npu", "Ascend NPU", "MULTI_NPU", ("torch_npu",), "ASCEND_RT_VISIBLE_DEVICES", "hccl")
MLU = Kind("mlu", "Cambricon MLU", "MULTI_MLU", ("torch_mlu",), "MLU_VISIBLE_DEVICES", "cncl")
MUSA = Kind("musa", "Moore Threads GPU", "MULTI_MUSA", ("torch_musa",), "MUSA_VISIBLE_DEVICES", "mccl")
SDAA = Kind("sdaa", "Tecorigin SDAA", "MULTI_SDAA", ("torch_sdaa",), "SDAA_VISIBLE_DEVICES", "tccl")
HPU = Kind(
    "hpu",
    "Gaudi",
    "MULTI_HPU",
    ("habana_frameworks", "habana_frameworks.torch"),
    "HABANA_VISIBLE_MODULES",
    "hccl",
)
NEURON = Kind("neuron", "Trainium", "MULTI_NEURON", ("torch_neuronx",), "NEURON_RT_VISIBLE_CORES", "neuron")
XLA = Kind("xla", "TPU", "XLA", ("torch_xla",), backend="xla")

_XLA_MODEL = "torch_xla.core.xla_model"
"""Where torch_xla has what torch keeps in a module for each kind."""

KINDS = {kind.name: kind for kind in (CPU, CUDA, MPS, XPU, NPU, MLU, MUSA, SDAA, HPU, NEURON, XLA)}
EXTENSIONS = tuple(kind.packages[0] for kind in KINDS.values() if kind.packages and kind is not XLA)
"""Packages that add an accelerator to torch."""
VISIBLE_DEVICES = {kind.spread: kind.visible for kind in KINDS.values() if kind.visible is not None}
"""Distributed types of devices, and the variables that say which of them processes may use."""


def kind_of(device: torch.device | str) -> Kind:
    """The kind of a device; one that is not in the table is as torch says."""
    name = device if isinstance(device, str) else device.type
    return KINDS.get(name) or Kind(name, name.upper(), "MULTI_GPU")


# Which one is here


def is_here(kind: Kind, check_device: bool = False) -> bool:
    """Whether torch has this kind, brought by its packages, and there is one. Importing them is the only way to know.

    Args:
        check_device: also count them.
    """
    import torch

    for module in kind.packages:
        try:
            if importlib.util.find_spec(module) is None:
                return False
            importlib.import_module(module)  # registers the kind with torch
        except Exception:  # made for other drivers than there are
            return False
    backend = getattr(torch, kind.name, None)
    return backend is not None and bool(backend.is_available()) and (not check_device or backend.device_count() > 0)


def accelerator() -> torch.device | None:
    """The accelerator that torch has here, without an index; None is the CPU."""
    import torch

    return torch.accelerator.current_accelerator(check_available=True)


def count() -> int:
    """How many of them this process may use."""
    import torch

    return torch.accelerator.device_count()


def use(device: torch.device) -> None:
    """Make `device`, which has an index, the one that this process works on."""
    import torch

    torch.get_device_module(device).set_device(device.index)


def names() -> list[str]:
    """What the accelerators here are called, each name once; the kind where torch does not say."""
    import torch

    found = accelerator()
    if found is None:
        return []
    tell = getattr(torch.get_device_module(found), "get_device_name", None)
    told = {str(tell(index)) for index in range(count())} if tell is not None else set()
    return sorted(told) or [kind_of(found).label]


def is_untouched(device: torch.device) -> bool:
    """Whether this process may fork and the children still use such devices."""
    import torch

    if device.type != CUDA.name or torch.version.hip is not None:
        return False
    return not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]


def pci_address(index: int) -> str | None:
    """Where a GPU is plugged in, as Linux writes it ("0000:3b:00.0"); None where torch does not say."""
    import torch

    if not torch.cuda.is_available():
        return None
    gpu: Any = torch.cuda.get_device_properties(index)
    return f"{gpu.pci_domain_id:04x}:{gpu.pci_bus_id:02x}:{gpu.pci_device_id:02x}.0"


# What it can do


def collectives_of(device: torch.device) -> str:
    """The backend of process groups on such devices.

    Raises:
        ValueError: neither torch nor we know one.
    """
    import torch.distributed as dist

    kind = kind_of(device)
    backend: str | None = dist.Backend.default_device_backend_map.get(device.type) or kind.backend
    if backend is None:
        raise ValueError(
            f"torch names no collectives for devices of the kind {device.type!r}: pass "
            "InitProcessGroupKwargs(backend=...), or cpu=True to train on the processor."
        )
    return backend


def has_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 works there; where nobody says, it is taken to."""
    import torch

    if device.type == MPS.name:
        return torch.backends.mps.is_macos_or_newer(14, 0)
    tell = None if device.type == CPU.name else getattr(_module(device), "is_bf16_supported", None)
    return tell is None or bool(tell())


def can_scale_gradients(device: torch.device) -> bool:
    """Whether this build of torch has the kernel that a GradScaler calls; of kinds that we do not know, it is taken
    to."""
    import torch

    if device.type == XLA.name:  # a GradScaler would read a number, and so wait, at each step
        return False
    key = kind_of(device).dispatch
    operator = "aten::_amp_foreach_non_finite_check_and_unscale_"
    return key is None or bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator, key))


def multiplies_in_8_bits(device: torch.device | None = None) -> bool:
    """Whether there are products of 8-bit floats that are worth using: Ada, Hopper and newer GPUs.

    Args:
        device: None is the first GPU.
    """
    import torch

    if device is not None and device.type != CUDA.name:
        return device.type != CPU.name
    return torch.version.hip is not None or torch.cuda.get_device_capability(device) >= (8, 9)


def get_random_states(device: torch.device) -> Any:
    """The states of the generators of all devices of this kind, as `set_random_states` takes them."""
    module = _module(device)
    if device.type == XLA.name:
        return module.get_rng_state()
    return module.get_rng_state_all() if hasattr(module, "get_rng_state_all") else [module.get_rng_state()]


def set_random_states(device: torch.device, states: Any) -> None:
    """Set the generators to what `get_random_states` gave."""
    module = _module(device)
    if device.type == XLA.name:
        module.set_rng_state(states)
    elif hasattr(module, "set_rng_state_all"):
        module.set_rng_state_all(states)
    else:
        module.set_rng_state(states[0])


def random_states_key(device: torch.device) -> str:
    """What `get_random_states` is called in files, as in Accelerate's."""
    return "xm_seed" if device.type == XLA.name else f"torch_{device.type}_manual_seed"


def has_its_own_memory(device: torch.device) -> bool:
    """Whether its memory is apart from the machine's (an Apple GPU's is not)."""
    return device.type not in (CPU.name, MPS.name)


def seed_all(seed: int) -> None:
    """Seed the generators of torch, on the CPU and on all devices."""
    import torch

    torch.manual_seed(seed)
    if _XLA_MODEL in sys.modules:  # torch does not know its generator
        sys.modules[_XLA_MODEL].set_rng_state(seed)


def _module(device: torch.device) -> Any:
    import torch

    return sys.modules[_XLA_MODEL] if device.type == XLA.name else torch.get_device_module(device.type)
