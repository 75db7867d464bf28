"""Models and optimizers in shards: each process writes and reads its own, by torch.distributed.checkpoint.

What is written by some number of processes, spread in some way, can be read by any other, spread in any other. Nothing
that a file holds is run: torch's own reading would unpickle.
"""

from __future__ import annotations

import io
import pickle
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from ..precision.scaling import parameters_of
from . import layout
from .contents import Contents
from .layout import CheckpointError
from .manifest import Manifest, check, checksum_of
from .optimizers import keep_types
from .snapshot import snapshot


class Shards:
    """What is to be written in shards: a state for each folder.

    Attributes:
        group: the process group to agree over; None is that of training.
    """

    def __init__(self, states: dict[str, dict[str, Any]], group: Any = None) -> None:
        self.states, self.group = states, group

    @staticmethod
    def of(contents: Contents) -> Shards:
        """The models and optimizers."""
        names = _names(contents)
        states: dict[str, dict[str, Any]] = {}
        for index, model in enumerate(contents.models):
            states[layout.model_shards(index)] = {"model": contents.unwrap(model).state_dict()}
        for index, optimizer in enumerate(contents.optimizers):
            states[layout.optimizer_shards(index)] = {"optimizer": _named_state(optimizer.optimizer, names)}
        return Shards(states)

    def copied(self, group: Any) -> Shards:
        """The same in the main memory, to be written while training goes on, over a process group of its own."""
        return Shards(dict(zip(self.states, snapshot(list(self.states.values())), strict=True)), group)

    def write(self, folder: Path) -> dict[str, str]:
        """Write to folders in `folder`; all processes call this. Returns the checksums of all files written.

        Raises:
            CheckpointError: it failed, on whatever process.
        """
        mine: dict[str, str] = {}
        error: str | None = None
        for name, state in self.states.items():
            try:
                save(state, checkpoint_id=folder / name, process_group=self.group)
            except CheckpointException as failure:  # the same on all processes
                raise CheckpointError(f"{name} could not be written: {failure}") from failure
        try:
            rank = dist.get_rank()
            for path in (path for name in self.states for path in (folder / name).iterdir()):
                owner = path.name.removeprefix("__").split("_")[0] if path.suffix == ".distcp" else "0"
                if owner == str(rank):
                    mine[path.relative_to(folder).as_posix()] = checksum_of(path)
        except OSError as failure:
            error = f"what process {rank} has written cannot be read: {failure}"
        gathered: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(gathered, (mine, error), group=self.group)
        for _, told in gathered:
            if told is not None:
                raise CheckpointError(told)
        return {name: checksum for files, _ in gathered for name, checksum in files.items()}


def check_shards(contents: Contents, folder: Path, manifest: Manifest, name: str) -> None:
    """Compare the checksums of the files in the folder `name`: each process those that are its turn."""
    files = sorted(file for file in manifest.files if file.startswith(f"{name}/"))
    place = contents.place
    for file in files[place.process_index :: place.num_processes]:
        check(folder / file, checksum_of(folder / file), manifest.files[file].checksum)


def load_model(model: nn.Module, path: Path, **arguments: Any) -> None:
    """Load the folder `path` into `model`, whose tensors may be spread or not.

    Args:
        arguments: of `load_state_dict`.

    Raises:
        CheckpointError: the names or shapes are not the model's.
    """
    reader, metadata = open_shards(path)
    state = model.state_dict()
    saved = {key.removeprefix("model."): value for key, value in metadata.state_dict_metadata.items()}
    if arguments.get("strict", True) and saved.keys() != state.keys():
        missing, foreign = sorted(state.keys() - saved.keys()), sorted(saved.keys() - state.keys())
        raise CheckpointError(f"{path} does not fit the model: missing are {missing}, and not its own {foreign}")
    for name, value in state.items():
        theirs = saved.get(name)
        if isinstance(value, torch.Tensor) and isinstance(theirs, TensorStorageMetadata) and value.shape != theirs.size:
            raise CheckpointError(
                f"{path} does not fit the model: {name} has shape {tuple(theirs.size)} there, {tuple(value.shape)} here"
            )
    flat = {f"model.{name}": value for name, value in state.items() if name in saved}
    read_shards(reader, flat)
    copies = getattr(model, "takes_copies", False)
    if copies or any(not isinstance(value, torch.Tensor) for value in flat.values()):  # tensors were read in place
        model.load_state_dict({key.removeprefix("model."): value for key, value in flat.items()}, **arguments)


