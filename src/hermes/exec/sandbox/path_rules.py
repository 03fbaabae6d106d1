"""One table of the paths that tools must not read or write, and what it says about a path."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeAlias

from hermes.config.paths import CONTEXT_FILES
from hermes.core.errors import ConfigError

Effect: TypeAlias = Literal["hide", "guard", "ask"]
"""hide: no tool reads or writes it. guard: no tool writes it. ask: commands do not write it, and
file tools only when a person has seen the change."""
Scope: TypeAlias = Literal["anywhere", "home", "root", "top"]
"""Where the names count: at any depth, in a home folder, from the root, in a workspace's top."""

_CREDENTIALS = "it holds credentials"
_PRIVATE = "it holds private data of the user"
_STARTED = "other programs run what is written there"
RULES: tuple[tuple[Effect, Scope, str, str], ...] = (
    ("hide", "anywhere", _CREDENTIALS, """
        .ssh .aws .gnupg .azure .kube .password-store .config/gcloud .config/gh .netrc .pgpass
        .pypirc .git-credentials .local/share/keyrings .docker/config.json library/keychains
        etc/shadow etc/gshadow etc/sudoers etc/sudoers.d"""),
    ("hide", "anywhere", _PRIVATE, """
        .mozilla .thunderbird .config/google-chrome .config/chromium .config/BraveSoftware
        .config/microsoft-edge .config/vivaldi .config/opera
        library/application%20support/google/chrome library/application%20support/firefox"""),
    ("hide", "home", _CREDENTIALS, """
        .docker .npmrc .yarnrc.yml .gitconfig .config/git/credentials .config/hub .config/op
        .cargo/credentials .cargo/credentials.toml .m2/settings.xml .m2/settings-security.xml
        .gradle/gradle.properties .gem/credentials .local/share/gem/credentials .bundle/config
        .composer/auth.json .config/composer/auth.json .config/pypoetry/auth.toml .condarc
        .config/pip/pip.conf .pip/pip.conf .config/uv/uv.toml .local/share/uv/credentials
        .config/nix/nix.conf .nuget/NuGet .sbt/.credentials .ivy2/.credentials .terraform.d
        .terraformrc .vault-token .config/rclone .boto .s3cfg .my.cnf .mylogin.cnf .config/glab-cli
        .config/doctl .config/heroku .config/flyctl .fly .config/hcloud .config/sops .config/age
        .config/containers/auth.json .config/wrangler .wrangler .config/netlify .vercel
        .config/configstore .config/github-copilot .config/anthropic .claude.json .codex
        .config/openai .huggingface/token .cache/huggingface/token .kaggle .databrickscfg
        .snowflake .snowsql .dbt .oci .aliyun .bluemix .config/linode-cli .config/scw .config/ngrok
        .ngrok2 .cloudflared .config/rbw .config/Bitwarden .config/keybase .authinfo .authinfo.gpg
        .msmtprc .config/msmtp .fetchmailrc .offlineimaprc .vault_pass .chef .minikube .Xauthority
        .ICEauthority .pulumi/credentials.json .config/stripe .config/tea .mc .passwd-s3fs
        .config/.wrangler .local/share/com.vercel.cli .claude/.credentials.json .gemini .continue
        .local/share/opencode .config/io.datasette.llm .aider.conf.yml
        .cache/huggingface/stored_tokens .config/1Password .mbsyncrc .muttrc .mutt .config/mutt
        .config/aerc .config/helm .config/argocd .rancher .cf .doppler .infisical .sentryclirc
        .subversion/auth .cvspass .smbcredentials .davfs2 .config/borg .config/filezilla
        .local/share/remmina .pki .step .acme.sh .lego .local/share/mkcert .config/syncthing
        .local/state/syncthing .local/share/kwalletd .electrum .bitcoin .ethereum"""),
    ("hide", "home", _PRIVATE, """
        .bash_history .zsh_history .python_history .node_repl_history .psql_history .mysql_history
        .sqlite_history .rediscli_history .lesshst .viminfo .local/share/fish/fish_history
        .config/Signal .config/discord .config/Slack .local/share/TelegramDesktop
        .local/share/atuin"""),
    ("hide", "root", "only root may read it", """
        etc/shadow etc/shadow- etc/gshadow etc/gshadow- etc/sudoers etc/sudoers.d etc/ssl/private
        etc/krb5.keytab etc/kubernetes etc/wireguard etc/openvpn etc/ipsec.secrets
        etc/swanctl/private etc/letsencrypt etc/NetworkManager/system-connections
        etc/docker/key.json etc/rancher etc/ppp/chap-secrets etc/mysql/debian.cnf
        etc/security/opasswd etc/pki/tls/private etc/postfix/sasl_passwd etc/vault.d etc/munge
        etc/credstore etc/credstore.encrypted boot var/lib/docker var/lib/containerd
        var/lib/kubelet var/lib/cloud var/lib/postgresql var/lib/mysql var/lib/rancher
        var/lib/samba/private var/lib/systemd/credential.secret var/lib/redis var/lib/mongodb
        var/lib/vault var/lib/private var/spool/cron"""),
    ("guard", "home", "it is run at every login", """
        .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv
        .zprofile .zlogin .zlogout .kshrc .cshrc .tcshrc .xprofile .xsession .xsessionrc .xinitrc
        .pam_environment .gitconfig"""),
    ("guard", "anywhere", _STARTED, """
        .config/systemd .config/autostart .config/fish library/launchagents var/spool/cron"""),
    ("guard", "root", "it belongs to the operating system", """
        etc boot proc sys dev bin sbin lib lib32 lib64 system library usr/bin usr/sbin usr/lib
        usr/lib32 usr/lib64 usr/libexec"""),
    ("guard", "anywhere", "it belongs to git, which runs programs named there", ".git"),
    ("guard", "top", "it steers the agent", ".hermes"),
    ("ask", "home", "programs of the user obey it", """
        .mkshrc .login .inputrc .vimrc .exrc .emacs .nanorc .tmux.conf .screenrc .gdbinit .psqlrc
        .sqliterc .npmrc .yarnrc .curlrc .wgetrc .netrc .direnvrc .forward .rhosts .mailcap
        .cargo/config .cargo/config.toml .cargo/env"""),
    ("ask", "home", _STARTED, """
        .ssh/ .gnupg/ .vim/ .emacs.d/ .oh-my-zsh/ .aws/ .kube/ .docker/ .config/git/ .config/fish/
        .config/nvim/ .config/systemd/ .config/autostart/ .config/environment.d/ .config/pip/
        .config/tmux/ .local/bin/ .local/lib/ .local/share/systemd/ .local/share/applications/
        bin/"""),
    ("ask", "anywhere", "AI agents follow it",
        f"{' '.join(CONTEXT_FILES)} .claude .cursor .mcp.json"),
    ("ask", "anywhere", "editors and shells run what it names", ".vscode .idea .envrc"),
    ("ask", "top", "git and shells obey it", """
        .gitmodules .gitconfig .bashrc .bash_profile .bash_login .bash_logout .profile .zshrc
        .zprofile .zshenv .zlogin .config/fish"""),
)  # fmt: skip
"""What they do, where, why, and the names; a slash at the end of a name marks a folder."""

