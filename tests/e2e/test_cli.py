"""The program as users start it: commands, exit codes, odd standard files, odd locales."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from hermes.cli.main import COMMANDS
from hermes.version import VERSION
from tests.kit.home import program

pytestmark = pytest.mark.e2e


@dataclass(frozen=True)
class Done:
    rc: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def run(tmp_path: Path, home: Path) -> Run:
    """`run("config", "path")`; a `shell` gets the program's words as "$@"."""

    def run(
        *args: str, stdin: bytes = b"", shell: str = "", env: dict[str, str] | None = None
    ) -> Done:
        command = [*program(), *args]
        if shell:
            command = ["sh", "-c", shell, "sh", *command]
        environ = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(tmp_path),
            "HERMES_HOME": str(home),
            **(env or {}),
        }
        done = subprocess.run(
            command, input=stdin, capture_output=True, env=environ, cwd=tmp_path, timeout=90
        )
        result = Done(done.returncode, done.stdout.decode(), done.stderr.decode())
        assert "Traceback" not in result.err + result.out
        assert "Exception ignored" not in result.err
        return result

    return run


def write_config(home: Path, text: str) -> Path:
    home.mkdir(mode=0o700, exist_ok=True)
    file = home / "config.yaml"
    file.write_text(text)
    return file


# -- help, version, mistakes --------------------------------------------------------------------


def test_version_in_both_forms(run: Run) -> None:
    expected = Done(0, f"hermes {VERSION}\n", "")
    assert run("--version") == run("version") == run("-p", "x", "--version") == expected


def test_the_version_is_the_one_that_was_built() -> None:
    from importlib.metadata import version

    assert version("hermes-runtime") == VERSION


def test_without_a_command_and_without_a_terminal_something_must_be_piped_in(run: Run) -> None:
    done = run()
    assert done.rc == 2 and done.out == ""
    assert "-q" in done.err and "pipe it in" in done.err


@pytest.mark.parametrize("args", [("--help",), ("-h",), ("help",)])
def test_help_lists_what_works_and_nothing_else(run: Run, args: tuple[str, ...]) -> None:
    done = run(*args)
    assert done.rc == 0 and done.err == ""
    listed = done.out.split("options:\n")[0].splitlines()
    assert [line.split()[0] for line in listed if line.startswith("  ")] == list(COMMANDS)


@pytest.mark.parametrize("command", ["chat", "import"])
def test_help_is_a_word_too(run: Run, command: str) -> None:
    """That every command has a help: test_commands_tree."""
    done = run(command, "--help")
    assert done.rc == 0 and done.err == ""
    assert done.out.startswith(f"usage: hermes {command}")
    assert run("help", command) == done


@pytest.mark.parametrize(
    "command",
    (
        "sessions tools config trust profile checkpoints auth cron memory skills pairing plugins "
        "hooks mcp"
    ).split(),
)
def test_a_bare_command_shows_something(run: Run, command: str) -> None:
    done = run(command)
    assert done.rc == 0 and (done.out or done.err)


_OPTION = r"^  (?:-\w(?: \w+)?, )?(--[\w-]+)"


def test_help_lists_every_option_of_a_conversation(run: Run) -> None:
    listed = run("chat", "--help").out
    options = re.findall(_OPTION, listed, re.MULTILINE)
    assert len(options) > 15
    assert [option for option in options if option not in run("--help").out] == []


