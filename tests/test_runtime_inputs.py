"""What a kernel reads beside q, k and v: arrays with their own strides and numbers, by name.

The kernel is written by hand, with the signature of an emitted one.
"""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from flashgen.errors import InvalidArgument
from flashgen.expression import Array, Expression, Scalar
from flashgen.problem import Problem
from flashgen.runtime import load
from flashgen.runtime.cpu import CpuKernel
from flashgen.runtime.inputs import expect_inputs
from flashgen.targets.cpu import Avx2
from tests.sample_kernel import HEAD, skip_unless_it_runs

SOURCE = (
    HEAD
    + r"""
// What lies beyond an array's bounds is 0.
static const char *find(const flashgen_tensor *t, int64_t size, int64_t a, int64_t b, int64_t c, int64_t d) {
    static const char zero[8] = {0};
    const int64_t at[4] = {a, b, c, d};
    int64_t offset = 0;
    for (int n = 0; n < 4; ++n) {
        if (at[n] < 0 || at[n] >= t->size[n]) return zero;
        offset += at[n] * t->stride[n];
    }
    return (const char *)t->data + size * offset;
}

extern "C" int %(name)s(const flashgen_tensor *, const flashgen_tensor *, const flashgen_tensor *,
                        const flashgen_tensor *o, const flashgen_tensor *lse, const flashgen_tensor *keep,
                        const flashgen_tensor *table, const flashgen_tensor *sink, float scale,
                        int64_t shift, float factor, int threads) {
    for (int64_t b = 0; b < o->size[0]; ++b)
        for (int64_t h = 0; h < o->size[1]; ++h)
            for (int64_t i = 0; i < o->size[2]; ++i) {
                *at(o, b, h, i, 0) = *(const unsigned char *)find(keep, 1, b, h, i, 1);
                *at(o, b, h, i, 1) = factor * *(const int64_t *)find(table, 8, h, i + shift, 0, 0);
                *at(o, b, h, i, 2) = *(const float *)find(sink, 4, h, 0, 0, 0);
                *at(lse, b, h, i, 0) = scale;
            }
    return threads == 13;
}
"""
)

B, H, N, K = 2, 3, 5, 4
POSITIONS = {name: Expression("position", value=name) for name in "bhqk"}


def element(name: str, dtype: str, *at: str) -> Expression:
    return Expression("element", tuple(POSITIONS[n] for n in at), Array(name, len(at), dtype))


def problem() -> Problem:
    shift = Expression("scalar", value=Scalar("shift", "index"))
    moved = Expression("add", (POSITIONS["q"], shift))
    table = Expression("element", (POSITIONS["h"], moved), Array("table", 2, "int64"))
    factor = Expression("scalar", value=Scalar("factor", "float"))
    score = Expression("mul", (factor, Expression("float", (table,))))
    return Problem(4, 3, mask=element("keep", "bool", *"bhqk"), score=score, sink=True)


PROBLEM = problem()
RNG = np.random.default_rng(0)
QKV = {"q": np.zeros((B, H, N, 4), np.float32), "k": np.zeros((B, H, K, 4), np.float32)}
QKV["v"] = np.zeros((B, H, K, 3), np.float32)
KEEP = RNG.random((B, H, N, K)) < 0.5
TABLE = RNG.integers(-9, 9, (H, N + 2))
SINK = RNG.standard_normal(H).astype(np.float32)
INPUTS = {"keep": KEEP, "table": TABLE, "sink": SINK, "shift": 1, "factor": 0.5}


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CpuKernel]:
    skip_unless_it_runs(Avx2())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLASHGEN_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield load(SOURCE % {"name": "reads"}, "reads", PROBLEM, Avx2())


def expected(keep: np.ndarray, table: np.ndarray, sink: np.ndarray, shift: int, factor: float) -> np.ndarray:
    o = np.zeros((B, H, N, 3), np.float32)
    o[..., 0] = keep[..., 1]
    for i in range(N):
        if 0 <= i + shift < table.shape[1]:
            o[:, :, i, 1] = factor * table[:, i + shift]
    o[..., 2] = sink[:, None]
    return o


