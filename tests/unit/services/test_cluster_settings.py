"""One configuration for a whole cluster; pairs that exclude each other are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("ray")

from services.config import ClusterSettings
from whiflash.core.errors import ConfigError


def load(folder: Path, text: str) -> ClusterSettings:
    path = folder / "c.toml"
    path.write_text(text, encoding="utf-8")
    return ClusterSettings.load(path)


def test_tables_go_to_their_owners(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        'model = "m"\n[server]\nhttp_port = 1234\n[cluster.verifier]\ncpus = 2\n',
    )
    assert settings.engine.model == "m"
    assert settings.server.http_port == 1234
    assert settings.cluster.verifier.cpus == 2
    assert settings.cluster.gateway.replicas == 1


def test_it_travels_as_json(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        'drafters = ["none"]\nmemory = "1GiB"\n[server]\nkeys = "k.toml"\n'
        "[cluster]\ntrusts_network = true\n[cluster.verifier]\nmax_replicas = 3\n",
    )
    again = ClusterSettings.of(json.loads(json.dumps(settings.as_table())))
    assert again == settings
    assert again.engine.model_fields_set == settings.engine.model_fields_set


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[cluster.verifier]\nmin_replicas = 3\nmax_replicas = 2", "max_replicas 2 is below"),
        (
            'drafters = ["eagle3:x"]\n[cluster.drafters.eagle3]\nmin_replicas = 2',
            r"cluster\.drafters\.eagle3\.max_replicas 1 is below min_replicas 2",
        ),
        ("[cluster.verifier]\ngpus = 1", "device cpu and cluster.verifier.gpus 1 exclude"),
        ('device = "cuda"', "device cuda and cluster.verifier.gpus 0 exclude"),
        ('store = "file"\n[cluster.verifier]\nmax_replicas = 2', "store file belongs to one"),
        ('[cluster]\nhost = "node"', "needs cluster.token_file"),
        ('[cluster]\nhost = "0.0.0.0"', r"cluster\.host: must be '127\.0\.0\.1' or 'node', got"),
        ("[cluster]\nmagic = 1", r"unknown option 'cluster\.magic' \(known: host, token_file"),
        (
            "[cluster.verifier]\nmagic = 1",
            r"unknown option 'cluster\.verifier\.magic' \(known: cpus",
        ),
        ("[cluster.router]\ngpu = 1", r"'cluster\.router\.gpu' \(known: cpus, gpus\)"),
        ("[cluster.drafters.eagle3]\ncpus = -1", r"cluster\.drafters\.eagle3\.cpus: must be at le"),
        ('[cluster.drafters.eagle3]\ndtype = "f8"', r"dtype: must be 'float32', 'bfloat16' or 'f"),
        ("[cluster]\nverifier = 3", "cluster.verifier: must be a table, got 3"),
        ("cluster = 3", "cluster must be a table of options, got 3"),
        ("server = 3", "server must be a table of options, got 3"),
        ("magic = 1", "unknown option 'magic'"),
        ("[cluster", "broken TOML"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        load(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_without_keys_the_network_must_be_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WHIFLASH_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="trusts_network"):
        load(tmp_path, "").auth()
    with pytest.raises(ConfigError, match=r"`whiflash keys new --id \S+ --tenant \S+ --file "):
        load(tmp_path, "").auth()
    load(tmp_path, "[cluster]\ntrusts_network = true").auth()
    with pytest.raises(ConfigError, match="keys"):
        load(tmp_path, '[server]\nhost = "0.0.0.0"\n[cluster]\ntrusts_network = true').auth()
    monkeypatch.setenv("WHIFLASH_API_KEY", "wf-" + "x" * 40)
    load(tmp_path, "").auth()


def test_the_token_comes_from_its_file(tmp_path: Path) -> None:
    token = tmp_path / "token"
    settings = load(tmp_path, f'[cluster]\nhost = "node"\ntoken_file = "{token}"')
    with pytest.raises(ConfigError, match="cannot read"):
        settings.access()
    token.write_text("short\n")
    with pytest.raises(ConfigError, match="16 characters"):
        settings.access()
    token.write_text("x" * 20 + "\n")
    assert settings.access().token == "x" * 20
    assert "x" * 20 not in json.dumps(settings.as_table())
