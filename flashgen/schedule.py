"""How it is to be computed: a point that users choose, tuners search and caches key on."""

from __future__ import annotations

from dataclasses import dataclass, fields

from flashgen.errors import InvalidArgument, check_choice, check_positive

ORDERS = ("kv-outer", "q-outer")
PRODUCTS = ("float32", "bfloat16")
MAX_THRESHOLD = 64
"""A row's sum is at most Nk 2^threshold: up to here float32 holds it, times values up to 2^63 / Nk."""

MAX_PART = 1 << 48
"""Keys of a part: more than memory holds, and far from where sums of 64-bit indices overflow."""


@dataclass(frozen=True)
class Schedule:
    """The choices that the passes carry out. The default is FlashAttention-2; see ``FA1`` for its start.

    order: "kv-outer" (FlashAttention-1: the key loop is outermost and the state is in memory) or
        "q-outer" (FlashAttention-2: the query loop is outermost and the state stays on chip).
    br, bc: rows of a query tile and of a key tile; None leaves the choice to the target.
    lazy_rescale: carry l * O and divide once behind the key loop, instead of normalising every step.
    causal_skip: loop bounds from the mask; tiles that no mask cuts run without one.
    panel: columns of a packed panel of K and V, 0 for none, which sums a score's products in another order;
        None leaves the choice to the target.
    hoist_packs: pack K and V once for all query tiles and heads that read them, instead of in every key
        step; it costs the memory of the panels. None leaves the choice to the target.
    rescale_threshold: rescale a row only when its maximum has risen by more than this, in units of log2, from
        0 (follow every maximum) to 64; FlashAttention-4's is 8. Needs lazy_rescale.
    group_rows: the queries of all heads of a group are rows of the same tiles, so that each read of K and V
        serves them all; None leaves the choice to the target.
    split_keys: keys of one part, a multiple of bc up to MAX_PART, or 0 for all of them. Parts wait for
        nothing, so that threads share the keys of one head; then their results are merged (Flash-Decoding).
        Needs lazy_rescale and order "q-outer". None leaves the choice to the target.
    fetch_ahead: while one head is computed, K, V and Q of the next come into the caches: it pays for short
        heads. Needs hoist_packs. None leaves the choice to the target.
    products: what the operands of the two matrix products are rounded to, "float32" or "bfloat16"; sums are
        float32 either way. "bfloat16" rounds P, and counts what is subnormal, in Q, K, V and in sums of
        products, as 0; scores stay within float32 before they are scaled, too. Needs a problem of dtype
        "bfloat16", panels, and a target that has such products.

    Raises InvalidArgument.
    """

    order: str = "q-outer"
    br: int | None = None
    bc: int | None = None
    lazy_rescale: bool = True
    causal_skip: bool = True
    panel: int | None = None
    hoist_packs: bool | None = None
    group_rows: bool | None = None
    rescale_threshold: float = 0.0
    split_keys: int | None = None
    fetch_ahead: bool | None = None
    products: str = "float32"

    def __post_init__(self) -> None:
        check_choice("order", self.order, ORDERS)
        for field in ("br", "bc"):
            if getattr(self, field) is not None:
                check_positive(field, getattr(self, field))
        for field in ("lazy_rescale", "causal_skip"):
            check_choice(field, getattr(self, field), (True, False))
        check_threshold("rescale_threshold", self.rescale_threshold)
        if self.rescale_threshold and not self.lazy_rescale:
            raise InvalidArgument("rescale_threshold", self.rescale_threshold, "it needs lazy_rescale")
        check_choice("group_rows", self.group_rows, (None, True, False))
        self._check_packs()
        self._check_parts()

    def _check_packs(self) -> None:
        if self.panel is not None:
            check_positive("panel", self.panel, least=0)
        check_choice("hoist_packs", self.hoist_packs, (None, True, False))
        if self.panel == 0 and self.hoist_packs is None:
            object.__setattr__(self, "hoist_packs", False)  # there is nothing to hoist
        if self.hoist_packs and self.panel == 0:
            raise InvalidArgument("hoist_packs", True, "it needs panels: panel above 0")
        check_choice("fetch_ahead", self.fetch_ahead, (None, True, False))
        if self.hoist_packs is False and self.fetch_ahead is None:
            object.__setattr__(self, "fetch_ahead", False)  # nothing is packed ahead, either
        if self.fetch_ahead and self.hoist_packs is False:
            raise InvalidArgument("fetch_ahead", True, "it needs hoist_packs")
        check_choice("products", self.products, PRODUCTS)
        if self.products == "bfloat16" and self.panel == 0:
            raise InvalidArgument("products", repr(self.products), "it needs panels: panel above 0")

    def _check_parts(self) -> None:
        if self.split_keys is not None:
            check_positive("split_keys", self.split_keys, least=0, most=MAX_PART)
            if self.split_keys and not (self.lazy_rescale and self.order == "q-outer"):
                allowed = "it needs lazy_rescale and order 'q-outer'"
                raise InvalidArgument("split_keys", self.split_keys, allowed)
            if self.bc is not None and self.split_keys % self.bc:
                allowed = f"a multiple of bc {self.bc} is allowed, or 0"
                raise InvalidArgument("split_keys", self.split_keys, allowed)

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
        if self.rescale_threshold:
            rescale += f"_by{number(self.rescale_threshold)}"
        skip = "skip" if self.causal_skip else "noskip"
        order = self.order.replace("-", "_")
        packs = f"panel{self.panel}" + ("_hoisted" if self.hoist_packs else "")
        packs += "_ahead" if self.fetch_ahead else ""
        rows = "group" if self.group_rows else "head"
        parts = f"_split{self.split_keys}" if self.split_keys else ""
        products = "" if self.products == "float32" else f"_{self.products}_products"
        return f"{order}_br{self.br}_bc{self.bc}_{rescale}_{skip}_{packs}_{rows}{parts}{products}"


def check_threshold(argument: str, value: object) -> None:
    """Raise InvalidArgument unless ``value`` is a number that scores may lie above their reference by."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_THRESHOLD:
        raise InvalidArgument(argument, repr(value), f"a number from 0 to {MAX_THRESHOLD} is allowed")


def number(x: float) -> str:
    """x, all of its digits, as a part of an identifier: 8, 0p5, 1em05."""
    return repr(float(x)).removesuffix(".0").replace(".", "p").replace("-", "m")


FA1 = Schedule(order="kv-outer", lazy_rescale=False, causal_skip=False)
FA2 = Schedule()
