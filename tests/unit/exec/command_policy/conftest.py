"""The home that the judged commands name."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def user_home() -> Iterator[None]:
    """Commands name the user's home; it must not lie in a temporary folder, as it does in CI."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", "/home/somebody")
        yield
