"""Which hosts `packages` stands for."""

from pathlib import Path

from hermes.config.packages.hosts import expand_packages, find_package_hosts


def test_the_settings_of_this_machine_are_read(tmp_path: Path):
    for name, text in {
        ".config/pip/pip.conf": "[global]\nindex-url = https://me:pw@pip.example:8443/simple\n",
        ".npmrc": "; https://old.example\nregistry=https://npm.example/\n//npm.example/:_authToken=x\n",
        ".cargo/config.toml": '[source.m]\nregistry = "sparse+https://cargo.example/index/"\n',
        ".config/go/env": "  # https://old.example\nGOPROXY=https://go.example,direct\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    env = {"HOME": str(tmp_path), "UV_INDEX_URL": "https://uv.example/simple"}
    found = find_package_hosts(env)
    own = ("uv.example", "pip.example:8443", "npm.example", "cargo.example", "go.example")
    assert set(own) <= set(found) and "pypi.org" in found and "registry.npmjs.org" in found
    assert "old.example" not in found
    assert not any("pw" in host or "token" in host.lower() for host in found)


def test_only_the_word_is_replaced(tmp_path: Path):
    env = {"HOME": str(tmp_path)}
    assert expand_packages(("a.example", "*.b.example:81"), env) == ("a.example", "*.b.example:81")
    both = expand_packages(("a.example", "packages", "pypi.org"), env)
    assert both[0] == "a.example" and both.count("pypi.org") == 1 and "packages" not in both
    assert expand_packages((), env) == ()
