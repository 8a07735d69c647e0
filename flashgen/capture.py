"""What a Python function reads beside its arguments, and the function again with symbols in its place.

Looked through are the variables of the functions around it, the globals that its code names, defaults,
tuples, lists and dicts, functools.partial, and every Python function among these. Arrays, and numbers made
by ``runtime``, are inputs; other numbers are constants. Functions of NumPy, PyTorch, JAX and ``math`` are
called as they are. All else is refused: what it holds could change unseen.
"""

from __future__ import annotations

import builtins
import dis
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from flashgen.errors import InvalidArgument
from flashgen.expression import KINDS, LEAST, MOST, Array, Expression, Scalar
from flashgen.notation import WORDS
from flashgen.problem import OWN as OF_PROBLEMS
from flashgen.problem import RESERVED
from flashgen.symbol import Element, Symbol

TRUSTED = {"numpy", "torch", "jax", "jaxlib", "cupy", "math", "operator", "ml_dtypes"}
"""Packages whose functions and modules do not change, and read nothing of the caller's."""

OWN = {"flashgen.symbol", "flashgen.mods"}
"""Modules of ours whose globals are functions and constants."""

TAKEN = RESERVED | OF_PROBLEMS | WORDS
"""Names that mean something else than what a function reads."""

FIXED = (type(None), str, bytes, BuiltinFunctionType, np.ufunc, np.dtype, Symbol, Expression)
"""Types whose values stay as they are."""


@dataclass(frozen=True, eq=False)
class Runtime:
    """A number that a kernel is told at each call, as a function to be traced finds it; see ``runtime``."""

    value: int | float
    name: str
    kind: str


def runtime(value: float, name: str) -> Any:
    """A number that becomes a kernel's run-time input: other values of it need no other kernel.

    A function that is traced reads it from a variable around it; there it is an index if ``value`` is a whole
    number, else a float. name: an identifier, which flashgen may number. Raises InvalidArgument.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise InvalidArgument(name, repr(value), "a number is allowed")
    if isinstance(value, int) and not LEAST <= value <= MOST:
        raise InvalidArgument(name, f"{value:#x}", "a whole number of 64 bits is allowed")
    if not (isinstance(name, str) and name.isidentifier() and name.isascii()):
        raise InvalidArgument("name of an input", repr(name), "an identifier in ASCII is allowed")
    return Runtime(value, name, "index" if isinstance(value, int) else "float")


class Seen(NamedTuple):
    """What functions read: ``key`` is the same where tracing gives the same, ``inputs`` are the arrays and
    numbers, each once. ``lasting``: whether all that is read is in the key."""

    key: tuple
    inputs: list[Any]
    lasting: bool


def look(functions: Iterable[object], argument: str) -> Seen:
    """Raises InvalidArgument where something cannot be seen through."""
    eye = Eye()
    for function in functions:
        eye.see(function, argument)
    return Seen(tuple(eye.key), eye.inputs, eye.lasting)


class Eye:
    """Goes over what functions read, always in the same order."""

    def __init__(self) -> None:
        self.key: list[Any] = []
        self.inputs: list[Any] = []
        self.places: dict[int, int] = {}
        self.lasting = True

    def see(self, value: Any, name: str) -> None:
        kind = type(value)
        if kind is np.ndarray:
            self._input(value, value.ndim, value.dtype)
        elif kind is FunctionType:
            self._function(value, name)
        elif kind is float:
            self.key += (float, value.hex())  # -0.0 is not 0.0
        elif kind is int or kind is bool:
            self.key += (kind, value)
        elif kind is Runtime:
            self._input(value, value.name, value.kind)
        elif kind is tuple or kind is list:
            self.key += (kind, len(value))
            for item in value:
                self.see(item, name)
        else:
            self._rest(value, kind, name)

    def _rest(self, value: Any, kind: type, name: str) -> None:
        if isinstance(value, FIXED):
            self.key += (kind, value.expression if isinstance(value, Symbol) else value)
        elif isinstance(value, np.generic):
            self.key.append(kind)
            self.see(value.item(), name)
        elif kind is dict:
            self.key += (dict, *value)
            for key, item in value.items():
                self.see(item, key if isinstance(key, str) else name)
        elif kind is partial:
            self.key.append(partial)
            self.see((value.func, value.args, value.keywords), name)
        elif is_array(value):
            self._input(value, value.ndim, kind, value.dtype)
        elif isinstance(value, ModuleType | type) or (trusted(value) and callable(value)):
            self.key.append(value)
            self.lasting &= trusted(value)
        elif buffered(value):
            view = np.asarray(value)
            self._input(value, kind, view.ndim, view.dtype)
        else:
            unseen(value, name)

    def _input(self, value: Any, *what: object) -> None:
        place = self.places.setdefault(id(value), len(self.inputs))
        if place == len(self.inputs):
            self.inputs.append(value)
            self.key += what
        else:
            self.key.append(place)

    def _function(self, function: FunctionType, name: str) -> None:
        if opaque(function):
            self.key.append(function)
            return
        place = self.places.setdefault(id(function), -1 - len(self.key))
        if place != -1 - len(self.key):  # again, or by itself
            self.key.append(place)
            return
        code, read, token = read_by(function)
        self.key.append(token)
        for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            if (value := contents(cell)) is not cell:
                self.see(value, variable)
            else:
                self.key.append(None)
        for value in function.__defaults__ or ():
            self.see(value, name)
        if function.__kwdefaults__:
            self.see(function.__kwdefaults__, name)
        for variable in read:
            if variable in function.__globals__:
                self.see(function.__globals__[variable], variable)
            else:
                self.key.append(variable)


def contents(cell: CellType) -> Any:
    """What a variable holds; the cell itself where it is not assigned yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return cell


