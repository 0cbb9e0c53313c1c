// A bot's way to Guildhall. Copy this file.
//
// A change is written to a file before it is sent, and crossed out once it is
// answered. The changes of a guild are sent in their order, those of different
// guilds side by side. A kill, a restart or an outage of either side loses none: after
// it the open ones are sent again. That is safe because each call has an
// idempotency key, which lasts for 24 hours, and each record names its thing.
//
// Events and work are fetched, and leased to who has fetched them: what a process was
// handling when it died comes again.
import { appendFileSync, existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import createClient from "openapi-fetch";
import type { components, paths } from "./generated/schema.js";

export type Schemas = components["schemas"];
export type GuildRecord = Schemas["GuildRecord"];
export type Api = ReturnType<typeof createClient<paths>>;
export type Event = Schemas["WebhookEvent"];

type Writes = "/cases" | "/economy/adjust" | "/economy/transfers" | "/levelling/adjust" | "/tickets/{id}/close" | "/members/{userId}/forget" | "/guild/remove";
type BodyOf<P extends Writes> = paths[P]["post"] extends { requestBody: { content: { "application/json": infer B } } } ? B : unknown;

/** A change on its way. `then` names the handler that is called with the answer. */
interface Change { id: number; guild: string; path: string; body: unknown; key?: string; then?: string; note?: unknown }
type Line = Change | { done: number } | { begun: string; at: number }; // of the file

/** What became of a change: the `data` of its answer (of a record, its entry there), or the refusal. */
export interface Outcome {
  data?: unknown;
  refused?: { code: string; message: string };
}
/** Called after each answer, and again if the process dies before it has returned. */
export type Handler = (change: { guild: string; note: never }, outcome: Outcome) => void | Promise<void>;

const maxRecords = 500; // of a call
const maxBytes = 900_000; // a call may have 1 MiB
const maxPause = 30_000; // ms between two attempts
const lease = 20; // seconds until an event that nobody has acknowledged comes again

export const connect = (url: string, key: string): Api => createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${key}` } });

/** Throws where the key opens nothing: with a revoked key every call would wait for ever. An outage is waited for by each call. */
export async function check(api: Api): Promise<void> {
  const { error, response } = await api.GET("/bot/streams", { signal: AbortSignal.timeout(20_000) }).catch(() => ({ error: undefined, response: undefined }));
  if (response?.status === 401 || response?.status === 403) throw new Error(`GUILDHALL_BOT_KEY is refused (${response.status}): ${JSON.stringify(error)}`);
}

export class Books {
  readonly #open = new Map<string, Change[]>(); // by guild, oldest first
  readonly #sending = new Set<string>();
  readonly #begun = new Map<string, number>(); // since when work may have been carried out, by path
  readonly posted = new Set<string>(); // ids of messages that work has led to
  #last = 0;
  #lines = 0;
  #stopped = false;

  constructor(
    private readonly api: Api,
    private readonly file: string,
    private readonly handlers: Record<string, Handler>,
    private readonly log: (message: string) => void = console.error,
  ) {
    this.#read();
  }

  /** Makes or changes a thing in the guild. The record has to name it: by its id, its member or its message. */
  record(guild: string, record: GuildRecord, then?: string, note?: unknown): void {
    this.#add({ guild, path: "/records", body: record, ...(then !== undefined && { then, note }) });
  }

  /** Makes or changes things of the guild without events, and returns when that is done. It is not written down: who begins a fill begins it anew after a restart. */
  async fill(guild: string, records: GuildRecord[]): Promise<void> {
    for (let open = records.map((body): Change => ({ id: 0, guild, path: "/records", body })); open.length > 0; ) {
      const batch = together(open);
      const outcomes = await this.#until(guild, batch, { tell: false });
      for (const { refused } of outcomes.filter((one) => one !== undefined)) if (refused) this.log(`A record of guild ${guild} is refused: ${refused.code}: ${refused.message}`);
      open = [...batch.filter((_, i) => outcomes[i] === undefined), ...open.slice(batch.length)];
    }
  }

  /** The ids of the members who are in the guild, as far as Guildhall knows. It reads by instants, since a page far behind costs as much as all before it. */
  async present(guild: string): Promise<Set<string>> {
    const ids = new Set<string>();
    for (let [since, page, more] = ["1970-01-01T00:00:00Z", 1, true]; more; ) {
      const { data, error, response } = await this.api.GET("/members", {
        params: { query: { present: true, updated_since: since, page, per_page: 100 } }, headers: { "Guild-Id": guild }, signal: AbortSignal.timeout(20_000),
      });
      if (response.status === 404) break; // there is no such guild yet
      if (data) {
        for (const { user_id } of data.data) ids.add(user_id);
        const last = data.data.at(-1)?.updated_at ?? since;
        [since, page, more] = [last, last === since ? page + 1 : 1, data.has_more];
      } else {
        if (response.status !== 429) throw new Error(JSON.stringify(error));
        await new Promise((resolve) => setTimeout(resolve, 1000 * Number(response.headers.get("Retry-After") ?? 1)));
      }
    }
    return ids;
  }

  /** Calls an operation under an idempotency key, which must be another for each change: the id of a message or interaction. */
  call<P extends Writes>(guild: string, path: P, key: string, body: BodyOf<P>, then?: string, note?: unknown, at: Record<string, string> = {}): void {
    const url = path.replace(/\{(\w+)\}/g, (_, name: string) => at[name] ?? "");
    this.#add({ guild, path: url, key, body, ...(then !== undefined && { then, note }) });
  }

  /** Sends what was open when the process ended. Call it once, when the handlers can work. */
  start(): void {
    for (const guild of this.#open.keys()) this.#begin(guild);
  }

  /** Follows a stream of events, which it begins under this name. An event whose handler has failed comes again, and one that was handled may. */
  follow(stream: string, handlers: Record<string, (data: never, guild: string) => Promise<unknown>>): Promise<void> {
    const events = Object.keys(handlers) as Schemas["PutBotStreamRequest"]["events"];
    const begin = () => this.api.PUT("/bot/streams/{name}", { params: { path: { name: stream } }, body: { events, echo: true } });
    return this.#fetch(stream, begin, async (event) => handlers[event.type]?.(event.data as never, event.guild_id));
  }

  /** Has work carried out, which may have been begun before, at an instant. The answer is a change like any other: it is sent after those of the guild that were made before it. */
  work(carryOut: (work: Schemas["Work"], event: Event, begun?: number) => Promise<Schemas["AnswerBotWorkRequest"]>): Promise<void> {
    return this.#fetch("work", undefined, async (event) => {
      const work = event.data as unknown as Schemas["Work"];
      const path = `/bot/work/${work.work_id}`;
      if (this.#open.get(event.guild_id)?.some((change) => change.path === path)) return; // its answer is on its way
      const [begun, at] = [this.#begun.get(path), Date.now()];
      this.#begun.set(path, begun ?? at);
      if (begun === undefined) this.#write({ begun: path, at });
      this.#add({ guild: event.guild_id, path, body: await carryOut(work, event, begun) });
      this.#begun.delete(path);
    });
  }

  /** Sends and fetches nothing more. What is open stays in the file. */
  stop(): void {
    this.#stopped = true;
  }

  #add(change: Omit<Change, "id">): void {
    const added = { id: ++this.#last, ...change };
    this.#queue(added); // first, for writing may write the file anew
    this.#write(added);
    this.#begin(change.guild);
  }

  /** Sends what is open of a guild. Where that fails (the file cannot be written), the program ends, and is started anew: what is open stands in the file. */
  #begin(guild: string): void {
    this.#send(guild).catch((cause: unknown) => {
      this.log(`Sending for guild ${guild} has ended: ${cause}`);
      process.exit(1);
    });
  }

  async #send(guild: string): Promise<void> {
    if (this.#sending.has(guild) || this.#stopped) return;
    this.#sending.add(guild);
    for (let open = this.#open.get(guild) ?? []; open[0] !== undefined && !this.#stopped; ) {
      const batch = open[0].path === "/records" ? together(open) : [open[0]];
      const outcomes = await this.#until(guild, batch);
      for (const [i, change] of batch.entries()) {
        const outcome = outcomes[i];
        if (outcome === undefined) continue; // it is sent again, without the one that was refused
        await this.#settle(change, outcome);
        open.splice(open.indexOf(change), 1);
      }
    }
    this.#sending.delete(guild);
  }

  async #settle(change: Change, outcome: Outcome): Promise<void> {
    if (outcome.refused) this.log(`${change.path} of guild ${change.guild} is refused: ${outcome.refused.code}: ${outcome.refused.message}`);
    const handler = change.then === undefined ? undefined : this.handlers[change.then];
    try {
      await handler?.({ guild: change.guild, note: change.note as never }, outcome);
    } catch (cause) {
      this.log(`The handler ${change.then} failed: ${cause}`);
    }
    this.#write({ done: change.id });
  }

  /** Sends until there is an answer. A change without an outcome was not made and has to be sent again. */
  async #until(guild: string, batch: Change[], how: { tell?: false } = {}): Promise<(Outcome | undefined)[]> {
    const [first] = batch as [Change];
    const records = first.path === "/records";
    const body = records ? { records: batch.map((c) => c.body), on_refusal: "skip", ...how } : first.body;
    for (let pause = 500; ; pause = Math.min(2 * pause, maxPause)) {
      const { status, retryAfter, answer } = await this.#attempt(guild, first, body);
      if (status >= 200 && status < 300) return records ? (answer.data as Schemas["WrittenRecord"][]).map(recorded) : [answer];
      const error = answer.error ?? { code: "no_answer", message: `status ${status}` };
      if (refusal(status, error.code)) {
        // A schema that is broken names the record: that one goes, the others are sent again.
        const place = records ? /^body \/records\/(\d+)/.exec(error.message) : null;
        if (!place) return batch.map(() => ({ refused: error }));
        return batch.map((_, i) => (i === Number(place[1]) ? { refused: error } : undefined));
      }
      this.log(`${first.path} of guild ${guild} has to wait: ${error.code}: ${error.message}`);
      await new Promise((resolve) => setTimeout(resolve, Math.max(retryAfter, pause * (0.5 + Math.random() / 2))));
    }
  }

  async #attempt(guild: string, change: Change, body: unknown): Promise<{ status: number; retryAfter: number; answer: Answer }> {
    try {
      // The path was checked when the change was added; here it is a text.
      const post = this.api.POST as (path: string, init: object) => Promise<{ data?: Answer; error?: Answer; response: Response }>;
      const { data, error, response } = await post(change.path, {
        headers: { "Guild-Id": guild, ...(change.key !== undefined && { "Idempotency-Key": change.key }) },
        signal: AbortSignal.timeout(20_000),
        body,
      });
      return { status: response.status, retryAfter: 1000 * Number(response.headers.get("Retry-After") ?? 0), answer: data ?? error ?? {} };
    } catch (cause) {
      return { status: 0, retryAfter: 0, answer: { error: { code: "no_answer", message: String(cause) } } };
    }
  }

  async #fetch(stream: string, begin: (() => Promise<{ error?: unknown }>) | undefined, take: (event: Event) => Promise<unknown>): Promise<void> {
    for (let [pause, begun] = [500, false]; !this.#stopped; ) {
      try {
        if (!begun && begin) ok(await begin());
        const { data: events } = ok(await this.api.POST("/bot/events/pull", { body: { stream, shard: 0, shards: 1, limit: 20, lease, wait: 20 }, signal: AbortSignal.timeout(30_000) }));
        const taken = await Promise.allSettled(events.map(take));
        for (const [i, one] of taken.entries()) if (one.status === "rejected") this.log(`${events[i]?.type} comes again: ${one.reason}`);
        const event_ids = events.filter((_, i) => taken[i]?.status === "fulfilled").map((event) => event.id);
        // Work is settled by its answer.
        if (begin && event_ids.length > 0) ok(await this.api.POST("/bot/events/ack", { body: { stream, event_ids } }));
        [pause, begun] = [500, true];
      } catch (cause) {
        this.log(`The stream ${stream} has to wait: ${cause}`);
        await new Promise((resolve) => setTimeout(resolve, pause));
        [pause, begun] = [Math.min(2 * pause, maxPause), false];
      }
    }
  }

  #queue(change: Change): void {
    const open = this.#open.get(change.guild);
    if (open) open.push(change);
    else this.#open.set(change.guild, [change]);
  }

  // The file: a line a change, a line for each that is done, and one for work that is begun. It is written anew at the
  // start and when most of it is done.
  #read(): void {
    const open = new Map<number, Change>();
    const text = existsSync(this.file) ? readFileSync(this.file, "utf8") : "";
    for (const line of text.split("\n").slice(0, -1)) { // without what a kill has cut off
      const entry = JSON.parse(line) as Line;
      if ("begun" in entry) this.#begun.set(entry.begun, entry.at);
      else if ("done" in entry) open.delete(entry.done);
      else {
        open.set(entry.id, entry);
        this.#begun.delete(entry.path);
        this.posted.add((entry.body as Schemas["AnswerBotWorkRequest"]).done?.message_id ?? "");
        this.#last = Math.max(this.#last, entry.id);
      }
    }
    for (const change of open.values()) this.#queue(change);
    this.#compact();
  }

  #write(entry: Line): void {
    appendFileSync(this.file, `${JSON.stringify(entry)}\n`);
    const open = [...this.#open.values()].reduce((sum, of) => sum + of.length, 0);
    if (++this.#lines > 10_000 + 4 * open) this.#compact();
  }

  #compact(): void {
    const lines = [...[...this.#begun].map(([begun, at]) => ({ begun, at })), ...[...this.#open.values()].flat()].map((line) => `${JSON.stringify(line)}\n`);
    writeFileSync(`${this.file}.new`, lines.join(""), { flush: true });
    renameSync(`${this.file}.new`, this.file);
    this.#lines = lines.length;
  }
}

/** The answer of a call that has worked. */
function ok<T>({ data, error }: { data?: T; error?: unknown }): T {
  if (error !== undefined) throw new Error(JSON.stringify(error));
  return data as T;
}

type Answer = Outcome & { error?: { code: string; message: string } };

/** The records at the front that fit into one call, in which a thing stands once. */
function together(open: Change[]): Change[] {
  const named = new Set<string>();
  let bytes = 0;
  let n = 0;
  for (const { path, body } of open) {
    const r = body as GuildRecord;
    const name = [r.record, r.giveaway_id ?? r.ticket_id, r.id ?? r.channel_message_id, r.user_id].join("/");
    bytes += Buffer.byteLength(JSON.stringify(body)) + 1;
    if (path !== "/records" || n === maxRecords || bytes > maxBytes || named.has(name)) break;
    named.add(name);
    n++;
  }
  return open.slice(0, Math.max(n, 1));
}

const recorded = (of: Schemas["WrittenRecord"]): Outcome =>
  of.result === "refused" ? { refused: { code: of.code ?? "", message: of.message ?? "" } } : { data: of };

/** Whether a failure stays one however often the same is sent. */
const refusal = (status: number, code: string) =>
  status === 409 ? code === "idempotency_key_reused" : [400, 404, 405, 413, 415, 422].includes(status);
