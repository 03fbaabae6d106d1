"""Copies a folder out of container images."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from hermes.core.errors import ConfigError
from hermes.exec.backends.docker_container import label_container
from hermes.exec.backends.remote import find_reason

TESTBED = "/testbed"
"""Where the images of software engineering tasks have the repository."""
_SECONDS = 600.0
_NAME = re.compile(r"[a-zA-Z0-9][\w.:/@-]*", re.ASCII)
_MISSING = re.compile(r"no such image: *(\S+)", re.IGNORECASE)


def is_image_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def find_missing_images(images: Sequence[str], env: Mapping[str, str]) -> set[str]:
    """Those that are not on this machine. ConfigError when Docker cannot be asked."""
    done = _run_docker(env, "image", "inspect", "--format", "{{.Id}}", *images)
    missing = {name.rstrip(".") for name in _MISSING.findall(done.stderr)}
    if done.returncode and not missing:
        raise ConfigError(_explain_failure(done.stderr, images[0]))
    return missing & set(images)


def require_images(images: Collection[str], env: Mapping[str, str]) -> None:
    """ConfigError when one is not on this machine: nothing pulls it."""
    if images and (missing := find_missing_images(sorted(images), env)):
        first = min(missing)
        raise ConfigError(
            f"The image {first} is missing: docker pull {first}. Nothing was started."
        )


def copy_testbed(image: str, folder: Path, env: Mapping[str, str]) -> None:
    """Copy the image's repository into the folder; nothing of the image is run."""
    name = f"hermes-copy-{os.getpid()}-{secrets.token_hex(3)}"
    made = _run_docker(
        env,
        *("create", "--pull", "never", "--network", "none", "--name", name),
        *(*label_container(), "--entrypoint", "/bin/sh", image),
    )
    if made.returncode:
        raise ConfigError(_explain_failure(made.stderr, image))
    try:
        folder.mkdir(mode=0o700)
        done = _run_docker(env, "cp", f"{name}:{TESTBED}/.", str(folder))
    finally:
        _run_docker(env, "rm", "-f", name)
    if done.returncode:
        raise ConfigError(f"The image {image} has no folder {TESTBED} that can be copied.")


def _explain_failure(complaint: str, image: str) -> str:
    lines = complaint.strip().splitlines()
    known = find_reason("docker", complaint, {"image": image, "container": ""})
    return known or f"Docker: {lines[-1] if lines else 'no answer'}"


def _run_docker(env: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("docker", path=env.get("PATH", os.defpath))
    if program is None:
        raise ConfigError("There is no program `docker` here: install it, or leave out --image.")
    try:
        return subprocess.run(
            [program, *words],
            capture_output=True,
            check=False,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            encoding="utf-8",
            errors="replace",
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"Docker does not answer ({words[0]}).") from None
