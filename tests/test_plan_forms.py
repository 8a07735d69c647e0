"""Plans of small modules by hand: where values stay, where they are copied, and what is refused."""

from __future__ import annotations

import pytest

from flashgen.errors import CannotEmit
from flashgen.ir.dialect import parse
from flashgen.plan.model import KernelPlan, Statement
from flashgen.plan.planner import plan
from flashgen.plan.storage import Names
from flashgen.render import Walker, languages
from flashgen.targets.base import TileLayout
from tests.plan_memory import Memory, Wrong, changed, loops

LAYOUT = TileLayout(2, 4)

FRAME = """
builtin.module {{
  func.func @f(%x: memref<?x4xf32>, %y: memref<?x4xf32>, %z: memref<?xf32>) {{
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %n = memref.dim %x, %c0 : memref<?x4xf32>
    "scf.parallel"(%{start}, %n, %c1) <{{operandSegmentSizes = array<i32: 1, 1, 1, 0>}}> ({{
    ^bb0(%i: index):
      %a = tile.load %x[%i, %c0] : memref<?x4xf32> -> tensor<2x4xf32>
      %f = tile.load %z[%i] : memref<?xf32> -> tensor<2xf32>
      {body}
      scf.reduce
    }}) : (index, index, index) -> ()
    func.return
  }}
}}
"""
TILE, ARRAY = "tensor<2x4xf32>", "tensor<2x4xf32>, memref<?x4xf32>"


def made(body: str, start: str = "c0") -> KernelPlan:
    return plan(parse(FRAME.format(body=body, start=start)), LAYOUT, ())


def shown(kernel: KernelPlan) -> list[str]:
    """Statements behind the loads of %a and %f; what has a place has its offset behind its name."""

    def show(s: Statement) -> list[str]:
        def operands(found: list) -> str:
            placed = ("tile", "row", "span")
            return ", ".join(
                f"{o.name}@{o.offset}" if o.kind in placed and o.name[0] != "%" else o.name for o in found
            )

        own = f"{s.op} {operands(s.outs)} <- {operands(s.ins)}"
        return [own, *(f"  {line}" for t in s.body for line in show(t))]

    (parallel,) = (s for s in kernel.body if s.op == "scf_parallel")
    own = [s for s in parallel.body if s.op != "tile_load" or s.outs[0].name[0] not in "af"]
    return [line for s in own for line in show(s)]


def run(kernel: KernelPlan) -> None:
    for turns in (0, 1, 2):
        Memory(kernel, LAYOUT, dict.fromkeys(loops(kernel.body), turns)).run()


STORE_E = f"tile.store %e, %y[%i, %c0] : {ARRAY}"
SCALE = f"tile.scale_rows %a, %f : {TILE}, tensor<2xf32> -> {TILE}"


def test_what_dies_is_updated_in_place() -> None:
    kernel = made(f"%b = {SCALE}\n tile.store %b, %y[%i, %c0] : {ARRAY}")
    assert shown(kernel) == ["tile_scale_rows a@0 <- f@64", "tile_store  <- a@0, y, i, 0"]
    run(kernel)


def test_what_lives_on_is_copied_first() -> None:
    kernel = made(
        f"""%b = {SCALE}
        tile.store %a, %y[%i, %c0] : {ARRAY}
        tile.store %b, %y[%i, %c0] : {ARRAY}"""
    )
    assert shown(kernel) == [
        "copy b@128 <- a@0",
        "tile_scale_rows b@128 <- f@64",
        "tile_store  <- a@0, y, i, 0",
        "tile_store  <- b@128, y, i, 0",
    ]
    run(kernel)


def test_a_product_is_added_to_a_copy_of_what_lives_on() -> None:
    """Not to its left side, which dies and is as large."""
    kernel = made(
        f"""%w = tile.load %y[%i, %c0] : memref<?x4xf32> -> tensor<4x4xf32>
        %c = tile.load %y[%c0, %c0] : memref<?x4xf32> -> {TILE}
        %b = tile.dot %a, %w acc %c : {TILE} : {TILE}, tensor<4x4xf32> -> {TILE}
        tile.store %b, %y[%i, %c0] : {ARRAY}
        tile.store %c, %y[%i, %c0] : {ARRAY}"""
    )
    assert shown(kernel)[2:4] == ["copy b@192 <- c@128", "tile_dot b@192 <- a@0, w@64"]
    run(kernel)


