"""AM195: tensors that are trained beside a model are named: nothing averages their gradients."""

from __future__ import annotations

from accelerate_migrate.rules.base import Context, Rule, short


def apply(context: Context) -> None:
    """Name the optimizers of a model that are given tensors which no model holds."""
    training = context.plan.training
    if not training.models or not context.plan.sharded:
        return
    for site in sorted(training.optimizers, key=lambda s: (s.path, s.line)):
        made = training.made_at(site)
        if made is not None and context.plan.store.details[site].owns_tensors and context.plan.module.is_active(made):
            context.review(
                made,
                f"{short(made)} trains tensors that no model holds: on several processes their gradients are not "
                "averaged, and each process ends with values of its own; make them parameters of a module that is "
                "prepared and called",
            )


RULE = Rule(
    code="AM195",
    name="loose-tensors",
    summary="Tensors that are trained beside a model are named.",
    why="The wrapper averages the gradients of the parameters of the model that it wraps. A tensor that the optimizer "
    "was given by itself is in no model: each process steps on it by its own gradient.",
    before="scale = nn.Parameter(torch.ones(1))\noptimizer = SGD([*model.parameters(), scale], lr=0.1)\n...\n"
    "    loss.backward()",
    after="scale = nn.Parameter(torch.ones(1))\noptimizer = SGD([*model.parameters(), scale], lr=0.1)\n...\n"
    "    accelerator.backward(loss)",
    safety="Exact on one process. Nothing is changed for the tensors; the place is marked for review.",
    apply=apply,
    order=71,
)
