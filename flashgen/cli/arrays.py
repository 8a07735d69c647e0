"""Arrays in files: .npy, .npz and .safetensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from flashgen.errors import FlashgenError, InvalidArgument, MissingTool
from flashgen.problem import DTYPES
from flashgen.runtime.arrays import element_type

CONTAINERS = (".npz", ".safetensors")
"""Endings of files that hold arrays by name."""
BYTES_OF_TWO = np.dtype("V2")


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


def bfloat16() -> type:
    """The NumPy type. Raises MissingTool."""
    try:
        from ml_dtypes import bfloat16
    except ImportError as error:
        allowed = "other types, and emitting and compiling kernels of this one, work without"
        raise MissingTool(
            f"bfloat16 arrays need the package ml_dtypes: pip install 'flashgen[bfloat16]'; {allowed}"
        ) from error
    return bfloat16


def stored_as(name: str, array: np.ndarray, dtype: str | None) -> np.ndarray:
    """The array, rounded to a storage type if one is given.

    NumPy's files keep the bytes of bfloat16 and not its name, which ``dtype`` has to say. Raises
    InvalidArgument, and MissingTool where the type's package is not here.
    """
    if array.dtype == BYTES_OF_TWO:
        if dtype != "bfloat16":
            allowed = "two bytes without a type are allowed with --dtype bfloat16"
            raise InvalidArgument(f"{name}.dtype", repr(array.dtype.str), allowed)
        return array.view(bfloat16())
    if dtype is None and array.dtype.kind == "f" and element_type(array.dtype) not in DTYPES:
        allowed = f"native {', '.join(DTYPES)} are allowed; --dtype float32 makes it that"
        raise InvalidArgument(f"{name}.dtype", repr(array.dtype.str), allowed)
    if dtype is None or element_type(array.dtype) == dtype:
        return array
    if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
        raise InvalidArgument(f"{name}.dtype", repr(array.dtype.str), f"a float type is rounded to {dtype}")
    with np.errstate(over="ignore"):  # what is too large becomes infinity, as in any rounding
        return array.astype(bfloat16() if dtype == "bfloat16" else dtype)


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
    except FlashgenError:
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
        if any(file.get_slice(name).get_dtype() == "BF16" for name in names):
            bfloat16()  # from its import on, NumPy knows the name that safetensors asks it for
        return [file.get_tensor(name) for name in names]


def _check_names(path: Path, names: Sequence[str], there: Sequence[str]) -> None:
    if missing := [name for name in names if name not in there]:
        raise InvalidArgument(
            "names", repr(",".join(names)), f"{path.name} has no {missing[0]!r}; it holds {', '.join(there)}"
        )
