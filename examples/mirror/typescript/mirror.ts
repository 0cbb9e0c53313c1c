// Three copies of a guild that follow it while twelve writers race: one by
// webhooks alone, one by updated_since alone, one by both, and a copy of the
// ledger by since. In the end all of them are the guild. GUILDHALL_URL and
// GUILDHALL_TOKEN say where and who; the one argument is how many rounds to run.
import assert from "node:assert/strict";
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as wait } from "node:timers/promises";

const WRITERS = 12;
const WRITES = 40;
const EACH = 50;
const PATIENCE = 60_000;
const STAFF = "1344871507951616014";
const USERS = Array.from({ length: EACH }, (_, n) => String(820000000000000000n + BigInt(n)));
const KINDS = ["case", "ticket", "giveaway"] as const;
const EVENTS = [
  "case.created", "case.updated", "economy.balance_changed", "ticket.closed", "ticket.claimed", "ticket.assigned",
  "ticket.reopened", "giveaway.created", "giveaway.started", "giveaway.paused", "giveaway.resumed", "giveaway.ended",
];

type Kind = (typeof KINDS)[number];
/** A resource: an id, an updated_at, and whatever else it has. */
type Row = Record<string, unknown> & { id: string; updated_at: string };
interface LedgerRow {
  id: string;
  user_id: string;
  delta: number;
  balance_after: number;
  created_at: string;
}
interface List<T> {
  data: T[];
  has_more: boolean;
}
interface Wallet {
  balance: number;
  updated_at: string | null;
}

function setting(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set`);
  return value;
}
const base = setting("GUILDHALL_URL");
const token = setting("GUILDHALL_TOKEN");

/** The answer; a refusal by the guild's state (422) is an answer too. */
async function call<T>(method: string, path: string, body?: unknown): Promise<T> {
  for (;;) {
    const headers: Record<string, string> = { authorization: `Bearer ${token}` };
    if (body !== undefined) headers["content-type"] = "application/json";
    const res = await fetch(base + path, { method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
    const text = await res.text();
    if (res.status === 429 || res.status === 503) {
      await wait(1000 * Number(res.headers.get("Retry-After") ?? 1));
      continue;
    }
    if (!res.ok && res.status !== 422) throw new Error(`${method} ${path}: ${res.status} ${text}`);
    return (text ? JSON.parse(text) : {}) as T;
  }
}
const get = <T>(path: string, query: Record<string, string | number> = {}) =>
  call<T>("GET", `${path}?${new URLSearchParams(Object.entries(query).map(([k, v]) => [k, String(v)])).toString()}`);
const earlier = (instant: string, seconds: number) => new Date(Date.parse(instant) - seconds * 1000).toISOString();
const any = <T>(of: readonly T[]): T => of[Math.floor(Math.random() * of.length)]!;

async function until(met: () => Promise<boolean>, what: string): Promise<void> {
  for (const deadline = Date.now() + PATIENCE; !(await met()); await wait(100)) {
    if (Date.now() > deadline) throw new Error(`in vain: ${what}`);
  }
}

/** The newest known state of each resource: instants of one resource only rise,
 *  and written in one form they are in order as text. */
class Copy {
  readonly rows = new Map<string, Row>();

  keep(row: Row): boolean {
    const known = this.rows.get(row.id);
    if (known && known.updated_at >= row.updated_at) return false;
    this.rows.set(row.id, row);
    return true;
  }

  newest(): string {
    return [...this.rows.values()].reduce((newest, row) => (row.updated_at > newest ? row.updated_at : newest), "");
  }
}

/** The loop that the document shows at updated_since, until caught up. */
async function catchUp(path: string, copies: Copy[], since: string): Promise<void> {
  for (let page = 1; ; ) {
    const rows = (await get<List<Row>>(path, { updated_since: since, page, per_page: 100 })).data;
    const fresh = rows.filter((row) => copies.filter((copy) => copy.keep(row)).length > 0);
    if (rows.length < 100) return;
    if (fresh.length > 0) [since, page] = [rows.at(-1)!.updated_at, 1];
    else page++;
  }
}

async function follow(path: string, copies: Copy[], done: { set: boolean }): Promise<void> {
  for (let last = false; !last; await wait(100)) {
    last = done.set;
    await catchUp(path, copies, earlier(copies[0]!.newest(), 15));
  }
}

/** The loop that the document shows at since. */
async function followLedger(ledger: Map<string, LedgerRow>, begin: string, done: { set: boolean }): Promise<void> {
  let newest = "";
  for (let last = false; !last; await wait(100)) {
    last = done.set;
    const since = newest ? earlier(newest, 15) : begin;
    for (let page = 1, more = true; more; page++) {
      const answer = await get<List<LedgerRow>>("/economy/ledger", { since, page, per_page: 100 });
      for (const row of answer.data) {
        ledger.set(row.id, row);
        if (row.created_at > newest) newest = row.created_at;
      }
      more = answer.has_more;
    }
  }
}

/** The newest row's balance_after is the balance whenever both can be read: that
 *  is, where no row came between. */
async function watchBalances(done: { set: boolean }): Promise<number> {
  let seen = 0;
  while (!done.set) {
    const user = any(USERS);
    const newest = async () => (await get<List<LedgerRow>>("/economy/ledger", { user_id: user, per_page: 1 })).data[0];
    const before = await newest();
    const wallet = (await get<{ data: Wallet }>(`/economy/wallet/${user}`)).data;
    const after = await newest();
    if (before && before.id === after?.id) {
      assert.deepEqual([wallet.balance, wallet.updated_at], [before.balance_after, before.created_at]);
      seen++;
    }
  }
  return seen;
}

interface Event {
  type: string;
  timestamp: string;
  data: Row & { changed?: string[]; user_id: string; balance: number };
}
type Copies = Record<Kind | "economy", Copy>;

/** Verifies each event over its raw bytes and keeps what it carries. */
async function receive(copies: Copies[], secret: () => string) {
  const state = { url: "", forged: 0, close: () => {} };
  const server = createServer((req, res) => {
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => {
      const body = Buffer.concat(chunks);
      const [, t, v1] = /^t=(\d+),v1=([0-9a-f]{64})$/.exec(String(req.headers["service-signature"])) ?? [];
      const want = createHmac("sha256", secret()).update(`${t}.`).update(body).digest();
      if (!v1 || !timingSafeEqual(Buffer.from(v1, "hex"), want)) state.forged++;
      const event = JSON.parse(body.toString()) as Event;
      const kind = event.type.split(".")[0] as Kind | "economy";
      let { changed: _, ...row } = event.data as Row & { changed?: string[] };
      if (kind === "economy") row = { id: event.data.user_id, balance: event.data.balance, updated_at: event.timestamp };
      for (const copy of copies) copy[kind].keep(row as Row);
      res.writeHead(204).end();
    });
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  state.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`;
  state.close = () => {
    server.close();
    server.closeAllConnections();
  };
  return state;
}

