"""The passes, by name, and the one order in which each finds what it needs.

| pass              | needs                                 | leaves                                      |
|-------------------|---------------------------------------|---------------------------------------------|
| group-rows        | a loop over the heads of a group      | its heads as rows of one                    |
| lazy-rescale      | state in memory, named operations     | l * O in O's place, one exponential a score |
| sink-loads        | a loop that is the last in another    | a perfect nest                              |
| interchange       | a perfect nest, dependences (+, 0)    | the query loop outermost                    |
| fuse-loops        | neighbours over one range, distance 0 | one loop over query tiles                   |
| keep-state        | state at one address during a loop    | loop-carried state, no workspace            |
| base-2            | exponentials of differences           | exp2; scores times log2 e                   |
| rescale-threshold | exp2, l * O in O's place              | a maximum that moves only when it rises far |
| reciprocal        | exp2, a division by a row's sum       | one division a row                          |
| narrow-products   | K, V and Q as they are loaded         | products of bfloat16, P rounded for its own |
| fold-scale        | scalar factors on a product           | the factors on Q, where it is loaded        |
| nan-in-sum        | a sum of exponentials by a maximum    | a maximum that may drop NaN                 |
| pack              | products with what is loaded          | panels of K and V                           |
| hoist-packs       | panels that outer loops read again    | panels in memory, packed once               |
| split-keys        | a softmax's state, carried over keys  | parts of the keys, and their states merged  |
| causal-skip       | a mask, named operations              | up to three loops, masked where it cuts     |
| skip-tiles        | a mask of data, named operations      | steps that ask first what the mask shows    |
| mask-to-spans     | masks that select -inf                | each row's visible keys as a span           |
| fuse-sweeps       | named elementwise operations          | one sweep a row: the last to match names    |
| accumulate        | products that are added to something  | products onto their accumulator             |
| parallel-loops    | loops that carry no dependence        | scf.parallel                                |
| fetch-ahead       | parallel loops, panels in memory      | what is read next, fetched beside products  |

sink-loads, interchange, fuse-loops and keep-state are the q-outer order; reciprocal runs with lazy-rescale;
group-rows, lazy-rescale, rescale-threshold, narrow-products, pack, hoist-packs, split-keys, causal-skip and
fetch-ahead are asked for by their own fields; the others always run. skip-tiles goes with causal-skip, for
problems whose mask has more than loop bounds can say; fold-scale and fetch-ahead need scores that depend on
the product, and where products are narrow fold-scale leaves Q as it is, which it would round.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from threading import Lock
from typing import get_args, get_type_hints

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.transforms.canonicalize import CanonicalizePass
from xdsl.transforms.common_subexpression_elimination import CommonSubexpressionElimination
from xdsl.transforms.dead_code_elimination import DeadCodeElimination
from xdsl.utils.arg_spec import ArgSpec, parse_pipeline
from xdsl.utils.exceptions import ArgSpecParseError

from flashgen.build import build
from flashgen.build_expression import Traits
from flashgen.errors import InvalidArgument, ParseFailure
from flashgen.ir.dialect import context, verify
from flashgen.ir.provenance import sign
from flashgen.passes.accumulate import AccumulatePass
from flashgen.passes.base_2 import Base2Pass
from flashgen.passes.causal_skip import CausalSkipPass
from flashgen.passes.fetch_ahead import FetchAheadPass
from flashgen.passes.fold_scale import FoldScalePass
from flashgen.passes.fuse_loops import FuseLoopsPass
from flashgen.passes.fuse_sweeps import FuseSweepsPass
from flashgen.passes.group_rows import GroupRowsPass
from flashgen.passes.hoist_packs import HoistPacksPass
from flashgen.passes.interchange import InterchangePass
from flashgen.passes.keep_state import KeepStatePass
from flashgen.passes.lazy_rescale import LazyRescalePass
from flashgen.passes.mask_to_spans import MaskToSpansPass
from flashgen.passes.nan_in_sum import NanInSumPass
from flashgen.passes.narrow_products import NarrowProductsPass
from flashgen.passes.pack import PackPass
from flashgen.passes.parallel_loops import ParallelLoopsPass
from flashgen.passes.reciprocal import ReciprocalPass
from flashgen.passes.rescale_threshold import RescaleThresholdPass
from flashgen.passes.sink_loads import SinkLoadsPass
from flashgen.passes.skip_tiles import SkipTilesPass
from flashgen.passes.split_keys import SplitKeysPass
from flashgen.problem import Problem
from flashgen.schedule import Schedule

After = Callable[[str, ModuleOp], None]

BUILDING = Lock()
"""Only one thread may build or rewrite at a time: while an implicit builder is in use, xDSL overrides a
method of Operation for all threads, then puts back what it found, which may be another thread's override."""


def _renew_lock() -> None:
    """In a forked child: the thread that may have held the lock is not in it, and would never let go."""
    global BUILDING  # noqa: PLW0603
    BUILDING = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)

OWN = (
    GroupRowsPass,
    LazyRescalePass,
    SinkLoadsPass,
    InterchangePass,
    FuseLoopsPass,
    KeepStatePass,
    Base2Pass,
    RescaleThresholdPass,
    ReciprocalPass,
    NarrowProductsPass,
    FoldScalePass,
    NanInSumPass,
    PackPass,
    HoistPacksPass,
    SplitKeysPass,
    CausalSkipPass,
    SkipTilesPass,
    MaskToSpansPass,
    FuseSweepsPass,
    AccumulatePass,
    ParallelLoopsPass,
    FetchAheadPass,
)
STOCK = (CanonicalizePass, CommonSubexpressionElimination, DeadCodeElimination)
REGISTRY: dict[str, type[ModulePass]] = {p.name: p for p in (*OWN, *STOCK)}
"""Every pass that a pipeline may name: flashgen's in their canonical order, then xDSL's own."""


