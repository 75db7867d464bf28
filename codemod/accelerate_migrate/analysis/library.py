"""The table of known libraries: what a qualified name is, as far as training is concerned."""

from __future__ import annotations

import re
from functools import lru_cache

from accelerate_migrate.analysis.atoms import Role

_FUNCTIONAL_LOSS = re.compile(r"torch\.nn\.functional\.(\w*loss|\w*cross_entropy\w*|kl_div)")
# Models of transformers: GPT2LMHeadModel, BertForTokenClassification, AutoModelForCausalLM.from_pretrained
_PRETRAINED = re.compile(r"\.[A-Z]\w*(Model|For[A-Z]\w*)(\.from_pretrained)?$|Model\w*\.from_pretrained$")
_DDP = "torch.nn.parallel.DistributedDataParallel"
_ALIASES = (
    (re.compile(r"^torch\.nn\.modules\.\w+\."), "torch.nn."),
    (re.compile(r"^torch\.nn\.parallel\.data_parallel\.DataParallel$"), "torch.nn.DataParallel"),
    (re.compile(r"^torch\.nn\.parallel\.DataParallel$"), "torch.nn.DataParallel"),
    (re.compile(r"^torch\.nn\.parallel\.distributed\."), "torch.nn.parallel."),
    (re.compile(r"^apex\.parallel\.(distributed\.)?DistributedDataParallel$"), _DDP),
    (re.compile(r"^apex\.parallel\.convert_syncbn_model$"), "torch.nn.SyncBatchNorm.convert_sync_batchnorm"),
    (re.compile(r"^torch\.distributed\.distributed_c10d\."), "torch.distributed."),
    (re.compile(r"^torch\.multiprocessing\.spawn\.spawn$"), "torch.multiprocessing.spawn"),
    (re.compile(r"^torch\.utils\.data\.(dataloader|dataset|sampler|distributed)\."), "torch.utils.data."),
    (re.compile(r"^torch\.optim\.(adam|adamw|sgd|rmsprop|adagrad|adadelta|lbfgs|optimizer)\."), "torch.optim."),
    (re.compile(r"^torch\.autograd\.variable\."), "torch.autograd."),
    (re.compile(r"^transformers\.(optimization|models(\.\w+)*)\."), "transformers."),
    (re.compile(r"^torch\.nn\.utils\.clip_grad\."), "torch.nn.utils."),
    (re.compile(r"^torch\.amp\.(autocast_mode|grad_scaler)\."), "torch.amp."),
    (re.compile(r"^torch\.cuda\.amp\.(autocast_mode|grad_scaler|common)\."), "torch.cuda.amp."),
    (
        re.compile(r"^(tensorboardX|torch\.utils\.tensorboard)\.(writer\.)?SummaryWriter$"),
        "torch.utils.tensorboard.SummaryWriter",
    ),
    (re.compile(r"^tqdm\.(auto|notebook|std|autonotebook)\."), "tqdm."),
)
DATA_PARALLEL = frozenset({"torch.nn.DataParallel"})
DISTRIBUTED_DATA_PARALLEL = frozenset({_DDP})
SPAWNERS = frozenset({"torch.multiprocessing.spawn", "torch.multiprocessing.start_processes", "horovod.run"})
WRAPPERS = DATA_PARALLEL | {
    _DDP,
    "horovod.torch.DistributedOptimizer",
    "torch.compile",
    "torch.nn.SyncBatchNorm.convert_sync_batchnorm",
    "copy.deepcopy",
}
LOADERS = frozenset(
    {"torch.utils.data.DataLoader", "torch_geometric.loader.DataLoader", "torch_geometric.data.DataLoader"}
)
SCALERS = frozenset({"torch.cuda.amp.GradScaler", "torch.amp.GradScaler"})
# Called with a loss and an optimizer, these do backward, clipping and step.
CALLED_SCALERS = frozenset({"timm.utils.NativeScaler", "timm.utils.cuda.NativeScaler"})
AUTOCASTS = frozenset({"torch.cuda.amp.autocast", "torch.amp.autocast", "torch.autocast"})
APEX = frozenset({"apex.amp.initialize", "apex.amp.scale_loss", "apex.amp.master_params"})
# Loader workers unpickle these: an accelerator in them would be made anew there.
DATASETS = frozenset({"torch.utils.data.Dataset", "torch.utils.data.IterableDataset"})
NAMED_AS_TEXT = frozenset({"torch", "tensorboardX"})  # packages that scripts import by a text
# Decorators of functions that are called with the very arguments, and return the very result.
HANDING_ON = frozenset({"torch.no_grad", "torch.enable_grad", "torch.inference_mode"})
# What belongs to mixed precision and is right as it stands, inside a function of autograd or as a question.
KEPT_PRECISION = frozenset(
    {
        "torch.cuda.amp.custom_fwd",
        "torch.cuda.amp.custom_bwd",
        "torch.amp.custom_fwd",
        "torch.amp.custom_bwd",
        "torch.amp.is_autocast_available",
    }
)
# What makes another model like the one it is given.
MODEL_COPIES = frozenset(
    [
        "copy.deepcopy",
        "ema_pytorch.EMA",
        "timm.utils.ModelEma",
        "timm.utils.ModelEmaV2",
        "timm.utils.ModelEmaV3",
        "torch.optim.swa_utils.AveragedModel",
    ]
)
# Optimizers of other libraries: packages all of whose classes are, and single names.
OPTIMIZER_PACKAGES = (
    "timm.optim.",
    "bitsandbytes.optim.",
    "torch_optimizer.",
    "pytorch_optimizer.",
    "adabound.",
    "adabelief_pytorch.",
    "radam.",
    "ranger.",
    "lion_pytorch.",
    "madgrad.",
    "prodigyopt.",
    "dadaptation.",
)
OPTIMIZERS = frozenset(
    {
        "transformers.AdamW",
        "transformers.Adafactor",
        "pytorch_pretrained_bert.BertAdam",
        "pytorch_pretrained_bert.optimization.BertAdam",
        "pytorch_transformers.AdamW",
        "pytorch_transformers.optimization.AdamW",
        "timm.optim.create_optimizer",
        "timm.optim.create_optimizer_v2",
    }
)
PASS_THROUGH = frozenset(
    {
        "tqdm.tqdm",
        "tqdm.trange",
        "torch.autograd.Variable",
        "builtins.iter",
        "builtins.list",
        "builtins.tuple",
        "builtins.sorted",
        "builtins.reversed",
        "rich.progress.track",
        "torch.jit.script",
    }
)
PARAMETERS = frozenset({"torch.nn.Parameter", "torch.nn.parameter.Parameter"})
AVAILABLE = frozenset({"torch.cuda.is_available", "torch.accelerator.is_available", "torch.backends.mps.is_available",
                       "torch.backends.mps.is_built", "torch.xpu.is_available"})  # fmt: skip