async function write(ids: Record<Kind, string[]>, paid: Set<string>): Promise<void> {
  for (let n = 0; n < WRITES; n++) {
    const ticket = `/tickets/${any(ids.ticket)}`;
    switch (Math.floor(Math.random() * 9)) {
      case 0:
      case 1:
        await call("PATCH", `/cases/${any(ids.case)}`, { reason: `edit ${Math.random()}` });
        break;
      case 2:
        await call("PATCH", `/cases/${any(ids.case)}`, { expires_at: new Date(Date.now() + 100 + 1400 * Math.random()).toISOString() });
        break;
      case 3:
        await call("POST", `${ticket}/close`, { reason: "solved", author_id: STAFF });
        break;
      case 4:
        await call("POST", `${ticket}/reopen`);
        break;
      case 5:
        await call("POST", `${ticket}/assign`, { user_id: any([STAFF, null]) });
        break;
      case 6:
        await call("POST", `/giveaways/${any(ids.giveaway)}/${any(["pause", "resume"])}`);
        break;
      default: {
        const body = { user_id: any(USERS), delta: Math.floor(Math.random() * 60) - 20 };
        const answer = await call<{ data?: { ledger_entry: { id: string } } }>("POST", "/economy/adjust", body);
        if (answer.data) paid.add(answer.data.ledger_entry.id);
      }
    }
  }
}

/** Fifty tickets and fifty giveaways to change. */
async function prepare(): Promise<{ ticket: string[]; giveaway: string[] }> {
  const ticket = (await get<List<Row>>("/tickets", { per_page: EACH })).data.map((row) => row.id);
  const channel_id = (await get<List<Row>>("/giveaways")).data[0]?.["channel_id"];
  const body = { channel_id, prize: "A mirror", winner_count: 1, ends_at: new Date(Date.now() + 30 * 86_400_000).toISOString() };
  const giveaway: string[] = [];
  for (let n = 0; n < EACH; n++) giveaway.push((await call<{ data: Row }>("POST", "/giveaways", body)).data.id);
  // The bot posts a message for each, which is a change that no event tells.
  const posted = async (id: string) => (await get<{ data: Row }>(`/giveaways/${id}`)).data["message_id"] !== null;
  await until(async () => (await Promise.all(giveaway.map(posted))).every(Boolean), "the giveaways' messages");
  return { ticket, giveaway };
}

