"""The places the measured programs live in: the original's throw-away environment, homes that
point at the scripted provider, and a network without anything but loopback."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRATCH = ROOT / ".bench"
ORIGINAL = SCRATCH / "original"
# Without edge-tts the original runs pip at every start, which would not be a fair figure.
REQUIREMENTS = (
    "hermes-agent==0.19.0",
    "aiohttp",
    "edge-tts==7.2.7",
    "python-telegram-bot[webhooks]==22.6",  # what it asks for itself, to speak with Telegram
)
SDK = SCRATCH / "sdk"
SDK_REQUIREMENTS = (
    "opentelemetry-sdk==1.45.2",
    "opentelemetry-exporter-otlp-proto-http==1.45.1",
)
ISOLATED = "HERMES_BENCH_ISOLATED"

CONFIG = """\
model:
  default: text
  provider: custom
  base_url: {url}
  {key}
  context_length: 1000000
"""


def install_original() -> None:
    _install(ORIGINAL, REQUIREMENTS)


def install_sdk() -> None:
    """OpenTelemetry's own, which we are compared with and do without."""
    _install(SDK, SDK_REQUIREMENTS)


def _install(folder: Path, requirements: Sequence[str]) -> None:
    stamp = folder / ".installed"
    wanted = " ".join((*requirements, sys.version))
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"installing {requirements[0]} into {folder.relative_to(ROOT)} …", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(exist_ok=True)
    uv = Path(sys.executable).parent / "uv"
    python = folder / "bin" / "python"
    base = os.path.realpath(sys.executable)
    subprocess.run([uv, "venv", "-q", "--python", base, folder], check=True)
    subprocess.run(
        [uv, "pip", "install", "-q", "--compile-bytecode", "--python", python, *requirements],
        check=True,
    )
    stamp.write_text(wanted)


def isolate() -> bool:
    """Run this program again in a network namespace that has loopback only, so that no program
    can reach (or wait for) the internet. False where the system does not allow it."""
    if os.environ.get(ISOLATED):
        return os.environ[ISOLATED] == "1"
    up = 'ip link set lo up && exec "$@"'
    for unshare in (["unshare", "--net"], ["unshare", "--user", "--map-root-user", "--net"]):
        command = [*unshare, "sh", "-c", up, "sh"]
        if not shutil.which("unshare"):
            break
        if subprocess.run([*command, "true"], capture_output=True).returncode == 0:
            os.environ[ISOLATED] = "1"
            again = [sys.executable, "-m", "bench", *sys.argv[1:]]
            os.execvp(command[0], [*command, *again])
    os.environ[ISOLATED] = "0"
    return False


class Home:
    """An empty home of one program, pointed at the provider."""

    def __init__(self, url: str, python: Path, *, key: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="hermes-bench-"))
        self.bin = python.parent
        state = self.path / ".hermes"
        state.mkdir(mode=0o700)
        (state / "config.yaml").write_text(CONFIG.format(url=url, key=key))
        self.cwd = self.path / "work"
        self.cwd.mkdir()
        # A clean environment. PYTHONDONTWRITEBYTECODE, if it came from outside, would make
        # every start compile every module again.
        self.env = {
            "HOME": str(self.path),
            "HERMES_HOME": str(state),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "PATH": f"{self.bin}:/usr/local/bin:/usr/bin:/bin",
            "BENCH_KEY": "sk-bench-0123456789abcdef",
            "OPENAI_API_KEY": "sk-bench-0123456789abcdef",
        }

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def original_home(url: str) -> Home:
    key = "api_key: sk-bench-0123456789abcdef"
    return Home(url, ORIGINAL / "bin" / "python", key=key)


def our_home(url: str) -> Home:
    return Home(url, Path(sys.executable), key="api_key_env: BENCH_KEY")
