// Runs the books against every answer that the API has, and checks which are final:
// node dist/answers.js
//
// A change whose answer is final is crossed out, and the change behind it is sent. Any
// other answer is waited for, under the same idempotency key.
import assert from "node:assert/strict";
import { mkdtempSync } from "node:fs";
import { createServer } from "node:http";
import { type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Books, check, connect } from "./books.js";

type Answer = [status: number, code?: string];
const final: Answer[] = [[200], [201], [202], [204], ...[400, 404, 405, 413, 415, 422].map((status): Answer => [status, "refused"]), [409, "idempotency_key_reused"]];
const waits: Answer[] = [[401, "unauthorized"], [403, "forbidden"], [409, "idempotency_key_in_use"], [429, "rate_limited"], [500, "internal_error"],
  [502, "discord_send_failed"], [503, "service_unavailable"], [502, "<html>"], [200, "<html>"], [500, "{}"]];
const first = [...final, ...waits]; // the first answer of each guild
const seen = first.map((): string[] => []); // the keys that arrived, by guild
let revoked = false;

const server = createServer((request, response) => {
  request.resume();
  if (request.url === "/bot/streams") {
    response.writeHead(revoked ? 401 : 200, { "content-type": "application/json" });
    response.end(JSON.stringify(revoked ? { error: { code: "unauthorized", message: "Revoked." } } : { data: [] }));
    return;
  }
  const guild = Number(request.headers["guild-id"]);
  const keys = seen[guild] ?? [];
  keys.push(String(request.headers["idempotency-key"]));
  const [status, code] = (keys.length === 1 ? first[guild] : undefined) ?? [200];
  response.writeHead(status, { "content-type": code?.startsWith("<") ? "text/html" : "application/json" });
  if (status === 204) response.end();
  else if (code?.startsWith("<") || code?.startsWith("{")) response.end(code);
  else response.end(JSON.stringify(code ? { error: { code, message: "No." } } : { data: {} }));
});
await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
const api = connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, "bot_test_x");
const file = join(mkdtempSync(join(tmpdir(), "answers-")), "bot.jsonl");
await check(api);
const books = new Books(api, file, {}, () => undefined);
for (const guild of first.keys()) for (const key of ["a", "b"]) books.call(String(guild), "/cases", key, { user_id: "1", moderator_id: "2", type: "note", reason: "x" });
for (const end = Date.now() + 30_000; Date.now() < end && seen.some((keys) => keys.at(-1) !== "b"); ) await new Promise((resolve) => setTimeout(resolve, 50));
await new Promise((resolve) => setTimeout(resolve, 200)); // the last answers are crossed out
for (const [n, answer] of first.entries()) assert.deepEqual(seen[n], n < final.length ? ["a", "b"] : ["a", "a", "b"], `after the answer ${answer}`);
books.stop();
new Books(api, file, {}, (message) => assert.fail(message)).start(); // nothing is open
await new Promise((resolve) => setTimeout(resolve, 200));
assert.equal(seen.flat().length, 2 * first.length + waits.length, "changes are still open");
revoked = true;
await assert.rejects(check(api), /Revoked\./);
server.close();
console.log(`${first.length} answers`);
