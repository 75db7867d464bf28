"""One script: its bytes, its text and its ``ast``, with one clear sentence where it cannot be read.

The bytes are the truth: text is decoded from them on demand and nothing here ever changes a newline, a BOM or a tab.
"""

from __future__ import annotations

import ast
import codecs
import io
import os
import re
import stat
import sys
import tokenize
import warnings
from dataclasses import dataclass

STDIN = "<stdin>"
"""The path of the script that came in on standard input."""

_PYTHON_2_MESSAGES = (
    "Missing parentheses in call to",
    "multiple exception types must be parenthesized",
    "leading zeros in decimal integer literals",
)
_PYTHON_2_LINE = re.compile(
    r"""^\s*(?:print|exec)\s+[^\s(=.,:)\]]            # a print or exec statement
      | ^\s*print\s*>>                                # print >>stream, ...
      | ^\s*(?:\}\s*)?except\s+[\w.]+\s*,\s*\w+\s*:   # except Error, name:
      | ^\s*raise\s+[\w.]+\s*,                        # raise Error, "message"
      | `[^`]+`                                       # backticks for repr
      | <>                                            # the other "not equal"
      | \b\d+[lL]\b                                   # long integers
      | \b[uU][rR]['"]                                # ur"..." strings
    """,
    re.VERBOSE,
)
_KEYWORD_AS_NAME = re.compile(
    r"(?<![\w.])(async|await)\s*[=,).\]]|\.\s*(async|await)\b|\b(?:import|as|def)\s+(async|await)\b"
)


class SourceProblem(Exception):
    """A script cannot be read: ``message`` is one sentence for a person, ``line`` counts from 1."""

    def __init__(self, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.line = max(1, line)

    def __reduce__(self) -> tuple[type[SourceProblem], tuple[str, int]]:
        return type(self), (self.message, self.line)


@dataclass(frozen=True, slots=True)
class Script:
    """A file as it is: ``path`` as reached from the argument (``<stdin>`` for standard input), and its bytes."""

    path: str
    data: bytes

    @classmethod
    def load(cls, path: str) -> Script:
        """Read a file, raising ``SourceProblem`` where there is no such file, or nothing that could be Python."""
        try:
            mode = os.stat(path).st_mode
            if stat.S_ISDIR(mode):
                raise SourceProblem("This is a folder, not a file.")
            if not stat.S_ISREG(mode):
                raise SourceProblem("This is not a regular file.")
            with open(path, "rb") as file:
                script = cls(path, file.read())
        except FileNotFoundError:
            raise SourceProblem("There is no such file.") from None
        except OSError as error:
            raise SourceProblem(f"The file cannot be read: {error.strerror or error}.") from None
        script.check_bytes()
        return script

    @property
    def encoding(self) -> str:
        """The codec that decodes the bytes (PEP 263): ``utf-8-sig`` where a BOM leads them."""
        try:
            return tokenize.detect_encoding(io.BytesIO(self.data).readline)[0]
        except SyntaxError as error:  # a coding line that names no codec, or undecodable first lines
            named = _coding_line(self.data)
            if named is not None and not _is_text_codec(named[0]):
                raise SourceProblem(f"The coding line names an unknown encoding, {named[0]!r}.", named[1]) from None
            if named is not None and self.data.startswith(codecs.BOM_UTF8):
                raise SourceProblem(
                    f"The file starts with a UTF-8 byte order mark, but its coding line says {named[0]!r}.", named[1]
                ) from None
            if named is None:
                return "utf-8-sig" if self.data.startswith(codecs.BOM_UTF8) else "utf-8"
            raise SourceProblem(f"The encoding of the file is unclear: {error}.", named[1]) from None

    @property
    def newline(self) -> str:
        """The newline of the first line, which new lines should copy (``\\n`` where there is none)."""
        match = re.search(rb"\r\n|\n|\r", self.data)
        return match[0].decode("ascii") if match else "\n"

    def text(self) -> str:
        """The file decoded, newlines as they are, without its BOM."""
        self.check_bytes()
        encoding = self.encoding
        try:
            return self.data.decode(encoding)
        except UnicodeDecodeError as error:
            line = self.data.count(b"\n", 0, error.start) + 1
            shown = encoding.removesuffix("-sig")
            hint = "; a coding line is missing" if shown == "utf-8" and _coding_line(self.data) is None else ""
            raise SourceProblem(
                f"The file is not {shown} text (byte 0x{self.data[error.start]:02x} in line {line}){hint}.", line
            ) from None
        except (LookupError, ValueError) as error:
            raise SourceProblem(f"The file cannot be decoded as {encoding}: {error}.") from None

    def check_bytes(self) -> None:
        """Raise ``SourceProblem`` for bytes that are no Python source in any encoding."""
        if self.data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise SourceProblem("The file is UTF-16 text, which Python does not read; save it as UTF-8.")
        position = self.data.find(b"\0")
        if position >= 0:
            line = self.data.count(b"\n", 0, position) + 1
            raise SourceProblem(f"This is a binary file, not Python (null byte in line {line}).", line)

    def parse(self) -> ast.Module:
        """The syntax tree of the bytes, raising ``SourceProblem`` that names the kind of fault and its line."""
        text = self.text()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the script's invalid escapes are not ours to report
                return ast.parse(self.data, filename=self.path)
        except SyntaxError as error:
            raise _explain(error, text) from None
        except (RecursionError, MemoryError):
            raise SourceProblem("The code is nested too deeply to be read.") from None
        except (ValueError, OverflowError) as error:
            raise SourceProblem(f"The file cannot be parsed: {error}.") from None


def _explain(error: SyntaxError, text: str) -> SourceProblem:
    """The parser's complaint in terms of what the script is: Python 2, Python before 3.7, or plainly broken."""
    line = error.lineno or 1
    lines = re.split(r"\r\n|\n|\r", text)
    shown = lines[line - 1] if line <= len(lines) else ""
    message = error.msg or "invalid syntax"
    if "nested" in message and "too many" in message:
        return SourceProblem("The code is nested too deeply to be read.", line)
    keyword = _KEYWORD_AS_NAME.search(shown)
    if keyword:
        name = next(filter(None, keyword.groups()))
        renamed = "write non_blocking=" if f"{name}=" in shown.replace(" ", "") and ".cuda(" in shown else "rename it"
        return SourceProblem(
            f"Line {line} uses {name!r} as a name, which Python has not allowed since 3.7; {renamed} there first.", line
        )
    if message.startswith(_PYTHON_2_MESSAGES) or _PYTHON_2_LINE.search(shown):
        return SourceProblem(f"Line {line} is Python 2 ({shown.strip()[:60]}); port the file to Python 3 first.", line)
    version = ".".join(map(str, sys.version_info[:2]))
    return SourceProblem(f"Line {line} is not valid Python {version}: {message}.", line)


def _coding_line(data: bytes) -> tuple[str, int] | None:
    """The encoding that one of the first two lines names (PEP 263), and which line that is."""
    for number, line in enumerate(re.split(rb"\r\n|\n|\r", data.removeprefix(codecs.BOM_UTF8), maxsplit=2)[:2], 1):
        match = re.match(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", line)
        if match:
            return match[1].decode("ascii", "replace"), number
        if not re.match(rb"^[ \t\f]*(?:#|$)", line):
            return None
    return None


def _is_text_codec(name: str) -> bool:
    try:
        codecs.lookup(name)
        b"".decode(name)
    except (LookupError, UnicodeError):
        return False
    return True