def derivation(schedule: Schedule) -> list[ModulePass]:
    """From FlashAttention-1 to the algorithm that the schedule asks for."""
    q_outer = [SinkLoadsPass(), InterchangePass(), FuseLoopsPass(), KeepStatePass()]
    return [
        *([GroupRowsPass()] if schedule.group_rows else []),
        *([LazyRescalePass()] if schedule.lazy_rescale else []),
        *(q_outer if schedule.order == "q-outer" else []),
    ]


def lowering(schedule: Schedule, problem: Problem) -> list[ModulePass]:
    """From an algorithm to the operations that templates spell well."""
    traits = Traits.of(problem)
    return [
        Base2Pass(),
        *([RescaleThresholdPass(schedule.rescale_threshold)] if schedule.rescale_threshold else []),
        *([ReciprocalPass()] if schedule.lazy_rescale else []),
        *([NarrowProductsPass()] if schedule.products == "bfloat16" else []),
        *([FoldScalePass()] if traits.reads_score else []),
        NanInSumPass(),
        *([PackPass(schedule.panel)] if schedule.panel else []),
        *([HoistPacksPass()] if schedule.hoist_packs else []),
        *([SplitKeysPass(schedule.split_keys)] if schedule.split_keys else []),
        *([CausalSkipPass()] if schedule.causal_skip else []),
        *([SkipTilesPass()] if schedule.causal_skip and traits.asks_data else []),
        MaskToSpansPass(),
        FuseSweepsPass(),
        AccumulatePass(),
        ParallelLoopsPass(),
        *([FetchAheadPass()] if schedule.fetch_ahead and traits.reads_score else []),
    ]


def pipeline(schedule: Schedule, problem: Problem) -> list[ModulePass]:
    """The passes that carry out a schedule of this problem's kernel, in canonical order.

    Raises InvalidArgument if a field is open.
    """
    if not schedule.complete:
        raise InvalidArgument("schedule", schedule, "Target.complete fills its open fields first")
    return [*derivation(schedule), *lowering(schedule, problem)]


def run(module: ModuleOp, passes: Sequence[ModulePass], after: After | None = None) -> None:
    """Apply passes in order, in place; sign what is new, and verify, after each.

    after: called with each pass's name and the module as that pass left it.
    Raises IllegalPass; the module is then as the pass before left it.
    """
    ctx = context()
    for p in passes:
        before = set(module.walk())
        with BUILDING:
            p.apply(ctx, module)
        sign(module, before, p.name)
        verify(module)
        if after is not None:
            after(p.name, module)


def lower(
    problem: Problem,
    schedule: Schedule,
    after: After | None = None,
    passes: Sequence[ModulePass] | None = None,
) -> ModuleOp:
    """The final module of a kernel, from which its plan is made. ``after`` also sees "build".

    passes: to run in place of the schedule's own.
    """
    passes = pipeline(schedule, problem) if passes is None else passes
    assert schedule.br is not None and schedule.bc is not None
    with BUILDING:
        module = build(problem, schedule.br, schedule.bc)
    verify(module)
    if after is not None:
        after("build", module)
    run(module, passes, after)
    return module


def parse_passes(text: str) -> list[ModulePass]:
    """The passes that a text names: "interchange,pack{panel=16}". Raises ParseFailure."""
    if text.strip().endswith(","):
        raise ParseFailure(f"passes {text!r}: names of passes, with commas between them, are allowed")
    for inner in re.findall(r"{([^}]*)}", text):  # the parser takes the last of several values
        names = [name.replace("-", "_") for name in re.findall(r"(?:^|\s)([^\s=]+)", inner)]
        for name in names:
            if names.count(name) > 1:
                raise ParseFailure(f"passes {text!r}: option {name!r} is given twice; once is allowed")
    try:
        return [make_pass(spec) for spec in parse_pipeline(text)]
    except (ArgSpecParseError, ValueError) as e:
        reason = str(e).strip().splitlines()[-1].strip()  # above it, where in the text: one line is enough
        raise ParseFailure(f"passes {text!r}: {reason}") from e


TYPES = {bool: "true or false", int: "a whole number", float | int: "a number"}
"""Of options, and what they take."""


def make_pass(spec: ArgSpec) -> ModulePass:
    """The pass of that name with those options. Raises ParseFailure."""
    if spec.name not in REGISTRY:
        raise ParseFailure(f"no pass is called {spec.name!r}; known: {', '.join(REGISTRY)}")
    kind = REGISTRY[spec.name]
    options, given = fields(kind), spec.normalize_parameter_names().parameters
    names, types = [f.name for f in options], get_type_hints(kind)
    for name, values in given.items():
        if name not in names:
            known = f"known: {', '.join(names)}" if names else "it has none"
            raise ParseFailure(f"pass {spec.name!r} has no option {name!r}; {known}")
        if len(values) != 1 or type(values[0]) not in (get_args(types[name]) or (types[name],)):
            said = ",".join(map(repr, values)) or "without a value"
            wanted = f"{TYPES[types[name]]} is allowed"
            raise ParseFailure(f"option {name!r} of pass {spec.name!r} is {said}; {wanted}")
    for f in options:
        if f.name not in given and f.default is MISSING:
            raise ParseFailure(f"pass {spec.name!r} has no {f.name!r}; {TYPES[types[f.name]]} is allowed")
    return kind.from_pass_spec(spec)
