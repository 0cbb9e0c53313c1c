// The short story of an integration, with a client by hey-api that checks every
// request and every answer with zod. GUILDHALL_URL and GUILDHALL_TOKEN say where
// and who.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { Webhook } from "standardwebhooks";
import { client } from "./generated/client.gen.js";
import {
  ackWebhookEvents,
  adjustBalance,
  adjustBalances,
  createCase,
  createWebhookEndpoint,
  deleteWebhookEndpoint,
  getMe,
  listCases,
  listLedgerEntries,
  listTickets,
  pullWebhookEvents,
  testWebhookEndpoint,
} from "./generated/sdk.gen.js";
import { zEventPing } from "./generated/zod.gen.js";

// Given as a text, the token would be sent in Guild-Id as well, which is for a bot's key.
client.setConfig({
  baseUrl: process.env.GUILDHALL_URL!,
  auth: (scheme) => (scheme.type === "http" ? process.env.GUILDHALL_TOKEN! : undefined),
});

const me = (await getMe({ throwOnError: true })).data;
console.log(`token ${me.token.preview} of guild ${me.token.guild_id}, ${me.token.scopes.length} scopes`);

// Pay a member, twice with one key: the second answer is the first one again.
const user_id = "190320984123768832";
const key = randomUUID();
const pay = () =>
  adjustBalance({
    headers: { "Idempotency-Key": key },
    body: { user_id, delta: 30, reason: "Event prize", reference: `zod-${key}` },
    throwOnError: true,
  });
const first = await pay();
const again = await pay();
assert.deepEqual(again.data, first.data);
const ledger = (await listLedgerEntries({ query: { reference: `zod-${key}` }, throwOnError: true })).data;
assert.deepEqual(ledger.data.map((entry) => entry.id), [first.data.data.ledger_entry.id]);
console.log(`paid once: ${first.data.data.ledger_entry.id}`);

// A reason is text as people write it; a blank one does not leave the program.
const reason = "Spam \u2028 zum 2. Mal \u{1F44B}";
const filed = await createCase({ body: { user_id, moderator_id: user_id, type: "warn", reason }, throwOnError: true });
assert.equal(filed.data.data.reason, reason);
await assert.rejects(createCase({ body: { user_id, moderator_id: user_id, type: "warn", reason: "  " }, throwOnError: true }));
const cases = (await listCases({ query: { type: "warn", status: "active" }, throwOnError: true })).data;
const tickets = (await listTickets({ query: { order: "activity" }, throwOnError: true })).data;
console.log(`cases: ${cases.data.length} active warnings; tickets: ${tickets.data.length}`);

// A failure is a value with a code.
const refused = await adjustBalance({ body: { user_id, delta: -9007199254740991, reason: null, reference: null } });
assert.equal(refused.error?.error.code, "balance_would_be_negative");
console.log(`refused: ${refused.error.error.code}`);

// Register a receiver, have it pinged, verify the raw bytes.
const url = `${process.env.GUILDHALL_RECEIVER}/${key}`;
const hook = (await createWebhookEndpoint({ body: { url, events: ["case.created"] }, throwOnError: true })).data.data;
try {
  await testWebhookEndpoint({ path: { id: hook.id }, throwOnError: true });
  const delivery = await fetch(`${process.env.GUILDHALL_INBOX}/${key}`);
  const [headers, body] = [Object.fromEntries(delivery.headers), await delivery.text()];
  const webhook = new Webhook(hook.secret);
  const event = zEventPing.parse(webhook.verify(body, headers));
  assert.equal(event.data.webhook_id, hook.id);
  assert.throws(() => webhook.verify(body.replace("ping", "pong"), headers), /signature/i);
  console.log(`webhook: ${event.type} ${event.id}, verified`);
} finally {
  await deleteWebhookEndpoint({ path: { id: hook.id }, throwOnError: true });
}

// Pay a thousand members in ten calls, a hundred at a time: all of them or none. Each payment
// has a reference, so that none is made twice, however often the call is sent.
const kept = (await createWebhookEndpoint({ body: { delivery: "pull", events: ["economy.balance_changed"] }, throwOnError: true })).data.data;
try {
  for (let call = 0; call < 10; call++) {
    const members = Array.from({ length: 100 }, (_, i) => `8000000000000${call}${String(i).padStart(2, "0")}`);
    const adjustments = members.map((user_id) => ({ user_id, delta: 5, reference: `${kept.id}/${user_id}` }));
    assert.equal((await adjustBalances({ body: { adjustments }, throwOnError: true })).data.data.length, 100);
  }
  // A worker waits until there is something, does its work with each event that it has not
  // seen, and acknowledges them.
  const seen = new Set<string>();
  const path = { id: kept.id };
  while (seen.size < 1000) {
    const got = (await pullWebhookEvents({ path, body: { wait: 10 }, throwOnError: true })).data.data;
    const ids = got.map((event) => event.id);
    assert.ok(ids.length > 0, "no event came");
    ids.forEach((id) => seen.add(id));
    assert.equal((await ackWebhookEvents({ path, body: { event_ids: ids }, throwOnError: true })).data.data.settled_count, ids.length);
  }
  console.log(`payday: 1000 members in 10 calls, ${seen.size} events fetched and acknowledged`);
} finally {
  await deleteWebhookEndpoint({ path: { id: kept.id } });
}
