"""Shapes that tests of the benchmark measure."""

from __future__ import annotations

from flashgen.bench.cases import Case

TINY = Case("tiny", 1, 4, 2, 5, 9, 8)
