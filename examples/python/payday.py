"""A payday of a thousand members, and a worker that fetches what was changed."""

from guildhall_client import AuthenticatedClient
from guildhall_client.api.economy import adjust_balances
from guildhall_client.api.webhooks import ack_webhook_events, pull_webhook_events
from guildhall_client.models import (
    AckWebhookEventsRequest,
    AdjustBalanceRequest,
    AdjustBalancesRequest,
    BalanceAdjustmentList,
    PullWebhookEventsRequest,
    WebhookAcknowledgementEnvelope,
    WebhookEventList,
)


def pay(api: AuthenticatedClient, payday: str, call: int) -> None:
    """Pays a hundred members: all of them or none. Each payment has a reference, so that
    none is made twice, however often the call is sent."""
    members = [str(800000000000000000 + call * 100 + i) for i in range(100)]
    body = AdjustBalancesRequest([AdjustBalanceRequest(user_id=m, delta=5, reference=f"{payday}/{m}") for m in members])
    paid = adjust_balances.sync(client=api, body=body)
    if not isinstance(paid, BalanceAdjustmentList) or len(paid.data) != 100:
        raise RuntimeError(f"payday: {paid}")


def work(api: AuthenticatedClient, endpoint: str, seen: set[str]) -> None:
    """One turn of a worker: it waits until there is something, does its work with each
    event that it has not seen, and acknowledges them."""
    got = pull_webhook_events.sync(client=api, id=endpoint, body=PullWebhookEventsRequest(wait=3))
    if not isinstance(got, WebhookEventList) or not got.data:
        raise RuntimeError(f"fetch: {got}")
    ids = [event.id for event in got.data]
    seen.update(ids)
    done = ack_webhook_events.sync(client=api, id=endpoint, body=AckWebhookEventsRequest(event_ids=ids))
    if not isinstance(done, WebhookAcknowledgementEnvelope) or done.data.settled_count != len(ids):
        raise RuntimeError(f"acknowledge: {done}")
