"""The short story of an integration, with a client by openapi-python-client.
GUILDHALL_URL and GUILDHALL_TOKEN say where and who, and GUILDHALL_CA names the
certificate authority of a development server."""

import json
import os
import ssl
import uuid
from typing import TypeVar

from guildhall_client import AuthenticatedClient
from guildhall_client.api.cases import list_cases
from guildhall_client.api.economy import adjust_balance, list_ledger_entries
from guildhall_client.api.meta import get_me
from guildhall_client.api.webhooks import create_webhook_endpoint, delete_webhook_endpoint, test_webhook_endpoint
from guildhall_client.models import (
    AdjustBalanceRequest,
    CaseStatusFilter,
    CaseTypeFilter,
    CreateWebhookEndpointRequest,
    CreateWebhookEndpointRequestDelivery,
    Failure,
    EventPing,
    WebhookEventType,
)
from payday import pay, work
from receiver import Receiver, verified

T = TypeVar("T")


def must(answer: T | Failure | None) -> T:
    """The data of a success; a failure is raised with its stable code."""
    if answer is None:
        raise RuntimeError("an answer that the contract does not know")
    if isinstance(answer, Failure):
        raise RuntimeError(f"{answer.error.code}: {answer.error.message}")
    return answer


def check(claim: bool, otherwise: str) -> None:
    if not claim:
        raise RuntimeError(otherwise)


api = AuthenticatedClient(
    base_url=os.environ["GUILDHALL_URL"],
    token=os.environ["GUILDHALL_TOKEN"],
    verify_ssl=ssl.create_default_context(cafile=os.environ.get("GUILDHALL_CA")),
)

# Who am I?
me = must(get_me.sync(client=api))
print(f"token {me.token.preview} of guild {me.token.guild_id}, {len(me.token.scopes)} scopes, {me.api.env}")

# Pay a member, twice with one key: the second answer is the first one again.
USER = "190320984123768832"
payment = AdjustBalanceRequest(user_id=USER, delta=30, reason="Event prize")
key = str(uuid.uuid4())
first = adjust_balance.sync_detailed(client=api, body=payment, idempotency_key=key)
again = adjust_balance.sync_detailed(client=api, body=payment, idempotency_key=key)
paid = must(first.parsed).data
check(first.content == again.content, "the second answer is another one")
check(again.headers.get("Idempotent-Replay") == "true", "the second answer is no replay")
print(f"paid once: balance {paid.balance}, entry {paid.ledger_entry.id}")

# The ledger has it, at the top.
ledger = must(list_ledger_entries.sync(client=api, user_id=USER, per_page=5))
check(ledger.data[0].id == paid.ledger_entry.id, "the ledger begins with another entry")
print(f"ledger: {len(ledger.data)} entries, more: {str(ledger.has_more).lower()}")

# Warnings, as far as they are active.
cases = must(list_cases.sync(client=api, type_=CaseTypeFilter.WARN, status=CaseStatusFilter.ACTIVE))
check(len(cases.data) > 0 and all(case.type_ == "warn" for case in cases.data), "other cases were listed")
print(f"cases: {len(cases.data)} active warnings")

# A failure is a value with a code.
refused = adjust_balance.sync(client=api, body=AdjustBalanceRequest(user_id=USER, delta=-9007199254740991))
check(isinstance(refused, Failure) and refused.error.code == "balance_would_be_negative", f"got {refused}")
print("refused: balance_would_be_negative")

# Register a receiver, have it pinged, verify the signature over the raw bytes.
with Receiver() as receiver:
    wanted = CreateWebhookEndpointRequest(url=receiver.url, events=[WebhookEventType.CASE_CREATED])
    hook = must(create_webhook_endpoint.sync(client=api, body=wanted)).data
    try:
        must(test_webhook_endpoint.sync(client=api, id=hook.id))
        signature, body = receiver.deliveries.get(timeout=20)
        check(verified(signature, body, hook.secret), "the signature does not fit")
        check(not verified(signature, body + b" ", hook.secret), "a forged body passes")
        event = EventPing.from_dict(json.loads(body))
        check(event.data.webhook_id == hook.id, "the ping is for another endpoint")
        print(f"webhook: {event.type_} {event.id}, verified")
    finally:
        delete_webhook_endpoint.sync_detailed(client=api, id=hook.id)

# Pay a thousand members in ten calls, and fetch what was changed: each event once.
kept = CreateWebhookEndpointRequest(delivery=CreateWebhookEndpointRequestDelivery.PULL, events=[WebhookEventType.ECONOMY_BALANCE_CHANGED])
endpoint = must(create_webhook_endpoint.sync(client=api, body=kept)).data.id
try:
    for call in range(10):
        pay(api, endpoint, call)
    seen: set[str] = set()
    while len(seen) < 1000:
        work(api, endpoint, seen)
    print(f"payday: 1000 members in 10 calls, {len(seen)} events fetched and acknowledged")
finally:
    delete_webhook_endpoint.sync_detailed(client=api, id=endpoint)
