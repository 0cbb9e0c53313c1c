"""What a schema cannot say about a valid request, told to schemathesis."""

import re
from datetime import datetime, timedelta, timezone
from typing import Any

import schemathesis


RECEIVER = re.compile(r"^https://[A-Za-z0-9_.-]+(/|$)")


@schemathesis.hook
def map_body(context: schemathesis.HookContext, body: Any) -> Any:
    """Leaves almost everything alone but what would hardly ever succeed, so that
    something is there for what comes after: the end of a giveaway that has passed,
    and receivers, whose names rarely exist."""
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
    if operation in ("createWebhookEndpoint", "updateWebhookEndpoint"):
        url = body.get("url")
        if isinstance(url, str) and RECEIVER.match(url) and len(url) % 2:
            body["url"] = "https://127.0.0.1:9/hook"
    return body


def instant(value: Any) -> datetime | None:
    try:
        at = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return at if at.tzinfo else None
