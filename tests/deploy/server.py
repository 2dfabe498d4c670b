"""A server of another environment, for the process driver: it takes vLLM's flags and speaks its dialect.

Standard library only, and run by its path: nothing of this checkout is importable for it. As vLLM does, it computes
in a worker, and ends when that ends. `BEHAVIOUR` in its environment names what it does otherwise.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORKER = "import time\nwhile True: time.sleep(3600)"
WORDS = ("Good ", "morning, ", "I am ", "well.")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    given: argparse.Namespace

    def log_message(self, format: str, *args: Any) -> None:
        """As vLLM: one line a request, on standard output."""
        print(f"INFO:     {self.client_address[0]} - {format % args}", flush=True)

    def do_GET(self) -> None:
        model = {"id": self.given.served_model_name, "object": "model", "root": self.given.model}
        known = {
            "/v1/models": {"object": "list", "data": [model]},
            "/version": {"version": os.environ.get("VERSION", "0.0.1+test")},
            "/health": {},
        }
        found = known.get(self.path)
        self._whole(404 if found is None else 200, found or {})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path != "/v1/chat/completions":
            self._whole(404, {})
        elif asked.get("stream"):
            self._stream()
        else:
            message = {"role": "assistant", "content": "".join(WORDS)}
            self._whole(200, {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

    def _whole(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for word in WORDS:
            self._event({"delta": {"content": word}, "finish_reason": None})
            time.sleep(float(os.environ.get("PACE", "0")))
        self._event({"delta": {}, "finish_reason": "stop"})
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _event(self, choice: dict[str, Any]) -> None:
        body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [{"index": 0, **choice}]}
        self.wfile.write(b"data: " + json.dumps(body).encode() + b"\n\n")
        self.wfile.flush()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


def main() -> None:
    parser = argparse.ArgumentParser()
    for flag in ("--model", "--served-model-name", "--host"):
        parser.add_argument(flag, required=True)
    parser.add_argument("--port", type=int, required=True)
    Handler.given, rest = parser.parse_known_args()
    how = os.environ.get("BEHAVIOUR", "")
    print("flags:", *rest, flush=True)
    if kernel := os.environ.get("KERNEL"):
        print(f"INFO 11-23 19:20:05 [__init__.py:1240] Using {kernel} for NVFP4 GEMM", flush=True)
    if how == "ignores SIGTERM":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    worker = subprocess.Popen([sys.executable, "-c", WORKER])
    print("worker", worker.pid, flush=True)
    if how == "has children of their own":
        twice = f"import subprocess, sys; print('escaped', subprocess.Popen([sys.executable, '-c', {WORKER!r}], start_new_session=True).pid, flush=True)"
        subprocess.run([sys.executable, "-c", twice], start_new_session=True, check=True)
    if how == "hangs":
        worker.wait()
    host = "0.0.0.0" if how == "listens everywhere" else Handler.given.host
    server = Server((host, Handler.given.port), Handler)
    if how != "leaves its worker":
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
        threading.Thread(target=lambda: os._exit(1 if worker.wait() else 0), daemon=True).start()
    server.serve_forever()


if __name__ == "__main__":
    main()
