"""JAX's arrays in calls: read where they lie, never written, and results are JAX arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import flashgen
from flashgen.errors import InvalidArgument
from flashgen.problem import Problem
from flashgen.reference import attention, bound
from flashgen.runtime.arrays import look
from flashgen.targets.cpu import Avx2
from tests.compiled import quick_compiler
from tests.sample_kernel import skip_unless_it_runs

jax: Any = pytest.importorskip("jax", reason="jax is not installed")


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> Iterator[None]:
    skip_unless_it_runs(Avx2())
    with quick_compiler():
        yield


def arrays(dtype: str = "float32", nk: int = 9) -> list[Any]:
    rng = np.random.default_rng(0)
    shapes = (2, 4, 7, 24), (2, 2, nk, 24), (2, 2, nk, 40)
    return [jax.numpy.asarray(rng.standard_normal(shape), dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_computes(dtype: str) -> None:
    q, k, v = arrays(dtype)
    problem, scale = Problem(24, 40, dtype, "bottom-right"), float(np.float32(24**-0.5))
    exact = [np.asarray(x, np.float64) for x in (q, k, v)]
    o, lse = flashgen.attention(q, k, v, is_causal=True, enable_gqa=True, return_lse=True)
    assert isinstance(o, jax.Array) and isinstance(lse, jax.Array)
    assert (o.dtype, lse.dtype, o.devices()) == (q.dtype, np.float32, q.devices())
    seen = np.asarray(o, np.float64), np.asarray(lse)
    bound(problem, *exact, scale).check(*seen, *attention(problem, *exact, scale))
    merged, _ = flashgen.merge(o, lse, o * 0, lse - np.inf)
    assert isinstance(merged, jax.Array) and (merged == o).all()


def test_nothing_is_copied() -> None:
    for dtype in ("float32", "float16", "bfloat16", "int32", "bool"):
        x = jax.numpy.zeros((2, 3), dtype)
        seen = look("x", x)
        assert (seen.address, seen.dtype) == (x.unsafe_buffer_pointer(), dtype)
        assert (seen.shape, seen.strides) == ((2, 3), (3 * x.itemsize, x.itemsize))


def test_results_are_taken_over_as_they_lie() -> None:
    """Of a size that is worth it: JAX copies small ones."""
    kind = look("x", x := jax.numpy.zeros((1 << 20,))).kind
    made = kind.empty((1 << 20,), "float32", look("x", x))
    made[...] = 1
    assert kind.finish(made, look("x", x)).unsafe_buffer_pointer() == made.ctypes.data


@pytest.mark.parametrize("nk", [0, 1])
def test_zero_sizes(nk: int) -> None:
    q, k, v = arrays(nk=nk)
    assert flashgen.attention(q[:, :, :0], k, v, enable_gqa=True).shape == (2, 4, 0, 40)
    assert flashgen.attention(q, k, v[..., :0], enable_gqa=True).shape == (2, 4, 7, 0)
    o, lse = flashgen.attention(q, k, v, enable_gqa=True, return_lse=True)
    assert (lse == -np.inf).all() == (nk == 0) and o.shape == (2, 4, 7, 40)


def test_refused() -> None:
    q, k, v = arrays()
    out = np.full((2, 4, 7, 40), np.nan, np.float32)
    donated = jax.numpy.zeros_like(q)
    donated.delete()
    unreadable = r"q is of type \w+ \(.+\); one that its library exports through DLPack is allowed"
    for change, message in (
        ({"out": jax.numpy.zeros(out.shape)}, r"out is an array of JAX; an array that can be written"),
        ({"q": q.astype(np.int32)}, r"q\.dtype is 'int32'; native float32 or"),
        ({"k": k.astype("bfloat16")}, r"k\.dtype is 'bfloat16'; native float32 is allowed"),
        ({"q": donated}, unreadable),
        ({"q": jax.random.key(0)}, unreadable),
    ):
        arguments = {"q": q, "k": k, "v": v, "out": out} | change
        with pytest.raises(InvalidArgument, match=f"^{message}"):
            flashgen.attention(**arguments, enable_gqa=True)
    with pytest.raises(InvalidArgument, match="q is a tracer of JAX; an array with elements is allowed"):
        jax.jit(lambda q: flashgen.attention(q, k, v, enable_gqa=True))(q)
    assert np.isnan(out).all()
