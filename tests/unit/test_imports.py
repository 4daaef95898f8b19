"""`import whiflash` is light, and core needs numpy alone (issue section "Ground")."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"torch", "transformers", "numba", "ray", "grpc", "redis", "pydantic", "typer"}

_LOADED = """
import sys
before = set(sys.modules)
{statement}
print(*sorted({{name.partition(".")[0] for name in set(sys.modules) - before}}))
"""

_ALL_OF_CORE = """
import importlib, pkgutil, whiflash.core
for module in pkgutil.iter_modules(whiflash.core.__path__):
    importlib.import_module("whiflash.core." + module.name)
"""


def loaded_by(statement: str) -> set[str]:
    """Top-level packages that a fresh interpreter loads for `statement`."""
    code = _LOADED.format(statement=statement)
    output = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    return set(output.stdout.split())


@pytest.mark.smoke
def test_import_whiflash_loads_nothing_heavy() -> None:
    assert not loaded_by("import whiflash") & HEAVY


def test_params_come_without_torch() -> None:
    assert not loaded_by("from whiflash import SamplingParams, GenerationRequest") & HEAVY


def test_config_and_command_line_come_without_torch() -> None:
    loaded = loaded_by("import whiflash.config, whiflash.cli.main")
    assert not loaded & {"torch", "transformers", "numba", "ray", "grpc", "redis"}


def test_core_needs_numpy_only() -> None:
    foreign = loaded_by(_ALL_OF_CORE) - set(sys.stdlib_module_names) - {"numpy", "whiflash"}
    assert not {name for name in foreign if not name.startswith("_")}


def test_unknown_attribute_is_named() -> None:
    import whiflash

    with pytest.raises(AttributeError, match="no attribute 'Enigne'"):
        whiflash.Enigne  # noqa: B018
