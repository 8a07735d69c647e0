"""Arrays of every library in calls: nothing is copied, results are like q, what cannot be read is refused.

The kernel is one of tests/sample_kernel.py, which leaves marks in what it reads.
"""

from __future__ import annotations

import array
import re
from typing import Any

import numpy as np
import pytest

from flashgen.errors import InvalidArgument
from flashgen.problem import Problem
from flashgen.runtime import load
from flashgen.runtime.arrays import aligned, bits, look, numbers_of
from flashgen.runtime.cpu import CpuKernel
from flashgen.runtime.dlpack import read
from flashgen.runtime.tensors import contiguous
from flashgen.targets.cpu import Avx2
from tests.sample_kernel import mark_source, skip_unless_it_runs

SHAPES = {"q": (1, 4, 3, 8), "k": (1, 2, 5, 8), "v": (1, 2, 5, 6), "out": (1, 4, 3, 6), "lse": (1, 4, 3)}
WRITTEN = 100 * np.arange(4)[None, :, None, None] + 10 * np.arange(3)[:, None] + np.arange(6.0)
MARKS = {"q": 1, "k": 2, "v": 3}


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory):
    skip_unless_it_runs(Avx2())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLASHGEN_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def mark() -> CpuKernel:
    return load(mark_source("mark"), "mark", Problem(8, 6), Avx2())


class Exported:
    """An array of a library that speaks DLPack and nothing else."""

    def __init__(self, held: Any, device: tuple[int, int] = (1, 0)):
        self.held, self.device = held, device

    def __dlpack__(self, **options: Any) -> object:
        return self.held.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


class Older(Exported):
    """Of one that knows no versions."""

    def __dlpack__(self) -> object:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.held.__dlpack__()


LIBRARIES = {
    "numpy": lambda x: x,
    "a subclass": lambda x: x.view(np.memmap),
    "memoryview": memoryview,
    "dlpack": Exported,
    "dlpack before versions": Older,
}


def zeros(name: str) -> np.ndarray:
    return np.zeros(SHAPES[name], np.float32)


@pytest.mark.parametrize("library", LIBRARIES)
def test_nothing_is_copied_and_results_are_numpy_arrays(mark: CpuKernel, library: str) -> None:
    """What the kernel changes in its inputs is seen by who made them."""
    memory = {name: zeros(name) for name in "qkv"}
    o, lse = mark(*(LIBRARIES[library](x) for x in memory.values()), scale=0.5)
    for name, x in memory.items():
        assert (x.flat[0], np.count_nonzero(x)) == (MARKS[name], 1)
    assert type(o) is type(lse) is np.ndarray
    np.testing.assert_array_equal(o, WRITTEN)
    np.testing.assert_array_equal(lse, np.full(SHAPES["lse"], 0.5, np.float32))


WAYS = {
    "every second column": lambda x: np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)[..., ::2],
    "reversed": lambda x: x[::-1, ::-1, ::-1, ::-1],
    "transposed": lambda x: np.zeros(x.shape[::-1], x.dtype).T,
    "one number": lambda x: np.broadcast_to(np.zeros((), x.dtype), x.shape),
}


@pytest.mark.parametrize(
    ("library", "way"),
    [
        (library, way)
        for library in LIBRARIES
        for way in WAYS
        if (library[:6], way) != ("dlpack", "one number")
    ],
)
def test_strides_of_inputs_are_kept(mark: CpuKernel, library: str, way: str) -> None:
    """NumPy exports no array that is read-only, and so none of one number, through DLPack."""
    memory = {name: WAYS[way](zeros(name)) for name in "qkv"}
    views = [LIBRARIES[library](x) for x in memory.values()]
    for name, view, x in zip("qkv", views, memory.values(), strict=True):
        seen = look(name, view)
        assert (seen.shape, seen.strides, seen.dtype) == (x.shape, x.strides, "float32")
        assert np.shares_memory(bits(seen), x)
    mark(*views)
    for name, x in memory.items():
        assert x[0, 0, 0, 0] == MARKS[name]


@pytest.mark.parametrize("library", ["numpy", "a subclass", "memoryview", "dlpack"])
def test_outputs_of_any_library_are_written_and_returned(mark: CpuKernel, library: str) -> None:
    """In any strides; what lies between their elements stays."""
    wide = np.full((1, 4, 3, 12), np.nan, np.float32)
    rows = np.full((3, 4, 1), np.nan, np.float32)
    out, lse = LIBRARIES[library](wide[..., ::-2]), LIBRARIES[library](rows.T)
    got, got_lse = mark(*map(zeros, "qkv"), scale=2, out=out, lse=lse)
    assert got is out and got_lse is lse
    np.testing.assert_array_equal(wide[..., ::-2], WRITTEN)
    assert np.isnan(wide[..., ::2]).all()
    assert (rows == 2).all()


def test_a_buffer_without_strides_of_its_own() -> None:
    """array.array has one dimension: it is read, and then refused for that."""
    seen = look("q", array.array("f", [1, 2]))
    assert (seen.shape, seen.strides, seen.dtype) == ((2,), (4,), "float32")
    empty = look("q", memoryview(np.zeros((1, 2, 0, 8), np.float32)))
    assert (empty.shape, bits(empty).shape) == ((1, 2, 0, 8), (1, 2, 0, 8))