CURRENT_DEVICE = frozenset(
    {"torch.accelerator.current_accelerator", "torch.cuda.current_device", "torch.accelerator.current_device_index"}
)
# Methods of nn.Module that return the module itself.
SELF_RETURNING = frozenset(
    [
        "to",
        "cuda",
        "cpu",
        "xpu",
        "train",
        "eval",
        "float",
        "double",
        "half",
        "bfloat16",
        "apply",
        "requires_grad_",
        "share_memory",
        "type",
    ]
)
# Methods and attributes of nn.Module that mean the same asked of DistributedDataParallel around it.
PASSED_ON = frozenset(
    [
        "train",
        "eval",
        "parameters",
        "zero_grad",
        "requires_grad_",
        "apply",
        "to",
        "cuda",
        "cpu",
        "xpu",
        "float",
        "double",
        "half",
        "bfloat16",
        "buffers",
        "training",
        "state_dict",
        "load_state_dict",
        "modules",
        "share_memory",
        "__class__",
        "no_sync",  # the wrapper's own; a rule of its own rewrites it
    ]
)
# What may be called where there is no CUDA.
HARMLESS_CUDA = frozenset(
    "torch.cuda." + name
    for name in [
        "is_available",
        "device_count",
        "empty_cache",
        "manual_seed",
        "manual_seed_all",
        "seed",
        "seed_all",
        "get_rng_state_all",
        "set_rng_state_all",
        "memory_allocated",
        "max_memory_allocated",
        "memory_reserved",
        "max_memory_reserved",
        "memory_cached",
        "max_memory_cached",
        "memory_stats",
        "is_bf16_supported",
        "get_arch_list",
        "is_initialized",
    ]
)
CUDA_SEEDS = frozenset({"torch.cuda.manual_seed", "torch.cuda.manual_seed_all"})
PROGRESS_BARS = frozenset({"tqdm.tqdm", "tqdm.trange"})
# The layers of torch.nn that have parameters begin with one of these.
LAYERS = ("Linear", "Conv", "Embedding", "LSTM", "GRU", "RNN", "BatchNorm", "LayerNorm", "Bilinear")
CLIPPERS = {
    "torch.nn.utils.clip_grad_norm_": "clip_grad_norm_",
    "torch.nn.utils.clip_grad_norm": "clip_grad_norm_",
    "torch.nn.utils.clip_grad_value_": "clip_grad_value_",
}
# Functions of `logging`, and methods of its loggers and of loguru's, that log a line.
LOGGING_METHODS = frozenset(
    ["debug", "info", "warning", "warn", "error", "critical", "exception", "log", "success", "trace", "fatal"]
)
WRITERS = frozenset({"torch.utils.tensorboard.SummaryWriter", "visdom.Visdom"})
# Each process would write these itself: once is meant.
FILE_WRITERS = frozenset(
    {
        "torchvision.utils.save_image",
        "matplotlib.pyplot.savefig",
        "matplotlib.pyplot.show",
        "numpy.save",
        "numpy.savetxt",
        "numpy.savez",
        "imageio.imwrite",
        "imageio.mimsave",
        "cv2.imwrite",
        "scipy.misc.imsave",
        "matplotlib.pyplot.imsave",
        "matplotlib.image.imsave",
        "numpy.savez_compressed",
        "imageio.imsave",
        "imageio.mimwrite",
        "skimage.io.imsave",
        "soundfile.write",
        "scipy.io.savemat",
        "scipy.io.wavfile.write",
        "torchaudio.save",
        "tensorboard_logger.configure",
        "tensorboard_logger.log_value",
        "shutil.copyfile",
        "shutil.copy",
        "shutil.copy2",
        "shutil.move",
        "shutil.rmtree",
        "os.remove",
        "os.rename",
        "os.replace",
    }
)
# The same, as methods of figures and tables.
FILE_WRITING_METHODS = ("to_csv", "to_excel", "to_json", "to_pickle", "savefig")
# Machinery of other ways to train in parallel or in mixed precision: named, and left to a person.
FOREIGN = (
    ("torch.distributed", "torch.distributed"),
    ("torch.multiprocessing.spawn", "torch.multiprocessing"),
    ("torch.nn.parallel.DistributedDataParallel", "DistributedDataParallel"),
    ("torch.utils.data.DistributedSampler", "DistributedSampler"),
    ("torch.nn.SyncBatchNorm", "SyncBatchNorm"),
    ("torch.cuda.amp", "torch.cuda.amp"),
    ("torch.amp", "torch.amp"),
    ("torch.autocast", "torch.autocast"),
    ("torch.nn.parallel.replicate", "hand-made model replication"),
    ("torch.nn.parallel.scatter", "hand-made model replication"),
    ("torch.nn.parallel.parallel_apply", "hand-made model replication"),
    ("apex", "apex"),
    ("horovod", "horovod"),
    ("deepspeed", "DeepSpeed"),
    ("accelerate", "Accelerate"),
    ("accelerate_runtime", "accelerate_runtime"),
    ("ray", "Ray"),
    ("pytorch_lightning", "Lightning"),
    ("lightning", "Lightning"),
    ("fairscale", "fairscale"),
    ("torch_xla", "torch_xla"),
    ("transformers.Trainer", "transformers.Trainer"),
    ("torch.distributed.autograd", "torch.distributed.autograd"),
)


