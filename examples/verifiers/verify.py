"""A ping from the server, verified by other people's libraries."""

import json
import os
import queue
import ssl
import threading
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer

import standardwebhooks
import stripe

deliveries: queue.Queue[tuple[dict[str, str], bytes]] = queue.Queue()


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()
        deliveries.put(({name.lower(): value for name, value in self.headers.items()}, body))

    def log_message(self, format: str, *args: object) -> None:
        pass


def call(method: str, path: str, body: object = None) -> dict[str, dict[str, str]]:
    request = urllib.request.Request(os.environ["GUILDHALL_URL"] + path, method=method)
    request.add_header("Authorization", "Bearer " + os.environ["GUILDHALL_TOKEN"])
    request.add_header("Content-Type", "application/json")
    data = json.dumps(body).encode() if body is not None else None
    tls = ssl.create_default_context(cafile=os.environ.get("GUILDHALL_CA"))
    with urllib.request.urlopen(request, data, context=tls) as answer:
        text = answer.read()
    return dict(json.loads(text)) if text else {}


server = HTTPServer(("127.0.0.1", 0), Receiver)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/hook"
hook = call("POST", "/webhooks", {"url": url, "events": ["case.created"]})["data"]
try:
    call("POST", f"/webhooks/{hook['id']}/test")
    headers, body = deliveries.get(timeout=20)
finally:
    call("DELETE", f"/webhooks/{hook['id']}")
secret = hook["secret"]

VERIFIERS: dict[str, Callable[[bytes], object]] = {
    "stripe.WebhookSignature.verify_header": lambda b: stripe.WebhookSignature.verify_header(
        b.decode(), headers["service-signature"], secret, 300
    ),
    "standardwebhooks.Webhook.verify": lambda b: standardwebhooks.Webhook(secret).verify(b.decode(), headers),
}
for name, verify in VERIFIERS.items():
    verify(body)
    try:
        verify(body.replace(b"ping", b"pong"))
    except (stripe.SignatureVerificationError, standardwebhooks.WebhookVerificationError):
        print(f"{name}: accepts the event, refuses a forged one")
    else:
        raise RuntimeError(f"{name} accepts a forged event")
