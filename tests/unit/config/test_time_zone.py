"""The machine's time zone by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.config.time_zone import find_machine_zone
from hermes.core.errors import ConfigError


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        (":Asia/Tokyo", "Asia/Tokyo"),
        ("/usr/share/zoneinfo/Asia/Tokyo", "Asia/Tokyo"),
    ],
)
def test_the_variable_decides(tmp_path: Path, value: str, name: str) -> None:
    assert find_machine_zone({"TZ": value}, tmp_path) == name


def test_files_of_the_system(tmp_path: Path) -> None:
    assert find_machine_zone({}, tmp_path) == "UTC"
    local = tmp_path / "etc" / "localtime"
    local.parent.mkdir()
    local.write_bytes(b"TZif")
    with pytest.raises(ConfigError, match="has no name"):
        find_machine_zone({}, tmp_path)
    (tmp_path / "etc" / "timezone").write_text("America/Lima\n")
    assert find_machine_zone({}, tmp_path) == "America/Lima"
    local.unlink()
    local.symlink_to("../usr/share/zoneinfo/Asia/Kolkata")
    assert find_machine_zone({}, tmp_path) == "Asia/Kolkata"
