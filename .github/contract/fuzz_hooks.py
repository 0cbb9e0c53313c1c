"""What a schema cannot say about a valid request, told to schemathesis."""

import ipaddress
import re
from datetime import datetime, timedelta, timezone
from typing import Any

import schemathesis


RECEIVER = re.compile(r"^https://[A-Za-z0-9_.-]+(/|$)")


@schemathesis.hook
def map_body(context: schemathesis.HookContext, body: Any) -> Any:
    """Leaves almost everything alone but values that are well formed and refused
    with 400: the end of a giveaway that has passed, a receiver over plain HTTP,
    which is for the operator to allow, one whose IPv6 address is none, and a
    change of XP that says null of all it could say."""
    operation = context.operation.definition.raw.get("operationId") if context.operation else None
    if not isinstance(body, dict):
        return body
    if operation == "createGiveaway":
        starts, ends = instant(body.get("starts_at")), instant(body.get("ends_at"))
        earliest = max(starts or datetime.now(timezone.utc), datetime.now(timezone.utc))
        if ends is not None and ends <= earliest + timedelta(minutes=1):
            if earliest.year > 9990:
                body.pop("starts_at", None)
                earliest = datetime.now(timezone.utc)
            body["ends_at"] = (earliest + timedelta(days=7)).isoformat()
    changes = [body[name] for name in ("delta", "total_xp") if name in body]
    if operation == "adjustXp" and changes and all(c is None for c in changes):
        body["delta"] = 1
    if operation in ("createWebhookEndpoint", "updateWebhookEndpoint"):
        url = body.get("url")
        if isinstance(url, str) and url.startswith("http://"):
            url = body["url"] = "https://" + url.removeprefix("http://")
        if isinstance(url, str) and url.startswith("https://[") and not is_address(url[9:].partition("]")[0]):
            url = body["url"] = "https://[2001:db8::1]" + url.partition("]")[2]
        # Names rarely resolve; some endpoints must come to be, for what is done with them.
        if isinstance(url, str) and RECEIVER.match(url) and len(url) % 2:
            body["url"] = "https://127.0.0.1:9/hook"
    return body


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def instant(value: Any) -> datetime | None:
    try:
        at = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return at if at.tzinfo else None