def test_every_option_of_a_conversation_works_without_the_word_chat(run: Run) -> None:
    listed = run("--help").out.partition("options of a conversation:")[2]
    options = re.findall(_OPTION, listed, re.MULTILINE)
    assert len(options) > 15
    for option in options:
        done = run(option, "x", "--no-such-option")
        assert done.rc == 2 and done.err.startswith("hermes: chat: "), done.err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("chta",), "unknown command chta; did you mean chat?"),
        (("session", "list"), "did you mean sessions?"),
        (("zzz",), "unknown command zzz; see hermes --help"),
        (("foo",), "unknown command foo; see hermes --help"),
        (("fix", "the", "build"), "unknown command fix; to send a message, quote it: hermes 'fix "),
        (("sesions", "list"), "did you mean sessions?"),
        (("fix", "--hard"), "unknown command fix; see hermes --help"),
        (
            ("tools", "list", "--platform", "nope"),
            "no platform nope; use one of api, cli, library,",
        ),
        (("--verbose",), "unknown option --verbose"),
        (("--plian",), "did you mean --plain?"),
        (("--output", "xml", "-q", "x"), "chat: --output: invalid choice 'xml'"),
        (("--max-turns", "0"), "chat: argument --max-turns"),
        (("-p",), "-p needs the name of a profile"),
        (("-p", "", "config", "show"), "-p needs the name of a profile"),
        (("--profile=", "config", "show"), "--profile needs the name of a profile"),
        (("-p", "../x", "config", "show"), "Profile name '../x' is not valid"),
        (("chat", "hello", "-q", "x"), "give the prompt once"),
        (("chat", "--modle", "x", "-q", "y"), "did you mean --model?"),
        (("chat", "-q", "x", "--max-turns", "0"), "is not a whole number of at least 1"),
        (("chat", "-q", "x", "--output", "xml"), "invalid choice"),
        (("chat", "-q", "x", "--api-key-env", "sk-abc-123"), "not the key itself"),
        (("chat", "-q", "x", "--resume", "a", "--continue"), "not allowed with"),
        (("completion",), "a shell is required, one of bash, zsh, fish"),
        (("config", "get"), "get needs a KEY"),
        (("config", "set", "a"), "set needs a KEY and a VALUE"),
        (("config", "show", "x"), "show takes no key"),
        (("sessions", "show"), "show needs the ID"),
        (("sessions", "delete"), "delete needs an ID"),
        (("sessions", "search"), "search needs WORDS"),
        (("version", "--loud"), "unexpected argument"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_2(run: Run, args: tuple[str, ...], said: str) -> None:
    done = run(*args)
    assert done.rc == 2
    assert done.out == ""
    assert said in done.err and "sk-abc" not in done.err
    assert done.err.startswith("hermes: ") and done.err.count("\n") == 1


@pytest.mark.parametrize("command", ["skills install", "trust add", "replay", "import"])
def test_a_name_that_no_file_can_have_is_said(run: Run, command: str) -> None:
    done = run(*command.split(), "x" * 5000)
    assert done.rc in (1, 2) and "File name too long" in done.err and "output" not in done.err
    assert done.err.count("\n") == 1 and len(done.err) < 400


def test_an_argument_that_is_no_text_is_refused(run: Run) -> None:
    done = run("pairing", "list", shell='exec "$@" "$(printf \'\\351\')"')
    assert (done.rc, done.err) == (
        2,
        "hermes: an argument is not valid UTF-8; nothing was changed\n",
    )


def test_a_closed_input_is_an_empty_one(run: Run) -> None:
    done = run("auth", "add", "openai", shell='exec "$@" <&-')
    assert done.rc == 2 and done.err == "hermes: No key was given; nothing was changed.\n"


def test_the_start_imports_next_to_nothing(run: Run) -> None:
    """`--version` and `--help` must stay instant: no argparse, no third-party module."""
    code = (
        "import sys; from hermes.cli.main import main; main([sys.argv[1]]);"
        "heavy = {'argparse', 'asyncio', 'msgspec', 're', 'typing', 'json', 'logging', 'yaml'};"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    for option in ("--version", "--help", "version"):
        done = subprocess.run(
            [
                sys.executable,
                "-I",
                "-S",
                "-c",
                f"import sys; sys.path[:0] = {sys.path!r}; {code}",
                option,
            ],
            capture_output=True,
            check=True,
        )
        assert done.stderr == b"[]\n"


# -- config -------------------------------------------------------------------------------------


def test_config_round_trip(run: Run, home: Path) -> None:
    assert run("config", "path") == Done(0, f"{home}/config.yaml\n", "")
    assert run("config", "get", "agent.max_turns") == Done(0, "90\n", "")
    assert run("config", "check").rc == 0
    assert run("config", "set", "agent.max_turns", "12") == Done(0, "agent.max_turns = 12\n", "")
    assert run("config", "set", "model.default", "grüße").rc == 0
    assert run("config", "get", "agent.max_turns").out == "12\n"
    assert run("config", "get", "model.default").out == "grüße\n"
    shown = yaml.safe_load(run("config", "show").out)
    assert shown["agent"]["max_turns"] == 12 and shown["terminal"]["timeout"] == 180
    assert json.loads(run("config", "show", "--json").out) == shown
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "config.yaml").stat().st_mode) == 0o600
    assert run("config", "get", "agent.max_turn").err.endswith("did you mean agent.max_turns?\n")


