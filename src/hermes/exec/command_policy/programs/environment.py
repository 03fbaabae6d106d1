"""Environment variables that change what programs do: setting one can amount to running code."""

from __future__ import annotations

import re

from hermes.exec.command_policy.shell.words import is_vague, literal_text

_STEERING_VARIABLES = frozenset(
    "LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT DYLD_INSERT_LIBRARIES DYLD_LIBRARY_PATH BASH_ENV ENV "
    "PROMPT_COMMAND PS4 IFS SHELLOPTS BASHOPTS GLOBIGNORE CDPATH PYTHONSTARTUP PYTHONHOME "
    "PYTHONINSPECT PERL5OPT PERL5LIB PERL5DB RUBYOPT RUBYLIB GIT_SSH GIT_SSH_COMMAND "
    "GIT_EXTERNAL_DIFF GIT_PROXY_COMMAND GIT_ASKPASS SSH_ASKPASS GIT_EXEC_PATH GIT_TEMPLATE_DIR "
    "GIT_CONFIG GIT_CONFIG_GLOBAL GIT_CONFIG_SYSTEM GIT_CONFIG_PARAMETERS LESSOPEN LESSCLOSE "
    "TAR_OPTIONS RSYNC_RSH JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS MAKEFLAGS GNUMAKEFLAGS "
    "SHELL HOME GCONV_PATH NLSPATH LOCPATH TERMINFO INPUTRC ZDOTDIR BASH_FUNC KSH_ENV "
    "http_proxy https_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY all_proxy NODE_EXTRA_CA_CERTS "
    "SSL_CERT_FILE CURL_HOME WGETRC npm_config_script_shell RUSTC_WRAPPER CARGO_HOME "
    "HISTFILE HISTSIZE HISTCONTROL HISTIGNORE PIP_INDEX_URL PIP_EXTRA_INDEX_URL "
    "npm_config_registry UV_INDEX_URL GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE PYTHONUSERBASE "
    "PYTHONPYCACHEPREFIX DOCKER_HOST KUBECONFIG MANROFFOPT PROMPT_DIRTRIM".split()
)
_COMMAND_VARIABLES = frozenset(
    "PAGER GIT_PAGER MANPAGER EDITOR VISUAL GIT_EDITOR GIT_SEQUENCE_EDITOR BROWSER SUDO_ASKPASS "
    "CC CXX LD AR AS RUSTC FC CPP".split()
)
"""Their value is a command; the name of a program is fine."""
_SAFE_COMMANDS = re.compile(
    r"(?:cat|less|more|true|:|vi|vim|nano|code --wait|bat|delta|"
    r"(?:/usr/bin/)?(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+|ld|ld\.lld|lld|mold|ar|as|cpp|rustc"
    r"|gfortran)(?:-\d+)?|)"
)
_PATH_PART = re.compile(
    r"[\0\x1e]|.*/(?:s?bin|\.bin|scripts|shims|node_modules/\.bin)/?|/?(?:s?bin)|node_modules/\.bin"
)
_NODE_OPTIONS = re.compile(
    r"(?:--(?:max[-_]old[-_]space[-_]size|no-warnings|experimental-[\w-]+|trace-[\w-]+|"
    r"enable-source-maps|openssl-legacy-provider|unhandled-rejections|stack-size)(?:=[\w.-]*)?\s*)+"
)


def explain_risky_variable(name: str, value: str) -> str:
    """Why setting this variable needs approval; empty when it does not."""
    base = name.partition("[")[0]
    text = literal_text(value)
    if base in _STEERING_VARIABLES or base.startswith(
        ("BASH_FUNC_", "GIT_CONFIG_", "LD_", "DYLD_")
    ):
        return f"{base} changes which code other programs run"
    if base in _COMMAND_VARIABLES and not _SAFE_COMMANDS.fullmatch(text):
        return f"{base} is a command that other programs run"
    if base == "PATH" and not all(_PATH_PART.fullmatch(p) for p in value.split(":") if p):
        return "PATH is set to unusual folders"
    if base == "NODE_OPTIONS" and (is_vague(value) or not _NODE_OPTIONS.fullmatch(text)):
        return "NODE_OPTIONS changes what node runs"
    if base.startswith("HERMES_"):
        return f"{base} changes settings of the agent"
    if "$(" in text or "`" in text:
        return "a variable contains text that looks like a command"
    return ""