def test_the_problem_names_what_is_read() -> None:
    assert [x.name for x in (*PROBLEM.arrays, *PROBLEM.scalars)] == [
        "keep",
        "table",
        "sink",
        "factor",
        "shift",
    ]


def test_order_follows_the_problem(kernel: CpuKernel) -> None:
    """Whatever the order of the mapping."""
    for names in (INPUTS, dict(reversed(INPUTS.items()))):
        o, lse = kernel(**QKV, inputs=names, scale=0.25)
        np.testing.assert_array_equal(o, expected(**INPUTS))
        assert (lse == 0.25).all()


def moved(x: np.ndarray) -> np.ndarray:
    memory = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    memory[...] = x
    return memory


WAYS = {
    "reversed": lambda x: x[(slice(None, None, -1),) * x.ndim],
    "transposed": lambda x: np.ascontiguousarray(x.T).T,
    "every second": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "read-only": lambda x: np.broadcast_to(x, x.shape),
    "one for all": lambda x: np.broadcast_to(x[(slice(1),) * x.ndim], x.shape),
    "fewer": lambda x: x[(slice(-1),) * x.ndim] if x.ndim == 2 else x,
    "at odd addresses": moved,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["keep", "table", "sink"])
def test_strides_and_sizes(kernel: CpuKernel, name: str, way: str) -> None:
    inputs = INPUTS | {name: WAYS[way](INPUTS[name])}
    if way == "fewer" and name == "table":  # the heads, too: what is beyond is 0
        whole = np.zeros_like(TABLE)
        whole[:-1, :-1] = TABLE[:-1, :-1]
        want = expected(**INPUTS | {name: whole})
    else:
        want = expected(**inputs)
    np.testing.assert_array_equal(kernel(**QKV, inputs=inputs)[0], want)


def test_other_arrays(kernel: CpuKernel) -> None:
    inputs = INPUTS | {"table": memoryview(TABLE), "keep": memoryview(KEEP)}
    np.testing.assert_array_equal(kernel(**QKV, inputs=inputs)[0], expected(**INPUTS))


@pytest.mark.parametrize("shift", [-(2**63), -1, 0, 2**63 - 1 - N, np.int64(2), np.uint8(2)])
def test_whole_numbers(kernel: CpuKernel, shift: Any) -> None:
    inputs = INPUTS | {"shift": shift}
    np.testing.assert_array_equal(kernel(**QKV, inputs=inputs)[0], expected(**inputs | {"shift": int(shift)}))


@pytest.mark.parametrize("factor", [0, -1.5, np.float16(2), np.inf, -np.inf, np.nan, 2**20])
def test_numbers(kernel: CpuKernel, factor: Any) -> None:
    inputs = INPUTS | {"table": np.ones_like(TABLE), "shift": 0, "factor": factor}
    np.testing.assert_array_equal(kernel(**QKV, inputs=inputs)[0], expected(**inputs))


def test_other_sizes_are_another_layout(kernel: CpuKernel) -> None:
    """A layout that is remembered is not taken for another, and a block not for that of an earlier call."""
    narrow = INPUTS | {"table": TABLE[:, :3]}
    for inputs in (INPUTS, narrow, INPUTS, narrow):
        np.testing.assert_array_equal(kernel(**QKV, inputs=inputs)[0], expected(**inputs))


@contextmanager
def at_most(more: int) -> Iterator[None]:
    """The process has only so many bytes of addresses more than now."""
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_nothing_is_expanded(kernel: CpuKernel) -> None:
    """A mask, keys and values that would be terabytes, where there are 64 MiB."""
    keys = 1 << 40
    wide = {
        name: np.broadcast_to(x[:, :, :1], (B, H, keys, x.shape[3])) for name, x in QKV.items() if name != "q"
    }
    keep = np.broadcast_to(KEEP[..., :1], (B, H, N, keys))
    with at_most(64 << 20):
        with pytest.raises(MemoryError):
            keep.copy()
        o, _ = kernel(QKV["q"], **wide, inputs=INPUTS | {"keep": keep}, threads=1)
    np.testing.assert_array_equal(o[..., 0], KEEP[..., 0])


