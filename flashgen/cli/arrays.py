"""Arrays in files: .npy, .npz and .safetensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from flashgen.errors import InvalidArgument

CONTAINERS = (".npz", ".safetensors")
"""Endings of files that hold arrays by name."""


def load_named(path: Path, names: Sequence[str]) -> list[np.ndarray]:
    """The arrays of these names in a .npz or .safetensors file. Raises InvalidArgument."""
    if path.suffix not in CONTAINERS:
        raise InvalidArgument(
            "FILE", repr(str(path)), f"a name that ends in {', '.join(CONTAINERS)} is allowed"
        )
    check_there("FILE", path)
    return _load_npz(path, names) if path.suffix == ".npz" else _load_safetensors(path, names)


def load_npy(argument: str, path: Path) -> np.ndarray:
    """The array of a .npy file. Raises InvalidArgument."""
    check_there(argument, path)
    with _reading(argument, path, "a .npy file of numbers is allowed"):
        array = np.load(path, allow_pickle=False)
    if not isinstance(array, np.ndarray):
        array.close()
        raise InvalidArgument(argument, repr(str(path)), "a .npy file is allowed; FILE takes .npz")
    return array


def save_named(file: BinaryIO, ending: str, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays by name, in the form of a .npz or .safetensors file."""
    if ending == ".npz":
        np.savez(file, allow_pickle=False, **arrays)
        return
    from safetensors.numpy import save

    file.write(save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))


def check_there(argument: str, path: Path) -> None:
    if not path.is_file():
        raise InvalidArgument(argument, repr(str(path)), "there is no such file")


@contextmanager
def _reading(argument: str, path: Path, allowed: str) -> Iterator[None]:
    """Whatever a reader raises over what it finds in a file, as InvalidArgument.

    They parse what anybody may have written, and which errors that gives (SyntaxError, MemoryError,
    NotImplementedError, zlib.error, ...) is no part of what they promise.
    """
    try:
        yield
    except InvalidArgument:
        raise
    except Exception as e:
        reason = " ".join(str(e).split()) or type(e).__name__
        raise InvalidArgument(argument, repr(str(path)), f"{allowed} ({reason})") from e


def _load_npz(path: Path, names: Sequence[str]) -> list[np.ndarray]:
    with _reading("FILE", path, "a .npz file of numbers is allowed"):
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise ValueError("it holds one array without a name")
        with loaded as file:
            _check_names(path, names, file.files)
            arrays = [file[name] for name in names]
        for name, array in zip(names, arrays, strict=True):
            if not isinstance(array, np.ndarray):
                raise ValueError(f"its member {name!r} is not an array")
        return arrays


def _load_safetensors(path: Path, names: Sequence[str]) -> list[np.ndarray]:
    from safetensors import safe_open

    with (
        _reading("FILE", path, "a .safetensors file of types that NumPy has is allowed"),
        safe_open(path, framework="numpy") as file,
    ):
        _check_names(path, names, list(file.keys()))
        return [file.get_tensor(name) for name in names]


def _check_names(path: Path, names: Sequence[str], there: Sequence[str]) -> None:
    if missing := [name for name in names if name not in there]:
        raise InvalidArgument(
            "names", ",".join(names), f"{path.name} has no {missing[0]!r}; it holds {', '.join(there)}"
        )
