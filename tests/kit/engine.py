"""A real Docker daemon (the machine's, or one of our own) with an image made of this machine's
programs: nothing is downloaded."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PROGRAMS = """
    bash sh cat grep sleep setsid id env ls touch mkdir rm mv rmdir head tr wc ps kill uname seq
""".split()
_OPTIONS = "--bridge none --iptables=false --ip6tables=false --storage-driver vfs".split()


class Engine:
    """`env` is what its client needs."""

    def __init__(self, env: dict[str, str], image: str) -> None:
        self.env = env
        self.image = image

    def docker(self, *words: str) -> str:
        done = subprocess.run(
            ["docker", *words],
            env={**os.environ, **self.env},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def containers(self) -> list[str]:
        return self.docker("ps", "-a", "-q", "--filter", "label=hermes.owner").split()


@contextmanager
def engine() -> Iterator[Engine | str]:
    """An Engine; or why there is none."""
    if not shutil.which("docker"):
        yield "no Docker here: there is no program docker"
        return
    if _answers({}):
        with _image({}) as image:
            yield Engine({}, image)
        return
    server = shutil.which("dockerd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if os.geteuid() != 0 or not server:
        yield "no Docker here: no daemon answers, and we cannot start one"
        return
    folder = Path(tempfile.mkdtemp(prefix="hd"))  # short: it holds sockets
    env = {"DOCKER_HOST": f"unix://{folder}/s"}
    process = _start(server, folder, env["DOCKER_HOST"])
    try:
        if not _answers(env, process, 20):
            tail = (folder / "log").read_text()[-300:]
            yield f"no Docker here: its daemon does not start ({tail})"
            return
        with _image(env) as image:
            yield Engine(env, image)
    finally:
        process.terminate()
        process.wait(30)
        leave = ["umount", str(folder / "data")]  # it mounts it on itself, and leaves it so
        subprocess.run(leave, stderr=subprocess.DEVNULL, check=False, timeout=30)
        shutil.rmtree(folder, ignore_errors=True)


def _start(server: str, folder: Path, host: str) -> subprocess.Popen[bytes]:
    places = ["--data-root", f"{folder}/data", "--exec-root", f"{folder}/e"]
    places += ["--pidfile", f"{folder}/pid", "--host", host]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen([server, *places, *_OPTIONS], stdout=log, stderr=log)


def _answers(
    env: dict[str, str], process: subprocess.Popen[bytes] | None = None, seconds: float = 0
) -> bool:
    until = time.monotonic() + seconds
    while True:
        asked = subprocess.run(
            ["docker", "version", "--format", "{{.Server.Version}}"],
            env={**os.environ, **env},
            capture_output=True,
            timeout=90,
            check=False,
        )
        if asked.returncode == 0:
            return True
        if process is None or process.poll() is not None or time.monotonic() > until:
            return False
        time.sleep(0.1)


@contextmanager
def _image(env: dict[str, str]) -> Iterator[str]:
    name = f"hermes-test-{os.getpid()}:1"
    everything = {**os.environ, **env}
    subprocess.run(
        ["docker", "import", "-", name],
        input=_files(),
        env=everything,
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=60,
    )
    try:
        yield name
    finally:
        subprocess.run(
            ["docker", "rmi", "-f", name],
            env=everything,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=60,
        )


def _files() -> bytes:
    """Programs of this machine with their libraries, as a tar."""
    paths: dict[str, str] = {}
    for name in _PROGRAMS:
        found = shutil.which(name, path="/usr/bin:/bin")
        if found:
            paths[f"/bin/{name}"] = found
            linked = subprocess.run(["ldd", found], capture_output=True, text=True, check=False)
            for library in re.findall(r"(?:=> |^\s*)(/\S+)", linked.stdout, re.MULTILINE):
                paths[library] = library
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", dereference=True) as tar:
        above = {str(parent)[1:] for path in paths for parent in Path(path).parents}
        for folder in sorted({*above, "tmp", "etc"}):  # else they are made for nobody
            entry = tarfile.TarInfo(folder or ".")
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        for path, source in paths.items():
            tar.add(source, path.lstrip("/"))
    return out.getvalue()
