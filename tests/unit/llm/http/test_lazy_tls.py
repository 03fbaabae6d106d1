"""Certificates are read late by patching ssl.SSLContext: this fails when aiohttp or ssl change."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import ssl
untouched = ssl.SSLContext.__dict__.get("set_default_verify_paths")
made = []
real = ssl.SSLContext.__new__
def watched(cls, *args, **kwargs):
    made.append(real(cls, *args, **kwargs))
    return made[-1]
ssl.SSLContext.__new__ = watched
from hermes.llm.http.lazy_tls import load_aiohttp
aiohttp = load_aiohttp()
assert load_aiohttp() is aiohttp
patched = ssl.SSLContext.__dict__.get("set_default_verify_paths")
assert patched is untouched, "the patch is still there"

late = [context for context in made if type(context) is not ssl.SSLContext]
assert late, "aiohttp makes no context when it is imported: lazy_tls is not needed any more"
assert aiohttp.connector._SSL_CONTEXT_VERIFIED in late
for context in late:
    assert type(context).__name__ == "LazyContext" and isinstance(context, ssl.SSLContext)
    assert ssl.SSLContext.cert_store_stats(context)["x509_ca"] == 0

first, *others = late
incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
first.wrap_bio(incoming, outgoing, server_hostname="h")
assert type(first) is ssl.SSLContext, "it is an ordinary one from its first use on"
fresh = ssl.create_default_context()
assert first.cert_store_stats() == fresh.cert_store_stats(), "it has the default certificates"
"""


def test_contexts_made_by_the_import_get_their_certificates_on_first_use() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
