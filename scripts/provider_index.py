"""Writes src/hermes/llm/index.json, one line for each provider row and each wire.

python scripts/provider_index.py
"""

from importlib import import_module
from pathlib import Path

import msgspec

from hermes.core.wire_names import WIRE_NAMES
from hermes.llm import index, providers
from hermes.llm.wire import load_wire


def describe_rows() -> list[index.ProviderEntry]:
    """The index entries of all built-in providers."""
    folder = Path(providers.__path__[0])
    stems = sorted(path.stem for path in folder.glob("[a-z]*.py"))
    rows = {stem: import_module(f"{providers.__name__}.{stem}").PROVIDER for stem in stems}
    return [index.describe_provider(row, stem) for stem, row in rows.items()]


def render() -> bytes:
    """What the index must say."""
    entries = sorted(describe_rows(), key=lambda e: (e.rank, e.name))
    rows = b",\n".join(map(msgspec.json.encode, entries))
    facts = [(name, load_wire(name).FACTS) for name in WIRE_NAMES]
    wires = b",\n".join(b'"%s":' % n.encode() + msgspec.json.encode(f) for n, f in facts)
    return b'{"providers":[\n' + rows + b'\n],"wires":{\n' + wires + b"\n}}\n"


if __name__ == "__main__":
    index.FILE.write_bytes(render())
    print(f"{index.FILE} is written.")
