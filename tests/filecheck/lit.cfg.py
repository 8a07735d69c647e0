"""How lit runs the files here: `lit tests/filecheck`; each file's first line says what is run."""

import os
import sys
from pathlib import Path

import lit.formats

config.name = "flashgen"  # noqa: F821  lit gives the configuration its name
config.test_format = lit.formats.ShTest(execute_external=False)  # noqa: F821
config.suffixes = [".mlir"]  # noqa: F821
config.environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # noqa: F821
# lit drops PYTHONPATH, and the command would import the package that is installed, of another checkout maybe
config.environment["PYTHONPATH"] = str(Path(__file__).parents[2])  # noqa: F821
