"""Models and files: unwrapping, state dicts, exports, and training states."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from torch import nn
from torch.utils.data import DataLoader
from torch.utils.hooks import RemovableHandle

from ..checkpointing.hooks import Hooks, LoadHook, SaveHook
from ..models import out_of_wrappers, unwrap
from .settings import Settings

if TYPE_CHECKING:
    from ..checkpointing.contents import Contents
    from ..checkpointing.saving import Saver

L = TypeVar("L", bound=DataLoader[Any])


class Saving(Settings):
    """The part of an Accelerator that writes and reads files."""

    _saver: Saver | None
    """Made by the first `save_state`."""
    _registered: list[Any]
    _save_hooks: Hooks[SaveHook]
    _load_hooks: Hooks[LoadHook]

    def unwrap_model(
        self, model: nn.Module, keep_fp32_wrapper: bool = True, keep_torch_compile: bool = True
    ) -> nn.Module:
        """The model that was prepared.

        Args:
            keep_fp32_wrapper: False also takes autocast off its forward, in place.
            keep_torch_compile: False also takes a `torch.compile` wrapper of the script's own off (`prepare` compiles
                without one).
        """
        engine = self._strategy.unwrap
        return unwrap(model, lambda one: out_of_wrappers(engine(one)), keep_fp32_wrapper, keep_torch_compile)

    def get_state_dict(self, model: nn.Module, unwrap: bool = True) -> dict[str, Any]:
        """The model's state dict, with the names it had before it was prepared. Call it on every process.

        Args:
            unwrap: False gives the names of the prepared model instead.
        """
        return self._strategy.state_dict(self.unwrap_model(model, keep_torch_compile=False) if unwrap else model)

    def skip_first_batches(self, dataloader: L, num_batches: int = 0) -> L:
        """A loader that leaves out the first batches of each pass; see `accelerate_runtime.skip_first_batches`."""
        from ..data import skip_first_batches

        return skip_first_batches(dataloader, num_batches)

    def save(self, obj: Any, f: str | os.PathLike[str], safe_serialization: bool = False) -> None:
        """Write `obj` to the file `f`, on the main process only (with `save_on_each_node`, on the first of each
        machine).

        Args:
            safe_serialization: as safetensors, which takes a flat dict of tensors; else by `torch.save`.
        """
        from .. import files

        files.save(obj, f, self.project_configuration.save_on_each_node, safe_serialization)

    def save_model(
        self,
        model: nn.Module,
        save_directory: str | os.PathLike[str],
        max_shard_size: int | str = "10GB",
        safe_serialization: bool = True,
    ) -> None:
        """Export a model's weights: `model.safetensors`, or several such files and an index where they are large.

        Call it on every process.

        Args:
            max_shard_size: of a file: bytes, or text such as "10GB".
            safe_serialization: False writes `pytorch_model.bin` by `torch.save`.
        """
        from ..checkpointing.agreement import agree
        from ..checkpointing.shards import save_sharded
        from ..memory import convert_file_size_to_int

        limit = convert_file_size_to_int(max_shard_size)
        if limit == 0:
            raise ValueError(f"max_shard_size={max_shard_size!r}: must be more than nothing")
        state, error = self.get_state_dict(model), None
        if self._writes:
            try:
                save_sharded(state, Path(save_directory), limit, safe_serialization)
            except Exception as failure:
                error = failure
        agree(error, self._place, f"saving a model to {save_directory}")

    # Training states

    def register_for_checkpointing(self, *objects: Any) -> None:
        """Have objects with `state_dict` and `load_state_dict` saved and loaded with the training state, in this order.

        Raises:
            ValueError: an object has not both.
        """
        wrong = [
            f"Item at index {index}, {type(item).__name__}"
            for index, item in enumerate(objects)
            if not (hasattr(item, "state_dict") and hasattr(item, "load_state_dict"))
        ]
        if wrong:
            raise ValueError(
                f"register_for_checkpointing() takes objects with state_dict and load_state_dict. {'; '.join(wrong)}"
            )
        self._registered.extend(objects)

    def save_state(
        self,
        output_dir: str | os.PathLike[str] | None = None,
        safe_serialization: bool = True,
        *,
        async_save: bool = False,
    ) -> str:
        """Save everything that training needs to go on as if it had never stopped: the prepared models, optimizers,
        schedulers and loaders (where they stand in the epoch), scaler, registered objects, the accumulation window with
        its gradients, and each process's random states. Call it on every process.

        A state appears whole or not at all, with a manifest of sizes and checksums. Files are laid out as Accelerate
        does.

        Args:
            output_dir: the folder. With `ProjectConfiguration(automatic_checkpoint_naming=True)` it is the next of
                `{project_dir}/checkpoints/checkpoint_{number}` instead, and of these the `total_limit` latest are kept.
            safe_serialization: weights as safetensors; False writes them by `torch.save`.
            async_save: return once the state is copied (to the main memory), and write in the background. A second save
                waits for the first. What stops the writing is raised by the next `save_state`, `load_state` or
                `end_training`.

        Returns:
            The folder.

        Raises:
            CheckpointError, OSError: it cannot be written. What the folder held before is untouched.
        """
        from ..checkpointing.choosing import to_save
        from ..checkpointing.folder import keep_latest
        from ..checkpointing.saving import Saver

        project = self.project_configuration
        folder = to_save(output_dir, project)
        limit = project.total_limit if project.automatic_checkpoint_naming else None

        def afterwards() -> None:
            if limit is not None:
                keep_latest(folder.parent, limit)

        if self._saver is None:
            self._saver = Saver()
        self._saver.save(
            self._contents(),
            folder,
            safe=safe_serialization,
            writes=self._writes,
            background=async_save,
            afterwards=afterwards,
        )
        project.iteration += 1
        return str(folder)

    def load_state(
        self,
        input_dir: str | os.PathLike[str] | None = None,
        load_kwargs: dict[str, Any] | None = None,
        *,
        map_location: str | None = None,
        **load_model_func_kwargs: Any,
    ) -> None:
        """Load a state into the objects that are prepared (and registered) now, as they were when it was saved. Call it
        on every process.

        Afterwards a loader that was in the middle of an epoch gives the rest of it, once; then epochs are whole again.

        Args:
            input_dir: the folder; None is the latest that was named automatically, "latest" the latest whole one.
            load_kwargs: of `torch.load`, for optimizers, schedulers and registered objects. Files are read without
                running what they hold; `{"weights_only": False}` trusts them.
            map_location: "cpu" or "on_device"; what is loaded ends up where it is needed either way.
            load_model_func_kwargs: of the models' `load_state_dict`.

        Raises:
            CheckpointError: the state is not whole, or of other objects; the message names the file, and the newest
                whole checkpoint beside it.
        """
        if map_location not in (None, "cpu", "on_device"):
            raise TypeError(f"load_state(map_location={map_location!r}): allowed are 'cpu', 'on_device' and None")
        from ..checkpointing.choosing import next_number, offer, to_load
        from ..checkpointing.layout import CheckpointError
        from ..checkpointing.loading import load

        self._finish_saving()
        folder = to_load(input_dir, self.project_configuration)
        try:
            load(self._contents(), folder, load_kwargs or {}, load_model_func_kwargs)
        except CheckpointError as error:
            raise CheckpointError(f"{error}{offer(folder)}") from None
        if self.project_configuration.automatic_checkpoint_naming:
            self.project_configuration.iteration = next_number(self.project_configuration)

    def register_save_state_pre_hook(self, hook: SaveHook) -> RemovableHandle:
        """Have `hook(models, weights, output_dir)` called by `save_state`, on every process, before weights are
        written.

        It may write files to `output_dir` (a folder that becomes the state's), and take out of `weights` the state
        dicts that are not to be saved. `handle.remove()` of what is returned takes it back.
        """
        return self._save_hooks.add(hook)

    def register_load_state_pre_hook(self, hook: LoadHook) -> RemovableHandle:
        """Have `hook(models, input_dir)` called by `load_state`, on every process.

        It may take out of `models` what it loads itself.
        """
        return self._load_hooks.add(hook)

    def _finish_saving(self) -> None:
        """Wait for a background save, and raise what stopped it."""
        if self._saver is not None:
            self._saver.wait(self._place)

    @property
    def _writes(self) -> bool:
        """Whether this process writes files that all have in common."""
        each = self.project_configuration.save_on_each_node
        return self.is_local_main_process if each else self.is_main_process

    def _settled(self, model: nn.Module) -> nn.Module:
        inner = self.unwrap_model(model, keep_torch_compile=False)
        self._strategy.settle(inner)
        return inner

    def _contents(self) -> Contents:
        from ..checkpointing.contents import Contents

        prepared = self._prepared
        return Contents(
            place=self._place,
            strategy=self._strategy,
            models=list(prepared.models),
            optimizers=list(prepared.optimizers),
            schedulers=list(prepared.schedulers),
            loaders=list(prepared.loaders),
            scaler=self.scaler,
            gradient_state=self.gradient_state,
            registered=list(self._registered),
            unwrap=self._settled,
            save_hooks=self._save_hooks.all(),
            load_hooks=self._load_hooks.all(),
        )
