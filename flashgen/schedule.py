"""How it is to be computed: a point that users choose, tuners search and caches key on."""

from __future__ import annotations

from dataclasses import dataclass, fields

from flashgen.errors import InvalidArgument, check_choice, check_positive

ORDERS = ("kv-outer", "q-outer")


@dataclass(frozen=True)
class Schedule:
    """The choices that the passes carry out. The default is FlashAttention-2; see ``FA1`` for its start.

    order: "kv-outer" (FlashAttention-1: the key loop is outermost and the state is in memory) or
        "q-outer" (FlashAttention-2: the query loop is outermost and the state stays on chip).
    br, bc: rows of a query tile and of a key tile; None leaves the choice to the target.
    lazy_rescale: carry l * O and divide once behind the key loop, instead of normalising every step.
    causal_skip: loop bounds from the mask; tiles that no mask cuts run without one.
    panel: columns of a packed panel of K and V, 0 for none; None leaves the choice to the target.
    group_rows: the queries of all heads of a group are rows of the same tiles, so that each read of K and V
        serves them all; None leaves the choice to the target.

    Raises InvalidArgument.
    """

    order: str = "q-outer"
    br: int | None = None
    bc: int | None = None
    lazy_rescale: bool = True
    causal_skip: bool = True
    panel: int | None = None
    group_rows: bool | None = None

    def __post_init__(self) -> None:
        check_choice("order", self.order, ORDERS)
        for field in ("br", "bc"):
            if getattr(self, field) is not None:
                check_positive(field, getattr(self, field))
        for field in ("lazy_rescale", "causal_skip"):
            check_choice(field, getattr(self, field), (True, False))
        check_choice("group_rows", self.group_rows, (None, True, False))
        if self.panel is not None:
            check_positive("panel", self.panel, least=0)

    @property
    def complete(self) -> bool:
        """Whether every field is decided: what a pass or a name needs."""
        return all(getattr(self, f.name) is not None for f in fields(self))

    @property
    def name(self) -> str:
        """Made of every field, safe as a file name and as a C identifier."""
        if not self.complete:
            raise InvalidArgument("schedule", self, "Target.complete fills its open fields first")
        rescale = "lazy" if self.lazy_rescale else "eager"
        skip = "skip" if self.causal_skip else "noskip"
        order = self.order.replace("-", "_")
        rows = "group" if self.group_rows else "head"
        return f"{order}_br{self.br}_bc{self.bc}_{rescale}_{skip}_panel{self.panel}_{rows}"


FA1 = Schedule(order="kv-outer", lazy_rescale=False, causal_skip=False)
FA2 = Schedule()
