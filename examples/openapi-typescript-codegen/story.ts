// The short story of an integration, with a client by openapi-typescript-codegen.
// GUILDHALL_URL and GUILDHALL_TOKEN say where and who.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { ApiError, CasesService, EconomyService, MetaService, OpenAPI } from "./generated";
import type { Failure } from "./generated";

async function story() {
  OpenAPI.BASE = process.env.GUILDHALL_URL!;
  OpenAPI.TOKEN = process.env.GUILDHALL_TOKEN!;

  const me = await MetaService.getMe();
  console.log(`token ${me.token.preview} of guild ${me.token.guild_id}, ${me.token.scopes.length} scopes`);

  // Pay a member, twice with one key: the second answer is the first one again.
  const userId = "190320984123768832";
  const idempotencyKey = randomUUID();
  const requestBody = { user_id: userId, delta: 30, reason: "Event prize", reference: `codegen-${idempotencyKey}` };
  const first = await EconomyService.adjustBalance({ requestBody, idempotencyKey });
  assert.deepEqual(await EconomyService.adjustBalance({ requestBody, idempotencyKey }), first);
  const ledger = await EconomyService.listLedgerEntries({ reference: requestBody.reference });
  assert.deepEqual(ledger.data.map((entry) => entry.id), [first.data.ledger_entry.id]);
  console.log(`paid once: ${first.data.ledger_entry.id}`);

  const cases = await CasesService.listCases({ type: "warn", status: "active" });
  assert.ok(cases.data.length > 0 && cases.data.every((c) => c.type === "warn"));
  console.log(`cases: ${cases.data.length} active warnings`);

  // A failure is an exception with a code.
  const refused = await EconomyService.adjustBalance({ requestBody: { user_id: userId, delta: -9007199254740991 } }).catch((e: unknown) => e);
  if (!(refused instanceof ApiError)) throw new Error("not refused");
  const { error } = refused.body as Failure;
  assert.equal(error.code, "balance_would_be_negative");
  console.log(`refused: ${error.code}`);
}

void story();
