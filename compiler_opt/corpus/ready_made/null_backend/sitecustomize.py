"""Keeps pip from running code of the source archives that it downloads for us.

`pip download` asks the build backend of a source archive for its metadata, which runs the archive's code. With this
folder on PYTHONPATH, Python imports this module at startup; in the process that pip starts for a build backend, it
replaces the archive's backend by one that only returns the requested name and version. In other processes it does
nothing. Interface: PEP 517, and the environment variables of pyproject_hooks (both that pip has used).
"""

import os
import pathlib
import sys
import types
from typing import Any

_VARIABLES = ("_PYPROJECT_HOOKS_BUILD_BACKEND", "PEP517_BUILD_BACKEND")
_PATH_VARIABLES = ("_PYPROJECT_HOOKS_BACKEND_PATH", "PEP517_BACKEND_PATH")
_BACKEND = "_compiler_opt_null_backend"


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Any = None) -> str:
    """Writes the minimal metadata that pip accepts; name and version come from the process that started pip."""
    del config_settings
    name, version = os.environ["COMPILER_OPT_SDIST"].split("==")
    folder = pathlib.Path(metadata_directory, f"{name.replace('-', '_')}-{version}.dist-info")
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    return folder.name


if "COMPILER_OPT_SDIST" in os.environ and any(variable in os.environ for variable in _VARIABLES):
    for _variable in _VARIABLES:
        os.environ[_variable] = _BACKEND
    for _variable in _PATH_VARIABLES:
        os.environ.pop(_variable, None)
    _backend = types.ModuleType(_BACKEND)
    _backend.__dict__["prepare_metadata_for_build_wheel"] = prepare_metadata_for_build_wheel
    sys.modules[_BACKEND] = _backend
