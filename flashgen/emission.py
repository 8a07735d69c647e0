"""Problem and schedule -> the file of one kernel, through every stage between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

from xdsl.passes import ModulePass

from flashgen.errors import InvalidArgument
from flashgen.passes.pipeline import After, lower
from flashgen.plan.barriers import with_barriers
from flashgen.plan.launch import LaunchPlan, launch_plan
from flashgen.plan.model import KernelPlan
from flashgen.plan.planner import plan
from flashgen.problem import Problem
from flashgen.render import Walker, languages
from flashgen.schedule import Schedule
from flashgen.targets.base import Target


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
    schedule = target.complete(problem, schedule)
    name, language = variant(problem, schedule, target), languages(target.language)
    kernel = kernel_plan(problem, schedule, target, passes, after)
    launch = launch_plan(kernel, target.block_threads) if target.block_threads else None
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
        schedule=schedule,
        target=target,
        layers=[f"{target.language}/{name}" for name in target.layers(problem, kernel)],
        kernel=kernel,
        launch=launch,
        body=body,
        extents=walker.extents(),
        with_main=with_main,
        limits=limits(problem) if with_main else None,
    )
    return Emitted(name, schedule, source, launch)


def limits(problem: Problem) -> dict[str, float]:
    """The constants of the reference's bound, for results of this problem's kernels."""
    from flashgen.reference import ROUNDOFF, SMALLEST, C

    return {
        "C": float(C),
        "u": ROUNDOFF[problem.computed],
        "u_out": ROUNDOFF[problem.dtype],
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
    kernel = plan(module, target.layout(problem), languages(target.language).reserved)
    return with_barriers(kernel) if target.block_threads else kernel


def variant(problem: Problem, schedule: Schedule, target: Target) -> str:
    """The kernel's name, made of every field of a complete schedule: a file name and a C identifier."""
    return f"{problem.name}_{schedule.name}_{target.name}"


def command(problem: Problem, schedule: Schedule, target: Target) -> str:
    """The command line that emits this kernel."""
    words = ["flashgen emit", f"--target {target.name}", f"--head-dim {problem.head_dim}"]
    if problem.head_dim_v != problem.head_dim:
        words.append(f"--head-dim-v {problem.head_dim_v}")
    words.append(f"--dtype {problem.dtype}")
    if problem.causal:
        words.append(f"--causal {problem.causal}")
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
    return " ".join(words)
