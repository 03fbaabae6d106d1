"""The process that runs a model: llama.cpp behind a socket that only its owner can reach."""

# Run by file name, without the rest of Hermes: `server_process.py MODEL SOCKET CONTEXT THREADS`.
# It prints `ready`, and lives as long as its standard input stays open.

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

CACHE_MIB = 256
"""Memory for the prompts of other conversations, so that returning to one is fast."""
_PARENT_GONE = 1  # PR_SET_PDEATHSIG


def main(model: str, socket: str, context: int, threads: int) -> None:
    def exit_cleanly(*_: object) -> None:
        with contextlib.suppress(OSError):
            Path(socket).unlink(missing_ok=True)
            for leftover in Path(socket).parent.iterdir():
                leftover.unlink(missing_ok=True)
            Path(socket).parent.rmdir()
        os._exit(0)

    signal.signal(signal.SIGTERM, exit_cleanly)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _ask_to_die_first()
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames = [socket]
    params.n_ctx = context
    params.n_parallel = 1
    params.cache_ram_mib = CACHE_MIB
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.n_threads_http = 2
    params.ui = False
    params.warmup = False
    params.verbosity = 1
    server = xllamacpp.Server(params)
    os.write(1, b"ready\n")
    while os.read(0, 4096):
        pass
    del server
    exit_cleanly()


def _ask_to_die_first() -> None:
    """Die with the parent, and before other processes when memory runs out."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PARENT_GONE, signal.SIGTERM, 0, 0, 0)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("800")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
