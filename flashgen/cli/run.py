"""`flashgen run`: attention on arrays from files, held to the reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from flashgen.cli.modifiers import Call, made_for
from flashgen.cli.options import (
    DEFAULT_CAUSAL,
    Alibi,
    Bc,
    Br,
    Causal,
    CausalSkip,
    FetchAhead,
    GroupRows,
    HoistPacks,
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
from flashgen.cli.output import check_output, write
from flashgen.errors import InvalidArgument, check_choice, check_one, check_positive
from flashgen.problem import CAUSAL, DTYPES, Problem
from flashgen.schedule import Schedule
from flashgen.targets import TARGETS, find
from flashgen.targets.base import Target
from flashgen.targets.cpu import Cpu

if TYPE_CHECKING:
    from numpy import ndarray

    from flashgen.cli.run_timing import Timing
    from flashgen.reference import Deviation

WRONG = 1
"""Exit status of a result that is further from the reference than the bound allows."""


def run(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="A .npz or .safetensors file that holds q, k and v."),
    ] = None,
    q: Annotated[
        Path | None, typer.Option("--q", metavar="NPY", help="q (B, Hq, Nq, D), instead of FILE.")
    ] = None,
    k: Annotated[
        Path | None, typer.Option("--k", metavar="NPY", help="k (B, Hkv, Nk, D), instead of FILE.")
    ] = None,
    v: Annotated[
        Path | None, typer.Option("--v", metavar="NPY", help="v (B, Hkv, Nk, Dv), instead of FILE.")
    ] = None,
    names: Annotated[
        str, typer.Option(metavar="Q,K,V", help="What the arrays in FILE are called.")
    ] = "q,k,v",
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write O there as .npy, or o and lse as .npz or .safetensors."),
    ] = None,
    lse: Annotated[
        Path | None, typer.Option(metavar="NPY", help="Write the logsumexp of each row there.")
    ] = None,
    causal: Causal = None,
    window: Window = None,
    mask: Mask = None,
    mask_mod: MaskMod = None,
    softcap: Softcap = None,
    score: Score = None,
    score_mod: ScoreMod = None,
    alibi: Alibi = False,
    sink: Sink = False,
    scale: Annotated[
        float | None, typer.Option(help="What scores are multiplied by.", show_default="1 / sqrt(D)")
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(DTYPES),
            help="Round q, k and v to this type. NumPy's files need it to hold bfloat16.",
            show_default="the type that they have",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(TARGETS),
            help="The machine to run on.",
            show_default="the widest vectors that are here",
        ),
    ] = None,
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
    threads: Annotated[
        int | None,
        typer.Option(
            help="At most so many, from 1 to 1024; not on cuda.",
            show_default="what the work is worth, up to $OMP_NUM_THREADS or the processors",
        ),
    ] = None,
    repeat: Annotated[int, typer.Option(help="Calls that are timed, after a first one.")] = 5,
) -> None:
    """Compute attention on arrays from files.

    Reports the error against a float64 reference, of float64 arrays against one of 80 bits, and the time. Hq
    may be a multiple of Hkv. The exit status is 1 where an error is above its bound. Arrays that --mask and
    --score read, and the logits "sink" (Hq,) of --sink, lie in FILE under their names.

    \b
    Examples:
      flashgen run qkv.npz --causal --out o.npy
      flashgen run layer.safetensors --names query,key,value --threads 1 --repeat 20
      flashgen run qkv.npz --dtype float16
      flashgen run --q q.npy --k k.npy --v v.npy --out result.npz --order kv-outer
    """
    check_positive("repeat", repeat)
    if dtype is not None:
        check_choice("dtype", dtype, DTYPES)
    # `run --causal FILE` takes FILE for the alignment: say so, not that FILE is missing
    if causal is not None and causal not in CAUSAL:
        hint = ", or nothing, with FILE in front of it" if file is None else ""
        allowed = f"one of {', '.join(map(repr, CAUSAL))} is allowed{hint}"
        raise InvalidArgument("causal", repr(causal), allowed)
    check_outputs(out, lse, [path for path in (file, q, k, v) if path is not None])
    machine = find(target) if target is not None else widest()
    options = locals()
    schedule = make_schedule(options)
    arrays = read_inputs(file, {"q": q, "k": k, "v": v}, names, dtype)
    if out is not None:
        check_has_type(out, arrays[0])
    asked = made_for(arrays, options, lambda words: read_named(file, words))
    result = compute(arrays, asked, scale, schedule, machine, threads, repeat)
    if out is not None:
        write("out", out, lambda to: save_output(to, out.suffix, result))
    if lse is not None:
        write("lse", lse, lambda to: save_npy(to, result.lse))
    report(result)
    if not (result.o_deviation.share <= 1 and result.lse_deviation.share <= 1):
        raise typer.Exit(WRONG)


def check_outputs(out: Path | None, lse: Path | None, inputs: Sequence[Path]) -> None:
    """Before the work, so that none is lost, nor what is read."""
    read = [realpath(path) for path in inputs]
    for name, path in (("out", out), ("lse", lse)):
        if path is not None and realpath(path) in read:
            raise InvalidArgument(name, repr(str(path)), "a file other than the inputs is allowed")
    if out is not None:
        check_output("out", out, (".npy", ".npz", ".safetensors"))
    if lse is not None:
        check_output("lse", lse, (".npy",))
        if out is not None and realpath(out) == realpath(lse):
            raise InvalidArgument("lse", repr(str(lse)), "a file other than out's is allowed")


def check_has_type(out: Path, q: ndarray) -> None:
    """NumPy's files have no name for bfloat16. Raises InvalidArgument."""
    if q.dtype.name == "bfloat16" and out.suffix != ".safetensors":
        raise InvalidArgument(
            "out", repr(str(out)), "a name that ends in .safetensors is allowed for bfloat16"
        )