def test_what_is_repeated_along_rows_lives_as_long_as_what_repeats_it() -> None:
    kernel = made(
        f"""%w = tile.broadcast %f : tensor<2xf32> -> {TILE}
        %g = tile.load %z[%c0] : memref<?xf32> -> tensor<2xf32>
        %b = tile.scale_rows %a, %g : {TILE}, tensor<2xf32> -> {TILE}
        %e = arith.addf %b, %w : {TILE}
        tile.store %e, %y[%i, %c0] : {ARRAY}"""
    )
    assert shown(kernel)[0] == "tile_load g@128 <- z, 0"
    run(kernel)


def test_what_is_used_twice_or_in_a_loop_is_computed_once() -> None:
    twice = made(f"%d = arith.addf %a, %a : {TILE}\n %e = arith.mulf %d, %d : {TILE}\n {STORE_E}")
    assert shown(twice)[:2] == ["arith_addf d@0 <- a@0, a@0", "arith_mulf e@0 <- d@0, d@0"]
    run(twice)
    looped = made(
        f"""%d = arith.addf %a, %a : {TILE}
        scf.for %j = %c0 to %n step %c1 {{
          %x2 = tile.load %x[%j, %c0] : memref<?x4xf32> -> {TILE}
          %e = arith.addf %x2, %d : {TILE}
          {STORE_E}
        }}"""
    )
    assert shown(looped)[0] == "arith_addf d@0 <- a@0, a@0"
    run(looped)


def test_positions_do_not_go_where_as_many_numbers_were() -> None:
    """A span of two rows has as many elements as a padded value a row, but twice the bytes."""
    kernel = made(
        f"""%b = {SCALE}
        %w = tile.load %y[%i, %c0] : memref<?x4xf32> -> tensor<4x4xf32>
        %span = tile.row_span %i, %c0 {{
        ^bb0(%row: index):
          tile.yield %c0, %row : index, index
        }} of 4 : index : tensor<2x2xindex>
        %e = tile.dot %b, %w only %span : tensor<2x2xindex> : {TILE}, tensor<4x4xf32> -> {TILE}
        {STORE_E}"""
    )
    assert [line for line in shown(kernel) if "row_span" in line] == ["tile_row_span span@192 <- i, 0"]
    run(kernel)


@pytest.mark.parametrize(("source", "loaded"), [("x", False), ("y", True)])
def test_a_tile_is_packed_from_where_it_lies_if_nothing_is_stored_there(source: str, loaded: bool) -> None:
    kernel = made(
        f"""%v = tile.load %{source}[%i, %c0] : memref<?x4xf32> -> {TILE}
        tile.store %a, %y[%i, %c0] : {ARRAY}
        %p = tile.pack %v transpose : {TILE} -> tensor<1x4x4xf32>
        %e = tile.dot %a, %p : {TILE}, tensor<1x4x4xf32> -> tensor<2x2xf32>
        tile.store %e, %y[%i, %c0] : tensor<2x2xf32>, memref<?x4xf32>"""
    )
    assert any(line.startswith("tile_load v") for line in shown(kernel)) is loaded
    run(kernel)


LOOP = "scf.for %j = %c0 to %n step %c1 iter_args(%s = {init}) -> ({type})"


def loop(body: str, init: str, kind: str = TILE) -> str:
    return f"%r = {LOOP.format(init=init, type=kind)} {{\n{body}\n}}\n"


def test_a_carried_value_starts_where_its_initial_value_was() -> None:
    kernel = made(
        loop(f"%b = tile.scale_rows %s, %f : {TILE}, tensor<2xf32> -> {TILE}\n scf.yield %b : {TILE}", "%a")
        + f"tile.store %r, %y[%i, %c0] : {ARRAY}"
    )
    assert shown(kernel) == [
        "scf_for j <- 0, n, 1",
        "  tile_scale_rows a@0 <- f@64",
        "tile_store  <- a@0, y, i, 0",
    ]
    run(kernel)


def test_an_initial_value_that_lives_on_is_copied() -> None:
    kernel = made(
        loop(f"%b = tile.scale_rows %s, %f : {TILE}, tensor<2xf32> -> {TILE}\n scf.yield %b : {TILE}", "%a")
        + f"tile.store %r, %y[%i, %c0] : {ARRAY}\n tile.store %a, %y[%i, %c0] : {ARRAY}"
    )
    assert shown(kernel)[0] == "copy s@128 <- a@0"
    run(kernel)


