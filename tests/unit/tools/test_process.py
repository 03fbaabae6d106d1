"""Into which commands typing means giving commands."""

from __future__ import annotations

import re

import pytest

from hermes.tools.process import _RUNS_A_SHELL

SHELLS = """
bash
bash -l -i
exec bash --norc
/bin/sh
FOO=1 zsh
cd x && dash
while true; do sh; done
bash -c 'bash'
true; fish
ssh host
docker exec -it box sh
sudo -s
su - bob
tmux new
rlwrap bash
""".strip().splitlines()
OTHERS = """
python3 -i
bash run.sh
bash -c 'make test'
sh ./configure
cat bash.txt
npm run dev
git push
psql
""".strip().splitlines()


@pytest.mark.parametrize("command", SHELLS)
def test_a_shell(command: str) -> None:
    assert re.search(_RUNS_A_SHELL, command)


@pytest.mark.parametrize("command", OTHERS)
def test_no_shell(command: str) -> None:
    assert not re.search(_RUNS_A_SHELL, command)