OUT, LSE = np.full((B, H, N, 3), 7, np.float32), np.full((B, H, N), 7, np.float32)
READS = "the kernel reads keep, table, sink, factor, shift"
REFUSED = [
    (None, "inputs is without 'keep'; " + READS),
    ([KEEP], "inputs is of type list; a mapping from names to arrays and numbers is allowed"),
    ({**INPUTS, "bias": KEEP}, "inputs is with 'bias'; " + READS),
    ({n: x for n, x in INPUTS.items() if n != "sink"}, "inputs is without 'sink'; " + READS),
    ({n: x for n, x in INPUTS.items() if n != "shift"}, "inputs is without 'shift'; " + READS),
    ({**INPUTS, "keep": KEEP.astype(np.uint8)}, "keep.dtype is '|u1'; native bool is allowed"),
    ({**INPUTS, "keep": KEEP[0]}, "keep.shape is (3, 5, 4); 4 dimensions are allowed"),
    ({**INPUTS, "table": TABLE.astype(np.int32)}, "table.dtype is '<i4'; native int64 is allowed"),
    ({**INPUTS, "table": TABLE.astype(">i8")}, "table.dtype is '>i8'; native int64 is allowed"),
    ({**INPUTS, "table": TABLE.tolist()}, "table is of type list"),
    ({**INPUTS, "table": None}, "table is of type NoneType"),
    ({**INPUTS, "sink": SINK[:2]}, "sink.shape is (2,); (3,) is allowed: one logit for each query head"),
    ({**INPUTS, "sink": SINK.astype(np.float64)}, "sink.dtype is '<f8'; native float32 is allowed"),
    ({**INPUTS, "shift": 1.0}, "shift is 1.0; a whole number of 64 bits is allowed"),
    ({**INPUTS, "shift": True}, "shift is True; a whole number"),
    ({**INPUTS, "shift": 2**63}, "shift is 9223372036854775808; a whole number of 64 bits"),
    ({**INPUTS, "factor": 1e39}, "factor is 1e+39; a number that float32 holds is allowed"),
    ({**INPUTS, "factor": 10**400}, "a number that float32 holds is allowed"),
    ({**INPUTS, "factor": 1e-50}, "factor is 1e-50; a number that float32 holds is allowed"),
    ({**INPUTS, "factor": "1"}, "factor is '1'; a number"),
    ({**INPUTS, "factor": 1j}, "factor is 1j; a number"),
    ({**INPUTS, "sink": OUT[0, :, 0, 0]}, "out is in memory that sink uses"),
    (
        {**INPUTS, "keep": np.broadcast_to(LSE.view(bool)[0, 0, :1], KEEP.shape)},
        "lse is in memory that keep",
    ),
]


@pytest.mark.parametrize(("inputs", "message"), REFUSED, ids=[message[:40] for _, message in REFUSED])
def test_refused_before_anything_is_written(kernel: CpuKernel, inputs: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(message)):
        kernel(**QKV, inputs=inputs, out=OUT, lse=LSE)
    assert (OUT == 7).all() and (LSE == 7).all()


def test_a_plain_kernel_reads_nothing_else() -> None:
    assert expect_inputs((), (), "float32", None) == ((), ())
    with pytest.raises(InvalidArgument, match="inputs is with 'bias'; the kernel reads no other arrays"):
        expect_inputs((), (), "float32", {"bias": KEEP})


def test_numbers_have_the_type_computed_in() -> None:
    factor = (Scalar("factor", "float"),)
    assert expect_inputs((), factor, "float64", {"factor": 1e39}) == ((), (1e39,))
