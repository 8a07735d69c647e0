"""Options that several commands take, and what they make: a Problem, a Schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from flashgen.schedule import Schedule

DEFAULT_CAUSAL = "bottom-right"

Causal = Annotated[
    str | None,
    typer.Option(
        "--causal",
        metavar="[bottom-right|top-left]",
        help="A row sees no key after its own position: row i is at key i + Nk - Nq (bottom-right, also if "
        "nothing follows or another option does) or at key i (top-left).",
    ),
]
Window = Annotated[
    str | None,
    typer.Option(
        "--window",
        metavar="LEFT,RIGHT",
        help="A row sees keys from LEFT before its position to RIGHT behind it, both included; nothing is no "
        "bound.",
    ),
]
Mask = Annotated[
    str | None,
    typer.Option(
        "--mask",
        metavar="TEXT",
        help="Which keys a row sees, in Python: 'k <= q + 3 and h != 1' over b, h, q, k, Nq, Nk and inputs.",
    ),
]
Score = Annotated[
    str | None,
    typer.Option(
        "--score", metavar="TEXT", help="What a score becomes, in Python: 'score - 0.5 * abs(q - k)'."
    ),
]
Inputs = Annotated[
    str | None,
    typer.Option(
        "--inputs",
        metavar="DECLARATIONS",
        help="What --mask and --score read: numbers n:index, x:float and arrays name:TYPE[DIMENSIONS], with "
        "commas between them.",
    ),
]
MaskMod = Annotated[
    str | None,
    typer.Option(
        "--mask-mod", metavar="FILE.py:NAME", help="A Python function of (b, h, q_idx, k_idx) as a mask."
    ),
]
ScoreMod = Annotated[
    str | None,
    typer.Option(
        "--score-mod", metavar="FILE.py:NAME", help="A function of (score, b, h, q_idx, k_idx) as a score."
    ),
]
Softcap = Annotated[
    float | None, typer.Option("--softcap", metavar="CAP", help="Scores become CAP * tanh(score / CAP).")
]
Alibi = Annotated[
    bool, typer.Option("--alibi", help="Scores lose ALiBi's slope of their head times the distance.")
]
Sink = Annotated[bool, typer.Option("--sink", help="Each head has one more logit in the sum of every row.")]
Order = Annotated[
    str,
    typer.Option(
        "--order",
        metavar="q-outer|kv-outer",
        help="Which loop over tiles is outermost: queries (FlashAttention-2) or keys (FlashAttention-1).",
    ),
]
Br = Annotated[
    int | None, typer.Option("--br", help="Rows of a query tile.", show_default="the target decides")
]
Bc = Annotated[
    int | None, typer.Option("--bc", help="Rows of a key tile.", show_default="the target decides")
]
Panel = Annotated[
    int | None,
    typer.Option(
        "--panel",
        help="Columns of a packed panel of K and V; 0 reads them where they lie, for few queries.",
        show_default="the target decides",
    ),
]
GroupRows = Annotated[
    bool | None,
    typer.Option(
        "--group-rows/--no-group-rows",
        help="Queries of all heads of a group are rows of the same tiles: K and V are read once for all.",
        show_default="the target decides",
    ),
]
LazyRescale = Annotated[
    bool,
    typer.Option(
        "--lazy-rescale/--no-lazy-rescale", help="Divide once behind the key loop instead of at every step."
    ),
]
CausalSkip = Annotated[
    bool,
    typer.Option(
        "--causal-skip/--no-causal-skip", help="Skip tiles that no row sees; mask only those that are cut."
    ),
]
HoistPacks = Annotated[
    bool | None,
    typer.Option(
        "--hoist-packs/--no-hoist-packs",
        help="Pack K and V once for all that read them, instead of at every step.",
        show_default="the target decides",
    ),
]
RescaleThreshold = Annotated[
    float,
    typer.Option(
        "--rescale-threshold",
        help="Rescale a row only when its maximum has risen by more than this, in units of log2, up to 64; "
        "needs --lazy-rescale.",
    ),
]
SplitKeys = Annotated[
    int | None,
    typer.Option(
        "--split-keys",
        metavar="KEYS",
        help="Keys of one part, a multiple of --bc, or 0 for all: threads share the keys of a head. Needs "
        "--lazy-rescale and --order q-outer.",
        show_default="the target decides",
    ),
]
FetchAhead = Annotated[
    bool | None,
    typer.Option(
        "--fetch-ahead/--no-fetch-ahead",
        help="Fetch K, V and Q of the next head while one is computed: for short heads. Needs --hoist-packs.",
        show_default="the target decides",
    ),
]
Products = Annotated[
    str,
    typer.Option(
        "--products",
        metavar="float32|bfloat16",
        help="What the operands of matrix products are rounded to; bfloat16 needs that --dtype and a target "
        "that has such products.",
    ),
]


def make_schedule(options: Mapping[str, Any]) -> Schedule:
    """Of a command that has an option for each field of a Schedule: of its parameters, by name.

    Raises InvalidArgument.
    """
    return Schedule(**{field.name: options[field.name] for field in fields(Schedule)})


class BareCausal(TyperCommand):
    """A command whose `--causal` may stand alone, which Typer's options with values cannot."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spell_out(args))


def spell_out(args: list[str]) -> list[str]:
    """--causal -o FILE ~> --causal=bottom-right -o FILE"""
    followers = [*args[1:], "-"]
    return [
        f"--causal={DEFAULT_CAUSAL}" if word == "--causal" and after.startswith("-") else word
        for word, after in zip(args, followers, strict=False)
    ]