_OWN_FOLDERS = frozenset(
    "artifacts aside cache checkpoints cron hooks logins logs mcp memories memory models outputs "
    "pairing plugins processes profiles run sessions skills".split()
)
_OWN_FILES = tuple(
    ".config .env .trust active_profile approvals. auth. config. hermes. history. state. "
    "trust.".split()
)
_OWN_STEERING = (
    ".env active_profile auth.json config.yaml cron hooks mcp memories memory plugins skills "
    "trust.json".split()
)
"""What must not come into being in the agent's home while a command runs there."""
_PROCESS_SECRETS = frozenset({"environ", "mem", "kcore", "auxv"})
_FREE_IN_GIT = (".git", "info", "exclude")
_Row: TypeAlias = tuple[tuple[str, ...], Effect, str]


def list_names(*effects: Effect, scope: Scope) -> list[str]:
    """The names of the rules with one of these effects and this scope."""
    rows = (row for row in RULES if row[0] in effects and row[1] == scope)
    return [name.replace("%20", " ") for row in rows for name in row[3].split()]


def belongs_to_agent(name: str) -> bool:
    """Whether a name in the agent's home is one of its own files or folders."""
    name = name.casefold()
    return name in _OWN_FOLDERS or name.startswith(_OWN_FILES) or ".db" in name