def widest() -> Target:
    from flashgen.runtime.cpu_features import best_target

    return best_target()


def read_inputs(
    file: Path | None, apart: dict[str, Path | None], names: str, dtype: str | None
) -> list[ndarray]:
    """q, k and v, of four dimensions each, rounded to ``dtype``.

    Raises InvalidArgument, ConflictingOptions or MissingTool.
    """
    from flashgen.cli.arrays import load_named, load_npy, stored_as

    for name, path in apart.items():
        check_one({"FILE": file, f"--{name}": path})
    if file is not None:
        wanted = names.split(",")
        if len(wanted) != 3:
            raise InvalidArgument("names", repr(names), "three names with commas between them are allowed")
        arrays = dict(zip(apart, load_named(file, wanted), strict=True))
    else:
        arrays = {}
        for name, path in apart.items():
            if path is None:
                missing = f"--{name}" if any(apart.values()) else "FILE"
                raise InvalidArgument(missing, "missing", "FILE or all of --q, --k and --v are wanted")
            arrays[name] = load_npy(name, path)
    for name, array in arrays.items():
        if array.ndim != 4:
            raise InvalidArgument(f"{name}.shape", array.shape, "four dimensions are allowed: (B, H, N, D)")
    return [stored_as(name, array, dtype) for name, array in arrays.items()]


def read_named(file: Path | None, names: list[str]) -> list[ndarray]:
    """Arrays of FILE beside q, k and v. Raises InvalidArgument or MissingTool."""
    from flashgen.cli.arrays import load_named

    if file is None:
        raise InvalidArgument("FILE", "missing", f"it is wanted for {', '.join(names)}")
    return load_named(file, names)


@dataclass(frozen=True)
class Result:
    """What was computed, how right it is and how long it took.

    arrays: q, k and v. threads: 0 on a GPU. operations: floating-point operations of the two products.
    """

    arrays: list[ndarray]
    variant: str
    scale: float
    threads: int
    o: ndarray
    lse: ndarray
    o_deviation: Deviation
    lse_deviation: Deviation
    timing: Timing
    operations: int