@lru_cache(maxsize=4096)
def canonical(name: str) -> str:
    """One name for a thing that a library offers under several."""
    for pattern, replacement in _ALIASES:
        name = pattern.sub(replacement, name)
    return name


@lru_cache(maxsize=4096)
def constructed_role(name: str) -> Role | None:
    """The role of the object that calling this qualified name makes, or ``None``."""
    last = name.rsplit(".", 1)[-1]
    if name in PARAMETERS:
        return None
    if name in LOADERS:
        return Role.LOADER
    if name in SCALERS or name in CALLED_SCALERS:
        return Role.SCALER
    if name in AUTOCASTS:
        return Role.AUTOCAST
    if name in WRITERS:
        return Role.WRITER
    if name == "logging.getLogger":
        return Role.LOGGER
    if name.startswith("torch.optim.lr_scheduler.") and last[:1].isupper():
        return Role.SCHEDULER
    if name.startswith("transformers.get_") and "schedule" in last:
        return Role.SCHEDULER
    if name == "torch.optim.lr_scheduler.?":
        return Role.SCHEDULER
    if (name.startswith("torch.optim.") and (last[:1].isupper() or last == "?")) or _is_optimizer(name):
        return Role.OPTIMIZER
    if name.startswith("torch.utils.data.") and last.endswith("Sampler"):
        return Role.SAMPLER
    if name.startswith("torch.nn.") and last[:1].isupper() and name.count(".") == 2:
        return Role.LOSS if last.endswith("Loss") else Role.MODEL
    if name.startswith(
        ("torchvision.models.", "timm.create_model", "segmentation_models_pytorch.", "efficientnet_pytorch.")
    ):
        return Role.MODEL
    if name.startswith("transformers.") and _PRETRAINED.search(name.removesuffix(".from_config")):
        return Role.MODEL
    if name == "torch.hub.load":
        return Role.MODEL
    return None