def load_optimizer(contents: Contents, optimizer: torch.optim.Optimizer, path: Path) -> None:
    """Load the folder `path` into `optimizer`, whose parameters may be spread or not.

    Raises:
        CheckpointError: its parameters or groups are others.
    """
    reader, metadata = open_shards(path)
    names = _names(contents)
    order = [names[id(parameter)] for parameter in parameters_of(optimizer)]
    owners = dict(zip(order, parameters_of(optimizer), strict=True))
    flat: dict[str, Any] = {}
    for key, (_, section, name, *_) in metadata.planner_data.items():
        if section == "state" and name not in owners:
            raise CheckpointError(f"{path} has a state of the parameter {name!r}, which is not trained here.")
        entry = metadata.state_dict_metadata[key]
        flat[key] = _destination(owners[name], entry) if section == "state" else None
    read_shards(reader, flat)
    state: dict[str, dict[str, Any]] = {}
    groups: dict[int, dict[str, Any]] = {}
    for key, (_, section, name, *kind) in metadata.planner_data.items():
        if kind:
            home: dict[Any, dict[str, Any]] = state if section == "state" else groups
            home.setdefault(name, {})[kind[0]] = flat[key]
    if [groups[number]["params"] for number in sorted(groups)] != _names_in_groups(optimizer, names):
        raise CheckpointError(f"{path} does not fit the optimizer: it has other parameters, or other groups of them.")
    numbers = {name: number for number, name in enumerate(order)}
    loaded = {
        "state": {numbers[name]: entries for name, entries in state.items()},
        "param_groups": [
            {**groups[number], "params": [numbers[name] for name in groups[number]["params"]]}
            for number in sorted(groups)
        ],
    }
    optimizer.load_state_dict(loaded)
    keep_types(optimizer, loaded)


def _names_in_groups(optimizer: torch.optim.Optimizer, names: dict[int, str]) -> list[list[str]]:
    return [[names[id(parameter)] for parameter in group["params"]] for group in optimizer.param_groups]


def _names(contents: Contents) -> dict[int, str]:
    """What each parameter is called, alike on all processes: as in its model, where that is unique."""
    found: dict[int, str] = {}
    taken: set[str] = set()
    for number, model in enumerate(contents.models):
        for name, parameter in contents.unwrap(model).named_parameters():
            if id(parameter) not in found:
                found[id(parameter)] = name if name not in taken else f"model.{number}.{name}"
                taken.add(name)
    for number, optimizer in enumerate(contents.optimizers):
        for index, trained in enumerate(parameters_of(optimizer.optimizer)):
            found.setdefault(id(trained), f"optimizer.{number}.{index}")
    return found


def _named_state(optimizer: torch.optim.Optimizer, names: dict[int, str]) -> dict[str, Any]:
    """An optimizer's state by names, its tensors as they are spread."""
    state = {
        names[id(parameter)]: dict(optimizer.state[parameter])
        for parameter in parameters_of(optimizer)
        if parameter in optimizer.state
    }
    groups = [
        {**group, "params": theirs}
        for group, theirs in zip(optimizer.param_groups, _names_in_groups(optimizer, names), strict=True)
    ]
    return {"state": state, "param_groups": groups}


def _destination(owner: torch.Tensor, entry: Any) -> Any:
    """A tensor to read into, spread as its parameter is where it has that shape; None for what is no tensor."""
    if not isinstance(entry, TensorStorageMetadata):
        return None
    if entry.size == owner.shape:
        return torch.empty_like(owner.detach(), dtype=entry.properties.dtype)
    return torch.empty(entry.size, dtype=entry.properties.dtype)


# Reading without running anything


def open_shards(path: Path) -> tuple[FileSystemReader, Metadata]:
    """What reads the folder `path`, and what is in it.

    Raises:
        CheckpointError: it holds no shards.
    """
    if not (path / ".metadata").is_file():
        raise CheckpointError(f"{path / '.metadata'} is missing: the checkpoint is not whole.")
    reader = _Reader(path)
    return reader, reader.read_metadata()


def read_shards(reader: FileSystemReader, flat: dict[str, Any]) -> None:
    """Fill the tensors of `flat` in place, and replace what is no tensor."""
    planner = _Planner(flatten_state_dict=False, flatten_sharded_tensors=False)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")  # each process reads for itself
            load(flat, storage_reader=reader, planner=planner, no_dist=True)
    except CheckpointException as failure:
        reason = next(iter(failure.failures.values()))[0]
        if isinstance(reason, CheckpointError):
            raise reason from None
        raise CheckpointError(f"{reader.path} cannot be read: {type(reason).__name__}: {reason}") from failure


class _Reader(FileSystemReader):
    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        with (Path(self.path) / ".metadata").open("rb") as file:
            try:
                metadata: Metadata = _Unpickler(file).load()
            except (pickle.UnpicklingError, EOFError, AttributeError, ValueError) as error:
                raise CheckpointError(f"{Path(self.path) / '.metadata'} cannot be read: {error}") from None
        metadata.storage_meta = getattr(metadata, "storage_meta", None) or StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


class _Unpickler(pickle.Unpickler):
    """Takes what torch describes tensors with, and nothing else."""

    _MODULES = ("torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem")
    _OTHERS = frozenset(
        [
            ("torch", "Size"),
            ("torch.serialization", "_get_layout"),
            ("pathlib", "PosixPath"),
            ("pathlib", "WindowsPath"),
            ("pathlib", "Path"),
            ("collections", "OrderedDict"),
        ]
    )

    def find_class(self, module: str, name: str) -> Any:
        kind_of_number = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if module in self._MODULES or (module, name) in self._OTHERS or kind_of_number:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it holds {module}.{name}, which describes no tensor")


class _Planner(DefaultLoadPlanner):
    def load_bytes(self, read_item: Any, value: io.BytesIO) -> None:
        try:
            self.state_dict[read_item.dest_index.fqn] = torch.load(value, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:
            raise CheckpointError(
                f"{read_item.dest_index.fqn} holds objects whose reading can run code of whoever wrote the checkpoint"
            ) from None
