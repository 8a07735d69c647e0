"""Runs the property tests again and again, each round on new random examples, until the time is over.

    python tests/fuzz.py --minutes 10 --jobs 2

A round that fails ends it with pytest's exit status, and the seed that it printed brings the failure back:

    python -m pytest -m hypothesis --hypothesis-profile fuzz --hypothesis-seed SEED
"""

from __future__ import annotations

import argparse
import secrets
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10, help="begin no round after this many")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    status = 0
    while status == 0 and time.monotonic() < end:
        seed = secrets.randbelow(2**32)
        print(f"seed {seed}", flush=True)
        status = run_round(seed, options.jobs)
    return status


def run_round(seed: int, jobs: int) -> int:
    """One run of every test that Hypothesis gives examples to; pytest's exit status."""
    parallel = ["-n", str(jobs), "--dist", "worksteal"]
    profile = ["--hypothesis-profile", "fuzz", "--hypothesis-seed", str(seed)]
    command = [sys.executable, "-m", "pytest", "-m", "hypothesis", *parallel, *profile]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
