"""What numbers and conditions say about the processes of a run: ranks, their number, whether there are others.

Values carry a ``Process`` atom; ``0`` and ``1`` beside it are what a script says without a process group.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from accelerate_migrate.analysis.atoms import UNKNOWN, Const, Library, Object, Process, Role, Share
from accelerate_migrate.analysis.values import Value, value

_ENVIRONMENT = {
    "RANK": Share.RANK,
    "SLURM_PROCID": Share.RANK,
    "OMPI_COMM_WORLD_RANK": Share.RANK,
    "PMI_RANK": Share.RANK,
    "LOCAL_RANK": Share.LOCAL_RANK,
    "SLURM_LOCALID": Share.LOCAL_RANK,
    "OMPI_COMM_WORLD_LOCAL_RANK": Share.LOCAL_RANK,
    "WORLD_SIZE": Share.WORLD,
    "SLURM_NTASKS": Share.WORLD,
    "OMPI_COMM_WORLD_SIZE": Share.WORLD,
    "PMI_SIZE": Share.WORLD,
}
_CALLS = {
    "torch.distributed.get_rank": Share.RANK,
    "torch.distributed.get_world_size": Share.WORLD,
    "torch.distributed.get_node_local_rank": Share.LOCAL_RANK,
    "torch.distributed.is_initialized": Share.SPREAD,
    "torch.distributed.is_torchelastic_launched": Share.SPREAD,
    "horovod.torch.rank": Share.RANK,
    "horovod.torch.size": Share.WORLD,
    "horovod.torch.local_rank": Share.LOCAL_RANK,
    "horovod.torch.local_size": Share.DEVICES,
    "torch.cuda.device_count": Share.DEVICES,
    "torch.accelerator.device_count": Share.DEVICES,
}
_READERS = frozenset({"os.environ.get", "os.getenv"})
_OPPOSITE = {
    Share.MAIN: Share.OTHERS,
    Share.OTHERS: Share.MAIN,
    Share.SPREAD: Share.ALONE,
    Share.ALONE: Share.SPREAD,
}
RANKS = frozenset({Share.RANK, Share.LOCAL_RANK})
NUMBERS = RANKS | {Share.WORLD, Share.DEVICES}


def share(one: Value | None) -> Share | None:
    """What a value says about the processes, if it says one thing and nothing else (constants aside)."""
    if one is None:
        return None
    found = {atom.share for atom in one if isinstance(atom, Process)}
    others = [atom for atom in one if not isinstance(atom, (Process, Const))]
    return found.pop() if len(found) == 1 and not others else None


def called(name: str, key: object) -> Value | None:
    """What a library function returns of the processes (``key``: its first argument), or ``None``."""
    if name in _CALLS:
        return value(Process(_CALLS[name]))
    if name in _READERS:
        return from_environment(key)
    return None


def from_environment(key: object) -> Value | None:
    """What a launcher's environment variable says, or ``None``."""
    known = _ENVIRONMENT.get(key) if isinstance(key, str) else None
    return value(Process(known)) if known is not None else None


def flag(name: object) -> Share | None:
    """What a launcher passes under the name of a command line flag, ``--local_rank``."""
    plain = name.lstrip("-").replace("-", "_") if isinstance(name, str) else ""
    return Share.LOCAL_RANK if plain == "local_rank" else None


def opposite(one: Value) -> Value | None:
    """``not one``, where it says something about the processes."""
    known = share(one)
    if known in RANKS:
        return value(Process(Share.MAIN))
    return value(Process(_OPPOSITE[known])) if known in _OPPOSITE else None


def both(operator: ast.boolop, parts: Sequence[Value]) -> Value | None:
    """``a and b`` or ``a or b``, where it says one thing about the processes."""
    shares = [share(part) for part in parts]
    if isinstance(operator, ast.And) and Share.NEVER in shares:
        return value(Process(Share.NEVER))
    if None in shares:
        return None
    known = set(shares)
    with_world = known - {Share.ALONE} if isinstance(operator, ast.Or) else known - {Share.SPREAD}
    found = with_world or known
    return value(Process(found.pop())) if len(found) == 1 else None  # type: ignore[arg-type]


