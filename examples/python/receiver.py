"""A receiver of webhooks, as small as it can be and still be right: raw bytes,
constant-time comparison, five minutes of tolerance."""

import hashlib
import hmac
import queue
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import NamedTuple


def verified(header: str, body: bytes, secret: str, now: float | None = None) -> bool:
    """Says whether the header signs exactly these bytes with this secret."""
    parts = [part.partition("=") for part in header.split(",")]
    at = next((value for name, _, value in parts if name == "t"), "")
    if not at.isascii() or not at.isdigit() or abs((now or time.time()) - int(at)) > 300:
        return False
    want = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    # There is one v1 per secret while a secret is being rotated.
    return any(name == "v1" and hmac.compare_digest(value.encode(), want.encode()) for name, _, value in parts)


class Delivery(NamedTuple):
    signature: str
    body: bytes


class Receiver:
    """Listens on a free port while it is used as a context manager."""

    def __init__(self) -> None:
        deliveries: queue.Queue[Delivery] = queue.Queue()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(204)
                self.end_headers()
                deliveries.put(Delivery(self.headers["Service-Signature"], body))

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.deliveries = deliveries
        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"

    def __enter__(self) -> "Receiver":
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