def compute(
    arrays: list[ndarray],
    asked: Call,
    scale: float | None,
    schedule: Schedule,
    machine: Target,
    threads: int | None,
    repeat: int,
) -> Result:
    """Compile, call, time and check. Raises what flashgen.compile and its kernels raise."""
    from flashgen.bench.measure import expect, operations
    from flashgen.cli.progress import progress
    from flashgen.cli.run_timing import make_probe, time_beside_probes
    from flashgen.emission import variant

    q, k, v = arrays
    (batch, hq, nq, head_dim), dv = q.shape, v.shape[3]
    problem = asked.combined.problem(head_dim, dv or 1, str(q.dtype))
    values = asked.combined.values
    factor = 1 / math.sqrt(head_dim) if scale is None else scale
    rows = nq * (hq // (k.shape[1] or 1))
    schedule = machine.complete(problem, machine.suit(problem, schedule, nq, k.shape[2], rows))
    with progress() as bars:
        step = bars.add_task("compiling", total=None)
        call, used = prepare(problem, arrays, factor, schedule, machine, threads, asked.options)
        o, lse = call()
        bars.update(step, description="calling", total=repeat, completed=0)
        probe = make_probe(machine, used)
        timing = time_beside_probes(call, probe, repeat, lambda: bars.advance(step))
        bars.update(step, description="checking", total=batch * hq, completed=0)
        expected = expect(problem, q, k, v, factor, lambda: bars.advance(step), schedule.products, values)
    o_deviation, lse_deviation = expected.deviations(o, lse)
    return Result(
        arrays,
        variant(problem, schedule, machine),
        factor,
        used,
        o,
        lse,
        o_deviation,
        lse_deviation,
        timing,
        operations(problem, q, k, v, values),
    )


def prepare(
    problem: Problem,
    arrays: list[ndarray],
    scale: float,
    schedule: Schedule,
    machine: Target,
    threads: int | None,
    more: Mapping[str, Any],
) -> tuple[Callable[[], Any], int]:
    """What computes O and lse, and on how many threads, 0 on a GPU.

    more: options of flashgen.attention that ask for masks, scores and sinks.
    """
    from flashgen import api
    from flashgen.runtime.threads import choose_threads

    q, k, v = arrays
    if not isinstance(machine, Cpu):
        if threads is not None:
            raise InvalidArgument("threads", threads, f"target {machine.name} chooses its own")
        if more:
            allowed = f"on target {machine.name} none but causal is allowed here"
            raise InvalidArgument("options", ", ".join(more), allowed)
        kernel = api.compile(problem, schedule, machine)
        return lambda: kernel(q, k, v, scale=scale), 0
    work = math.prod(q.shape) * k.shape[2] + math.prod(q.shape[:3]) * k.shape[2] * v.shape[3]
    used = choose_threads(threads, work)
    options: dict[str, Any] = {
        "is_causal": problem.causal is not None,
        "causal_alignment": problem.causal or DEFAULT_CAUSAL,
        "enable_gqa": True,
        "return_lse": True,
        **more,
    }
    return (
        lambda: api.attention(
            q, k, v, scale=scale, schedule=schedule, target=machine, threads=used, **options
        )
    ), used


def save_output(file: BinaryIO, ending: str, result: Result) -> None:
    from flashgen.cli.arrays import save_named

    if ending == ".npy":
        save_npy(file, result.o)
    else:
        save_named(file, ending, {"o": result.o, "lse": result.lse})


def save_npy(file: BinaryIO, array: ndarray) -> None:
    import numpy as np

    np.save(file, array, allow_pickle=False)


def report(result: Result) -> None:
    """The table on standard output."""
    from rich.table import Table

    from flashgen.bench.report import MARK, count
    from flashgen.cli.terminal import console

    shapes = ", ".join(f"{name} {x.shape}" for name, x in zip("qkv", result.arrays, strict=True))
    timing = result.timing
    where = count(result.threads) if result.threads else "with copies to the GPU and back"
    speed = result.operations / timing.median / 1e9
    mark = MARK if timing.disturbed else ""
    table = Table(show_header=False, box=None)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("kernel", result.variant)
    table.add_row("input", f"{shapes}, {result.arrays[0].dtype}, scale {result.scale:.6g}")
    for name, got in (("O", result.o_deviation), ("lse", result.lse_deviation)):
        verdict = "" if got.share <= 1 else ": WRONG"
        table.add_row(f"error of {name}", f"{got.error:.3g}, {got.share:.3g} of the bound{verdict}")
    ms = f"{mark}{1e3 * timing.median:.4g} ms"
    table.add_row("time", f"{ms}, the median of {len(timing.seconds)}, {where}")
    table.add_row("speed", f"{mark}{speed:.4g} GFLOP/s in the two products")
    if timing.disturbed:
        fell = f"the machine's speed beside the calls fell to {timing.steadiness:.2f} of its best"
        table.add_row(MARK, f"marks what was disturbed: {fell}, so there is no share of the peak")
    elif timing.peak is not None:
        table.add_row(
            "share of peak", f"{speed / timing.peak:.3g} of {timing.peak:.4g} GFLOP/s, measured beside it"
        )
    console().print(table)