def test_profiles_do_not_see_each_other(run: Run, home: Path) -> None:
    assert run("-p", "second", "config", "set", "agent.max_turns", "5").rc == 0
    assert run("config", "get", "-p", "second", "agent.max_turns").out == "5\n"
    assert run("--profile=second", "config", "path").out == f"{home}/profiles/second/config.yaml\n"
    assert run("config", "get", "agent.max_turns").out == "90\n"


def test_check_names_every_problem_and_every_old_name(run: Run, home: Path) -> None:
    text = "model:\n  api_mode: chat_completions\n  api_key_env: MY_KEY\napprovals: {mode: off}\n"
    write_config(home, text)
    done = run("config", "check")
    assert done.rc == 0
    assert (
        "config.yaml line 2: model.api_mode: chat_completions is an old name; write chat"
        in done.out
    )
    assert "config.yaml line 4: approvals.mode: off is an old name; write never-ask" in done.out
    assert "MY_KEY is named as a key, but set neither" in done.out
    assert done.out.count("is named as a key") == 1, "what the file does not name is no problem"
    assert run("config", "check", env={"MY_KEY": "x"}).out.count("MY_KEY") == 0
    write_config(home, text + "agent: {max_turn: 1, api_max_retries: x}\n")
    done = run("config", "check")
    assert done.rc == 2
    assert done.out.count("line 5:") == 2
    assert (home / "config.yaml").read_text().startswith(text)


@pytest.mark.parametrize(
    "broken", ["agent: {", "agent:\n  max_turn: 1\n", "\x00", "agent:\n\t- x\n"]
)
@pytest.mark.parametrize(
    "args",
    [
        ("config", "show"),
        ("config", "set", "agent.max_turns", "1"),
        ("sessions", "list"),
        ("chat", "-q", "hi"),
    ],
)
def test_a_broken_config_is_named_and_left_alone(
    run: Run, home: Path, broken: str, args: tuple[str, ...]
) -> None:
    file = write_config(home, broken)
    before = file.stat()
    done = run(*args)
    assert done.rc == 2
    assert "config.yaml line" in done.err and done.err.count("\n") == 1
    after = file.stat()
    assert file.read_text() == broken
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)


@pytest.mark.parametrize("form", ["json", "stream-json"])
def test_a_program_gets_an_object_for_a_broken_config_too(run: Run, home: Path, form: str) -> None:
    write_config(home, "agent: {")
    done = run("chat", "-q", "hi", "--output", form)
    assert done.rc == 2
    result = json.loads(done.out)
    assert result["error"]["code"] == "config" and "line" in result["error"]["message"]
    assert not result["completed"]


def test_an_agents_own_tools_may_not_change_the_configuration(run: Run, home: Path) -> None:
    done = run("config", "set", "approvals.mode", "never-ask", env={"HERMES_CHILD": "1"})
    assert done.rc == 2 and "may not change" in done.err
    assert not (home / "config.yaml").exists()


def test_secrets_that_stand_in_the_file_are_not_shown(run: Run, home: Path) -> None:
    write_config(home, "platforms: {telegram: {bot_token: hunter2hunter2}}\n")
    for args in (("show",), ("show", "--json"), ("get", "platforms")):
        done = run("config", *args)
        assert done.rc == 0 and "hunter2" not in done.out and "[redacted]" in done.out