READ_ONLY = zeros("out")
READ_ONLY.flags.writeable = False
LARGE = np.zeros(1000, np.float32)
REFUSED = [
    ({"q": [[1.0]]}, "q is of type list; a NumPy array without mask is allowed, or one that speaks DLPack"),
    ({"q": None}, "q is of type NoneType"),
    ({"k": "keys"}, "k is of type str"),
    ({"k": b"keys"}, "k.dtype is '|u1'"),
    ({"k": bytearray(8)}, "k.dtype is '|u1'; native float32 is allowed"),
    ({"v": 1.5}, "v is of type float"),
    ({"v": np.float32(1)}, "v.shape is (); four dimensions are allowed"),
    ({"v": np.ma.masked_array(zeros("v"))}, "v is of type MaskedArray"),
    ({"v": np.zeros((), object)}, "v.dtype is '|O'"),
    ({"v": zeros("v").astype(complex)}, "v.dtype is '<c16'"),
    ({"v": zeros("v").astype(np.int32)}, "v.dtype is '<i4'"),
    ({"v": zeros("v").astype(bool)}, "v.dtype is '|b1'"),
    ({"q": zeros("q").astype(">f4")}, "q.dtype is '>f4'; native float32 is allowed"),
    ({"q": memoryview(zeros("q").astype(">f4"))}, "q.dtype is '>f4'"),
    ({"q": Exported(zeros("q").astype(np.float64))}, "q.dtype is 'float64'; native float32 is allowed"),
    ({"q": Exported(zeros("q").astype(complex))}, "q.dtype is 'complex128'"),
    ({"q": Exported(3)}, "q is of type Exported ('int' object has no attribute '__dlpack__')"),
    ({"out": READ_ONLY}, "out is read-only; an array that can be written is allowed"),
    ({"out": memoryview(READ_ONLY)}, "out is read-only"),
    ({"out": memoryview(READ_ONLY.tobytes()).cast("f", SHAPES["out"])}, "out is read-only"),
    ({"out": Older(zeros("out"))}, "out is read-only"),
    ({"out": zeros("out").tolist()}, "out is of type list"),
    ({"out": zeros("out").astype(np.float16)}, "out.dtype is '<f2'"),
    ({"lse": memoryview(zeros("out"))}, "lse.shape is (1, 4, 3, 6)"),
    (
        {"q": LARGE[:96].reshape(SHAPES["q"]), "out": memoryview(LARGE[90:162].reshape(SHAPES["out"]))},
        "out is in memory that q uses",
    ),
    (
        {"out": Exported(LARGE[:72].reshape(SHAPES["out"])), "lse": LARGE[71:83].reshape(SHAPES["lse"])},
        "lse is in memory that out uses",
    ),
]


@pytest.mark.parametrize(("change", "message"), REFUSED, ids=[message[:40] for _, message in REFUSED])
def test_refused_before_anything_is_written(mark: CpuKernel, change: dict, message: str) -> None:
    arguments = {name: np.full(shape, 7, np.float32) for name, shape in SHAPES.items()} | change
    with pytest.raises(InvalidArgument, match=re.escape(message)):
        mark(**arguments)
    for name, value in arguments.items():
        if name not in change:
            assert (value == 7).all(), name
    assert not LARGE.any() and not READ_ONLY.any()


def test_elements_between_multiples_of_their_size_are_copied() -> None:
    """The one copy there is, in the order of the elements."""
    packed = np.zeros((2, 3), np.dtype([("value", "f4"), ("pad", "u1")]))["value"]
    packed[...] = np.arange(6).reshape(2, 3)
    odd = np.frombuffer(bytearray(25), np.uint8)[1:].view(np.float32).reshape(2, 3)
    for x in (packed, odd, packed[::-1, ::-1]):
        seen = look("q", x)
        made = aligned(seen)
        assert made.address % 4 == 0 and made.strides == (12, 4) and not np.shares_memory(bits(made), x)
        np.testing.assert_array_equal(bits(made), x)
    fine = look("q", np.zeros((2, 3), np.float32))
    assert aligned(fine) is fine


def test_what_is_repeated_is_copied_once() -> None:
    """Also of a mask of a whole batch, which is never expanded."""
    memory = np.zeros(4 * 7 + 1, np.uint8)
    x = memory[1:].view(np.float32)
    x[...] = np.arange(7)
    for shape, repeated in (((7,), (1000, 1000, 3, 7)), ((7, 1), (2, 7, 1 << 40)), ((1, 7, 1), (0, 7, 5))):
        whole = np.broadcast_to(x.reshape(shape), repeated)
        made = aligned(look("attn_mask", whole))
        assert made.address % 4 == 0 and made.shape == repeated and made.value.size in (0, 7)
        found, want = (array[..., :9] for array in (bits(made), whole))
        np.testing.assert_array_equal(found, want)


def test_capsules() -> None:
    x = np.zeros((2, 3, 4), np.int16)[:, ::-1]
    for options, read_only in (({}, True), ({"max_version": (1, 0)}, False)):
        capsule = x.__dlpack__(**options)
        found = read(capsule)
        assert found == (x.ctypes.data, (2, 3, 4), x.strides, "int16", 1, read_only)
    assert read(np.zeros((), bool).__dlpack__())[1:4] == ((), (), "bool")
    assert contiguous((2, 0, 3), 1).strides == (3, 3, 1) and contiguous((), 1).strides == ()
    for other in (None, 3, np.zeros(1)):
        with pytest.raises(ValueError, match="no capsule of DLPack's"):
            read(other)


def test_the_memory_of_a_capsule_stays_while_its_view_does() -> None:
    """Nothing else holds the array."""
    import gc
    import weakref

    x = np.arange(6, dtype=np.float32)
    gone = weakref.ref(x)
    seen = look("q", Exported(x))
    seen = seen._replace(value=seen.value._replace(array=None))
    del x
    gc.collect()
    assert gone() is not None
    np.testing.assert_array_equal(numbers_of(seen), np.arange(6))
    del seen
    gc.collect()
    assert gone() is None
