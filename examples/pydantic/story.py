"""The short story of an integration, with pydantic models by
datamodel-code-generator and requests by hand. GUILDHALL_URL, GUILDHALL_TOKEN and
GUILDHALL_CA say where and who."""

import os
import ssl
import uuid
from typing import TypeVar

import httpx
from pydantic import BaseModel
from standardwebhooks import Webhook, WebhookVerificationError

from models import (
    AckWebhookEventsRequest,
    AdjustBalanceRequest,
    AdjustBalancesRequest,
    BalanceAdjustmentEnvelope,
    BalanceAdjustmentList,
    CaseEnvelope,
    CaseList,
    CreateCaseRequest,
    CreateWebhookEndpointRequest,
    Failure,
    EventPing,
    LedgerEntryList,
    Me,
    PullWebhookEventsRequest,
    TicketList,
    WebhookAcknowledgementEnvelope,
    WebhookEndpointWithSecretEnvelope,
    WebhookEventList,
)

M = TypeVar("M", bound=BaseModel)
USER = "190320984123768832"

api = httpx.Client(
    base_url=os.environ["GUILDHALL_URL"],
    headers={"Authorization": "Bearer " + os.environ["GUILDHALL_TOKEN"]},
    verify=ssl.create_default_context(cafile=os.environ.get("GUILDHALL_CA")),
)


def check(claim: bool, otherwise: str) -> None:
    if not claim:
        raise RuntimeError(otherwise)


def read(kind: type[M], path: str, **query: str) -> M:
    return kind.model_validate_json(api.get(path, params=query).raise_for_status().content)


def write(path: str, body: BaseModel, key: str | None = None) -> httpx.Response:
    headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
    # Optional members that are not set are written as null: that says the same.
    return api.post(path, content=body.model_dump_json(), headers=headers)


me = read(Me, "/me")
print(f"token {me.token.preview} of guild {me.token.guild_id}, {len(me.token.scopes)} scopes")

# Pay a member, twice with one key: the second answer is the first one again.
key = str(uuid.uuid4())
payment = AdjustBalanceRequest(user_id=USER, delta=30, reference=f"pydantic-{key}")
first, again = write("/economy/adjust", payment, key), write("/economy/adjust", payment, key)
check(first.content == again.content and again.headers.get("Idempotent-Replay") == "true", "the second answer is another one")
paid = BalanceAdjustmentEnvelope.model_validate_json(first.content).data
ledger = read(LedgerEntryList, "/economy/ledger", reference=f"pydantic-{key}").data
check([entry.id for entry in ledger] == [paid.ledger_entry.id], "the ledger has not that one entry")
print(f"paid once: {paid.ledger_entry.id}")

# Members that are null in every answer are read as None.
case = CreateCaseRequest.model_validate({"user_id": USER, "moderator_id": USER, "type": "warn", "reason": "Spam 👋"})
filed = CaseEnvelope.model_validate_json(write("/cases", case).raise_for_status().content).data
check(filed.expires_at is None, "a new case expires")
cases = read(CaseList, "/cases", type="warn", status="active").data
tickets = read(TicketList, "/tickets", order="activity").data
print(f"cases: {len(cases)} active warnings; tickets: {len(tickets)}")

refused = write("/economy/adjust", AdjustBalanceRequest(user_id=USER, delta=-9007199254740991))
code = Failure.model_validate_json(refused.content).error.code
check(code == "balance_would_be_negative", f"refused with {code}")
print(f"refused: {code}")

# Register a receiver, have it pinged, verify the raw bytes.
endpoint = CreateWebhookEndpointRequest.model_validate({"url": f"{os.environ['GUILDHALL_RECEIVER']}/{key}", "events": ["case.created"]})
hook = WebhookEndpointWithSecretEnvelope.model_validate_json(write("/webhooks", endpoint).raise_for_status().content).data
try:
    api.post(f"/webhooks/{hook.id}/test").raise_for_status()
    delivery = httpx.get(f"{os.environ['GUILDHALL_INBOX']}/{key}", timeout=30).raise_for_status()
finally:
    api.delete(f"/webhooks/{hook.id}").raise_for_status()
webhook, signed = Webhook(hook.secret), dict(delivery.headers)
webhook.verify(delivery.content.decode(), signed)
event = EventPing.model_validate_json(delivery.content)
check(event.data.webhook_id == hook.id, "a ping for another endpoint")
try:
    webhook.verify(delivery.content.replace(b"ping", b"pong").decode(), signed)
except WebhookVerificationError:
    print(f"webhook: {event.type} {event.id}, verified")
else:
    raise RuntimeError("a forged body passes")

# Pay a thousand members in ten calls, a hundred at a time: all of them or none. Each payment
# has a reference, so that none is made twice, however often the call is sent.
kept = CreateWebhookEndpointRequest.model_validate({"delivery": "pull", "events": ["economy.balance_changed"]})
hook = WebhookEndpointWithSecretEnvelope.model_validate_json(write("/webhooks", kept).raise_for_status().content).data
try:
    for call in range(10):
        members = [str(800000000000000000 + call * 100 + i) for i in range(100)]
        adjustments = [AdjustBalanceRequest(user_id=m, delta=5, reference=f"{hook.id}/{m}") for m in members]
        answer = write("/economy/adjustments", AdjustBalancesRequest(adjustments=adjustments)).raise_for_status()
        check(len(BalanceAdjustmentList.model_validate_json(answer.content).data) == 100, "not all were paid")
    # A worker waits until there is something, does its work with each event that it has not
    # seen, and acknowledges them.
    seen: set[str] = set()
    while len(seen) < 1000:
        answer = write(f"/webhooks/{hook.id}/events/pull", PullWebhookEventsRequest(wait=3)).raise_for_status()
        ids = [event.id for event in WebhookEventList.model_validate_json(answer.content).data]
        check(len(ids) > 0, "no event came")
        seen.update(ids)
        answer = write(f"/webhooks/{hook.id}/events/ack", AckWebhookEventsRequest.model_validate({"event_ids": ids})).raise_for_status()
        check(WebhookAcknowledgementEnvelope.model_validate_json(answer.content).data.settled_count == len(ids), "not all were settled")
finally:
    api.delete(f"/webhooks/{hook.id}").raise_for_status()
print(f"payday: 1000 members in 10 calls, {len(seen)} events fetched and acknowledged")