async function run(fifty: { ticket: string[]; giveaway: string[] }): Promise<string> {
  const fresh = (): Copies => ({ case: new Copy(), ticket: new Copy(), giveaway: new Copy(), economy: new Copy() });
  const copies = { webhooks: fresh(), polling: fresh(), both: fresh() };
  let secret = "";
  const receiver = await receive([copies.webhooks, copies.both], () => secret);
  const hook = (await call<{ data: Row & { secret: string } }>("POST", "/webhooks", { url: receiver.url, events: EVENTS })).data;
  secret = hook.secret;
  const done = { set: false };
  const paid = new Set<string>();
  const ledger = new Map<string, LedgerRow>();
  try {
    const body = { user_id: USERS[0], moderator_id: STAFF, type: "warn", reason: "A mirror" };
    const cases: Row[] = [];
    for (let n = 0; n < EACH; n++) cases.push((await call<{ data: Row }>("POST", "/cases", body)).data);
    const ids = { ...fifty, case: cases.map((row) => row.id) };
    for (const kind of KINDS) {
      // Every copy begins with a load.
      await catchUp(`/${kind}s`, Object.values(copies).map((copy) => copy[kind]), "2000-01-01T00:00:00Z");
    }
    const followers = Promise.all([
      watchBalances(done),
      followLedger(ledger, String(cases[0]!["created_at"]), done),
      ...KINDS.map((kind) => follow(`/${kind}s`, [copies.polling[kind], copies.both[kind]], done)),
    ]);
    const writers = Promise.all(Array.from({ length: WRITERS }, () => write(ids, paid)));
    const settled = async (id: string) => {
      const { status, expires_at } = (await get<{ data: { status: string; expires_at: string | null } }>(`/cases/${id}`)).data;
      return status !== "active" || expires_at === null;
    };
    const delivered = async () => (await get<List<Row>>(`/webhooks/${hook.id}/deliveries`, { status: "pending", per_page: 1 })).data.length === 0;
    const quiet = writers
      .then(() => until(async () => (await Promise.all(ids.case.map(settled))).every(Boolean), "the expiries"))
      .then(() => until(delivered, "the deliveries"))
      .finally(() => (done.set = true));
    const [[seen]] = await Promise.all([followers, quiet]);
    await compare(copies, ids, ledger, paid, receiver.forged);
    return `${paid.size} payments, ${seen} balances read between two equal looks`;
  } finally {
    done.set = true;
    await call("DELETE", `/webhooks/${hook.id}`);
    receiver.close();
  }
}

async function compare(
  copies: Record<string, Copies>, ids: Record<Kind, string[]>, ledger: Map<string, LedgerRow>, paid: Set<string>, forged: number,
): Promise<void> {
  assert.equal(forged, 0, "events with a wrong signature");
  for (const kind of KINDS) {
    for (const id of ids[kind]) {
      const real = (await get<{ data: Row }>(`/${kind}s/${id}`)).data;
      for (const [name, copy] of Object.entries(copies)) assert.deepEqual(copy[kind].rows.get(id), real, `${name}: ${kind} ${id}`);
    }
  }
  for (const id of paid) assert.ok(ledger.has(id), `the ledger's copy lacks ${id}`);
  for (const user of USERS) {
    const { balance, updated_at } = (await get<{ data: Wallet }>(`/economy/wallet/${user}`)).data;
    for (const name of ["webhooks", "both"]) {
      const known = copies[name]!.economy.rows.get(user);
      if (known) assert.deepEqual(known, { id: user, balance, updated_at }, `${name}: wallet of ${user}`);
    }
    const rows = [...ledger.values()].filter((row) => row.user_id === user).sort((a, b) => (a.created_at < b.created_at ? -1 : 1));
    const end = rows.at(-1);
    if (end) assert.deepEqual([end.balance_after, end.created_at], [balance, updated_at], `the ledger of ${user}`);
    rows.forEach((row, n) => {
      const before = rows[n - 1];
      if (before) assert.equal(before.balance_after + row.delta, row.balance_after, `the ledger of ${user} at ${row.id}`);
    });
  }
}

const rounds = Number(process.argv[2] ?? 1);
const fifty = await prepare();
for (let n = 1; n <= rounds; n++) console.log(`round ${n}: all copies are the guild; ${await run(fifty)}`);