def find_agent_paths(
    workspace: Path, agent_home: Path, user_home: Path
) -> tuple[list[Path], list[Path]]:
    """What of the agent's own to hide and to keep missing in `workspace`; all paths are real ones.
    Raises ConfigError when the workspace is one of the agent's own folders."""
    homes = {agent_home, user_home / ".hermes"}
    if agent_home.parent.name == "profiles":
        homes.add(agent_home.parent.parent)
    home = max((h for h in homes if workspace.is_relative_to(h)), key=_count_parts, default=None)
    if home is None:
        return [], []
    if workspace == home:
        names = sorted(filter(belongs_to_agent, os.listdir(home)))  # noqa: PTH208
        return [home / name for name in names], [home / name for name in _OWN_STEERING]
    if belongs_to_agent(workspace.relative_to(home).parts[0]):
        raise ConfigError(
            f"{workspace} belongs to the agent itself, so no command may run in it: choose another "
            "folder."
        )
    return [], []


def _count_parts(path: Path) -> int:
    return len(path.parts)


def explain_denial(path: Path, user_home: Path, *, write: bool) -> str:
    """Why no tool may read (or write) this real path, whoever allows it; empty when one may."""
    parts = _fold_parts(path)
    if parts[:1] == ("proc",) and parts[-1] in _PROCESS_SECRETS:
        return _CREDENTIALS
    for effect, reason in _match_rules(parts, user_home):
        if effect == "hide" or (write and effect == "guard" and parts[-3:] != _FREE_IN_GIT):
            return reason
    return ""


def explain_influence(path: Path, workspace: Path, user_home: Path) -> str:
    """Why a person must see a change to this real path in the workspace: programs outside act upon
    it. Empty when they do not."""
    parts = _fold_parts(path)
    for effect, reason in _match_rules(parts, user_home):
        if effect == "ask":
            return reason
    below = parts[len(workspace.parts) - 1 :]
    return next((reason for _, reason in _match_at(below, 0, "top")), "")


def _fold_parts(path: Path) -> tuple[str, ...]:
    parts = tuple([part.casefold() for part in path.parts[1:]])
    return parts[1:] if parts[:1] == ("private",) else parts


def _match_rules(parts: tuple[str, ...], user_home: Path) -> Iterator[tuple[Effect, str]]:
    anywhere = _index_rules()["anywhere"]
    for at, part in enumerate(parts):
        if part in anywhere:
            yield from _match_at(parts, at, "anywhere")
    yield from _match_at(parts, 0, "root")
    for depth in _find_homes(parts, _fold_home(user_home)):
        yield from _match_at(parts, depth, "home")


def _find_homes(parts: tuple[str, ...], user_home: tuple[str, ...]) -> Iterator[int]:
    """How deep the home folders are that hold this path."""
    if user_home and parts[: len(user_home)] == user_home:
        yield len(user_home)
    if parts[:1] == ("root",) != user_home:
        yield 1
    elif parts[:1] in (("home",), ("users",)) and parts[:2] != user_home:
        yield 2


def _match_at(parts: tuple[str, ...], at: int, scope: Scope) -> Iterator[tuple[Effect, str]]:
    if at < len(parts):
        for names, effect, reason in _index_rules()[scope].get(parts[at], ()):
            if parts[at : at + len(names)] == names:
                yield effect, reason


@lru_cache(maxsize=8)
def _fold_home(user_home: Path) -> tuple[str, ...]:
    return _fold_parts(Path(os.path.realpath(user_home)))


@lru_cache(maxsize=1)
def _index_rules() -> dict[Scope, dict[str, list[_Row]]]:
    """The rules by their scope and their first name."""
    index: dict[Scope, dict[str, list[_Row]]] = {row[1]: {} for row in RULES}
    for effect, scope, reason, names in RULES:
        for name in names.split():
            parts = tuple(name.replace("%20", " ").casefold().rstrip("/").split("/"))
            index[scope].setdefault(parts[0], []).append((parts, effect, reason))
    return index
