"""flashgen bench --ablate: what can be switched off, and what is printed of it."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from flashgen.bench import ablation_report
from flashgen.bench.ablation import APART, OFF, PARTS, Ablated, switch_off, switches
from flashgen.bench.cases import Case, parse_shape
from flashgen.bench.measure import expect
from flashgen.bench.prepare import make_arrays, prepare
from flashgen.bench.report import Notes
from flashgen.bench.results import Results
from flashgen.bench.tasks import FAILED, RIGHT, WHOLE, WITHOUT, Row
from flashgen.emission import Emitted
from flashgen.errors import FlashgenError, InvalidArgument
from flashgen.schedule import Schedule
from flashgen.targets.cpu import Avx2, Avx512, Cpu
from tests.bench_cases import TINY
from tests.compiled import quick_compiler
from tests.sample_kernel import skip_unless_it_runs
from tests.test_bench import DISTURBED, QUIET, made_up

CASE = parse_shape("1,2,2,40,40,8,causal")
REFUSALS = ("IllegalPass: ", "CannotEmit: ", "InvalidArgument: ")


Made = dict[str, tuple[Emitted, Cpu] | FlashgenError]


@pytest.fixture(scope="module")
def made() -> Made:
    """What becomes of each switch, and of none; emitted once for all tests."""
    found: Made = {}
    for name in ("", *switches(CASE.problem, Avx2())):
        try:
            found[name] = Ablated(1, Avx2(), name).emit(CASE)
        except FlashgenError as refusal:
            found[name] = refusal
    return found


def test_ablation(made: Made) -> None:
    """Each switch makes a kernel that is right, or says why it cannot."""
    skip_unless_it_runs(Avx2())

    class AlreadyMade(Ablated):
        def emit(self, case: Case) -> tuple[Emitted, Cpu]:
            if isinstance(kernel := made[self.switch], FlashgenError):
                raise kernel
            return kernel

    arrays = make_arrays(CASE)
    expected = expect(CASE.problem, *arrays, CASE.head_dim**-0.5)
    right = set()
    with quick_compiler():
        for name in made:
            row, _ = prepare(AlreadyMade(1, Avx2(), name), CASE, arrays, expected, Row("", 1, name, 1))
            assert row.state == RIGHT or row.note.startswith(REFUSALS), row
            right |= {name} if row.state == RIGHT else set()
    assert right >= {"order", "lazy_rescale", "causal_skip", "panel", "keep-state"}
    assert right >= {"fold-scale", "nan-in-sum", "accumulate", *APART, *PARTS}


def test_switches(made: Made) -> None:
    assert {"order", "lazy_rescale", "causal_skip", "panel", "fuse-sweeps", "accumulate"} < made.keys()
    assert {"micro-tiles", "rescale-skip"} < made.keys()
    assert not {"lazy-rescale", "causal-skip", "pack"} & made.keys()  # their fields say it


def test_each_switch_makes_another_kernel(made: Made) -> None:
    kernels = {name: kernel for name, kernel in made.items() if not isinstance(kernel, FlashgenError)}
    assert len({code(emitted) for emitted, _ in kernels.values()}) == len(kernels)
    assert {name for name, (_, target) in kernels.items() if target.name != "avx2"} == set(PARTS)


def code(emitted: Emitted) -> str:
    """Without remarks and the kernel's name, which tell of what was asked for."""
    lines = emitted.source.replace(emitted.name, "").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("//"))


@pytest.mark.parametrize("target", [Avx2(), Avx512()], ids=lambda target: target.name)
def test_rows_whose_factor_is_1_are_left_alone_unless_that_is_switched_off(target: Cpu) -> None:
    whole, skipping = Ablated(1, target).emit(CASE)[0].source, "if (factor[r] != real(1))"
    without = Ablated(1, target, "rescale-skip").emit(CASE)[0].source
    assert skipping in whole
    assert skipping not in without
    assert whole.count("scale_rows(") == without.count("scale_rows(") > 1  # the function and its calls


def test_every_choice_of_a_schedule_is_a_switch() -> None:
    """Whoever adds a field adds the value that switches it off."""
    sizes = {"br", "bc"}
    assert {field.name for field in fields(Schedule)} - sizes == set(OFF)


def test_what_is_off_is_not_switched_off() -> None:
    with pytest.raises(
        InvalidArgument, match="causal_skip is False; it is off in this kernel already; only what is on"
    ):
        switch_off(Schedule(br=4, bc=4, panel=16, causal_skip=False), "causal_skip")


def test_ablation_report() -> None:
    milliseconds = {WHOLE: 1, f"{WITHOUT}order": 1.5, f"{WITHOUT}panel": 1}
    rows = [made_up(TINY, 1, method, taken) for method, taken in milliseconds.items()]
    rows.append(Row(TINY.name, 1, f"{WITHOUT}base-2", 1, state=FAILED, note="CannotEmit: no exp"))
    few = [QUIET] * 4 + [DISTURBED] * 5
    rows.append(replace(made_up(TINY, 1, f"{WITHOUT}pack", 2), probes=few))
    results, notes = Results(rows, [TINY], WHOLE), Notes()
    table = ablation_report.make_table(results, notes)
    assert [list(column.cells) for column in table.columns] == [
        [WHOLE, "order", "panel", "base-2", "pack"],
        [
            "10.0 GFLOP/s, 0.20 of peak",
            "1.50 1.50-1.50  ",
            "1.00 1.00-1.00 ?",
            "failed [1]",
            "~2.00 2.00-2.00 ?",
        ],
    ]
    assert notes.lines() == ["[1] CannotEmit: no exp"]
    assert "4 to 9 turns each count" in ablation_report.summary(results, "cpu")
