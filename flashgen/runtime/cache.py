"""What compilers made, on disk: one file an entry, named after what it was made from.

Layout of the folder, for a key K (64 hexadecimal digits):

    K.so        a shared library, and behind it a trailer: MAGIC and the SHA-256 of what stands before
    K.gch       the same of precompiled headers
    K.lock      held (flock) while the entry is made; the system lets go of it when its holder dies
    K.*.tmp/    where it is made before it is renamed; whatever is found there under the lock is stale

An entry appears by one rename and is read back whole, so nobody sees half of one. Neither a loader nor g++
minds bytes behind what it reads.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

MAGIC = b"flashgen"
DIGEST_SIZE = hashlib.sha256().digest_size

# A build takes seconds, minutes on a loaded machine; a temporary folder this old is a killed builder's.
STALE_SECONDS = 24 * 3600

_found: dict[tuple[Path, str], Path] = {}
_private: tuple[int, Path] | None = None


def cache_folder() -> Path:
    """$FLASHGEN_CACHE_DIR, else the user's cache folder for flashgen. It need not exist."""
    if folder := os.environ.get("FLASHGEN_CACHE_DIR"):
        return Path(folder).absolute()
    import platformdirs

    return Path(platformdirs.user_cache_dir("flashgen", appauthor=False))


def make_key(*parts: str | tuple[str, ...]) -> str:
    """SHA-256 of the parts, written so that no two lists of parts look alike."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def fetch(key: str, build: Callable[[Path], object], ending: str = ".so") -> Path:
    """The entry of that key; ``build`` makes it, at the path it is given, where it is missing or damaged.

    ending: of its file; keys of entries with other endings are others.
    Of many processes and threads that ask at once, one builds and the others wait for it. A folder that
    cannot be written is read all the same; what it lacks is built, with a RuntimeWarning, in a folder of
    this process's own, which goes when the process ends. What ``build`` raises is passed on.
    """
    folder = cache_folder()
    if path := _found.get((folder, key)):
        return path
    path = folder / (key + ending)
    of_build: list[Exception] = []

    def build_noting(made: Path) -> None:
        try:
            build(made)
        except Exception as error:
            of_build.append(error)
            raise

    try:
        if not is_sound(path):
            _fill(path, build_noting)
    except (OSError, NotImplementedError) as refusal:  # filelock: a file system without locks
        if refusal in of_build:
            raise
        own = _private_folder(folder, refusal) / path.name
        if not is_sound(own):
            _fill(own, build)
        return own
    _found[folder, key] = path
    return path


def discard(path: Path) -> None:
    """Forget an entry, which is of no use although every byte is as it was written."""
    for at in [at for at, found in _found.items() if found == path]:
        del _found[at]
    path.unlink(missing_ok=True)


def is_sound(path: Path) -> bool:
    """Whether an entry is there, with every byte as it was written."""
    try:
        content = path.read_bytes()
    except OSError:
        return False
    body, trailer = content[: -len(MAGIC) - DIGEST_SIZE], content[-len(MAGIC) - DIGEST_SIZE :]
    return trailer == MAGIC + hashlib.sha256(body).digest()


def _fill(path: Path, build: Callable[[Path], object]) -> None:
    from filelock import FileLock

    folder, key = path.parent, path.stem
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f"{key}.lock"):
        if is_sound(path):
            return  # another builder had the lock before
        _remove_stale(folder, key)
        with tempfile.TemporaryDirectory(
            prefix=f"{key}.", suffix=".tmp", dir=folder, ignore_cleanup_errors=True
        ) as made_in:
            made = Path(made_in, "kernel").with_suffix(path.suffix)
            build(made)
            digest = hashlib.sha256(made.read_bytes()).digest()
            with made.open("ab") as file:
                file.write(MAGIC + digest)
            os.replace(made, path)


def _remove_stale(folder: Path, key: str) -> None:
    """Under the lock of ``key``: its temporary folders are stale; others' are once they are old."""
    old = time.time() - STALE_SECONDS
    for path in folder.glob("*.tmp"):
        try:
            stale = path.name.startswith(key) or path.stat().st_mtime < old
        except OSError:
            continue  # its builder has just removed it
        if stale:
            shutil.rmtree(path, ignore_errors=True)


def _private_folder(folder: Path, refusal: Exception) -> Path:
    """A temporary folder of this process; a fork makes its own, because its parent removes this one."""
    global _private  # noqa: PLW0603
    if _private is None or _private[0] != os.getpid():
        warnings.warn(
            f"the cache folder {folder} cannot be written ({refusal}); this process compiles what it needs "
            "for itself. FLASHGEN_CACHE_DIR names another folder",
            RuntimeWarning,
            stacklevel=3,
        )
        _private = (os.getpid(), Path(tempfile.mkdtemp(prefix="flashgen-")))
        atexit.register(_remove_private, *_private)
    return _private[1]


def _remove_private(owner: int, folder: Path) -> None:
    if owner == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)
