"""A DeepSpeed config (JSON) as scripts and libraries ask for it: by dotted keys."""

from __future__ import annotations

import base64
import copy
import json
import os
from pathlib import Path
from typing import Any

AUTO = "auto"


class HfDeepSpeedConfig:
    """A DeepSpeed config, with the questions that libraries ask it.

    Args:
        config_file_or_dict: a dict (which is copied), the path of a JSON file, JSON text in base64, or another one of
            this class.

    Attributes:
        config: the dict.
        source: what messages call it ("config file ds.json").

    Raises:
        ValueError: it is none of these, or the file cannot be read.
    """

    def __init__(self, config_file_or_dict: Any) -> None:
        self.source = "the dict hf_ds_config"
        if isinstance(config_file_or_dict, HfDeepSpeedConfig):
            self.source = config_file_or_dict.source
            config_file_or_dict = config_file_or_dict.config
        if isinstance(config_file_or_dict, dict):
            self.config: dict[str, Any] = copy.deepcopy(config_file_or_dict)
        elif isinstance(config_file_or_dict, (str, os.PathLike)):
            self.source, self.config = _read(os.fspath(config_file_or_dict))
        else:
            raise ValueError(f"hf_ds_config={config_file_or_dict!r}: pass a dict, or the path of a JSON file")

    def find_config_node(self, ds_key_long: str) -> tuple[dict[str, Any] | None, str]:
        """The dict that has (or could have) the last part of a dotted key, None where a part before is missing; and
        that last part."""
        *parents, last = ds_key_long.split(".")
        node: Any = self.config
        for parent in parents:
            node = node.get(parent)
            if not isinstance(node, dict):
                return None, last
        return node, last

    def get_value(self, ds_key_long: str, default: Any = None) -> Any:
        """What stands at a dotted key, such as "zero_optimization.stage"."""
        node, last = self.find_config_node(ds_key_long)
        return default if node is None else node.get(last, default)

    def set_value(self, ds_key_long: str, value: Any) -> None:
        """Put a value at a dotted key, with the dicts around it."""
        *parents, last = ds_key_long.split(".")
        node = self.config
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = value

    def del_config_sub_tree(self, ds_key_long: str, must_exist: bool = False) -> None:
        """Take a dotted key out, with all below it.

        Raises:
            ValueError: it is not there, and `must_exist`.
        """
        node, last = self.find_config_node(ds_key_long)
        if node is not None and last in node:
            del node[last]
        elif must_exist:
            raise ValueError(f"{ds_key_long} is not in {self.source}")

    def is_true(self, ds_key_long: str) -> bool:
        """Whether a key is there, and true."""
        value = self.get_value(ds_key_long)
        return value is not None and bool(value)

    def is_false(self, ds_key_long: str) -> bool:
        """Whether a key is there, and false."""
        value = self.get_value(ds_key_long)
        return value is not None and not bool(value)

    def is_zero2(self) -> bool:
        """Whether the stage is 2."""
        return bool(self.get_value("zero_optimization.stage") == 2)

    def is_zero3(self) -> bool:
        """Whether the stage is 3."""
        return bool(self.get_value("zero_optimization.stage") == 3)

    def is_offload(self) -> bool:
        """Whether parameters or optimizer states are kept on the CPU or on a disk."""
        devices = (self.get_value(f"zero_optimization.offload_{what}.device") for what in ("optimizer", "param"))
        return any(device in ("cpu", "nvme") for device in devices)

    def __repr__(self) -> str:
        return f"HfDeepSpeedConfig({self.config})"


def _read(given: str) -> tuple[str, dict[str, Any]]:
    if not Path(given).is_file():
        try:
            text = base64.urlsafe_b64decode(given).decode("utf-8")
        except ValueError:
            raise ValueError(f"DeepSpeed's config file {given} does not exist") from None
        source = "the config in base64"
    else:
        source, text = f"config file {given}", Path(given).read_text(encoding="utf-8")
    try:
        config = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{source} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ValueError(f"{source} holds no JSON object, but {type(config).__name__}")
    return source, config