def test_a_value_is_computed_where_it_is_carried() -> None:
    """Though it is another value: the carried one is read in step with it, for the last time."""
    kernel = made(
        loop(f"%b = arith.addf %s, %s : {TILE}\n scf.yield %b : {TILE}", "%a")
        + f"tile.store %r, %y[%i, %c0] : {ARRAY}"
    )
    assert "  arith_addf b@0 <- a@0, a@0" in shown(kernel)
    run(kernel)


def test_a_value_that_comes_too_early_is_carried_by_a_copy() -> None:
    kernel = made(
        loop(
            f"""%b = tile.load %x[%j, %c0] : memref<?x4xf32> -> {TILE}
            tile.store %s, %y[%j, %c0] : {ARRAY}
            scf.yield %b : {TILE}""",
            "%a",
        )
        + f"tile.store %r, %y[%i, %c0] : {ARRAY}"
    )
    assert shown(kernel)[1:4] == [
        "  tile_load b@64 <- x, j, 0",
        "  tile_store  <- a@0, y, j, 0",
        "  copy a@0 <- b@64",
    ]
    run(kernel)


def test_a_product_is_not_computed_where_its_left_side_is_carried() -> None:
    """It reads all of a row while it writes it: unlike a sum, though the carried value is read last here."""
    square = "memref<?x4xf32> -> tensor<4x4xf32>"
    kernel = made(
        loop(
            f"""%w = tile.load %y[%j, %c0] : {square}
            %b = tile.dot %s, %w : {TILE}, tensor<4x4xf32> -> {TILE}
            scf.yield %b : {TILE}""",
            "%a",
        )
        + f"tile.store %r, %x[%i, %c0] : {ARRAY}"
    )
    assert shown(kernel)[2:4] == ["  tile_dot b@128 <- a@0, w@64", "  copy a@0 <- b@128"]
    run(kernel)


def test_a_carried_value_keeps_its_place_though_nobody_reads_what_it_becomes() -> None:
    kernel = made(
        loop(
            f"""tile.store %s, %y[%j, %c0] : {ARRAY}
            %t = tile.load %x[%j, %c0] : memref<?x4xf32> -> {TILE}
            tile.store %t, %y[%j, %c0] : {ARRAY}
            scf.yield %s : {TILE}""",
            "%a",
        )
    )
    assert "  tile_load t@64 <- x, j, 0" in shown(kernel)
    run(kernel)


def test_what_lives_on_is_not_computed_where_its_update_is_carried() -> None:
    kernel = made(
        loop(
            f"""%v = tile.load %x[%j, %c0] : memref<?x4xf32> -> {TILE}
            %b = tile.scale_rows %v, %f : {TILE}, tensor<2xf32> -> {TILE}
            tile.store %v, %y[%j, %c0] : {ARRAY}
            scf.yield %b : {TILE}""",
            "%a",
        )
        + f"tile.store %r, %y[%i, %c0] : {ARRAY}"
    )
    assert shown(kernel)[1:5] == [
        "  tile_load v@128 <- x, j, 0",
        "  copy b@0 <- v@128",
        "  tile_scale_rows b@0 <- f@64",
        "  tile_store  <- v@128, y, j, 0",
    ]
    run(kernel)


def test_one_initial_value_of_two_carried_ones() -> None:
    head = f"%r:2 = scf.for %j = %c0 to %n step %c1 iter_args(%s = %a, %t = %a) -> ({TILE}, {TILE}) {{"
    kernel = made(
        f"""{head}
          %b = arith.addf %s, %t : {TILE}
          scf.yield %b, %b : {TILE}, {TILE}
        }}
        tile.store %r#0, %y[%i, %c0] : {ARRAY}
        tile.store %r#1, %y[%i, %c0] : {ARRAY}"""
    )
    assert "copy t@64 <- a@0" in shown(kernel)
    run(kernel)