def opaque(function: FunctionType) -> bool:
    """Whether it is called as it is."""
    module = function.__module__ or ""
    return module == "flashgen.symbol" or module.partition(".")[0] in TRUSTED


def trusted(value: object) -> bool:
    """Whether a module, a class or an object comes from a package that is trusted."""
    if isinstance(value, ModuleType):
        module = value.__name__
    else:
        module = (value if isinstance(value, type) else type(value)).__module__
    package = module.partition(".")[0]
    return package in TRUSTED or (
        package in ("flashgen", "builtins") and isinstance(value, ModuleType | type)
    )


def is_array(value: object) -> bool:
    return hasattr(value, "__dlpack__") and hasattr(value, "dtype") and hasattr(value, "ndim")


def buffered(value: object) -> bool:
    """Whether it gives its memory to NumPy, as array.array and memoryview do."""
    try:
        memoryview(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        return False
    return True


def unseen(value: object, name: str) -> NoReturn:
    allowed = "Python functions, arrays, numbers, and tuples, lists and dicts of these are allowed"
    allowed += "; keep what is needed of an object in variables of their own"
    raise InvalidArgument(
        f"variable {name!r} of a traced function", f"of type {type(value).__name__}", allowed
    )


class Code(NamedTuple):
    """A code object and the globals that it names. In keys it stands for the code, by its ``token``."""

    code: CodeType
    names: tuple[str, ...]
    token: object


_CODES: dict[int, Code] = {}
MOST_CODES = 4096


def read_by(function: FunctionType) -> Code:
    """What a function's code names: no globals of our own modules, where they are constants.

    Codes are looked up by their ids, since Python compares them by all that is in them; an entry holds its
    code, so that no other one has the id. Raises InvalidArgument where it assigns variables not its own.
    """
    code = function.__code__
    if (known := _CODES.get(id(code))) is not None:
        return known
    globals_read = () if function.__module__ in OWN else _globals_of(code, set(code.co_freevars))
    if len(_CODES) >= MOST_CODES:
        _CODES.clear()  # what was traced is traced again: the tokens in its keys are not given again
    _CODES[id(code)] = made = Code(code, tuple(dict.fromkeys(globals_read)), object())
    return made


def _globals_of(code: CodeType, free: set[str]) -> Iterable[str]:
    for step in dis.get_instructions(code):
        changes = step.opname.startswith(("STORE_", "DELETE_"))
        if changes and (
            step.opname.endswith("_GLOBAL") or (step.opname.endswith("_DEREF") and step.argval in free)
        ):
            allowed = "a mask or a score is computed from its arguments, and changes nothing"
            raise InvalidArgument("variable that a traced function assigns", repr(step.argval), allowed)
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield step.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals_of(constant, free)


class Rebuild:
    """Functions again, with symbols for the inputs that they read. ``names``: of the inputs, by their ids."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self._made: dict[int, Any] = {}

    def of(self, value: Any, name: str) -> Any:
        """What stands for a value that ``look`` has seen, which a variable of this name holds."""
        kind = type(value)
        if kind is tuple or kind is list:
            return kind(self.of(item, name) for item in value)
        if kind is dict:
            return {k: self.of(item, k if isinstance(k, str) else name) for k, item in value.items()}
        if kind is partial:
            parts = (self.of(part, name) for part in (value.func, value.args, value.keywords))
            function, args, keywords = parts
            return partial(function, *args, **keywords)
        if isinstance(value, (*FIXED, np.generic, ModuleType, type, bool, int, float)):
            return value
        if id(value) not in self._made:
            if kind is Runtime or is_array(value) or (not callable(value) and buffered(value)):
                self._made[id(value)] = self._symbol(value, name)
            elif kind is FunctionType and not opaque(value):
                self._function(value)
            else:
                return value
        return self._made[id(value)]

    def _symbol(self, value: Any, name: str) -> Symbol | Element:
        self.names[id(value)] = name = unique(
            value.name if type(value) is Runtime else name, self.names.values()
        )
        if isinstance(value, Runtime):
            return Symbol(Expression("scalar", value=Scalar(name, value.kind)))
        array = value if is_array(value) else np.asarray(value)
        dtype = type_of(array, name)
        if array.ndim == 0:
            return Symbol(Expression("scalar", value=Scalar(name, KINDS[dtype])))
        return Element(Array(name, array.ndim, dtype))

    def _function(self, function: FunctionType) -> None:
        namespace = function.__globals__
        if function.__module__ not in OWN:
            namespace = {
                "__builtins__": namespace.get("__builtins__", builtins),
                "__name__": function.__module__,
            }
        cells = tuple(CellType() for _ in function.__closure__ or ())
        code, name = function.__code__, function.__name__
        made = FunctionType(code, namespace, name, None, cells or None)
        self._made[id(function)] = made  # first: it may read itself
        for variable, old, new in zip(code.co_freevars, function.__closure__ or (), cells, strict=True):
            if (value := contents(old)) is not old:
                new.cell_contents = self.of(value, variable)
        names = code.co_varnames[: code.co_argcount][-len(function.__defaults__ or ()) :]
        made.__defaults__ = tuple(
            self.of(v, n) for v, n in zip(function.__defaults__ or (), names, strict=False)
        )
        made.__kwdefaults__ = self.of(function.__kwdefaults__, name)
        for variable in read_by(function).names:
            if variable in function.__globals__:
                namespace[variable] = self.of(function.__globals__[variable], variable)


def type_of(array: Any, name: str) -> str:
    """What ``expression.KINDS`` calls an array's type. Raises InvalidArgument."""
    dtype = getattr(array.dtype, "name", None) or str(array.dtype).rpartition(".")[2]
    allowed = f"{', '.join(KINDS)} is allowed"
    if not getattr(array.dtype, "isnative", True):
        raise InvalidArgument(
            f"type of {name}", array.dtype.str, f"{allowed}, in this machine's order of bytes"
        )
    if dtype not in KINDS or (array.ndim == 0 and KINDS[dtype] == "bool"):
        raise InvalidArgument(
            f"type of {name}", dtype, allowed + (", for a number without bool" * (array.ndim == 0))
        )
    if isinstance(array, np.ma.MaskedArray):
        raise InvalidArgument(
            f"type of {name}", "a masked array", "an array without a mask of its own is allowed"
        )
    return dtype


def unique(wanted: str, taken: Iterable[str]) -> str:
    """A name for an input: ``wanted``, changed where it means something else, numbered where it is taken."""
    base = wanted.strip("_") if wanted.isascii() else ""
    base = base if base.isidentifier() else "input"
    base = f"{base}_in" if base in TAKEN else base
    name, n = base, 1
    while name in taken:
        n += 1
        name = f"{base}_{n}"
    return name
