"""Problem and schedule -> the file of one kernel, through every stage between."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from importlib.metadata import version

from xdsl.passes import ModulePass

from flashgen.errors import InvalidArgument
from flashgen.expression import Expression
from flashgen.layouts import LAYOUTS, MEANINGS
from flashgen.notation import declare
from flashgen.passes.pipeline import After, lower
from flashgen.plan.barriers import with_barriers
from flashgen.plan.launch import LaunchPlan, launch_plan
from flashgen.plan.model import KernelPlan
from flashgen.plan.planner import plan
from flashgen.problem import Problem
from flashgen.render import Walker, languages
from flashgen.schedule import Schedule
from flashgen.targets.base import Target

MODS = ("mask", "score", "sink")
"""What a problem may have beside the numbers that a command line states."""


@dataclass(frozen=True)
class Emitted:
    """A kernel as text.

    name: of the variant, and of its function. schedule: complete.
    launch: grid and memory, on targets that launch blocks of threads; else None.
    """

    name: str
    schedule: Schedule
    source: str
    launch: LaunchPlan | None


def emit(
    problem: Problem,
    schedule: Schedule,
    target: Target,
    with_main: bool = False,
    passes: Sequence[ModulePass] | None = None,
    after: After | None = None,
) -> Emitted:
    """The whole file for one kernel. The schedule's open fields are filled by the target.

    with_main: add a ``main`` that checks the kernel on random input; of C++ only.
    passes: to run in place of the schedule's own: an experiment, as its header says.
    after: sees the module as built, under "build", and as each pass leaves it.

    Raises InvalidArgument or TargetLimit where the two do not fit, IllegalPass where a pass refuses.
    """
    if with_main and target.language != "cpp":
        raise InvalidArgument("with_main", with_main, f"target {target.name} has none; those in C++ do")
    if with_main and problem.layout != "dense":
        allowed = "layout 'dense' is allowed: the program knows no sequences of different lengths"
        raise InvalidArgument("with_main", with_main, allowed)
    if with_main and (problem.mask is not None or problem.score is not None or problem.sink):
        allowed = "a problem without mask, score and sink is allowed: the program knows no other definition"
        raise InvalidArgument("with_main", with_main, allowed)
    schedule = target.complete(problem, schedule)
    name, language = variant(problem, schedule, target), languages(target.language)
    kernel = kernel_plan(problem, schedule, target, passes, after)
    launch = (
        launch_plan(kernel, target.block_threads, LAYOUTS[problem.layout].shapes)
        if target.block_threads
        else None
    )
    walker = Walker(language, kernel)
    body = walker.block(kernel.body)
    source = language.environment.get_template(f"{target.language}/kernel.jinja").render(
        name=name,
        command=command(problem, schedule, target)
        + (" --with-main" if with_main else "")
        + (
            f", but with the passes {','.join(str(p.pipeline_pass_spec()) for p in passes)}" if passes else ""
        ),
        version=version("flashgen"),
        problem=problem,
        stated=stated(problem),
        **documented(problem),
        schedule=schedule,
        target=target,
        layers=[f"{target.language}/{name}" for name in target.layers(problem, kernel)],
        kernel=kernel,
        launch=launch,
        body=body,
        extents=walker.extents(),
        with_main=with_main,
        limits=limits(problem, schedule.products) if with_main else None,
    )
    return Emitted(name, schedule, source, launch)


def limits(problem: Problem, products: str) -> dict[str, float]:
    """The constants of the reference's bound, for results of this problem's kernels."""
    from flashgen.reference import ROUNDOFF, SMALLEST, C, max_roundoff

    return {
        "C": float(C),
        "u": ROUNDOFF[problem.computed],
        "u_p": ROUNDOFF[max_roundoff(products, problem.computed)],
        "u_out": ROUNDOFF[max_roundoff(problem.dtype, problem.computed)],
        "smallest": SMALLEST[problem.dtype],
    }


def source(problem: Problem, schedule: Schedule, target: Target, with_main: bool = False) -> str:
    """The text of ``emit``."""
    return emit(problem, schedule, target, with_main).source


def kernel_plan(
    problem: Problem,
    schedule: Schedule,
    target: Target,
    passes: Sequence[ModulePass] | None = None,
    after: After | None = None,
) -> KernelPlan:
    """What is emitted for a complete schedule; ``passes`` in place of its own, ``after`` sees each stage."""
    module = lower(problem, schedule, after, passes)
    tensors = {f"{array.name}_tensor" for array in problem.arrays}  # as the kernel's parameters are called
    kernel = plan(module, target.layout(problem), languages(target.language).reserved | tensors)
    return with_barriers(kernel) if target.block_threads else kernel


def variant(problem: Problem, schedule: Schedule, target: Target) -> str:
    """The kernel's name, made of every field of a complete schedule: a file name and a C identifier."""
    return f"{problem.name}_{schedule.name}_{target.name}"


