"""Writes generated/: the canonical kernels, and the derivation of FlashAttention-2 step by step.

    generated/fa1_avx2.cpp, fa2_causal_cuda.cu, ...    kernels for D = 64 with each target's own tiles; of
                                                       bfloat16 where the target multiplies that, else float32
    generated/derivation/00-build.mlir, ...            the module after each pass: D = 8, tiles of 4 x 4
    generated/derivation.svg                           what `flashgen derive --causal` draws

`make generated` runs this; tests/test_generated.py holds the folder to it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flashgen import FA1, FA2, Problem
from flashgen.build import build
from flashgen.cli.derive import draw
from flashgen.emission import source
from flashgen.passes.pipeline import derivation, run
from flashgen.targets import TARGETS

FOLDER = Path(__file__).parent.parent / "generated"
SCHEDULES = {"fa1": FA1, "fa2": FA2}
MASKS = {"": None, "_causal": "bottom-right"}


def main() -> None:
    wanted = everything()
    for path in present() - wanted.keys():
        (FOLDER / path).unlink()
    for path, text in wanted.items():
        file = FOLDER / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
            print(f"generated/{path}")


def everything() -> dict[str, str]:
    """All texts by file name."""
    return {**kernels(), **modules(), **pictures()}


def present() -> set[str]:
    """The files that are there."""
    return {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}


def kernels() -> dict[str, str]:
    """Sources by file name."""
    return {
        f"{algorithm}{mask}_{name}{target.suffix}": source(
            Problem(64, dtype=target.products[-1], causal=causal),
            replace(schedule, products=target.products[-1]),
            target,
        )
        for name, target in TARGETS.items()
        for algorithm, schedule in SCHEDULES.items()
        for mask, causal in MASKS.items()
    }


def modules() -> dict[str, str]:
    """Printed modules by file name."""
    module = build(Problem(8, causal="bottom-right"), br=4, bc=4)
    stages = [("build", str(module))]
    schedule = replace(FA2, br=4, bc=4, panel=0, group_rows=False, split_keys=0)
    run(module, derivation(schedule), lambda name, stage: stages.append((name, str(stage))))
    return {f"derivation/{n:02}-{name}.mlir": f"{text}\n" for n, (name, text) in enumerate(stages)}


def pictures() -> dict[str, str]:
    """SVGs by file name."""
    return {"derivation.svg": draw("bottom-right", "q-outer", lazy_rescale=True, causal_skip=True)}


if __name__ == "__main__":
    main()
