"""`flashgen emit`: the source of a kernel, or the modules that it comes from."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from flashgen.cli.modifiers import make_problem
from flashgen.cli.options import (
    Alibi,
    Bc,
    Br,
    Causal,
    CausalSkip,
    FetchAhead,
    GroupRows,
    HoistPacks,
    Inputs,
    LazyRescale,
    Mask,
    MaskMod,
    Order,
    Panel,
    Products,
    RescaleThreshold,
    Score,
    ScoreMod,
    Sink,
    Softcap,
    SplitKeys,
    Window,
    make_schedule,
)
from flashgen.cli.output import print_stage, write_text
from flashgen.errors import InvalidArgument, check_one
from flashgen.layouts import LAYOUTS
from flashgen.problem import DTYPES, Problem
from flashgen.schedule import Schedule
from flashgen.targets import TARGETS, find
from flashgen.targets.base import Target


def emit(
    target: Annotated[str, typer.Option(metavar="|".join(TARGETS), help="The machine to emit for.")] = "avx2",
    head_dim: Annotated[
        int, typer.Option("--head-dim", "-d", metavar="D", help="Length of a query and of a key.")
    ] = 64,
    head_dim_v: Annotated[
        int | None, typer.Option("--head-dim-v", metavar="DV", help="Length of a value.", show_default="D")
    ] = None,
    dtype: Annotated[
        str,
        typer.Option(
            metavar="|".join(DTYPES), help="Storage of q, k, v and o; arithmetic is float32 or float64."
        ),
    ] = "float32",
    causal: Causal = None,
    window: Window = None,
    mask: Mask = None,
    mask_mod: MaskMod = None,
    softcap: Softcap = None,
    score: Score = None,
    score_mod: ScoreMod = None,
    alibi: Alibi = False,
    inputs: Inputs = None,
    sink: Sink = False,
    layout: Annotated[
        str,
        typer.Option(
            metavar="|".join(LAYOUTS),
            help="How sequences lie: all of one length, packed one behind the other, keys in pages, or both.",
        ),
    ] = "dense",
    order: Order = "q-outer",
    br: Br = None,
    bc: Bc = None,
    lazy_rescale: LazyRescale = True,
    causal_skip: CausalSkip = True,
    panel: Panel = None,
    hoist_packs: HoistPacks = None,
    group_rows: GroupRows = None,
    rescale_threshold: RescaleThreshold = 0.0,
    split_keys: SplitKeys = None,
    fetch_ahead: FetchAhead = None,
    products: Products = "float32",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write there, unless the same stands there already. In a folder, the name is the kernel's.",
        ),
    ] = None,
    with_main: Annotated[
        bool, typer.Option("--with-main", help="Add a main that checks the kernel on random input (C++).")
    ] = False,
    print_ir: Annotated[
        bool, typer.Option("--print-ir", help="Print the final module instead of the source.")
    ] = False,
    print_ir_after: Annotated[
        str | None,
        typer.Option(
            metavar="PASS",
            help='Print the module that this pass leaves instead; "build" is FlashAttention-1 as stated.',
        ),
    ] = None,
    print_ir_after_all: Annotated[
        bool,
        typer.Option("--print-ir-after-all", help="Print the module after each pass too, on standard error."),
    ] = False,
) -> None:
    """Print a kernel as C++ or CUDA.

    It is one file that needs its compiler's own headers, the C library's, and nothing else. --print-ir and
    --print-ir-after print a module of the tile IR that it comes from in its place.

    Scores are capped, replaced and biased in the order --softcap, --score, --score-mod, --alibi; a row sees
    what --causal, --window, --mask and --mask-mod all show it. Bounds, caps, slopes and arrays are run-time
    arguments of the kernel.

    \b
    Examples:
      flashgen emit --target cuda --order q-outer
      flashgen emit --target avx512 -d 128 --causal -o attention.cpp
      flashgen emit --with-main -o check.cpp
      g++ -std=c++17 -O2 -march=x86-64-v3 -ffp-contract=off -pthread check.cpp && ./a.out
      flashgen emit --causal --br 4 --bc 4 -d 8 --print-ir-after keep-state
      flashgen emit --causal --window 255,0 --softcap 50
      flashgen emit --mask 'doc[q] == doc[k]' --inputs doc:int32[1]
    """
    machine = find(target)
    options = locals()
    problem = make_problem(options)
    schedule = machine.complete(problem, make_schedule(options))
    check_one({"--print-ir": print_ir, "--print-ir-after": print_ir_after, "--with-main": with_main})
    stages: list[tuple[str, str]] = []

    def keep(name: str, module: object) -> None:
        if print_ir_after_all:
            stages.append((name, str(module)))

    if print_ir or print_ir_after is not None:
        text, suffix = module_text(problem, schedule, print_ir_after, keep), ".mlir"
    else:
        from flashgen import emission

        text = emission.emit(problem, schedule, machine, with_main, after=keep).source
        suffix = machine.suffix
    if output is not None:  # before the stages: a request that is refused prints one line
        write_text("output", place(output, problem, schedule, machine, suffix), text)
    for name, module in stages:
        print_stage(name, module)
    if output is None:
        typer.echo(text, nl=False)


def place(output: Path, problem: Problem, schedule: Schedule, machine: Target, suffix: str) -> Path:
    """The file to write: ``output``; if that is a folder, a file in it that has the kernel's name."""
    if not os.path.isdir(output):  # False also for a name that is too long, which write_text refuses
        return output
    from flashgen.emission import variant

    return output / (variant(problem, schedule, machine) + suffix)


def module_text(
    problem: Problem, schedule: Schedule, after: str | None, each: Callable[[str, object], None]
) -> str:
    """The printed module: the final one, or the one that the pass ``after`` leaves.

    each: is called with the name and the module of every stage.
    """
    from flashgen.passes.pipeline import lower, pipeline

    names = ["build", *(p.name for p in pipeline(schedule, problem))]
    if after is not None and after not in names:
        raise InvalidArgument("print_ir_after", repr(after), f"this kernel has {', '.join(names)}")
    wanted = after or names[-1]
    texts: dict[str, str] = {}

    def keep(name: str, module: object) -> None:
        each(name, module)
        if name == wanted:
            texts[name] = str(module)

    lower(problem, schedule, keep)
    return texts[wanted] + "\n"