def test_what_is_spelled_later_keeps_its_operands() -> None:
    """%d has no buffer: it is computed where %e is, so %a must not be overwritten before."""
    kernel = made(
        f"""%w = tile.broadcast %f : tensor<2xf32> -> {TILE}
        %d = arith.subf %a, %w : {TILE}
        %b = tile.load %x[%c0, %c0] : memref<?x4xf32> -> {TILE}
        %e = arith.addf %b, %d : {TILE}
        tile.store %e, %y[%i, %c0] : {ARRAY}"""
    )
    assert shown(kernel)[:3] == [
        "arith_subf %1 <- a@0, f@64",
        "tile_load b@128 <- x, 0, 0",
        "arith_addf e@128 <- b@128, %1",
    ]
    run(kernel)


def test_names_are_unique_and_none_of_the_reserved() -> None:
    text = FRAME.format(body=f"%b = {SCALE}\n tile.store %b, %y[%i, %c0] : {ARRAY}", start="c0")
    kernel = plan(parse(text), LAYOUT, {"a", "f", "x", "f_1"})
    assert [p.name for p in kernel.params] == ["x_1", "y", "z"]
    assert shown(kernel)[0] == "tile_scale_rows a_1@0 <- f_2@64"


def test_names_are_not_spelled_as_macros_are() -> None:
    """What a mask or a score reads may be called INFINITY; a single letter is no macro."""
    names = Names(())
    assert [names.unique(name) for name in ("INFINITY", "M_PI", "INFINITY", "B", "Nq")] == [
        "INFINITY_1",
        "M_PI_1",
        "INFINITY_2",
        "B",
        "Nq",
    ]


REFUSED = {
    "no parallel loop": (
        "builtin.module { func.func @f() { func.return } }",
        "the module has no parallel loop: run parallel-loops",
    ),
    "a parallel loop from 1": (
        FRAME.format(body="", start="c1"),
        "a parallel loop that does not start at 0",
    ),
    "a swap": (
        FRAME.format(
            start="c0",
            body=f"""%b = arith.addf %a, %a : {TILE}
            %r:2 = scf.for %j = %c0 to %n step %c1 iter_args(%s = %a, %t = %b) -> ({TILE}, {TILE}) {{
              scf.yield %t, %s : {TILE}, {TILE}
            }}
            tile.store %r#0, %y[%i, %c0] : {ARRAY}
            tile.store %r#1, %y[%i, %c0] : {ARRAY}""",
        ),
        "a loop that permutes its carried values has no plan",
    ),
    "a rounding at run time": (
        FRAME.format(
            start="c0",
            body="""%wide = arith.extf %scale : f32 to f64
            %narrow = arith.truncf %wide : f64 to f32""",
        ).replace("%z: memref<?xf32>", "%z: memref<?xf32>, %scale: f32"),
        "arith.truncf of something else than a constant",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    text, message = REFUSED[case]
    with pytest.raises(CannotEmit, match=f"^{message}$"):
        plan(parse(text), LAYOUT, ())


@pytest.mark.parametrize("language", ["cpp", "cuda"])
def test_an_operation_without_a_macro_is_refused(language: str) -> None:
    """tile.row_max is not spelled: fuse-sweeps replaces it."""
    kernel = made(
        f"""%m = tile.row_max %a : {TILE} -> tensor<2xf32>
        tile.store %m, %z[%i] : tensor<2xf32>, memref<?xf32>"""
    )
    with pytest.raises(
        CannotEmit, match=r"^tile\.row_max has no macro: the passes of the pipeline replace it$"
    ):
        Walker(languages(language), kernel).block(kernel.body)


def test_the_simulation_finds_what_is_broken() -> None:
    """One offset wrong, in a buffer or not; and a copy left out."""
    kernel = made(
        f"""%b = {SCALE}
        tile.store %b, %y[%i, %c0] : {ARRAY}
        tile.store %a, %y[%i, %c0] : {ARRAY}"""
    )
    run(kernel)
    with pytest.raises(Wrong, match="tile_store reads a and finds"):
        run(changed(kernel, {"b": {"offset": 0}}))
    with pytest.raises(Wrong, match="b does not lie in a buffer"):
        run(changed(kernel, {"b": {"offset": 4}}))
    (parallel,) = (s for s in kernel.body if s.op == "scf_parallel")
    parallel.body = [s for s in parallel.body if s.op != "copy"]
    with pytest.raises(Wrong, match="tile_scale_rows reads b, which has no name there"):
        run(kernel)
