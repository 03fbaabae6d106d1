"""What a command may see and change, and how strongly this machine can enforce it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from hermes.core.errors import ConfigError
from hermes.exec.launcher.protocol import Box
from hermes.exec.sandbox.agent_home import own
from hermes.exec.sandbox.planted_files import trusted

Mode: TypeAlias = Literal["read-only", "workspace-write", "full-access"]
Level: TypeAlias = Literal[1, 2, 3]

_GB = 1024**3
_HOMES = (Path("/root"), Path("/home"))
_NEEDED = ("/bin/sh", "/etc", "/lib", "/proc", "/dev")
_KEYS_IN_HOME = """
    .ssh .gnupg .aws .azure .config/gcloud .config/gh .config/hub .config/op .kube .docker .netrc
    .npmrc .pypirc .git-credentials .gitconfig .pgpass .my.cnf .password-store .local/share/keyrings
    .mozilla .config/google-chrome .config/chromium .config/BraveSoftware .thunderbird .bash_history
    .zsh_history .python_history .cargo/credentials .cargo/credentials.toml .terraform.d
    .vault-token .config/rclone .boto .s3cfg .hermes
""".split()
_KEYS_OF_ROOT = """
    /etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/ssl/private /etc/krb5.keytab
    /etc/sudoers /etc/sudoers.d /etc/kubernetes /var/lib/docker /var/lib/containerd
    /var/lib/kubelet /var/lib/cloud /var/spool/cron /var/lib/postgresql /var/lib/mysql /boot
    /etc/wireguard /etc/openvpn /etc/ipsec.secrets /etc/swanctl/private /etc/letsencrypt
    /etc/NetworkManager/system-connections /etc/docker/key.json /etc/rancher /etc/ppp/chap-secrets
    /etc/mysql/debian.cnf /etc/security/opasswd /etc/pki/tls/private /etc/postfix/sasl_passwd
    /etc/vault.d /etc/munge /etc/credstore /etc/credstore.encrypted /var/lib/rancher
    /var/lib/samba/private /var/lib/systemd/credential.secret /var/lib/redis /var/lib/mongodb
    /var/lib/vault /var/lib/private
""".split()
"""Read by nobody else, but by an agent that runs as root."""
_TOOLS_IN_HOME = """
    .pyenv .local/share/uv/python .local/bin .rustup .cargo/bin .nvm/versions
    .volta/bin .volta/tools .asdf .sdkman .bun/bin .deno/bin go/bin .go .rbenv .nodenv
    .local/share/mise .local/share/pnpm .linuxbrew .miniconda3 miniconda3 .conda
    anaconda3 mambaforge miniforge3
""".split()
"""Programs people install at home; a command finds them on its PATH."""


class Limits(Struct, frozen=True):
    """Of one command with everything it starts (or of each process, where there are no control
    groups). 0: this machine's own measure."""

    memory: int = 0
    processes: int = 1024
    file: int = 16 * _GB
    """Bytes of the largest file."""
    scratch: int = 2 * _GB
    """Bytes of each private /tmp."""
    open_files: int = 65536


class Policy(Struct, frozen=True):
    mode: Mode
    workspace: Path
    hidden: tuple[Path, ...] = ()
    """Neither readable nor writable, except for the workspace and `visible` inside them."""
    protected: tuple[Path, ...] = ()
    """Read-only inside the workspace; what does not exist cannot be made."""
    unmade: tuple[Path, ...] = ()
    """The same for names that somebody outside reads meanwhile, and shall find missing."""
    unwanted: tuple[Path, ...] = ()
    """What can neither be protected nor held, and is removed after the command where it was made
    by it; only in a sandbox with namespaces."""
    network: str = ""
    """Where an egress proxy listens: the path of its unix socket (tier 1), or its address on the
    machine's loopback, with what it asks for (tier 2). Empty: no network."""
    visible: tuple[Path, ...] = ()
    """Readable although inside of something hidden."""
    instead: tuple[tuple[Path, Path, bool], ...] = ()
    """Where another folder or file is seen (the second), and whether it may be changed; only in a
    sandbox with namespaces."""
    limits: Limits = Limits()


class Tier(Struct, frozen=True):
    """How strongly commands are confined here: 1 namespaces, 2 Landlock, 3 not at all."""

    level: Level
    name: str
    evidence: tuple[str, ...] = ()
    """What was tried, and what came of it."""
    lost: tuple[str, ...] = ()
    """What is not protected."""
    landlock: int = 0
    """Version of the kernel's Landlock; 0: none."""
    bwrap: str = ""
    lowered: bool = False
    """Whether it was stronger when it was last looked at."""


class Launch(Struct, frozen=True):
    """What the launcher executes, and what it does to the process first."""

    argv: tuple[str, ...]
    env: dict[str, str]
    box: Box | None = None


def standard(
    mode: Mode,
    workspace: Path,
    agent_home: Path,
    user_home: Path,
    *,
    network: str = "",
) -> Policy:
    """The policy for a workspace: what is hidden from commands, and what they may not change."""
    workspace, user_home = _real(workspace), _real(user_home)
    if workspace == Path("/"):
        raise ConfigError("The root folder cannot be a workspace; choose a folder below it.")
    ours = own(workspace, _real(agent_home), user_home)
    hidden = [_real(agent_home), *ours.hidden]
    hidden += [
        home
        for home in (user_home, *_HOMES)
        if home.is_dir() and not home.is_relative_to(workspace) and not _is_of_the_system(home)
    ]
    if user_home not in hidden:
        hidden += _existing(user_home, _KEYS_IN_HOME)
    if os.geteuid() == 0:
        hidden += _existing(Path("/"), _KEYS_OF_ROOT)
        hidden += sorted(Path("/etc/ssh").glob("ssh_host_*_key"))
    others = trusted(workspace, user_home, _TOOLS_IN_HOME)
    return Policy(
        mode,
        workspace,
        tuple(dict.fromkeys(hidden)),
        others.kept,
        (*others.unmade, *ours.unmade),
        others.unwanted,
        network,
        tuple(_existing(user_home, _TOOLS_IN_HOME)),
    )


def _is_of_the_system(home: Path) -> bool:
    """Some users, in containers above all, have a home without which nothing can run."""
    return any(_real(Path(needed)).is_relative_to(home) for needed in _NEEDED)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _existing(folder: Path, names: Iterable[str]) -> list[Path]:
    return [folder / name for name in names if os.path.exists(folder / name)]  # noqa: PTH110 - Path's raises
