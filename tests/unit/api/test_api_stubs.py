"""The checked-in stubs are those of the protos, and run without a compiler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from whiflash.api.v1 import call_pb2, generation_service_pb2, model_service_pb2, stream_pb2

ROOT = Path(__file__).parents[3]


def test_stubs_match_the_protos() -> None:
    done = subprocess.run(
        [sys.executable, "protos/generate.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_a_changed_stub_is_noticed(tmp_path: Path) -> None:
    stubs = tmp_path / "whiflash" / "api" / "v1"
    stubs.mkdir(parents=True)
    (tmp_path / "protos").symlink_to(ROOT / "protos")
    copy = (tmp_path / "generate.py").write_text  # the script finds protos beside itself
    copy(
        (ROOT / "protos" / "generate.py")
        .read_text()
        .replace("Path(__file__).resolve().parent", "Path(__file__).parent / 'protos'")
    )
    done = subprocess.run(
        [sys.executable, "generate.py", "--check"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "run python protos/generate.py" in done.stderr


def test_optional_parameters_tell_unset_from_zero() -> None:
    optional = {"temperature", "top_k", "top_p", "min_p", "min_tokens", "n", "logprobs", "seed"}
    fields = call_pb2.Sampling.DESCRIPTOR.fields_by_name
    assert all(fields[name].has_presence for name in optional)
    assert call_pb2.Call.DESCRIPTOR.fields_by_name["max_tokens"].has_presence


def test_packages_and_services_are_named_for_their_version() -> None:
    modules = (call_pb2, stream_pb2, generation_service_pb2, model_service_pb2)
    assert {module.DESCRIPTOR.package for module in modules} == {"whiflash.api.v1"}
    assert set(generation_service_pb2.DESCRIPTOR.services_by_name) == {"GenerationService"}
    assert set(model_service_pb2.DESCRIPTOR.services_by_name) == {"ModelService"}