def _is_optimizer(name: str) -> bool:
    """Whether calling this name of another library than torch makes an optimizer."""
    name = name.replace("timm.optim.optim_factory.", "timm.optim.")
    return name in OPTIMIZERS or (name.startswith(OPTIMIZER_PACKAGES) and name.rsplit(".", 1)[-1][:1].isupper())


def base_role(name: str) -> Role | None:
    """The role of instances of a class that derives from this library class, or ``None``."""
    if name.startswith("torch.nn.") and name.count(".") == 2:
        return Role.MODEL
    if (name.startswith("torch.optim.") and name.count(".") == 2) or _is_optimizer(name):
        return Role.OPTIMIZER
    if name.startswith("torch.optim.lr_scheduler."):
        return Role.SCHEDULER
    if name in LOADERS:
        return Role.LOADER
    if name.startswith("torch.utils.data.") and name.endswith("Sampler"):
        return Role.SAMPLER
    return None


def foreign(name: str) -> str | None:
    """The parallel or mixed-precision machinery that this qualified name belongs to, or ``None``."""
    for prefix, what in FOREIGN:
        if name == prefix or name.startswith(prefix + "."):
            return what
    return None


def is_understood_precision(name: str) -> bool:
    """Whether this qualified name is of mixed precision, and of the kind that has a counterpart or may stay."""
    return name in SCALERS or name in AUTOCASTS or name in APEX or name in KEPT_PRECISION


def is_functional_loss(name: str) -> bool:
    """Whether this qualified name is a loss of ``torch.nn.functional``."""
    return _FUNCTIONAL_LOSS.fullmatch(name) is not None


def is_layer(name: str) -> bool:
    """Whether this qualified name is a layer of ``torch.nn`` that has parameters."""
    return name.startswith("torch.nn.") and name.rsplit(".", 1)[-1].startswith(LAYERS)
