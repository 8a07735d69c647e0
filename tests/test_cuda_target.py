"""The CUDA target: shared memory as the plan has it, tiles that fit, launches that follow from the plan."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashgen import emission
from flashgen.errors import CannotEmit, InvalidArgument, TargetLimit
from flashgen.plan.launch import Sizes, Trips, launch_plan
from flashgen.plan.model import KernelPlan, Operand, Statement
from flashgen.problem import Problem
from flashgen.schedule import FA1, FA2, ORDERS, Schedule
from flashgen.targets.cuda import Cuda

TARGET = Cuda()

head_dims = st.integers(1, 300)
tiles = st.sampled_from((1, 2, 3, 5, 8, 13, 16, 32))


@given(
    st.builds(Problem, head_dims, head_dims, causal=st.sampled_from((None, "bottom-right"))),
    st.builds(Schedule, st.sampled_from(ORDERS), tiles, tiles, st.booleans(), st.booleans()),
)
@settings(max_examples=60)
def test_the_plan_takes_what_the_target_counts(problem: Problem, schedule: Schedule):
    """At most; and not much less, if no two values have the same size and so share memory."""
    assert schedule.br is not None and schedule.bc is not None
    schedule = TARGET.complete(problem, schedule)
    launch = emission.emit(problem, schedule, TARGET).launch
    assert launch is not None
    counted = TARGET.shared(problem, schedule, schedule.br or 0, schedule.bc or 0)
    assert launch.shared_bytes <= counted
    d, dv, bc = (n | 1 for n in (problem.head_dim, problem.head_dim_v, schedule.bc or 0))
    br = schedule.br or 0
    sizes = [br * d, br * dv, (schedule.bc or 0) * d, (schedule.bc or 0) * dv, br * bc, br]
    if len(set(sizes)) == len(sizes):
        assert counted - launch.shared_bytes < 64


@pytest.mark.parametrize("head_dim", [32, 64, 80, 128, 256])
@pytest.mark.parametrize("lazy", [True, False])
@pytest.mark.parametrize("order", ORDERS)
def test_default_tiles_run_on_every_gpu_and_are_not_tiny(order: str, lazy: bool, head_dim: int):
    filled = TARGET.complete(Problem(head_dim), Schedule(order, lazy_rescale=lazy))
    assert filled.br and filled.bc and filled.br * filled.bc >= 256
    assert TARGET.shared(Problem(head_dim), filled, filled.br, filled.bc) <= 99 << 10
    larger = (2 * filled.br, filled.bc), (filled.br, 2 * filled.bc)
    assert (filled.br, filled.bc) == (64, 64) or any(
        TARGET.shared(Problem(head_dim), filled, *tile) > 99 << 10 for tile in larger
    )


def test_a_given_tile_size_is_kept():
    assert TARGET.complete(Problem(64), Schedule(br=100)).br == 100
    assert TARGET.complete(Problem(64), Schedule(bc=100)).bc == 100
    assert TARGET.complete(Problem(64), Schedule(br=64, bc=96)).bc == 96


@pytest.mark.parametrize(
    ("problem", "br", "bc", "message"),
    [
        (
            Problem(64),
            256,
            64,
            "tiles 256 x 64 need 242176 bytes of shared memory; "
            "target cuda allows 166912: 163 x 64 or 256 x 15 fit",
        ),
        (Problem(64), 128, 128, r"128 x 128 need .*: \d+ x 128 or 128 x \d+ fit"),
        (Problem(64), 10**9, 10**9, "64 x 64 fit"),
        (Problem(64), None, 10**9, r"1 x \d+ fit"),
        (Problem(30000), None, None, "head_dim 30000 and head_dim_v 30000 are too large for any tile"),
    ],
)
def test_tiles_that_do_not_fit(problem: Problem, br: int | None, bc: int | None, message: str):
    with pytest.raises(TargetLimit, match=message) as refused:
        TARGET.complete(problem, Schedule(br=br, bc=bc))
    named = str(refused.value).rpartition(": ")[2].removesuffix(" fit").split(" or ")
    for words in named if br and br < 1000 else ():
        fits = [int(word) for word in words.split(" x ")]
        assert TARGET.complete(problem, Schedule(br=fits[0], bc=fits[1]))
        grown = [fits[0] + (fits[0] != br), fits[1] + (fits[1] != bc)]
        with pytest.raises(TargetLimit):
            TARGET.complete(problem, Schedule(br=grown[0], bc=grown[1]))


def test_panels_are_refused():
    as_loaded = "target cuda reads K and V as loaded"
    with pytest.raises(InvalidArgument, match=f"panel is 16; {as_loaded}: panel 0"):
        TARGET.complete(Problem(64), Schedule(panel=16))
    with pytest.raises(InvalidArgument, match=f"hoist_packs is True; {as_loaded}: hoist_packs False"):
        TARGET.complete(Problem(64), Schedule(hoist_packs=True))


def test_launches():
    problem, sizes = Problem(64, 40), Sizes(2, 6, 3, 65, 7)
    outer = emission.emit(problem, FA2, TARGET).launch
    assert outer and outer.grid == (Trips("B"), Trips("Hkv"), Trips("group"), Trips("Nq", 64))
    assert (outer.blocks(sizes), outer.threads, outer.workspace) == (2 * 3 * 2 * 2, 128, ())
    inner = emission.emit(problem, FA1, TARGET).launch
    assert inner and inner.grid == (Trips("B"), Trips("Hkv"), Trips("group"))
    assert sorted(map(str, inner.workspace)) == ["('Nq', 40)", "('Nq',)", "('Nq',)"]
    assert inner.workspace_elements(sizes) == 12 * 65 * 42
    for launch in (outer, inner):
        assert launch.shared_bytes <= TARGET.shared_default


def test_an_extent_that_is_no_size_of_a_call():
    width = Operand("scalar", "width", element="index")
    step = Operand("constant", "1", value=1)
    parallel = Statement("scf_parallel", attrs={"extents": [width], "steps": [step], "shared": False})
    with pytest.raises(CannotEmit, match="width is not a size of a call"):
        launch_plan(KernelPlan([], [], [parallel]), 128)
