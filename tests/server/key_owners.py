"""Three owners of keys, for tests of who may do what."""

from __future__ import annotations

from typing import Any

ANN, BOB, LOW = (f"{name}-key-0123456789abcdef0123" for name in ("ann", "bob", "low"))
SETTINGS: dict[str, Any] = {
    "keys": [
        {"name": "ann", "key_env": "ANN_KEY"},
        {"name": "bob", "key_env": "BOB_KEY"},
        {"name": "low", "key_env": "LOW_KEY", "scopes": []},
    ]
}
ENV = {"ANN_KEY": ANN, "BOB_KEY": BOB, "LOW_KEY": LOW}
