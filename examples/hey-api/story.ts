// The short story of an integration, with a client by hey-api. GUILDHALL_URL and
// GUILDHALL_TOKEN say where and who.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { client } from "./generated/client.gen.js";
import {
  ackWebhookEvents,
  adjustBalance,
  adjustBalances,
  createWebhookEndpoint,
  deleteWebhookEndpoint,
  getMe,
  listCases,
  listLedgerEntries,
  pullWebhookEvents,
  testWebhookEndpoint,
} from "./generated/sdk.gen.js";
import type { Failure, EventPing } from "./generated/types.gen.js";
import { listen, verified } from "./receiver.js";

function setting(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set`);
  return value;
}

/** The data of a success; a failure is thrown with its stable code. */
function must<T>(answer: { data?: T | undefined; error?: Failure | undefined }): T {
  if (answer.data === undefined) {
    throw new Error(`${answer.error?.error.code}: ${answer.error?.error.message}`);
  }
  return answer.data;
}

// Given as a text, the token would be sent in Guild-Id as well, which is for a bot's key.
client.setConfig({
  baseUrl: setting("GUILDHALL_URL"),
  auth: (scheme) => (scheme.type === "http" ? setting("GUILDHALL_TOKEN") : undefined),
});

// Who am I?
const me = must(await getMe());
console.log(`token ${me.token.preview} of guild ${me.token.guild_id}, ${me.token.scopes.length} scopes, ${me.api.env}`);

// Pay a member, twice with one key: the second answer is the first one again.
const user_id = "190320984123768832";
const key = randomUUID();
const pay = () =>
  adjustBalance({ headers: { "Idempotency-Key": key }, body: { user_id, delta: 30, reason: "Event prize" } });
const first = must(await pay());
const again = await pay();
assert.deepEqual(must(again), first);
assert.equal(again.response?.headers.get("Idempotent-Replay"), "true");
console.log(`paid once: balance ${first.data.balance}, entry ${first.data.ledger_entry.id}`);

// The ledger has it, at the top.
const ledger = must(await listLedgerEntries({ query: { user_id, per_page: 5 } }));
assert.equal(ledger.data[0]?.id, first.data.ledger_entry.id);
console.log(`ledger: ${ledger.data.length} entries, more: ${ledger.has_more}`);

// Warnings, as far as they are active.
const cases = must(await listCases({ query: { type: "warn", status: "active" } }));
assert.ok(cases.data.length > 0 && cases.data.every((c) => c.type === "warn" && c.expires_at !== undefined));
console.log(`cases: ${cases.data.length} active warnings`);

// A failure is a value with a code.
const refused = await adjustBalance({ body: { user_id, delta: -9007199254740991 } });
assert.equal(refused.response?.status, 422);
assert.equal(refused.error?.error.code, "balance_would_be_negative");
console.log(`refused: ${refused.error.error.code}`);

// Register a receiver, have it pinged, verify the signature over the raw bytes.
const receiver = await listen();
const hook = must(await createWebhookEndpoint({ body: { url: receiver.url, events: ["case.created"] } })).data;
try {
  must(await testWebhookEndpoint({ path: { id: hook.id } }));
  const { signature, body } = await receiver.delivery;
  assert.ok(verified(signature, body, hook.secret), "the signature does not fit");
  assert.ok(!verified(signature, Buffer.concat([body, Buffer.from(" ")]), hook.secret), "a forged body passes");
  const event = JSON.parse(body.toString()) as EventPing;
  assert.equal(event.data.webhook_id, hook.id);
  console.log(`webhook: ${event.type} ${event.id}, verified`);
} finally {
  receiver.close();
  await deleteWebhookEndpoint({ path: { id: hook.id } });
}

// Pay a thousand members in ten calls, a hundred at a time: all of them or none. Each payment
// has a reference, so that none is made twice, however often the call is sent.
const kept = must(await createWebhookEndpoint({ body: { delivery: "pull", events: ["economy.balance_changed"] } })).data;
try {
  for (let call = 0; call < 10; call++) {
    const members = Array.from({ length: 100 }, (_, i) => `8000000000000${call}${String(i).padStart(2, "0")}`);
    const adjustments = members.map((user_id) => ({ user_id, delta: 5, reference: `${kept.id}/${user_id}` }));
    assert.equal(must(await adjustBalances({ body: { adjustments } })).data.length, 100);
  }
  // A worker waits until there is something, does its work with each event that it has not
  // seen, and acknowledges them.
  const seen = new Set<string>();
  const path = { id: kept.id };
  while (seen.size < 1000) {
    const got = must(await pullWebhookEvents({ path, body: { wait: 10 } })).data;
    const ids = got.map((event) => event.id);
    assert.ok(ids.length > 0, "no event came");
    ids.forEach((id) => seen.add(id));
    assert.equal(must(await ackWebhookEvents({ path, body: { event_ids: ids } })).data.settled_count, ids.length);
  }
  console.log(`payday: 1000 members in 10 calls, ${seen.size} events fetched and acknowledged`);
} finally {
  await deleteWebhookEndpoint({ path: { id: kept.id } });
}
