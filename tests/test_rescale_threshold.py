"""rescale-threshold: what it keeps, interpreted and compiled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flashgen.errors import InvalidArgument
from flashgen.ir.compute import HoldOp
from flashgen.ir.dialect import parse
from flashgen.passes.pipeline import parse_passes, run
from flashgen.problem import ALIGNMENTS, Problem
from flashgen.reference import attention, bound
from flashgen.schedule import MAX_THRESHOLD, ORDERS, Schedule
from flashgen.targets.cpu import Cpu
from tests.compiled import TARGETS, Build, kernels
from tests.compiled import call as run_kernel
from tests.head import carried
from tests.modules import call, check, final, stages
from tests.strategies import OFFSETS, Inputs, make_inputs

D, DV, BR, BC = 3, 5, 4, 6
THRESHOLDS = (0.5, 8.0, float(MAX_THRESHOLD))
LOG2_E = np.log2(np.e)

each_order = pytest.mark.parametrize("order", ORDERS)
each_mask = pytest.mark.parametrize("causal", ALIGNMENTS)
each_threshold = pytest.mark.parametrize("threshold", THRESHOLDS)
each_target = pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)


def schedule(order: str, threshold: float) -> Schedule:
    """For the interpreter."""
    return Schedule(order, BR, BC, True, True, 4, True, False, threshold, 0, True)


def climb(problem: Problem, rises: np.ndarray, nq: int, bc: int, scale: float = 1.0) -> Inputs:
    """Row maxima that rise, from one tile of keys to the next, by these numbers of units of log2."""
    heights = np.concatenate([[0.0], np.cumsum(rises)]) / LOG2_E / scale
    x = make_inputs(problem, "plain", (1, 4, 2, nq, bc * len(heights)), scale, seed=3)
    x.q[...] *= np.float32(0.1)
    x.q[..., 0], x.k[..., 0] = 1, heights.repeat(bc)
    return x


CLIMBS = {
    "not at all": np.zeros(4),
    "less than any threshold, often": np.full(9, 0.4),
    "to just below 8, again and again": np.full(9, 7.9),
    "by just above 8": np.full(9, 8.1),
    "slowly past 64": np.full(20, 5.0),
    "up and down": np.array([60.0, -60.0, 3.0, 70.0, -100.0, 130.0]),
    "far": np.array([1e4, 1.0, 63.0, 1e5]),
}


def hostile(problem: Problem, nq: int, nk: int) -> list[Inputs]:
    kinds = ("plain", *OFFSETS, "rising", "falling", "nan_q", "nan_k", "nan_v", "hidden")
    found = [make_inputs(problem, kind, (1, 4, 2, nq, nk), 0.7, seed=5) for kind in kinds]
    nothing = make_inputs(problem, "plain", (1, 4, 2, nq, nk), 1.0)  # rows of -inf, at first or throughout
    nothing.q[..., 0], nothing.k[..., : nk // 2, 0] = 1, -np.inf
    all_of_it = replace(nothing, k=np.where(np.arange(problem.head_dim) == 0, -np.inf, nothing.k))
    infinite = replace(nothing, k=np.where(np.arange(nk)[:, None] == nk // 2, np.inf, nothing.k))
    return [*found, nothing, all_of_it, infinite]


@pytest.mark.parametrize(
    ("order", "causal", "threshold"),
    [(order, ALIGNMENTS[n], THRESHOLDS[(n + k) % 3]) for k, order in enumerate(ORDERS) for n in range(3)],
)
def test_every_pass_keeps_the_meaning(order: str, causal: str | None, threshold: float) -> None:
    problem = Problem(D, DV, causal=causal)
    modules = stages(problem, schedule(order, threshold))
    assert "rescale-threshold" in modules
    for name, module in list(modules.items())[list(modules).index("rescale-threshold") :]:
        for x in [climb(problem, CLIMBS["up and down"], 9, BC), *hostile(problem, 9, 13)]:
            try:
                check(module, problem, x)
            except AssertionError as e:
                raise AssertionError(f"after {name}, {x}: {e}") from e


@each_order
@each_threshold
@pytest.mark.parametrize("how", CLIMBS)
def test_in_float32_it_is_within_the_one_bound(order: str, threshold: float, how: str) -> None:
    problem = Problem(D, DV)
    module = final(problem, schedule(order, threshold))
    for scale in (1.0, 0.25, -1.0):
        check(module, problem, climb(problem, CLIMBS[how], 5, BC, scale), np.float32)


SCHEDULES = [
    Schedule(order, 5, 7, rescale_threshold=threshold)
    for order, threshold in zip((*ORDERS, "q-outer"), THRESHOLDS, strict=True)
]


@each_target
@each_mask
def test_compiled_it_is_within_the_one_bound(target: Cpu, causal: str | None) -> None:
    problem = Problem(D, DV, causal=causal)
    inputs = [climb(problem, rises, 9, 7, scale) for rises in CLIMBS.values() for scale in (1.0, -0.5)]
    for kernel in kernels(Build(target), tuple((problem, s) for s in SCHEDULES)):
        for x in [*inputs, *hostile(problem, 9, 13)]:
            scale = float(np.float32(x.scale))
            with np.errstate(invalid="ignore"):
                want = attention(problem, x.q, x.k, x.v, scale)
            bound(problem, x.q, x.k, x.v, scale).check(*run_kernel(kernel, x), *want)


def same_bits(a: tuple[np.ndarray, ...], b: tuple[np.ndarray, ...]) -> bool:
    return all(
        np.array_equal(x.view(np.uint32), y.view(np.uint32)) for x, y in zip(a[:2], b[:2], strict=True)
    )


@each_order
@each_threshold
def test_where_every_move_is_far_or_none_is_made_no_bit_changes(order: str, threshold: float) -> None:
    """A maximum that never moves again is held by both; one that moves by more is followed by both."""
    problem = Problem(D, DV)
    exact, held = (final(problem, schedule(order, t)) for t in (0.0, threshold))
    for rises in (
        np.full(5, -1.0),
        np.full(5, -90.0),
        np.full(5, threshold + 4),
        np.array([-7.0, 80.0, -3.0]),
    ):
        x = climb(problem, rises, 5, BC)
        assert same_bits(*(call(m, problem, x, np.float32) for m in (exact, held)))


@each_order
def test_where_it_moves_little_it_is_held(order: str) -> None:
    """Else the tests above would show nothing."""
    problem = Problem(D, DV)
    x = climb(problem, np.full(9, 0.4), 5, BC)
    exact, held, near = (final(problem, schedule(order, t)) for t in (0.0, 8.0, 0.01))
    assert not same_bits(*(call(m, problem, x, np.float32) for m in (exact, held)))
    assert same_bits(*(call(m, problem, x, np.float32) for m in (exact, near)))


@each_target
def test_compiled_no_bit_changes_where_no_rescaling_is_spared(target: Cpu) -> None:
    problem = Problem(D, DV)
    pair = (Schedule("q-outer", 5, 7), Schedule("q-outer", 5, 7, rescale_threshold=8.0))
    exact, held = kernels(Build(target), tuple((problem, s) for s in pair))
    for rises in (np.full(5, -1.0), np.full(5, 12.0), np.array([-7.0, 80.0, -3.0])):
        x = climb(problem, rises, 9, 7)
        assert same_bits(run_kernel(exact, x), run_kernel(held, x))
    x = climb(problem, np.full(9, 0.4), 9, 7)
    assert not same_bits(run_kernel(exact, x), run_kernel(held, x))


@each_target
def test_values_up_to_2_to_the_63_over_nk_do_not_overflow(target: Cpu) -> None:
    """The sum reaches Nk 2^64, and acc that times the largest value; beyond, it does overflow."""
    problem = Problem(D, DV)
    kernel = kernels(Build(target), ((problem, Schedule("q-outer", 5, 7, rescale_threshold=64.0)),))[0]
    x = climb(problem, np.array([63.5, 0.0, 0.0]), 9, 7)
    nk = x.k.shape[2]
    for largest, fits in ((2.0**63 / nk, True), (2.0**127 / nk, False)):
        y = replace(x, v=np.full_like(x.v, largest))
        assert np.isfinite(run_kernel(kernel, y)[0]).all() == fits


def test_what_is_allowed() -> None:
    for bad in (-1, 64.5, float("nan"), float("inf"), True, "8", None):
        with pytest.raises(InvalidArgument, match="a number from 0 to 64 is allowed"):
            Schedule(rescale_threshold=bad)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidArgument, match="threshold is 65; a number from 0 to 64"):
        run(parse(carried()), parse_passes("rescale-threshold{threshold=65}"))
    with pytest.raises(InvalidArgument, match=r"rescale_threshold is 8\.0; it needs lazy_rescale"):
        Schedule(lazy_rescale=False, rescale_threshold=8.0)
    base = Schedule("q-outer", 4, 4, panel=4, hoist_packs=False, group_rows=False, split_keys=0)
    names = {replace(base, rescale_threshold=t).name for t in (0, 8, 8.5, 0.1, 1e-5)}
    assert len(names) == 5
    assert all(name.isidentifier() for name in names)
    assert Schedule(rescale_threshold=8) == Schedule(rescale_threshold=8.0)


def test_the_reference_is_what_is_carried() -> None:
    module = final(Problem(8, causal="bottom-right"), schedule("q-outer", 8.0))
    holds = [op for op in module.walk() if isinstance(op, HoldOp)]
    assert len(holds) == 2, "of the loop without a mask, and of the one with it"
