"""The proxy, the unit and the compose file that are delivered."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from tests.e2e.dashboard.test_proxies import NGINX, run_nginx
from tests.gateway.platform_gateways import free_port
from tests.kit import say
from tests.kit.postgres import create_database
from tests.kit.server import Provider
from tests.server.serve_process import SECRET
from tests.server.test_cluster import run_nodes

pytestmark = pytest.mark.e2e
PACKAGING = Path(__file__).parents[2] / "packaging"


@pytest.fixture
def url(postgres_server: str) -> Iterator[str]:
    with create_database(postgres_server, tables=False) as made:
        yield made


def configure_nginx(folder: Path, port: int, nodes: list[str]) -> Path:
    """The delivered configuration, with these nodes."""
    server = (PACKAGING / "nginx.conf").read_text().replace("listen 80;", f"listen {port};")
    for number, address in enumerate(nodes, 1):
        server = server.replace(f"node-{number}:8642", address.removeprefix("http://"))
    folders = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "\n".join(f"{name}_temp_path {folder}/{name};" for name in folders)
    file = folder / "nginx.conf"
    user = "user root;\n" * (os.geteuid() == 0)
    file.write_text(
        f"{user}daemon off;\npid {folder}/nginx.pid;\nerror_log {folder}/error.log;\n"
        f"events {{ worker_connections 64; }}\nhttp {{\naccess_log off;\n{places}\n{server}\n}}\n"
    )
    return file


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
async def test_three_nodes_behind_the_delivered_proxy(tmp_path: Path, url: str) -> None:
    assert NGINX is not None
    folder, port = tmp_path / "nginx", free_port()
    folder.mkdir()
    async with (
        Provider(then=lambda request: say("Through", " the", " proxy.")) as provider,
        run_nodes(tmp_path, provider, url, "a", "b", "c") as nodes,
        run_nginx(NGINX, configure_nginx(folder, port, [node.url for node in nodes]), port),
        aiohttp.ClientSession(f"http://localhost:{port}") as http,
    ):
        http.headers["Authorization"] = f"Bearer {SECRET}"
        asked = {"messages": [{"role": "user", "content": "x" * 5_000_000}]}
        headers, body = {"Content-Type": "application/json"}, io.BytesIO(json.dumps(asked).encode())
        async with http.post("/v1/chat/completions", data=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
        assert await nodes[1].stop() == 0
        for number in range(6):
            async with http.get("/health/ready") as answer:
                assert answer.status == 200
            async with http.post("/v1/runs", json={"input": f"n {number}"}) as answer:
                assert answer.status == 202, await answer.text()
                run = (await answer.json())["run_id"]
            async with asyncio.timeout(90), http.get(f"/v1/runs/{run}/events") as answer:
                assert b"event: run.completed" in await answer.read()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    unit = (PACKAGING / "hermes.service").read_text()
    assert "/usr/local/bin/hermes serve" in unit
    file = tmp_path / "hermes.service"
    file.write_text(unit.replace("/usr/local/bin/hermes", "/bin/sh"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(file)], capture_output=True, text=True, timeout=90
    )
    told = [line for line in done.stderr.splitlines() if "hermes" in line]
    assert (done.returncode, told) == (0, []), done.stderr


def test_the_compose_file_starts_three_equal_nodes() -> None:
    found: Any = yaml.safe_load((PACKAGING / "compose.yaml").read_text())
    services = found["services"]
    nodes = [services[f"node-{number}"] for number in (1, 2, 3)]
    assert all(node["command"] == "hermes serve --host 0.0.0.0" for node in nodes)
    assert all({**node, "hostname": ""} == {**nodes[0], "hostname": ""} for node in nodes)
    assert nodes[0]["depends_on"] == {"init": {"condition": "service_completed_successfully"}}
    assert services["init"]["command"] == "hermes cluster init"
    assert services["init"]["restart"] == "no"
    assert services["database"]["healthcheck"]
    assert "./nginx.conf:/etc/nginx/conf.d/default.conf:ro" in services["proxy"]["volumes"]
    assert "HERMES_DATABASE_URL" in json.dumps(nodes[0]["environment"])