def compared(left: Value, operator: ast.cmpop, right: Value) -> Value | None:
    """``rank == 0``, ``world_size > 1``, ``local_rank in (-1, 0)``: a condition on the processes, or ``None``."""
    known, other, kind = share(left), right.const(), type(operator)
    if known is None:
        known, other, kind = share(right), left.const(), _MIRRORED.get(type(operator), type(operator))
    if known in RANKS:
        return _rank_compared(kind, other, right)
    if known in (Share.WORLD, Share.DEVICES):
        return _number_compared(kind, other, known)
    if known in _OPPOSITE and kind in (ast.Eq, ast.NotEq, ast.Is, ast.IsNot) and isinstance(other, bool):
        same = (kind in (ast.Eq, ast.Is)) == other
        assert known is not None
        return value(Process(known if same else _OPPOSITE[known]))
    return None


_MIRRORED: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE}


def _rank_compared(kind: type[ast.cmpop], other: object, right: Value) -> Value | None:
    if kind in (ast.In, ast.NotIn):
        members = {
            a.value for held in right for item in getattr(held, "held", []) for a in item if isinstance(a, Const)
        }
        if members and members <= {-1, 0}:
            return value(Process(Share.MAIN if kind is ast.In else Share.OTHERS))
        return None
    if other == -1:
        if kind in (ast.Eq, ast.LtE):
            return value(Process(Share.ALONE))
        return value(Process(Share.SPREAD)) if kind in (ast.NotEq, ast.Gt) else None
    if other == 0:
        if kind in (ast.Eq, ast.LtE):
            return value(Process(Share.MAIN))
        if kind is ast.GtE:  # -1 stands for no process group
            return value(Process(Share.SPREAD))
        return value(Process(Share.OTHERS)) if kind in (ast.NotEq, ast.Gt) else None
    if other == 1 and kind is ast.Lt:
        return value(Process(Share.MAIN))
    return None


def _number_compared(kind: type[ast.cmpop], other: object, known: Share) -> Value | None:
    if known is Share.DEVICES:
        return None  # a machine may have many devices and one process
    if (other == 1 and kind in (ast.Gt, ast.NotEq)) or (other == 2 and kind is ast.GtE):
        return value(Process(Share.SPREAD))
    if other == 1 and kind in (ast.Eq, ast.LtE):
        return value(Process(Share.ALONE))
    return None


def computed(left: Value, operator: ast.operator, right: Value) -> Value | None:
    """``rank % devices``, ``node * devices + index``: a rank computed from ranks, or ``None``."""
    shares = (share(left), share(right))
    if isinstance(operator, ast.Mod) and shares[0] in RANKS and shares[1] in (Share.DEVICES, Share.WORLD):
        return value(Process(Share.LOCAL_RANK))
    if isinstance(operator, ast.Mult) and Share.DEVICES in shares:
        if Share.WORLD in shares:
            return value(Process(Share.WORLD))
        if Share.RANK in shares:
            return value(Process(Share.RANK))
    if isinstance(operator, ast.Add) and shares[0] is Share.RANK and right.const() is UNKNOWN:
        return value(Process(Share.RANK))  # node * devices + number on the node
    return None


def is_sampler(one: Value) -> bool:
    """Whether a value is (``None`` aside) a sampler that deals the samples between processes."""
    sites = one.sites(Role.SAMPLER)
    return bool(sites) and all(site.made_by in SAMPLERS for site in sites) and one.only(Object)


SAMPLERS = frozenset({"torch.utils.data.DistributedSampler"})


def is_left_over(node: ast.Compare, parts: Sequence[Value]) -> bool:
    """``len(loader.sampler) * world_size < len(loader.dataset)``: whether samples are left over; none are."""
    if len(node.comparators) != 1 or not isinstance(node.ops[0], (ast.Lt, ast.Gt)):
        return False
    texts = [ast.unparse(part) for part in (node.left, *node.comparators)]
    return any(".sampler)" in t and "*" in t for t in texts) and any(
        t.startswith("len(") and t.endswith(".dataset)") for t in texts
    )


def is_environment(one: Value) -> bool:
    """Whether a value is ``os.environ``."""
    return any(isinstance(a, Library) and a.name == "os.environ" for a in one)


def one_each(one: Value) -> Value:
    """What a number of devices says where each has a process: their number."""
    return value(Process(Share.WORLD)) if share(one) is Share.DEVICES else one
