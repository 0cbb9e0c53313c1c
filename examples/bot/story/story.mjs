// What a bot has to do, end to end: people act on the stand-in of the platform, the
// bot answers there and writes to Guildhall, and in the end the books are compared.
// In between the bot is killed.
//
//     node story.mjs short|whole COMMAND [ARGUMENT ...]
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";

const [extent, ...command] = process.argv.slice(2);
const { PLATFORM_URL, GUILDHALL_URL, GUILDHALL_TOKEN, GUILDHALL_BOT_KEY } = process.env;
const file = join(process.cwd(), "bot.jsonl");
rmSync(file, { force: true });

async function people(what, body = {}) {
  const response = await fetch(`${PLATFORM_URL}/control/${what}`, { method: "POST", body: JSON.stringify(body) });
  return response.json();
}
async function guildhall(path, init = {}) {
  const response = await fetch(GUILDHALL_URL + path, {
    ...init, headers: { Authorization: `Bearer ${GUILDHALL_TOKEN}`, "Content-Type": "application/json", ...init.headers },
  });
  const text = await response.text();
  return { status: response.status, ...(text && JSON.parse(text)) };
}
const post = (path, body) => guildhall(path, { method: "POST", ...(body && { body: JSON.stringify(body) }) });
/** As the bot: what another part of it does. */
async function asBot(path, body, method = "POST") {
  const answer = await guildhall(path, { method, body: JSON.stringify(body), headers: { Authorization: `Bearer ${GUILDHALL_BOT_KEY}`, "Guild-Id": guild } });
  assert.equal(answer.status, 200, JSON.stringify(answer));
}
async function until(what, probe, seconds = 60) {
  const end = Date.now() + 1000 * seconds;
  for (;;) {
    const found = await probe();
    if (found) return found;
    if (Date.now() > end) throw new Error(`After ${seconds} s still not so: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

let bot;
async function startBot() {
  bot = spawn(command[0], command.slice(1), {
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, DISCORD_API: `${PLATFORM_URL}/api`, DISCORD_GATEWAY: PLATFORM_URL.replace("http", "ws"), BOT_FILE: file, BOT_XP_COOLDOWN: "0" },
  });
  const started = bot;
  let out = "";
  started.stdout.on("data", (text) => (out += text));
  await until("the bot is ready", () => {
    assert.equal(started.exitCode, null, "the bot has ended");
    return out.includes("ready");
  });
}
async function killBot() {
  const ended = new Promise((resolve) => bot.once("exit", resolve));
  bot.kill("SIGKILL");
  await ended;
  await until("the platform has seen it go", async () => (await people("connected")).connected === 0);
}
/** Waits until the bot has written down a change that names each of the ids. */
function written(ids) {
  return until("the bot has written down what it was told", () => {
    const text = existsSync(file) ? readFileSync(file, "utf8") : "";
    return ids.every((id) => text.includes(id));
  });
}
/** Waits until the bot has written down and acknowledged an order. A kill before that leaves no place for an answer. */
async function taken(where) {
  await written([where.id]);
  await until("the order is acknowledged", async () => (await people("answer", where)).answer !== null);
}
async function said(where, pattern, seconds) {
  return until(`the answer ${pattern}`, async () => {
    const { answer } = await people("answer", where);
    if (answer) assert.match(answer, pattern);
    return answer;
  }, seconds);
}

const guild = (await guildhall("/me")).token.guild_id;
const { channel } = await people("guild", { id: guild, name: "A server", roles: ["Level 5"] });
const { channel: far } = await people("guild", { id: "100000000000000900", name: "Another server", roles: [] });
const member = (n) => String(300000000000000000n + BigInt(n));
const crowd = Array.from({ length: 1200 }, (_, n) => member(3000 + n));
const order = (user, name, more) => people("command", { channel, user, name, ...more });

try {
  await people("crowd", { guild, users: crowd });
  const notices = await post("/webhooks", { delivery: "pull", events: ["member.joined", "member.left", "member.updated"] });
  assert.equal(notices.status, 201);
  await startBot();
  await members(notices.data.id);
  await until("the guild has the platform's name", async () => (await guildhall("/guild")).data.name === "A server");

  // XP, with a kill between the writing down and the sending.
  const sent = [];
  for (let n = 0; n < 300; n++) sent.push((await people("message", { channel, user: member(n % 10), content: `message ${n}` })).id);
  await written(sent);
  await killBot();
  await startBot();
  const xp = async (n) => (await guildhall(`/levelling/user/${member(n)}`)).data;
  for (let n = 0; n < 10; n++) await until(`member ${n} has 30 messages' XP`, async () => (await xp(n)).total_xp === 600);
  console.log("xp: 300 messages, each counted once, with a kill in between");

  // Coins.
  await said(await order(member(1), "balance"), /You have 0 coins/);
  await said(await order(member(1), "daily"), /you have 100/);
  await said(await order(member(1), "daily"), /you have 100/);
  const ledger = await guildhall(`/economy/ledger?user_id=${member(1)}`);
  assert.deepEqual(ledger.data.map((e) => e.delta), [100]);
  console.log("daily: twice asked, once given");

  await people("rename", { id: guild, name: "Another name" });
  await until("the guild has its new name", async () => (await guildhall("/guild")).data.name === "Another name");

  await owner();
  await roles();
  await messages();
  await channels();
  await draws();
  await tickets();
  if (extent === "whole") await whole();

  assert.equal((await people("given")).missed, 1, "the role of a member who has left is tried once");
  assert.deepEqual((await people("unknown")).unknown, [], "calls that the stand-in does not know");
  assert.deepEqual((await people("faults")).faults, [], "faults that nothing has met");
} finally {
  bot?.kill("SIGTERM");
}
console.log("the books agree");

/** Members are told without events at first; then those who come, leave and change their name, also while the bot is away. */
async function members(notices) {
  const isOurs = (id) => id.startsWith("30000000000000"); // the demo guild has members of its own, who are not on the platform
  const present = async () => {
    const ids = [];
    for (let [page, more] = [1, true]; more; page++) {
      const { data, has_more } = await guildhall(`/members?present=true&per_page=100&page=${page}`);
      ids.push(...data.map((m) => m.user_id));
      more = has_more;
    }
    return ids.filter(isOurs);
  };
  const known = async (n) => (await guildhall(`/members/${member(n)}`)).data;
  // Pages move while members of the demo guild leave.
  const arePresent = (want) => until("exactly these are known to be there", async () => JSON.stringify((await present()).sort()) === JSON.stringify(want));
  await arePresent(crowd);
  assert.deepEqual([(await known(3007)).name, (await known(3007)).joined_at], [`Name of ${member(3007)}`, "2024-01-01T00:00:00.000Z"]);
  await people("join", { guild, user: member(4500), name: "Ada" });
  await people("nick", { guild, user: member(4500), nick: "Ada L." });
  await until("the new member has its nickname", async () => (await known(4500))?.name === "Ada L.");
  await people("leave", { guild, user: member(4500) });
  await until("the member has left", async () => (await known(4500)).left_at !== null);
  await people("join", { guild, user: member(4500), name: "Ada" });
  await until("the member is back", async () => (await present()).includes(member(4500)));

  await killBot();
  await people("leave", { guild, user: member(3000) });
  await people("nick", { guild, user: member(3001), nick: "Grace" });
  await people("join", { guild, user: member(4501), name: "Alan" });
  await startBot();
  await until("who has left meanwhile is told", async () => (await known(3000)).left_at !== null);
  assert.deepEqual([(await known(3001)).name, (await known(4501)).name], ["Grace", "Alan"]);
  await arePresent([...crowd.slice(1), member(4500), member(4501)]);
  const { data: told } = await post(`/webhooks/${notices}/events/pull`, { limit: 100 });
  assert.deepEqual(told.map((e) => `${e.type} ${e.data.member.user_id}`).filter((what) => isOurs(what.split(" ")[1])).sort(), ["joined", "joined", "left", "updated"].map((what) => `member.${what} ${member(4500)}`)
    .concat(`member.left ${member(3000)}`).sort());
  console.log(`members: ${crowd.length} at first without events, then who comes, leaves and changes the name, also while the bot is away`);
}

/** The guild's owner hears of a webhook that was disabled, in a message of their own. */
async function owner() {
  assert.equal((await post("/webhooks", { url: `${PLATFORM_URL}/gone`, events: ["economy.balance_changed"] })).status, 201);
  assert.equal((await post("/economy/adjust", { user_id: member(30), delta: 1 })).status, 200);
  const host = PLATFORM_URL.replace("http://", "");
  await until("the owner is told", async () => (await people("written", { user: "100000000000000002" })).messages
    .some((text) => text.startsWith(`Another name: the webhook to ${host} was disabled.`)));
  console.log("owner: told of a webhook that was disabled");
}

/** Levels come by a stream: those of messages, and those that a website gives, also while the bot is away. */
async function roles() {
  const given = async (n) => (await people("given")).given.filter((g) => g.user === member(n)).length > 0;
  const rises = async (n) => assert.equal((await post("/levelling/adjust", { user_id: member(n), delta: 70 * 20 })).status, 200);
  for (let n = 0; n < 70; n++) await people("message", { channel, user: member(20), content: "more" });
  await until("the member has the role", () => given(20));
  await people("leave", { guild, user: member(22) });
  await rises(22);
  await until("the role of who has left is tried", async () => (await people("given")).missed === 1);
  await killBot();
  await rises(21);
  await startBot();
  await until("who has XP of a website has the role", () => given(21));
  console.log(`roles: level ${(await xpOf(20)).level}, by messages and by a website`);
}

async function whole() {
  // A payment, with a kill before it is answered.
  const to = { options: [{ name: "member", type: 6, value: member(2) }, { name: "coins", type: 4, value: 30 }], users: [member(2)] };
  const paid = await order(member(1), "pay", to);
  await taken(paid);
  await killBot();
  await startBot();
  await said(paid, /Paid 30 coins. You have 70 left/);
  await said(await order(member(3), "pay", { ...to }), /not got that much/);
  for (const [n, balance] of [[1, 70], [2, 30], [3, 0]]) {
    assert.equal((await guildhall(`/economy/wallet/${member(n)}`)).data.balance, balance);
  }
  console.log("pay: once, with a kill in between");

  // Cases.
  const whom = { name: "member", type: 6, value: member(4) };
  await said(await order(member(9), "warn", { options: [whom, { name: "reason", type: 3, value: "Spam" }], users: [member(4)] }), /Case #\d+ is written/);
  await said(await order(member(9), "cases", { options: [whom], users: [member(4)] }), /warn, active: Spam/);
  const cases = await guildhall(`/cases?user_id=${member(4)}`);
  assert.deepEqual(cases.data.map((c) => [c.type, c.reason, c.moderator_id, c.source]), [["warn", "Spam", member(9), "bot"]]);
  console.log("cases: written and listed");

  await giveaway();

  // A member is forgotten.
  await said(await order(member(1), "forget-me"), /goes within a minute/);
  await until("the wallet is gone", async () => (await guildhall(`/economy/wallet/${member(1)}`)).data.balance === 0, 90);
  await until("the level is gone", async () => (await xpOf(1)).total_xp === 0, 90);
  console.log("forget-me: done");
}

async function xpOf(n) {
  return (await guildhall(`/levelling/user/${member(n)}`)).data;
}

// Work. The tickets are another program's; each has a channel of its own.
async function ticketIn(id, at) {
  await asBot("/records", { records: [{ record: "ticket", id, opener_id: member(5), subject: id, status: "open", channel_id: at }] });
  return { id, at };
}
async function ticketOf(id, of = {}) {
  const overwrites = [{ id: guild, type: 0, deny: "1024", allow: "0" }, { id: member(5), type: 1, allow: "3072", deny: "0" }];
  return ticketIn(id, (await people("channel", { guild, name: id, permission_overwrites: overwrites, ...of })).channel);
}
function say(ticket, content) {
  return post(`/tickets/${ticket.id}/message`, { content });
}
async function saying(ticket, content) {
  return (await people("messages", { channel: ticket.at })).messages.filter((m) => m.content === content);
}
async function inTranscript(ticket, content) {
  return (await guildhall(`/tickets/${ticket.id}/messages`)).data.filter((m) => m.content === content);
}

/** Waits until a message stands once in the channel and once in the transcript, under one id. */
async function once(ticket, content) {
  await until(`the transcript has: ${content}`, async () => (await inTranscript(ticket, content)).length > 0);
  const [there, known] = [await saying(ticket, content), await inTranscript(ticket, content)];
  assert.deepEqual(there.map((m) => m.id), known.map((m) => m.channel_message_id), content);
  assert.equal(there.length, 1, content);
  assert.deepEqual(there[0].notifies, [], "it notifies nobody");
}

async function messages() {
  const ticket = await ticketOf("posting");
  const posts = `^/channels/${ticket.at}/messages$`;
  assert.equal((await say(ticket, `Hello <@${member(5)}>`)).status, 201);
  await once(ticket, `Hello <@${member(5)}>`);

  // The platform carries it out, and the bot does not hear of it; it is unavailable; it is slow.
  await people("fault", { methods: ["POST"], path: posts, how: "lost" });
  await say(ticket, "A lost answer");
  await once(ticket, "A lost answer");
  await people("fault", { methods: ["POST"], path: posts, how: "fails" });
  await say(ticket, "A failure");
  await once(ticket, "A failure");

  // The bot dies between posting and answering, and comes back after the platform has forgotten the nonce.
  await people("fault", { methods: ["POST"], path: posts, how: "hangs" });
  const caller = say(ticket, "A kill");
  await until("it is posted", async () => (await saying(ticket, "A kill")).length === 1);
  await killBot();
  assert.deepEqual([(await caller).status, (await inTranscript(ticket, "A kill")).length], [502, 0]);
  await people("forget");
  await startBot();
  await once(ticket, "A kill");

  // What staff says again while the bot is away is another message.
  await say(ticket, "Thank you");
  await once(ticket, "Thank you");
  await killBot();
  const again = [say(ticket, "Thank you"), say(ticket, "Thank you")];
  for (const one of again) assert.equal((await one).status, 502);
  await people("forget");
  await startBot();
  await until("it is said three times", async () => (await inTranscript(ticket, "Thank you")).length === 3);
  const ids = (of) => of.map((m) => m.channel_message_id ?? m.id).sort();
  assert.deepEqual(ids(await saying(ticket, "Thank you")), ids(await inTranscript(ticket, "Thank you")));

  // What the bot may not do it refuses at once, with the right word.
  const [elsewhere, unseen, forbidden] = [await ticketIn("elsewhere", far), await ticketOf("unseen"), await ticketOf("forbidden")];
  await people("hide", { channel: unseen.at });
  await people("fault", { methods: ["POST"], path: `^/channels/${forbidden.at}/messages$`, how: "forbidden" });
  for (const [where, reason] of [[elsewhere, "channel_not_allowed"], [unseen, "channel_not_allowed"], [await ticketIn("nowhere", "12345"), "channel_not_allowed"],
    [forbidden, "Missing Permissions"]]) {
    const before = readFileSync(file, "utf8").length;
    const began = Date.now();
    const { status, error } = await say(where, "Not here");
    assert.deepEqual([status, error.code, await inTranscript(where, "Not here")], [502, "discord_send_failed", []]);
    assert.ok(Date.now() - began < 9_000, `${where.id} is refused at once`);
    assert.match(readFileSync(file, "utf8").slice(before), new RegExp(`"refused":\\s*{"reason":\\s*"[^"]*${reason}`), where.id);
    assert.deepEqual(await saying(where, "Not here"), []);
  }
  console.log("messages: each once, with a lost answer, a failure and a kill in between; refused where the bot may not post");
}

async function channels() {
  const change = async (ticket, what) => assert.equal((await post(`/tickets/${ticket.id}/${what}`, what === "close" && { reason: "Done" })).status, 200);
  const now = async (ticket) => (await people("channels", { guild })).channels.find((c) => c.id === ticket.at);
  const isClosed = (c) => c.permission_overwrites.every((o) => (BigInt(o.deny) & 2048n) !== 0n && (BigInt(o.allow) & 2048n) === 0n);
  const isAsBefore = (c) => JSON.stringify(c.permission_overwrites.map((o) => [o.id, String(o.deny), String(o.allow)]).sort()) ===
    JSON.stringify([[guild, "1024", "0"], [member(5), "0", "3072"]].sort());
  const ticket = await ticketOf("closing");
  await change(ticket, "close");
  await until("its channel is closed", async () => isClosed(await now(ticket)));
  await change(ticket, "reopen");
  await until("its channel is open", async () => isAsBefore(await now(ticket)));
  for (let n = 0; n < 3; n++) {
    await change(ticket, "close");
    await change(ticket, "reopen");
  }
  assert.equal((await say(ticket, "It is open")).status, 201);
  await until("its channel is open after closing and reopening at once", async () => isAsBefore(await now(ticket)));

  // The bot dies while it closes.
  await people("fault", { methods: ["PUT", "PATCH"], path: `^/channels/${ticket.at}(/permissions/${guild})?$`, how: "hangs" });
  await change(ticket, "close");
  await until("it has begun", async () => (await people("faults")).faults.length === 0);
  await killBot();
  await startBot();
  await until("its channel is closed", async () => isClosed(await now(ticket)));

  const thread = await ticketOf("thread", { type: 11, parent: channel });
  assert.equal((await say(thread, "Hello, thread")).status, 201);
  await once(thread, "Hello, thread");
  const thatIs = async (shut) => (({ archived, locked }) => archived === shut && locked === shut)((await now(thread)).thread_metadata);
  await change(thread, "close");
  await until("the thread is archived", () => thatIs(true));
  await change(thread, "reopen");
  await until("the thread is open", () => thatIs(false));
  await change(thread, "close");
  await until("the thread is archived again", () => thatIs(true));

  await asBot("/guild/settings", { tickets: { close_action: "delete" } }, "PATCH");
  const gone = await ticketOf("deleting");
  await people("fault", { methods: ["DELETE"], path: `^/channels/${gone.at}$`, how: "lost" });
  await change(gone, "close");
  await until("its channel is deleted", async () => (await now(gone)) === undefined);
  await until("the ticket has no channel", async () => (await guildhall(`/tickets/${gone.id}`)).data.channel_id === null);
  await asBot("/guild/settings", { tickets: { close_action: "archive" } }, "PATCH");
  console.log("channels: closed, opened again, closed with a kill in between, archived as threads, deleted");
}

/** Giveaways of a website: the bot posts them, counts who has reacted, and announces. */
async function draws() {
  const ends = new Date(Date.now() + 3_600_000).toISOString();
  const begin = async (at) => {
    const made = await post("/giveaways", { channel_id: at, prize: "A scarf", winner_count: 2, ends_at: ends });
    assert.equal(made.status, 201);
    return made.data.id;
  };
  const of = async (id) => (await guildhall(`/giveaways/${id}`)).data;
  const ended = (id) => until("winners are drawn", async () => ((g) => g.status === "ended" && g)(await of(id)), 150);
  const { channel: stage } = await people("channel", { guild, name: "stage" });
  await people("fault", { methods: ["POST"], path: `^/channels/${stage}/messages$`, how: "hangs" });
  const [id, nobodySees] = [await begin(stage), await begin(far)];
  await until("it is posted", async () => (await people("messages", { channel: stage })).messages.length === 1);
  await killBot();
  await startBot();
  const message = await until("the giveaway knows its message", async () => (await of(id)).message_id);
  const there = (await people("messages", { channel: stage })).messages;
  assert.deepEqual(there.map((m) => [m.id, m.reactions.map((r) => r.user.id)]), [[message, ["100000000000000001"]]], "one post, with the bot's reaction");

  const all = Array.from({ length: 130 }, (_, n) => member(1000 + n));
  for (const user of all.slice(0, 120)) await people("react", { message, user });
  for (const user of all.slice(110)) await people("react", { message, user, type: 1 });
  await people("fault", { methods: ["GET"], path: `^/channels/${stage}/messages/${message}/reactions/`, how: "hangs" });
  for (const one of [id, nobodySees]) assert.equal((await post(`/giveaways/${one}/end`)).status, 202);
  await until("the bot counts", async () => (await people("faults")).faults.length === 0);
  await killBot();
  await startBot();
  const g = await ended(id);
  const entries = [...(await guildhall(`/giveaways/${id}/entries?per_page=100`)).data, ...(await guildhall(`/giveaways/${id}/entries?per_page=100&page=2`)).data];
  assert.deepEqual(entries.map((e) => e.user_id).sort(), all, "who has reacted has entered, once");
  assert.equal(g.winners.length, 2);
  const announced = await until("the winners are announced", async () => {
    const { messages } = await people("messages", { channel: stage });
    return messages.length > 1 && g.winners.every((w) => messages[0].content.includes(w)) && messages;
  });
  assert.equal(announced.length, 2);
  assert.ok(g.winners.every((w) => announced[1].content.includes(w)));
  assert.deepEqual([announced[1].message_reference.message_id, announced[1].notifies], [message, ["users"]]);
  const unseen = await ended(nobodySees);
  assert.deepEqual([unseen.message_id, unseen.winners, (await people("messages", { channel: far })).messages], [null, [], []]);
  console.log("giveaways of a website: posted once, counted, drawn, announced, with two kills in between; not posted in another server's channel");
}

/** A ticket is opened by button (the whole bot) or by command (the short bot). Its channel is mirrored: messages, and their edits and deletions after a kill. */
async function tickets() {
  await people("fault", { methods: ["POST"], path: `^/guilds/${guild}/channels$`, how: "hangs" });
  const opened = extent === "whole" ? await pressed() : await order(member(5), "ticket");
  await taken(opened);
  const made = async () => (await people("channels", { guild })).channels.filter((c) => c.topic === `ticket:${opened.id}`);
  await until("its channel is made, and the bot does not know", async () => (await made()).length === 1);
  await killBot();
  await startBot();
  await said(opened, /Your ticket is/);
  const mine = await made();
  assert.equal(mine.length, 1, "one channel");
  const at = mine[0].id;
  const ticket = async () => (await guildhall(`/tickets/${opened.id}`)).data;
  await until("the ticket knows its channel", async () => (await ticket())?.channel_id === at);

  assert.equal((await ticket()).category, "help");
  const options = [{ name: "priority", type: 3, value: "high" }];
  await said(await people("command", { channel: at, user: member(9), name: "priority", options }), /Staff sees it/);
  assert.equal((await ticket()).priority, "high");

  const picture = { id: "1", filename: "error.png", url: "https://cdn.example.com/error.png", proxy_url: "https://cdn.example.com/error.png", content_type: "image/png", size: 512 };
  const asked = await people("message", { channel: at, user: member(5), content: "It does not wrok", attachments: [picture] });
  await written(["It does not wrok"]);
  await killBot();
  await startBot();
  await people("edit", { channel: at, id: asked.id, content: "It does not work" });
  const answer = await guildhall(`/tickets/${opened.id}/message`, { method: "POST", body: JSON.stringify({ content: "Have you tried again?" }) });
  assert.equal(answer.status, 201);
  const transcript = async () => {
    const { data } = await guildhall(`/tickets/${opened.id}/messages`);
    return data.filter((m) => m.kind === "message").map((m) => [m.author_type, m.content]).sort();
  };
  const want = [["staff", "Have you tried again?"], ["opener", "It does not work"]].sort();
  await until("the transcript has both", async () => JSON.stringify(await transcript()) === JSON.stringify(want));
  const entry = async () => (await guildhall(`/tickets/${opened.id}/messages`)).data.find((m) => m.channel_message_id === asked.id);
  const kept = await entry();
  assert.deepEqual(kept.attachments, [{ name: picture.filename, url: picture.url, content_type: picture.content_type, size: picture.size }]);
  assert.ok(kept.edited_at && kept.original_content === "It does not wrok");
  await people("remove", { channel: at, id: asked.id });
  await until("the transcript marks the deletion", async () => (await entry()).deleted_at !== null);
  const ids = [];
  for (const content of ["Sorry", "Never mind"]) ids.push((await people("message", { channel: at, user: member(5), content })).id);
  const purged = async () => (await guildhall(`/tickets/${opened.id}/messages`)).data.filter((m) => ids.includes(m.channel_message_id));
  await until("the transcript has both messages", async () => (await purged()).length === 2);
  await people("purge", { channel: at, ids });
  await until("the transcript marks both as deleted", async () => (await purged()).every((m) => m.deleted_at !== null));
  const there = (await people("messages", { channel: at })).messages.map((m) => m.content);
  assert.ok(there.includes("Have you tried again?"), "the channel has what came over the API");

  if (extent === "whole") {
    const help = (await people("messages", { channel: at })).messages.find((m) => m.components.length > 0);
    await said(await people("press", { channel: at, user: member(9), message: help.id, id: "close" }), /is closed/);
  } else {
    assert.equal((await post(`/tickets/${opened.id}/close`, { reason: "Done" })).status, 200);
  }
  assert.equal((await ticket()).status, "closed");
  await until("its channel is closed to the opener", async () => {
    const { permission_overwrites: of } = (await people("channels", { guild })).channels.find((c) => c.id === at);
    return (BigInt(of.find((o) => o.id === member(5)).deny) & 2048n) !== 0n;
  });
  console.log("ticket: one channel, both ways, with a priority, an attachment, an edit and a deletion, closed, with two kills in between");
}

/** Opens a ticket by the button of the panel. */
async function pressed() {
  await said(await order(member(9), "tickets"), /There it is/);
  const posted = (await people("messages", { channel })).messages.at(-1);
  return people("press", { channel, user: member(5), message: posted.id, id: "ticket" });
}

async function giveaway() {
  const options = [{ name: "prize", type: 3, value: "A hat" }, { name: "minutes", type: 4, value: 60 }, { name: "winners", type: 4, value: 2 }];
  const begun = await order(member(9), "giveaway", { options });
  await said(begun, /It runs/);
  const posts = (await people("messages", { channel })).messages.filter((m) => m.nonce === begun.id);
  assert.equal(posts.length, 1);
  for (let n = 0; n < 5; n++) {
    await said(await people("press", { channel, user: member(n), message: posts[0].id, id: `enter:${begun.id}` }), /You are in/);
  }
  const of = async () => (await guildhall(`/giveaways/${begun.id}`)).data;
  await until("all have entered", async () => (await of()).entry_count === 5);
  assert.equal((await guildhall(`/giveaways/${begun.id}/end`, { method: "POST" })).status, 202);
  const ended = await until("winners are drawn", async () => {
    const g = await of();
    return g.status === "ended" && g;
  }, 150);
  assert.equal(ended.winners.length, 2);
  await until("the bot has announced them", async () => {
    const m = (await people("messages", { channel })).messages.find((m) => m.id === posts[0].id);
    return ended.winners.every((w) => m.content.includes(w)) && m.components.length === 0;
  });
  console.log("giveaway: entered by button, drawn, announced");
}
