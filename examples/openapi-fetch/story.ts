// The short story of an integration, with types by openapi-typescript and calls
// by openapi-fetch. GUILDHALL_URL and GUILDHALL_TOKEN say where and who.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import createClient from "openapi-fetch";
import type { components, paths } from "./generated/schema.js";
import { listen, verified } from "./receiver.js";

type FailureDetail = components["schemas"]["FailureDetail"];

function setting(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set`);
  return value;
}

/** The data of a success; a failure is thrown with its stable code. */
function must<T>(answer: { data?: T; error?: { error: FailureDetail }; response: Response }): T {
  if (answer.data === undefined) {
    throw new Error(`${answer.response.status} ${answer.error?.error.code}: ${answer.error?.error.message}`);
  }
  return answer.data;
}

const api = createClient<paths>({
  baseUrl: setting("GUILDHALL_URL"),
  headers: { Authorization: `Bearer ${setting("GUILDHALL_TOKEN")}` },
});

// Who am I?
const me = must(await api.GET("/me"));
console.log(`token ${me.token.preview} of guild ${me.token.guild_id}, ${me.token.scopes.length} scopes, ${me.api.env}`);

// Pay a member, twice with one key: the second answer is the first one again.
const user_id = "190320984123768832";
const pay = () =>
  api.POST("/economy/adjust", {
    params: { header: { "Idempotency-Key": key } },
    body: { user_id, delta: 30, reason: "Event prize" },
  });
const key = randomUUID();
const first = must(await pay());
const again = await pay();
assert.deepEqual(must(again), first);
assert.equal(again.response.headers.get("Idempotent-Replay"), "true");
console.log(`paid once: balance ${first.data.balance}, entry ${first.data.ledger_entry.id}`);

// The ledger has it, at the top.
const ledger = must(await api.GET("/economy/ledger", { params: { query: { user_id, per_page: 5 } } }));
assert.equal(ledger.data[0]?.id, first.data.ledger_entry.id);
console.log(`ledger: ${ledger.data.length} entries, more: ${ledger.has_more}`);

// Warnings, as far as they are active.
const cases = must(await api.GET("/cases", { params: { query: { type: "warn", status: "active" } } }));
assert.ok(cases.data.length > 0 && cases.data.every((c) => c.type === "warn" && c.expires_at !== undefined));
console.log(`cases: ${cases.data.length} active warnings`);

// A failure is a value with a code.
const refused = await api.POST("/economy/adjust", { body: { user_id, delta: -9007199254740991 } });
assert.equal(refused.response.status, 422);
assert.equal(refused.error?.error.code, "balance_would_be_negative");
console.log(`refused: ${refused.error.error.code}`);

// Register a receiver, have it pinged, verify the signature over the raw bytes.
const receiver = await listen();
const hook = must(await api.POST("/webhooks", { body: { delivery: "push", url: receiver.url, events: ["case.created"], enabled: true } })).data;
try {
  must(await api.POST("/webhooks/{id}/test", { params: { path: { id: hook.id } } }));
  const { signature, body } = await receiver.delivery;
  assert.ok(verified(signature, body, hook.secret), "the signature does not fit");
  assert.ok(!verified(signature, Buffer.concat([body, Buffer.from(" ")]), hook.secret), "a forged body passes");
  const event = JSON.parse(body.toString()) as components["schemas"]["EventPing"];
  assert.equal(event.data.webhook_id, hook.id);
  console.log(`webhook: ${event.type} ${event.id}, verified`);
} finally {
  receiver.close();
  await api.DELETE("/webhooks/{id}", { params: { path: { id: hook.id } } });
}

// Pay a thousand members in ten calls, a hundred at a time: all of them or none. Each payment
// has a reference, so that none is made twice, however often the call is sent.
const kept = must(await api.POST("/webhooks", { body: { delivery: "pull", events: ["economy.balance_changed"], enabled: true } })).data;
try {
  for (let call = 0; call < 10; call++) {
    const members = Array.from({ length: 100 }, (_, i) => `8000000000000${call}${String(i).padStart(2, "0")}`);
    const adjustments = members.map((user_id) => ({ user_id, delta: 5, reference: `${kept.id}/${user_id}` }));
    assert.equal(must(await api.POST("/economy/adjustments", { body: { adjustments } })).data.length, 100);
  }
  // A worker waits until there is something, does its work with each event that it has not
  // seen, and acknowledges them.
  const seen = new Set<string>();
  const params = { path: { id: kept.id } };
  while (seen.size < 1000) {
    const got = must(await api.POST("/webhooks/{id}/events/pull", { params, body: { limit: 100, wait: 10, lease: 60 } }));
    const ids = got.data.map((event) => event.id);
    assert.ok(ids.length > 0, "no event came");
    ids.forEach((id) => seen.add(id));
    assert.equal(must(await api.POST("/webhooks/{id}/events/ack", { params, body: { event_ids: ids } })).data.settled_count, ids.length);
  }
  console.log(`payday: 1000 members in 10 calls, ${seen.size} events fetched and acknowledged`);
} finally {
  await api.DELETE("/webhooks/{id}", { params: { path: { id: kept.id } } });
}