def documented(problem: Problem) -> dict[str, object]:
    """What a header says of arguments. shapes: of arrays, by name. sequences: lines on the arrays that tell
    sequences apart. others: the other arrays that it reads."""
    layout = LAYOUTS[problem.layout]
    numbers = {"D": str(problem.head_dim), "Dv": str(problem.head_dim_v)}
    shapes = {n: ", ".join(numbers.get(d, d) for d in dims) for n, dims in layout.shapes.items()}
    lines = [f"{a.name} ({shapes[a.name]})   {a.dtype}; {MEANINGS[a.name]}" for a in layout.arrays]
    others = [a for a in problem.arrays if a not in layout.arrays]
    return {"shapes": shapes, "sequences": lines, "others": others}


def stated(problem: Problem) -> str:
    """The problem in one line, expressions as Python writes them, without what is not asked for."""
    parts = {f.name: getattr(problem, f.name) for f in fields(problem)}
    usual = {**dict.fromkeys(MODS), "sink": False, "layout": "dense"}
    shown = [
        f"{n}={v if isinstance(v, Expression) else repr(v)}"
        for n, v in parts.items()
        if n not in usual or v != usual[n]
    ]
    return f"Problem({', '.join(shown)})"


def command(problem: Problem, schedule: Schedule, target: Target) -> str:
    """The command line that emits this kernel."""
    words = ["flashgen emit", f"--target {target.name}", f"--head-dim {problem.head_dim}"]
    if problem.head_dim_v != problem.head_dim:
        words.append(f"--head-dim-v {problem.head_dim_v}")
    words.append(f"--dtype {problem.dtype}")
    if problem.causal:
        words.append(f"--causal {problem.causal}")
    if problem.layout != "dense":
        words.append(f"--layout {problem.layout}")
    for option, e in (("--mask", problem.mask), ("--score", problem.score)):
        if e is not None:
            words.append(f"{option} {shlex.quote(str(e))}")
    if read := [*problem.read_arrays, *problem.scalars]:
        words.append(f"--inputs {shlex.quote(declare(read))}")
    if problem.sink:
        words.append("--sink")
    words += [f"--order {schedule.order}", f"--br {schedule.br}", f"--bc {schedule.bc}"]
    words.append("--lazy-rescale" if schedule.lazy_rescale else "--no-lazy-rescale")
    if schedule.rescale_threshold:
        words.append(f"--rescale-threshold {schedule.rescale_threshold}")
    words.append("--causal-skip" if schedule.causal_skip else "--no-causal-skip")
    words.append(f"--panel {schedule.panel}")
    words.append("--hoist-packs" if schedule.hoist_packs else "--no-hoist-packs")
    words.append("--group-rows" if schedule.group_rows else "--no-group-rows")
    if schedule.split_keys:
        words.append(f"--split-keys {schedule.split_keys}")
    if schedule.fetch_ahead:
        words.append("--fetch-ahead")
    if schedule.products != "float32":
        words.append(f"--products {schedule.products}")
    return " ".join(words)
