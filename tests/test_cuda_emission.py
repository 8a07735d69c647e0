"""Emitted CUDA compiles without a warning, equals the reference, and needs each of its barriers."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flashgen
from flashgen.problem import ALIGNMENTS, Problem
from flashgen.reference import attention, bound
from flashgen.schedule import FA1, FA2, Schedule
from flashgen.targets.cuda import Cuda
from tests import cuda_compile
from tests.cuda_emitted import CACHE, COMBINATIONS, Emitted, emitted, strided
from tests.cuda_on_cpu.cupy_double import Double
from tests.mods import PROBLEMS, SCORE, K, Q, element, of
from tests.strategies import KINDS, STORAGE, Inputs, inputs, make_inputs, problems, schedules

HEAD_DIMS = (32, 64, 80, 128, 256)
DTYPES = ("float32", "float16", "bfloat16")
BR, BC = 8, 12

Combination = tuple[str, bool, bool]
each_combination = pytest.mark.parametrize(
    "combination",
    COMBINATIONS,
    ids=lambda c: f"{c[0]}-{'lazy' if c[1] else 'eager'}-{'skip' if c[2] else 'all'}",
)


def kernel(problem: Problem, combination: Combination, br: int | None = BR, bc: int | None = BC) -> Emitted:
    order, lazy, skip = combination
    return emitted(problem, Schedule(order, br, bc, lazy, skip))


@each_combination
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_compiles_without_a_warning(head_dim: int, combination: Combination):
    """D = 64 for every architecture; these, types and masks go round otherwise. A few registers may spill."""
    n = COMBINATIONS.index(combination) + HEAD_DIMS.index(head_dim)
    problem = Problem(head_dim, None, DTYPES[n // 3 % 3], ALIGNMENTS[n % 3])
    every = Cuda.architectures
    chosen = every if head_dim == 64 else [every[n % len(every)]]
    for used in cuda_compile.check(kernel(problem, combination, None, None).source, chosen).values():
        assert used.static_shared == 0 and used.spill_loads <= 128


@pytest.mark.parametrize("name", ["chosen", "log n", "numbers alone"])
def test_masks_and_scores_compile(name: str):
    cuda_compile.check(emitted(PROBLEMS[name], Schedule(br=BR, bc=BC)).source, Cuda.architectures[:1])


def test_types_that_only_a_score_reads_compile():
    """With the headers that they need."""
    bias = of("add", SCORE, element("bias", "bfloat16", Q, K))
    kernel = emitted(Problem(8, dtype="float16", score=bias), Schedule(br=BR, bc=BC))
    cuda_compile.check(kernel.source, Cuda.architectures[:1])


@pytest.mark.parametrize("schedule", [FA1, FA2], ids=["fa1", "fa2"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_compiles_with_nvcc_too(dtype: str, schedule: Schedule, monkeypatch: pytest.MonkeyPatch):
    if cuda_compile.nvcc() is None:
        pytest.skip("nvcc is not here")
    monkeypatch.setattr(cuda_compile, "nvrtc", lambda: None)
    cuda_compile.check(emitted(Problem(40, 24, dtype, "top-left"), schedule).source)


LENGTHS = [
    *((BR + a, BC + b) for a, b in ((-1, -1), (0, 0), (1, 1), (1, -1), (-1, 1))),
    *((2 * BR + 1, 2 * BC + 1), (13, 37), (37, 13), (31, 5), (1, 1), (1, 29), (29, 1)),
    *((0, 7), (7, 0), (0, 0)),
]
HEADS = ((1, 2, 2), (2, 4, 2), (1, 3, 1))
"""(B, Hq, Hkv)."""


@each_combination
@pytest.mark.parametrize(
    ("dtype", "causal"), [*[(d, c) for d in DTYPES[:2] for c in ALIGNMENTS], ("bfloat16", "bottom-right")]
)
def test_equals_the_reference_at_hostile_sizes(dtype: str, causal: str | None, combination: Combination):
    tested = kernel(Problem(20, 9, dtype, causal), combination)
    for n, (nq, nk) in enumerate(LENGTHS):
        tested.check(make_inputs(tested.problem, "plain", (*HEADS[n % 3], nq, nk), 0.3, seed=n), seed=n)


@each_combination
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_equals_the_reference_at_every_head_dim(head_dim: int, combination: Combination):
    """Storage type and mask go round; lengths around the tiles, primes and 0."""
    n = COMBINATIONS.index(combination) + HEAD_DIMS.index(head_dim)
    tested = kernel(Problem(head_dim, None, DTYPES[n // 3 % 3], ALIGNMENTS[n % 3]), combination)
    for nq, nk in ((BR - 1, BC - 1), (BR, BC), (BR + 1, BC + 1), (13, 29), (0, 5), (5, 0)):
        tested.check(make_inputs(tested.problem, "plain", (1, 2, 1, nq, nk), head_dim**-0.5, seed=n))


HOSTILE = tuple(kind for kind in KINDS if kind != "plain")


@each_combination
@pytest.mark.parametrize("dtype", DTYPES)
def test_equals_the_reference_on_hostile_values(dtype: str, combination: Combination):
    for causal in ("bottom-right", "top-left"):
        tested = kernel(Problem(20, 9, dtype, causal), combination)
        for n, kind in enumerate(HOSTILE):
            for scale in (0.5, -0.7):
                x = make_inputs(tested.problem, kind, (1, 4, 2, 17, 29), scale, seed=n)
                tested.check(x, seed=n)


@pytest.mark.parametrize("size", [{"batch": 0}, {"heads": (0, 2)}, {"heads": (0, 0)}])
@pytest.mark.parametrize("schedule", [FA1, FA2], ids=["fa1", "fa2"])
def test_nothing_to_do(schedule: Schedule, size: dict):
    tested = emitted(Problem(4), schedule)
    heads = size.get("heads", (2, 1))
    tested.check(make_inputs(tested.problem, "plain", (size.get("batch", 1), *heads, 3, 3), 1.0))


@pytest.mark.parametrize("combination", [("q-outer", True, True), ("kv-outer", False, False)], ids=str)
@pytest.mark.parametrize(("head_dim", "dtype"), [(64, "float16"), (80, "float32"), (256, "float16")])
def test_the_default_tiles(head_dim: int, dtype: str, combination: Combination):
    tested = kernel(Problem(head_dim, None, dtype, "bottom-right"), combination, None, None)
    assert tested.launch.shared_bytes <= 99 << 10
    tested.check(make_inputs(tested.problem, "plain", (1, 2, 1, 65, 131), head_dim**-0.5))


@pytest.mark.parametrize(("br", "bc"), [(1, 1), (5, 3), (1, 33), (33, 1), (130, 2), (3, 129)])
def test_any_tiles(br: int, bc: int):
    """Fewer rows than warps, more than threads; fewer columns than lanes, more than four lanes' worth."""
    for n, schedule in enumerate((FA1, FA2)):
        problem = Problem(3, 5, DTYPES[n], "bottom-right")
        tested = kernel(problem, (schedule.order, bool(n), bool(n)), br, bc)
        tested.check(make_inputs(problem, "plain", (1, 2, 1, br + 2, 2 * bc + 1), 0.5))


