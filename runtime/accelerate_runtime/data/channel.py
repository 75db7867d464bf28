"""Batches from one process to another, in one message each as a rule.

A message is a header, what is left of the batch without its tensors (pickled), and the tensors' bytes. Both sides keep
a buffer as long as the longest message so far; only a message that does not fit is announced by its header first.
"""

from __future__ import annotations

import io
import pickle
import struct
from enum import IntEnum
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

_HEADER = struct.Struct("<6q")  # kind, length of the message, length of the pickled part, three numbers of the sender
_START = 1024
_ALIGNMENT = 16


class Kind(IntEnum):
    """What a message brings."""

    BATCH = 0
    END = 1
    ERROR = 2
    GROW = 3
    """Nothing yet: a message of the length said follows."""


class Label(NamedTuple):
    """Which message this is: both sides must mean the same."""

    loader: int
    iteration: int
    round: int


class Received(NamedTuple):
    kind: Kind
    value: Any
    label: Label


class _Pickler(pickle.Pickler):
    """Pickles what is no plain tensor, and lists the tensors."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.tensors: list[torch.Tensor] = []

    def persistent_id(self, obj: Any) -> int | None:
        if type(obj) is torch.Tensor and obj.layout is torch.strided and not obj.is_quantized and not obj.is_nested:
            self.tensors.append(obj)
            return len(self.tensors) - 1
        return None


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, tensors: list[torch.Tensor]) -> None:
        super().__init__(io.BytesIO(data))
        self.tensors = tensors

    def persistent_load(self, pid: int) -> torch.Tensor:
        return self.tensors[pid]


def take_apart(value: Any) -> tuple[bytes, list[torch.Tensor]]:
    """`value` without its tensors, pickled, and the tensors; `put_together` reverses it.

    Raises:
        Exception: what pickle says of an object that it cannot pickle.
    """
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(value)
    return file.getvalue(), pickler.tensors


def put_together(pickled: bytes, tensors: list[torch.Tensor]) -> Any:
    """The value that `take_apart` was given, with these tensors."""
    return _Unpickler(pickled, tensors).load()


class _End:
    """One side of a channel: a buffer that Python and torch both see."""

    def __init__(self, peer: int, group: dist.ProcessGroup | None) -> None:
        self.peer, self.group = peer, group
        self._form: Any = None
        self._views: list[torch.Tensor] = []
        self._allocate(_START)

    def _allocate(self, size: int) -> None:
        self._memory = bytearray(size)
        self._buffer = torch.frombuffer(self._memory, dtype=torch.uint8)
        self._form = None

    def _view_tensors(self, form: list[tuple[torch.dtype, torch.Size]], offset: int) -> None:
        """Views of the buffer for tensors of these types and shapes."""
        self._views = []
        for dtype, shape in form:
            length = shape.numel() * dtype.itemsize
            self._views.append(self._buffer[offset : offset + length].view(dtype).view(shape))
            offset = _aligned(offset + length)


class Sender(_End):
    """The main process's end. Call `pack`, then `send`, and wait for it before the next `pack`."""

    def __init__(self, peer: int, group: dist.ProcessGroup | None) -> None:
        super().__init__(peer, group)
        self._theirs = _START  # how long the other side's buffer is
        self._extra = 0

    def pack(self, kind: Kind, value: Any, label: Label) -> None:
        """Lay the next message out. Nothing is sent, so the other side may still be told of an error instead."""
        pickled, tensors = take_apart(value)
        form = [(tensor.dtype, tensor.shape) for tensor in tensors]
        if (pickled, form) != self._form:
            extra = pickle.dumps((form, pickled), protocol=pickle.HIGHEST_PROTOCOL)
            begin = length = _aligned(_HEADER.size + len(extra))
            for dtype, shape in form:
                length = _aligned(length + shape.numel() * dtype.itemsize)
            if length > len(self._memory):
                self._allocate(length + length // 4)
            self._view_tensors(form, begin)
            self._memory[_HEADER.size : _HEADER.size + len(extra)] = extra
            self._extra, self._form = len(extra), (pickled, form)
        for view, tensor in zip(self._views, tensors, strict=True):
            view.copy_(tensor.detach())
        self._write(self._memory, kind, label)

    def _write(self, memory: bytearray, kind: Kind, label: Label) -> None:
        _HEADER.pack_into(memory, 0, kind, len(self._memory), self._extra, *label)

    def send(self, label: Label) -> list[Any]:
        """Send what was packed; returns what is to be waited for."""
        work = []
        if len(self._memory) > self._theirs:
            announcement = bytearray(self._theirs)
            self._write(announcement, Kind.GROW, label)
            work.append(dist.isend(torch.frombuffer(announcement, dtype=torch.uint8), self.peer, group=self.group))
            self._theirs = len(self._memory)
        work.append(dist.isend(self._buffer, self.peer, group=self.group))
        return work


class Receiver(_End):
    """The other process's end."""

    def receive(self, pin: bool = False) -> Received:
        """The next message.

        Args:
            pin: put its tensors into pinned memory.
        """
        header = self._fetch()
        if header[0] == Kind.GROW:
            self._allocate(header[1])
            header = self._fetch()
        kind, _, extra, *label = header
        packed = bytes(self._memory[_HEADER.size : _HEADER.size + extra])
        if packed != self._form:
            form, self._pickled = pickle.loads(packed)
            self._view_tensors(form, _aligned(_HEADER.size + extra))
            self._form = packed
        tensors = [_copy(view, pin) for view in self._views]
        return Received(Kind(kind), put_together(self._pickled, tensors), Label(*label))

    def _fetch(self) -> tuple[int, ...]:
        dist.recv(self._buffer, self.peer, group=self.group)
        return _HEADER.unpack_from(self._memory)


def _copy(view: torch.Tensor, pin: bool) -> torch.Tensor:
    return torch.empty_like(view, pin_memory=True).copy_(view) if pin else view.clone()


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
