"""How much memory a call takes above its inputs and its output: a process for each method and form.

Linux knows how much of a process lies in memory now (VmRSS) and the most that ever did (VmHWM), and lets the
latter start anew. A small call of the same kind first loads the libraries and starts their threads; then
the inputs are made, and what is resident is noted. The call is prepared and made once, the peak starts anew,
and the call is made a second time. What the peak is above the note is what the method holds while it runs:
scratch memory, compiled graphs, and what an allocator has kept. The output is in it and is taken off, and so
are copies of the inputs in a layout that the method likes.

The process reads Requests as a JSON list on standard input, and prints a JSON object a Usage.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from flashgen.bench.cases import Case
from flashgen.bench.methods import make_method
from flashgen.bench.peers.base import Peer
from flashgen.bench.prepare import explain, make_arrays
from flashgen.bench.process import in_new_process
from flashgen.bench.tasks import CANNOT, FAILED, RIGHT
from flashgen.errors import MissingTool
from flashgen.targets import find
from flashgen.targets.cpu import Cpu

STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
START_ANEW = "5"
"""What CLEAR_REFS takes to have the peak start anew; proc(5), Linux 4.0."""
SMALL = 64
"""Queries and keys, at most, of the call before."""


@dataclass(frozen=True)
class Request:
    """One form of a method, by its number, on a case."""

    case: Case
    method: str
    target: str
    threads: int
    form: int


@dataclass(frozen=True)
class Usage:
    """Bytes that a form holds while it runs, above inputs and output.

    state: RIGHT (it ran; its result is not looked at here), CANNOT or FAILED; note: why. forms: how many the
    method has.
    """

    case: str
    threads: int
    method: str
    form: str = ""
    forms: int = 1
    above: int = 0
    state: str = RIGHT
    note: str = ""


def check_system() -> None:
    """Raise MissingTool where the system does not tell."""
    if not os.access(CLEAR_REFS, os.W_OK):
        raise MissingTool(f"memory is measured through {CLEAR_REFS}, which cannot be written on this system")


def measure(
    cases: Sequence[Case],
    methods: Sequence[str],
    target: Cpu,
    counts: Sequence[int],
    advance: Callable[[Usage], object],
) -> list[Usage]:
    """Of each form of each method; ``advance`` is told of each usage, as it comes."""
    usages: list[Usage] = []
    for threads in counts:
        for case in cases:
            for method in methods:
                form, forms = 0, 1
                while form < forms:
                    request = Request(case, method, target.name, threads, form)
                    (fields,) = in_new_process("flashgen.bench.memory", [asdict(request)], threads)
                    usages.append(Usage(**fields))
                    advance(usages[-1])
                    form, forms = form + 1, usages[-1].forms
    return usages


def resident(what: str) -> int:
    """VmRSS or VmHWM of this process, bytes."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{what}:"))
    return int(line.split()[1]) << 10


def use(request: Request) -> Usage:
    """In the process that is measured: whatever a library raises is its result."""
    target, case = find(request.target), request.case
    assert isinstance(target, Cpu)
    usage = Usage(case.name, request.threads, request.method)
    try:
        method = make_method(request.method, target, request.threads)
        if reason := method.cannot(case):
            return replace(usage, state=CANNOT, note=reason)
        before = small(case)
        list(method.forms(before, *make_arrays(before)).values())[request.form]().call()
        return run(method, request, usage)
    except Exception as error:
        return replace(usage, state=FAILED, note=explain(error))


def small(case: Case) -> Case:
    """A case with the same forms: as many queries as keys, or fewer, where that is so."""
    queries = SMALL if case.nq >= case.nk else SMALL // 2
    return replace(case, nq=min(case.nq, queries), nk=min(case.nk, SMALL))


def run(method: Peer, request: Request, usage: Usage) -> Usage:
    """Prepare, call, and call again with a peak of its own."""
    arrays = make_arrays(request.case)
    before = resident("VmRSS")
    forms = method.forms(request.case, *arrays)
    form = list(forms)[request.form]
    prepared = forms[form]()
    prepared.call()
    CLEAR_REFS.write_text(START_ANEW)
    kept = prepared.call()  # so that the output is there when the peak is read
    above = resident("VmHWM") - before - arrays[0].nbytes - prepared.copies
    del kept
    return replace(usage, form=form, forms=len(forms), above=max(above, 0))


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is not a result
    for fields in json.load(sys.stdin):
        request = Request(**{**fields, "case": Case(**fields["case"])})
        print(json.dumps(asdict(use(request))), file=answers, flush=True)


if __name__ == "__main__":
    main()
