"""Which commands are known to need more than the sandbox gives them."""

import pytest

from hermes.app.approvals.needs import downloads_packages, find_need
from hermes.core.escalation import Access


@pytest.mark.parametrize(
    ("command", "access"),
    [
        ("npm install", Access(network=("packages",))),
        ("pip install -e .", Access(network=("packages",))),
        ("go get x", Access(network=("packages",))),
        ("git -C sub pull", Access(network=True)),
        ("git clone git@a.example:x/y", Access(unconfined=True)),
        ("git clone ssh://a.example/x", Access(unconfined=True)),
        ("git push origin main", Access(unconfined=True)),
        ("docker build .", Access(unconfined=True)),
        ("curl https://a.example/x http://b:81/", Access(network=("a.example", "b:81"))),
        ("wget http://user:pw@a.example/", Access(network=("a.example",))),
        ("curl " + " ".join(f"http://h{n}.example" for n in range(21)), None),
        ("curl http://localhost:8000/health", None),
        ("curl http://127.0.0.1:8000/health", None),
        ("npm test", None),
        ("npm install --offline", None),
        ("git push --dry-run", None),
        ("git commit -m push", None),
        ("cargo build", None),
    ],
)  # fmt: skip
def test_needs(command: str, access: Access | None):
    found = find_need([("ls",), tuple(command.split())])
    assert (found[1] if found else None) == access
    assert found is None or found[0].startswith("it ")


def test_git_fetches_by_ssh_without_the_proxy():
    settings = '[remote "origin"]\n\turl = git@a.example:x/y.git\n'
    for command, unconfined in (("git pull", True), ("git fetch https://a.example/x", None)):
        found = find_need([tuple(command.split())], settings)
        assert found is not None and found[1].unconfined is unconfined


def test_only_installing_is_installing():
    assert downloads_packages([("pip", "install", "x"), ("npm", "ci")])
    assert not downloads_packages([("pip", "install", "x"), ("make",)])
    assert not downloads_packages([("npm", "publish")])
    assert not downloads_packages([])


@pytest.mark.parametrize(
    ("granted", "asked", "covered"),
    [
        (Access(network=True), Access(network=("a",)), True),
        (Access(network=("a", "b")), Access(network=("a",)), True),
        (Access(network=("a",)), Access(network=("a", "b")), False),
        (Access(network=("a",)), Access(network=True), False),
        (Access(write=("/a",)), Access(read=("/a",)), True),
        (Access(read=("/a",)), Access(write=("/a",)), False),
        (Access(network=True), Access(unconfined=True), False),
        (Access(unconfined=True), Access(unconfined=True), True),
        (Access(unconfined=True), Access(network=True), False),
    ],
)
def test_a_grant_covers_what_it_says_and_no_more(granted: Access, asked: Access, covered: bool):
    assert granted.covers(asked) is covered


@pytest.mark.parametrize(
    ("interpreter", "runs"),
    [("sh", True), ("bash -s -- -y", True), ("/usr/bin/python3 -", True), ("node", True),
     ("python3 -m json.tool", False), ("sh install.sh", False), ("jq .", False)],
)  # fmt: skip
def test_a_download_that_is_run_is_called_so(interpreter: str, runs: bool) -> None:
    found = find_need([("curl", "-fsSL", "https://example.org/i"), tuple(interpreter.split())])
    assert found is not None and found[1].network == ("example.org",)
    assert ("downloads a program from there and runs it" in found[0]) is runs