def test_a_home_open_to_others_is_closed_and_said_so(run: Run, home: Path) -> None:
    home.mkdir()
    home.chmod(0o777)
    done = run("config", "set", "agent.max_turns", "3")
    assert done.rc == 0 and "0700" in done.err
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_nothing_is_readable_by_others_under_any_umask(run: Run, home: Path) -> None:
    quoted = " ".join(shlex.quote(word) for word in program())
    script = (
        f"umask 000; {quoted} config set agent.max_turns 3 && {quoted} config show >/dev/null && "
        f"{quoted} sessions list"
    )
    assert run(shell=script).rc == 0
    for path in (home, *home.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


@pytest.mark.parametrize("command", [("config", "show"), ("sessions", "list"), ("chat", "-q", "x")])
def test_a_home_that_cannot_be_is_one_sentence(
    run: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "file").write_text("x")
    done = run(*command, env={"HERMES_HOME": str(tmp_path / "file" / "home")})
    assert done.rc == 2 and done.err.count("\n") == 1
    assert str(tmp_path / "file") in done.err


# -- odd standard files and locales -------------------------------------------------------------


@pytest.mark.parametrize(
    "args", [("--help",), ("config", "show"), ("sessions", "list"), ("chat", "--help")]
)
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_closed_standard_files(run: Run, args: tuple[str, ...], closed: str) -> None:
    assert run(*args, shell=f'exec "$@" {closed}').rc == 0


@pytest.mark.parametrize("args", [("--help",), ("config", "show"), ("chat", "--help")])
def test_a_reader_that_goes_away(run: Run, args: tuple[str, ...]) -> None:
    done = run(*args, shell='{ "$@"; echo "rc $?" >&2; } | true')
    assert done.err in ("rc 141\n", "rc 0\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_under_the_output(run: Run) -> None:
    done = run("config", "show", shell='exec "$@" >/dev/full')
    assert done.rc == 1
    assert done.err == "hermes: cannot write the output: No space left on device\n"


@pytest.mark.parametrize(
    "env",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"LC_ALL": "POSIX", "LANG": ""},
        {"PYTHONIOENCODING": "ascii"},
    ],
)
def test_any_locale_speaks_utf8(run: Run, env: dict[str, str]) -> None:
    assert run("config", "set", "model.default", "grüße-日本", env=env).rc == 0
    assert run("config", "get", "model.default", env=env).out == "grüße-日本\n"
    assert run("config", "get", "日本", env=env).rc == 2


def test_a_colour_never_appears_in_a_pipe(run: Run) -> None:
    for args in (("--help",), ("sessions", "list"), ("chta",)):
        done = run(*args, env={"TERM": "xterm-256color", "FORCE_COLOR": "1"})
        assert "\x1b" not in done.out + done.err


@pytest.mark.parametrize("args", [(), ("-q", "-"), ("-q", ""), ("-q", "  ")])
@pytest.mark.parametrize("stdin", [b"", b"\n \n"])
def test_an_empty_prompt_is_refused(run: Run, args: tuple[str, ...], stdin: bytes) -> None:
    done = run("chat", *args, stdin=stdin)
    assert done.rc == 2
    assert "prompt is empty" in done.err


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("missing.png", None, "cannot be read: No such file"),
        ("text.png", b"hello", "is not an image"),
        ("empty.png", b"", "is not an image"),
    ],
)
def test_bad_images_are_refused(
    run: Run, tmp_path: Path, name: str, content: bytes | None, said: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    done = run("chat", "-q", "look", "--image", str(tmp_path / name))
    assert done.rc == 2 and said in done.err and name in done.err


def test_a_huge_image_is_refused(run: Run, tmp_path: Path) -> None:
    with (tmp_path / "big.png").open("wb") as stream:
        stream.write(b"\x89PNG\r\n\x1a\n")
        stream.truncate(21 << 20)
    done = run("chat", "-q", "look", "--image", "big.png")
    assert done.rc == 2 and "20 MB" in done.err


# -- sessions, without any ----------------------------------------------------------------------


def test_no_sessions_yet(run: Run) -> None:
    assert run("sessions", "list") == Done(0, "", "No sessions yet.\n")
    assert json.loads(run("sessions", "list", "--json").out) == []
    assert json.loads(run("sessions", "search", "x", "--json").out) == []
    for action in ("show", "export", "delete"):
        done = run("sessions", action, "nope")
        assert done.rc == 2 and "no session 'nope'" in done.err


def test_check_names_messengers_that_are_not_known(run: Run, home: Path) -> None:
    write_config(home, "platforms: {telegrm: {}, telegram: {enabeld: true}, api_server: {}}\n")
    done = run("config", "check")
    assert done.rc == 0 and done.out.count("note: ") == 2
    assert "Unknown platform telegrm; did you mean telegram?" in done.out
    assert "did you mean platforms.telegram.enabled?" in done.out
    write_config(home, "platforms: {carrier: {}}\nplugins: {enabled: [pigeons]}\n")
    assert "carrier" not in run("config", "check").out, "a plugin may bring it"


def test_check_names_servers_that_cannot_be_used(run: Run, home: Path) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.yaml").write_text("mcp_servers: {time: {command: uvx}, a__b: {command: x}}\n")
    out = run("config", "check").out
    assert "mcp_servers.a__b is not used: its name must be" in out and "time" not in out