@given(st.data())
@settings(max_examples=16)
def test_any_problem_with_any_schedule(data: st.DataObject):
    """Small extents, many of them equal, so that values of all kinds follow each other in one buffer."""
    plain = {"panel": 0, "hoist_packs": False, "group_rows": False, "split_keys": 0}
    plain |= {"fetch_ahead": False, "products": "float32"}
    problem, schedule = data.draw(problems(dtypes=DTYPES)), replace(data.draw(schedules()), **plain)
    tested = emitted(problem, schedule)
    for _ in range(3):
        tested.check(data.draw(inputs(problem, schedule.br or 0, schedule.bc or 0)))


@pytest.mark.parametrize(
    "lay",
    [
        lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
        lambda x: x[:, :, ::-1].copy()[:, :, ::-1],
        lambda x: x.swapaxes(1, 2).copy().swapaxes(1, 2),
        lambda x: x.swapaxes(2, 3).copy().swapaxes(2, 3),
    ],
    ids=["spread", "reversed", "heads-inside", "transposed"],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_strides(dtype: str, lay):
    """Odd extents and strides of float16: nothing is aligned to more than 2 bytes."""
    for schedule in (FA1, FA2):
        tested = kernel(Problem(7, 5, dtype), (schedule.order, True, True))
        x = make_inputs(tested.problem, "plain", (2, 2, 2, 9, 13), 0.5)
        tested.check(strided(x, lay))
        for a, b in zip(tested.call(x)[:2], tested.call(strided(x, lay))[:2], strict=True):
            assert a.tobytes() == b.tobytes()


def test_heads_may_share_an_array_with_stride_0():
    tested = kernel(Problem(7, 5), ("q-outer", True, True))
    x = make_inputs(tested.problem, "plain", (1, 1, 1, 9, 13), 0.5)
    tested.check(strided(x, lambda a: np.broadcast_to(a, (2, 3, *a.shape[2:]))))


@pytest.mark.parametrize("lazy", [True, False], ids=["lazy", "eager"])
def test_order_and_skip_change_no_bit(lazy: bool):
    x = make_inputs(Problem(20, 9, causal="bottom-right"), "plain", (1, 4, 2, 29, 37), 0.3)
    results = set()
    for combination in COMBINATIONS:
        if combination[1] == lazy:
            o, lse, _ = kernel(Problem(20, 9, causal="bottom-right"), combination).call(x)
            results.add((o.tobytes(), lse.tobytes()))
    assert len(results) == 1


def test_one_visible_key_gives_its_value_to_the_bit():
    """F14: with one key the exponent at the maximum is 0 and its exponential 1, however large the score."""
    for schedule in (FA1, FA2):
        tested = kernel(Problem(64), (schedule.order, True, True))
        x = Inputs("one key", *(np.full((1, 1, 1, 64), 133120, np.float32) for _ in range(3)), 0.1)
        o, _, report = tested.call(x)
        assert report.clean and (o == 133120).all()


@pytest.mark.parametrize(("dtype", "one"), [("float16", 0x3C00), ("bfloat16", 0x3F80)])
def test_what_is_stored_rounds_to_the_nearest_even(dtype: str, one: int):
    """Averages of two neighbours lie half way between them."""
    tested = kernel(Problem(4, 64, dtype), ("q-outer", True, True))
    v = np.array([np.arange(64), np.arange(64) + 1], np.uint16)[None, None] + one
    q, k = (np.zeros((1, 1, n, 4), STORAGE[dtype]) for n in (1, 2))
    o, _, _ = tested.call(Inputs("halves", q, k, v.view(STORAGE[dtype]), 1.0))
    even = np.arange(64) + np.arange(64) % 2 + one
    np.testing.assert_array_equal(o.view(np.uint16).ravel(), even)


BARRIER = re.compile(r"__sync(threads|warp)\(\);")


@each_combination
def test_each_barrier_is_needed(combination: Combination):
    """The race detector sees it when one of them is missing: the one that lse's fourth stride numbers."""
    problem = Problem(20, 9, causal="bottom-right")
    tested, numbers = kernel(problem, combination), count(1)
    source = BARRIER.sub(lambda m: f"if (lse_tensor.stride[3] != {next(numbers)}) {m[0]}", tested.source)
    barriers = next(numbers) - 1
    assert barriers >= 6
    lengths = (37, 61), (13, 37), (61, 7), (9, 0)
    tried = [make_inputs(problem, "plain", (1, 1, 1, *n), 0.3) for n in lengths]
    assert all(tested.call(x, source, barriers + 1)[2].clean for x in tried)
    unseen = [n for n in range(1, barriers + 1) if not any(tested.call(x, source, n)[2].races for x in tried)]
    assert not unseen, f"nobody misses the barriers {unseen} of {tested.name}"


@pytest.mark.parametrize("schedule", [FA1, FA2], ids=["fa1", "fa2"])
def test_compiled_and_called_from_python(schedule: Schedule, monkeypatch: pytest.MonkeyPatch):
    """The launcher has the kernel's own launch plan; a stand-in for CuPy runs it."""
    cupy = Double()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setenv("FLASHGEN_CACHE_DIR", str(CACHE))
    problem = Problem(20, 9, causal="bottom-right")
    tested = flashgen.compile(problem, replace(schedule, br=BR, bc=BC), "cuda")
    x = make_inputs(problem, "plain", (2, 4, 2, 17, 29), 0.3)
    o, lse = tested(x.q, x.k, x.v, scale=x.scale)
    assert [report.message for report in cupy.reports] == [""]
    want = attention(problem, x.q, x.k, x.v, x.scale)
    bound(problem, x.q, x.k, x.v, x.scale).check(o, lse, *want)


def test_the_header_says_how_to_launch_it():
    kv_outer = kernel(Problem(20, 9, "float16"), ("kv-outer", False, False))
    for line in (
        "q    (B, Hq, Nq, 20)   float16, any strides, as all arrays",
        "workspace  on the device, blocks * (Nq * 9 + Nq + Nq) float32",
        "blocks         B * Hkv * group, in one dimension",
        "threads        128 a block",
        f"shared memory  {kv_outer.launch.shared_bytes} bytes a block, dynamic",
        "-fmad=false",
        "flashgen emit --target cuda --head-dim 20 --head-dim-v 9 --dtype float16 --order kv-outer",
    ):
        assert line in kv_outer.source
    q_outer = kernel(Problem(20, 9), ("q-outer", True, True)).source
    assert "workspace  not used: null" in q_outer and "cuda_fp16" not in q_outer and "bf16" not in q_outer
    assert f"blocks         B * Hkv * group * ceil(Nq / {BR})" in q_outer
