"""Text in and out of files, gzipped where the name ends in .gz; and JSON with its infinities."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from pathlib import Path
from typing import Any

from tightbudget.errors import FileError

_TEXT_OR_INFINITY = re.compile(r'("(?:[^"\\]|\\.)*")|Infinity')


def read_text(path: str | Path) -> str:
    """Reads a text file, gzipped if its name ends in .gz.

    Raises:
        FileError: the file is missing, a directory, not readable, broken gzip, or not UTF-8.
    """
    path = Path(path)
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: not UTF-8 text (byte {error.start})") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise FileError(f"{path}: not a whole gzip file: {error}") from error
    except OSError as error:
        raise FileError(f"{path}: {reason(error)}") from error
    except ValueError as error:  # a name that no file can have
        raise FileError(f"{str(path)!r}: {error}") from error


def write_text(path: str | Path, text: str) -> None:
    """Writes a text file, gzipped if its name ends in .gz; equal texts give equal bytes.

    Raises:
        FileError: the file cannot be written.
    """
    path = Path(path)
    raw = text.encode()
    try:
        path.write_bytes(gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw)
    except OSError as error:
        raise FileError(f"{path}: {reason(error)}") from error
    except ValueError as error:
        raise FileError(f"{str(path)!r}: {error}") from error


def reason(error: OSError) -> str:
    """Says in lower case why a file operation failed, without the name of the file."""
    return (error.strerror or str(error)).lower()


def json_text(content: dict[str, Any], *, ordered: bool = False) -> str:
    """Writes a dictionary as one line of JSON, with infinity as 1e999.

    Every parser reads that number as infinity. ``Infinity`` is not JSON, and ``null`` is less than
    any number in some languages.

    Args:
        content: the dictionary.
        ordered: True to sort the keys and leave spaces out, so that equal contents are one text.
    """
    form: dict[str, Any] = {"sort_keys": True, "separators": (",", ":")} if ordered else {}
    return _TEXT_OR_INFINITY.sub(lambda found: found[1] or "1e999", json.dumps(content, **form))
