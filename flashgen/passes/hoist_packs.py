"""hoist-packs: pack once what many iterations read, into memory of the kernel's own.

    for g { for r { for i { for j { p = pack (load k[b, g, j, 0]); ... } } } }
        ~>
    for g {
      panels = alloc [ceildiv(Nk, Bc)]
      for t { store (pack (load k[b, g, Bc * t, 0])), panels[t] }
      for r { for i { for j { p = load panels[j floordiv Bc]; ... } } }
    }

The tiles of one loop (j) are packed in front of the outermost loop in which they are the same (r), so all
query tiles of all heads of a group read the same panels. It costs the memory of all tiles of the loop, also
of those that causal-skip finds nobody to need (top-left, with more keys than queries).

Legal where the load's position is the loop's counter in one dimension and does not change in the others, the
loop starts at 0 with a constant step, and nothing in the outer loop stores what is loaded.

Not handled: loads at a distance from the counter, loops that start elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects import scf
from xdsl.dialects.builtin import DYNAMIC_INDEX, MemRefType, ModuleOp
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.rewriter import InsertPoint

from flashgen.analysis.dependence import describe, strangers
from flashgen.analysis.linear import Linear, induction, linear, step_of, stored
from flashgen.ir.compute import PackOp
from flashgen.ir.construct import alloc, ceildiv, floordiv, loop, mul, named
from flashgen.ir.memory import LoadOp, StoreOp
from flashgen.ir.provenance import inherit
from flashgen.ir.types import element_of, shape_of
from flashgen.passes.base import TilePass
from flashgen.passes.edit import erase, shared_index
from flashgen.passes.patterns import outermost


@dataclass(frozen=True)
class Hoisted:
    """A pack of what is loaded, at the dimension in which the load follows the loop around it."""

    pack: PackOp
    load: LoadOp
    dimension: int

    def allocate(self, tiles: SSAValue) -> SSAValue:
        """An array of so many packed tiles."""
        packed = self.pack.result
        array = alloc(MemRefType(element_of(packed), [DYNAMIC_INDEX, *shape_of(packed)]), tiles)
        if hint := self.load.source.name_hint:
            array.name_hint = f"{hint}_panels"
        return array

    def copy(self, position: SSAValue) -> SSAValue:
        """The tile at that position, packed."""
        indices = list(self.load.indices)
        indices[self.dimension] = position
        load = LoadOp(self.load.source, indices, self.load.result.type, self.load.in_bounds is not None)
        pack = self.pack.clone({self.load.result: load.result})
        for new, old in ((load, self.load), (pack, self.pack)):
            new.results[0].name_hint = old.results[0].name_hint
            inherit(new, [old])
        return pack.result

    def read(self, array: SSAValue, indices: list[SSAValue]) -> None:
        """Read the panels where they were packed before."""
        with ImplicitBuilder(Builder(InsertPoint.before(self.pack))):
            panels = LoadOp(array, indices, self.pack.result.type, in_bounds=True)
        inherit(panels, [self.pack])
        panels.result.name_hint = self.pack.result.name_hint
        self.pack.result.replace_all_uses_with(panels.result)
        erase(self.pack)
        if not list(self.load.result.uses):
            erase(self.load)


@dataclass(frozen=True)
class Tiles:
    """Packs in one loop that are the same in all iterations of an outer one."""

    loop: scf.ForOp
    outer: Operation
    packs: list[Hoisted]


@dataclass(frozen=True)
class HoistPacksPass(TilePass[list[Tiles]]):
    name = "hoist-packs"

    def match(self, module: ModuleOp) -> list[Tiles]:
        groups: dict[tuple[scf.ForOp, Operation], list[Hoisted]] = {}
        for op in module.walk():
            if isinstance(op, PackOp):
                tiles, outer, hoisted = self.check(op)
                groups.setdefault((tiles, outer), []).append(hoisted)
        if not groups:
            self.refuse(module, "nothing is packed")
        return [Tiles(tiles, outer, packs) for (tiles, outer), packs in groups.items()]

    def check(self, pack: PackOp) -> tuple[scf.ForOp, Operation, Hoisted]:
        load, tiles = pack.operand.owner, pack.parent_op()
        if not isinstance(load, LoadOp):
            self.refuse(pack, "packs what is not loaded")
        if not isinstance(tiles, scf.ForOp):
            self.refuse(pack, "stands in no loop")
        if linear(tiles.lb) != Linear() or step_of(tiles) is None:
            self.refuse(tiles, "does not start at 0 with a constant step")
        followed = [n for n, index in enumerate(load.indices) if index is induction(tiles)]
        if len(followed) != 1:
            self.refuse(load, "its position is not the counter of the loop around it in one dimension")
        others = [index for n, index in enumerate(load.indices) if n not in followed]
        outer = outermost(tiles, [*others, tiles.ub, load.memref])
        if outer is tiles:
            self.refuse(load, "no loop around it reads the same tiles again")
        if load.memref in stored(outer):
            self.refuse(outer, f"stores to {describe(load.memref)}, which is packed")
        for op in strangers(outer):
            self.refuse(op, "has an effect that may change what is packed")
        return tiles, outer, Hoisted(pack, load, followed[0])

    def rewrite(self, module: ModuleOp, match: list[Tiles]) -> None:
        for tiles in match:
            self.hoist(tiles)

    def hoist(self, tiles: Tiles) -> None:
        near = tiles.loop
        zero, one, step = (shared_index(near, n) for n in (0, 1, step_of(near) or 1))
        arrays: list[SSAValue] = []

        def pack_tile(t: BlockArgument) -> None:
            position = named("j", mul(t, step))
            for hoisted, array in zip(tiles.packs, arrays, strict=True):
                panels = hoisted.copy(position)
                StoreOp(panels, array, [t, *[zero] * len(shape_of(panels))])

        with ImplicitBuilder(Builder(InsertPoint.before(tiles.outer))):
            count = named("tiles", ceildiv(near.ub, step))
            arrays += [hoisted.allocate(count) for hoisted in tiles.packs]
            loop("t", zero, count, one, pack_tile)
        with ImplicitBuilder(Builder(InsertPoint.at_start(near.body.block))):
            number = named("t", floordiv(induction(near), step))
        for hoisted, array in zip(tiles.packs, arrays, strict=True):
            hoisted.read(array, [number, *[zero] * len(shape_of(hoisted.pack.result))])
