// The short story of an integration, with a client by openapi-generator from the
// 3.1 document. GUILDHALL_URL and GUILDHALL_TOKEN say where and who.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { Webhook } from "standardwebhooks";
import { CasesApi, Configuration, EconomyApi, EventPingFromJSON, MetaApi, ResponseError, WebhooksApi } from "./generated";
import type { Failure } from "./generated";

async function story() {
  const configuration = new Configuration({ basePath: process.env.GUILDHALL_URL!, accessToken: process.env.GUILDHALL_TOKEN! });
  const economy = new EconomyApi(configuration);

  const me = await new MetaApi(configuration).getMe();
  console.log(`token ${me.token.preview} of guild ${me.token.guildId}, ${me.token.scopes.length} scopes`);

  // Pay a member, twice with one key: the second answer is the first one again.
  const userId = "190320984123768832";
  const key = randomUUID();
  const payment = { idempotencyKey: key, adjustBalanceRequest: { userId, delta: 30, reason: "Event prize", reference: `ts-${key}` } };
  const first = await economy.adjustBalanceRaw(payment);
  const again = await economy.adjustBalanceRaw(payment);
  const paid = await first.value();
  assert.deepEqual(await again.value(), paid);
  assert.equal(again.raw.headers.get("Idempotent-Replay"), "true");
  const ledger = await economy.listLedgerEntries({ reference: `ts-${key}` });
  assert.deepEqual(ledger.data.map((entry) => entry.id), [paid.data.ledgerEntry.id]);
  console.log(`paid once: ${paid.data.ledgerEntry.id}`);

  const cases = await new CasesApi(configuration).listCases({ type: "warn", status: "active" });
  assert.ok(cases.data.length > 0 && cases.data.every((c) => c.type === "warn"));
  console.log(`cases: ${cases.data.length} active warnings`);

  // Every optional member null says the same as none.
  await economy.adjustBalance({ adjustBalanceRequest: { userId, delta: 0, reason: null, reference: null } });

  // A failure is an exception with a code.
  const refused = await economy.adjustBalance({ adjustBalanceRequest: { userId, delta: -9007199254740991 } }).catch((e: unknown) => e);
  if (!(refused instanceof ResponseError)) throw new Error("not refused");
  const { error } = (await refused.response.json()) as Failure;
  assert.equal(error.code, "balance_would_be_negative");
  console.log(`refused: ${error.code}`);
  const webhooks = new WebhooksApi(configuration);
  await receive(webhooks, key);
  await payday(economy, webhooks);
}

// Registers a receiver, has it pinged, verifies the raw bytes.
async function receive(webhooks: WebhooksApi, path: string) {
  const url = `${process.env.GUILDHALL_RECEIVER}/${path}`;
  const hook = (await webhooks.createWebhookEndpoint({ createWebhookEndpointRequest: { url, events: ["case.created"] } })).data;
  try {
    await webhooks.testWebhookEndpoint({ id: hook.id });
    const delivery = await fetch(`${process.env.GUILDHALL_INBOX}/${path}`);
    const [headers, body] = [Object.fromEntries(delivery.headers), await delivery.text()];
    const webhook = new Webhook(hook.secret);
    const event = EventPingFromJSON(webhook.verify(body, headers));
    assert.equal(event.data.webhookId, hook.id);
    assert.throws(() => webhook.verify(body.replace("ping", "pong"), headers), /signature/i);
    console.log(`webhook: ${event.type} ${event.id}, verified`);
  } finally {
    await webhooks.deleteWebhookEndpoint({ id: hook.id });
  }
}

// Pays a thousand members in ten calls, a hundred at a time: all of them or none. Each payment
// has a reference, so that none is made twice, however often the call is sent.
async function payday(economy: EconomyApi, webhooks: WebhooksApi) {
  const { id } = (await webhooks.createWebhookEndpoint({ createWebhookEndpointRequest: { delivery: "pull", events: ["economy.balance_changed"] } })).data;
  try {
    for (let call = 0; call < 10; call++) {
      const members = Array.from({ length: 100 }, (_, i) => `8000000000000${call}${String(i).padStart(2, "0")}`);
      const adjustments = members.map((userId) => ({ userId, delta: 5, reference: `${id}/${userId}` }));
      assert.equal((await economy.adjustBalances({ adjustBalancesRequest: { adjustments } })).data.length, 100);
    }
    // A worker waits until there is something, does its work with each event that it has not
    // seen, and acknowledges them.
    const seen = new Set<string>();
    while (seen.size < 1000) {
      const got = await webhooks.pullWebhookEvents({ id, pullWebhookEventsRequest: { wait: 10 } });
      const eventIds = got.data.map((event) => event.id);
      assert.ok(eventIds.length > 0, "no event came");
      eventIds.forEach((one) => seen.add(one));
      assert.equal((await webhooks.ackWebhookEvents({ id, ackWebhookEventsRequest: { eventIds } })).data.settledCount, eventIds.length);
    }
    console.log(`payday: 1000 members in 10 calls, ${seen.size} events fetched and acknowledged`);
  } finally {
    await webhooks.deleteWebhookEndpoint({ id });
  }
}

story().catch((e: unknown) => {
  console.error(e);
  process.exitCode = 1;
});
