"""A kernel by hand, in the C interface of emitted ones: it stands in where emission is not the subject.

Plain loops in double precision, so that what it returns is right to a rounding of float32.
"""

from __future__ import annotations

import numpy as np
import pytest

from flashgen.errors import MissingTool
from flashgen.problem import Problem
from flashgen.runtime.compiler import find_compiler
from flashgen.runtime.cpu_features import require
from flashgen.targets.cpu import Cpu

HEAD = r"""
#include <math.h>
#include <stdint.h>

typedef struct flashgen_tensor { void *data; int64_t size[4]; int64_t stride[4]; } flashgen_tensor;

static inline float *at(const flashgen_tensor *t, int64_t a, int64_t b, int64_t c, int64_t d) {
    return (float *)t->data + a * t->stride[0] + b * t->stride[1] + c * t->stride[2] + d * t->stride[3];
}
"""

ATTENTION = (
    HEAD
    + r"""
static int64_t visible(int64_t row, int64_t nq, int64_t nk) {
    int64_t end = %(end)s;
    return end < 0 ? 0 : end > nk ? nk : end;
}

static double score(const flashgen_tensor *q, const flashgen_tensor *k, int64_t b, int64_t h, int64_t g,
                    int64_t i, int64_t j, double scale) {
    double sum = 0;
    for (int64_t d = 0; d < q->size[3]; ++d) sum += (double)*at(q, b, h, i, d) * *at(k, b, g, j, d);
    return scale * sum;
}

extern "C" int %(name)s(const flashgen_tensor *q, const flashgen_tensor *k, const flashgen_tensor *v,
                        const flashgen_tensor *o, const flashgen_tensor *lse, float scale, int threads) {
    (void)threads;
    int64_t group = q->size[1] / k->size[1], nq = q->size[2], nk = k->size[2];
    for (int64_t b = 0; b < q->size[0]; ++b)
        for (int64_t h = 0; h < q->size[1]; ++h)
            for (int64_t i = 0; i < nq; ++i) {
                int64_t g = h / group, end = visible(i, nq, nk);
                double max = -INFINITY, sum = 0;
                for (int64_t j = 0; j < end; ++j) max = fmax(max, score(q, k, b, h, g, i, j, scale));
                for (int64_t j = 0; j < end; ++j) sum += exp(score(q, k, b, h, g, i, j, scale) - max);
                for (int64_t d = 0; d < v->size[3]; ++d) {
                    double dot = 0;
                    for (int64_t j = 0; j < end; ++j)
                        dot += exp(score(q, k, b, h, g, i, j, scale) - max) * *at(v, b, g, j, d);
                    *at(o, b, h, i, d) = end ? (float)(dot / sum) : 0.0f;
                }
                *at(lse, b, h, i, 0) = end ? (float)(max + log(sum)) : -INFINITY;
            }
    return 0;
}
"""
)

PROBE = (
    HEAD
    + r"""
extern "C" int %(name)s(const flashgen_tensor *, const flashgen_tensor *, const flashgen_tensor *,
                        const flashgen_tensor *o, const flashgen_tensor *lse, float scale, int threads) {
    *at(o, 0, 0, 0, 0) = scale;
    *at(lse, 0, 0, 0, 0) = (float)threads;
    return threads == 13;
}
"""
)

MARK = (
    HEAD
    + r"""
typedef %(type)s stored;
extern "C" int %(name)s(const flashgen_tensor *q, const flashgen_tensor *k, const flashgen_tensor *v,
                        const flashgen_tensor *o, const flashgen_tensor *lse, float scale, int) {
    *(stored *)q->data += 1;
    *(stored *)k->data += 2;
    *(stored *)v->data += 3;
    for (int64_t b = 0; b < o->size[0]; ++b)
        for (int64_t h = 0; h < o->size[1]; ++h)
            for (int64_t i = 0; i < o->size[2]; ++i) {
                stored *row = (stored *)o->data + b * o->stride[0] + h * o->stride[1] + i * o->stride[2];
                for (int64_t d = 0; d < o->size[3]; ++d) row[d * o->stride[3]] = 100 * h + 10 * i + d;
                *at(lse, b, h, i, 0) = scale;
            }
    return 0;
}
"""
)

ENDS = {
    None: "(void(row), void(nq), nk)",
    "bottom-right": "row + 1 + nk - nq",
    "top-left": "(void(nq), row + 1)",
}


def attention_source(name: str, problem: Problem) -> str:
    """Attention, right for every size that the interface allows."""
    return ATTENTION % {"name": name, "end": ENDS[problem.causal]}


def probe_source(name: str) -> str:
    """Writes scale to the first element of o and threads to that of lse; fails for 13 threads."""
    return PROBE % {"name": name}


def mark_source(name: str, stored: str = "float") -> str:
    """Adds 1, 2 and 3 to the first elements of q, k and v, although it is to read them: who holds the memory
    that it was given sees that. Writes 100 h + 10 i + d to o, and scale to lse. stored: a type of C."""
    return MARK % {"name": name, "type": stored}


def attention_expected(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, causal: str | None
) -> tuple[np.ndarray, np.ndarray]:
    """o and lse in float64."""
    q, k, v = (np.asarray(array, np.float64) for array in (q, k, v))
    nq, nk = q.shape[2], k.shape[2]
    group = q.shape[1] // max(k.shape[1], 1)
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    shift = nk - nq if causal == "bottom-right" else 0
    hidden = np.triu(np.ones((nq, nk), bool), 1 + shift) if causal else np.zeros((nq, nk), bool)
    scores = np.where(hidden, -np.inf, scale * q @ k.swapaxes(2, 3))
    top = scores.max(axis=3, keepdims=True, initial=-np.inf)
    weights = np.where(hidden, 0, np.exp(scores - np.where(np.isinf(top), 0, top)))
    total = weights.sum(axis=3, keepdims=True)
    with np.errstate(divide="ignore"):
        return weights @ v / np.where(total, total, 1), (top + np.log(total))[..., 0]


def skip_unless_it_runs(target: Cpu) -> None:
    """Skip the test where there is no compiler, or the processor is another."""
    try:
        find_compiler()
        require(target)
    except MissingTool as reason:
        pytest.skip(str(reason))
