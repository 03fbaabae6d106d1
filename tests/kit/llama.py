"""Stands in for llama.cpp behind the embedded model's socket: scripted by what is said to it.

Takes the arguments of llm/local/server_process.py. `crash` kills it, `crash once` only the first
time, `run CMD` calls the terminal, `write FILE` writes x, `insist` writes insisted.txt, again when
told to read it first, a result is repeated, `fail` and `torn` end it before it is ready.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socketserver
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path

MODEL, SOCKET = sys.argv[1], sys.argv[2]
ONCE = Path(MODEL).with_suffix(".crashed")


def step(said: str, before: str) -> dict[str, str]:
    if "you have not read it" in said and '"path": "insisted' in before:
        return json.loads(before)
    if said == "crash" or (said == "crash once" and not ONCE.exists()):
        ONCE.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if said.startswith("run "):
        return {"about": "look", "tool": "terminal", "command": said[4:]}
    if said.startswith("write "):
        return {"tool": "write_file", "path": said[6:], "content": "x"}
    if said.startswith("insist"):
        return {"tool": "write_file", "path": "insisted.txt", "content": "x"}
    return {"answer": f"{os.getpid()} heard: {said}"}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        before, last = (message["content"] for message in body["messages"][-2:])
        content = json.dumps(step(last, before))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for delta, finish in (({"content": content}, None), ({}, "stop")):
            frame = {"choices": [{"delta": delta, "finish_reason": finish}]}
            self.wfile.write(b"data: " + json.dumps(frame).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, format: str, *args: object) -> None:
        return


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def get_request(self) -> tuple[object, tuple[str, int]]:  # type: ignore[override]
        request, _ = super().get_request()
        return request, ("local", 0)


if __name__ == "__main__":
    if Path(MODEL).stem == "fail":
        sys.exit("cannot load the model")
    if Path(MODEL).stem == "torn":
        print("E llama_model_load: error loading model: no", file=sys.stderr)
        raise RuntimeError("Failed to init server")
    import threading

    server = Server(SOCKET, Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.write(1, b"ready\n")
    while os.read(0, 100):
        pass
    shutil.rmtree(Path(SOCKET).parent, ignore_errors=True)
    os._exit(0)
