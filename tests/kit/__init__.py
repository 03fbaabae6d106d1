"""The test kit: a scripted, fault-injecting model provider, and rigs that drive Hermes against it.

    async with Provider([call(("c1", "read_file", {"path": "a.txt"})), say("done")]) as p:
        ...                              # p.base_url; afterwards p.requests[0].json, p.last.body

The same script speaks all five wires (`Provider(..., wire="anthropic")`). A step is a Reply:
`say`, `think`, `call` (join them with `+`), `nothing`, `status(429, headers=...)`, `error_frame`,
`raw`, `html`, `redirect`, `reset`, `hang_up`, `stall`, `garbage`; or a function of the request
that returns one. Methods of a Reply bend it: `.stop("length")`, `.cut(after="text", n=2)`,
`.reset(byte=100)`, `.stall(after="args")`, `.hold(gate, after="text")`, `.bytes_each(1)`,
`.random_cuts(seed)`, `.without("stop", "usage", "done")`, `.gzip(truncated=True)`, `.as_json()`.

`async with rig(...)` opens the real Runtime against such a provider with an instant, recorded
sleep, and checks the global invariants when the block ends (tests.kit.rig, imported apart: it
needs the whole product). `run_hermes` runs the program. tests.kit.bodies reads requests back.
"""

from tests.kit.answers import Tokens
from tests.kit.home import Home, Ran, finish, run_hermes, start_hermes
from tests.kit.render import WIRES, Event
from tests.kit.replies import (
    Gate,
    Reply,
    call,
    error_frame,
    garbage,
    hang_up,
    html,
    nothing,
    raw,
    redirect,
    reset,
    say,
    stall,
    status,
    think,
)
from tests.kit.server import Provider, Received

__all__ = [
    "WIRES",
    "Event",
    "Gate",
    "Home",
    "Provider",
    "Ran",
    "Received",
    "Reply",
    "Tokens",
    "call",
    "error_frame",
    "finish",
    "garbage",
    "hang_up",
    "html",
    "nothing",
    "raw",
    "redirect",
    "reset",
    "run_hermes",
    "say",
    "stall",
    "start_hermes",
    "status",
    "think",
]
