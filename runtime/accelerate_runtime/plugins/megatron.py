"""Another way of asking for tensor and pipeline parallelism: `Accelerator(megatron_lm_plugin=...)`."""

from __future__ import annotations

from typing import Any

from .megatron_options import asks_for_nothing, of_environment
from .parallelism import ParallelismConfig, TorchTensorParallelConfig
from .pipeline import TorchPipelineParallelConfig


class MegatronLMPlugin:
    """What Accelerate's plugin of that name asks for, as far as torch itself does it (the `native` engine).

    The processes that are left over hold copies of the model. What is None is as the launcher says
    (`--use_megatron_lm`; MEGATRON_LM_ and the name in capitals), else it has its default.

    Args:
        tp_degree: processes that layers are split over.
        pp_degree: stages of a pipeline.
        num_micro_batches: into how many a batch is cut, with `pp_degree` over 1.
        gradient_clipping: the global norm that an optimizer's gradients are clipped to before each step; 0 for none,
            and 1.0 by default, as in Accelerate.
        sequence_parallelism: split activations along the sequence too, with `tp_degree` over 1.
        recompute_activations: compute activations again in backward, with `pp_degree` over 1.
        others: options of Megatron-LM's own engine, which are refused.

    Raises:
        NotImplementedError: an option of Megatron-LM's own engine; the message names it.
        ValueError: a value that is none of these.
    """

    def __init__(
        self,
        tp_degree: int | None = None,
        pp_degree: int | None = None,
        num_micro_batches: int | None = None,
        gradient_clipping: float | None = None,
        sequence_parallelism: bool | None = None,
        recompute_activations: bool | None = None,
        **others: Any,
    ) -> None:
        said = of_environment()
        engine = others.pop("engine", None) or said.pop("engine", "native")
        if engine != "native":
            raise NotImplementedError(f"MegatronLMPlugin(engine={engine!r}): allowed is 'native'")
        own = {
            "tp_degree": tp_degree,
            "pp_degree": pp_degree,
            "num_micro_batches": num_micro_batches,
            "gradient_clipping": gradient_clipping,
            "sequence_parallelism": sequence_parallelism,
            "recompute_activations": recompute_activations,
        }
        asked = said | {name: value for name, value in (own | others).items() if value is not None}
        others = {name: v for name, v in asked.items() if name not in own and not asks_for_nothing(name, v)}
        if others:
            raise NotImplementedError(
                f"MegatronLMPlugin({', '.join(f'{name}=...' for name in sorted(others))}): options of Megatron-LM's "
                "own engine, which is not supported in this version of accelerate_runtime. The native one has "
                "tp_degree, pp_degree, num_micro_batches, gradient_clipping, sequence_parallelism and "
                "recompute_activations."
            )
        self.tp_degree: int = asked.get("tp_degree") or 1
        self.pp_degree: int = asked.get("pp_degree") or 1
        self.num_micro_batches: int | None = asked.get("num_micro_batches")
        self.gradient_clipping = float(asked.get("gradient_clipping", 1.0))
        self.sequence_parallelism = bool(asked.get("sequence_parallelism"))
        self.recompute_activations = bool(asked.get("recompute_activations"))
        for name, needs in (
            ("num_micro_batches", "pp_degree"),
            ("recompute_activations", "pp_degree"),
            ("sequence_parallelism", "tp_degree"),
        ):
            value = getattr(self, name)
            nothing = value is None or value is False or (name == "num_micro_batches" and value == 1)
            if not nothing and getattr(self, needs) == 1:
                raise ValueError(f"MegatronLMPlugin({name}={value}) needs {needs} > 1 here: leave it out")
        if self.gradient_clipping < 0:
            raise ValueError(f"gradient_clipping={self.gradient_clipping!r}: must be 0 or more")

    def parallelism(self, num_processes: int) -> ParallelismConfig:
        """The same as sizes of a device mesh.

        Raises:
            ValueError: the processes are no multiple of what one copy of the model takes.
        """
        each = self.tp_degree * self.pp_degree
        if num_processes % each:
            raise ValueError(
                f"MegatronLMPlugin(tp_degree={self.tp_degree}, pp_degree={self.pp_degree}) takes {each} processes for "
                f"each copy of the model, but there are {num_processes}"
            )
        tensor = TorchTensorParallelConfig(sequence_parallel=self.sequence_parallelism) if self.tp_degree > 1 else None
        pipeline = None
        if self.pp_degree > 1:
            pipeline = TorchPipelineParallelConfig(
                num_microbatches=self.num_micro_batches,  # type: ignore[arg-type]
                activation_checkpointing=self.recompute_activations,
            )
        return ParallelismConfig(
            dp_replicate_size=num_processes // each,
            dp_shard_size=1,
            tp_size=self.tp_degree,
            cp_size=1,
            sp_size=1,
            pp_size=self.pp_degree,
            tp_handler=tensor,
            pp_handler=pipeline,
        )
