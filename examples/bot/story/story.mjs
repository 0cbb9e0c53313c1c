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
const { PLATFORM_URL, GUILDHALL_URL, GUILDHALL_TOKEN } = process.env;
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
    env: { ...process.env, DISCORD_API: `${PLATFORM_URL}/api`, DISCORD_GATEWAY: PLATFORM_URL.replace("http", "ws"), BOT_FILE: file, BOT_XP_COOLDOWN: "0", BOT_ANNOUNCE_EVERY: "1" },
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
const member = (n) => String(300000000000000000n + BigInt(n));
const order = (user, name, more) => people("command", { channel, user, name, ...more });

try {
  await startBot();
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

  if (extent === "whole") await whole();

  assert.deepEqual((await people("unknown")).unknown, [], "calls that the stand-in does not know");
} finally {
  bot?.kill("SIGTERM");
}
console.log("the books agree");

async function whole() {
  // The roles of levels.
  assert.ok((await people("given")).given.length === 0);
  for (let n = 0; n < 70; n++) await people("message", { channel, user: member(20), content: "more" });
  await until("the member has the role", async () => (await people("given")).given.some((g) => g.user === member(20)));
  console.log(`roles: level ${(await xpOf(20)).level}`);

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

  await tickets();
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

async function tickets() {
  const panel = await order(member(9), "tickets");
  await said(panel, /There it is/);
  const posted = (await people("messages", { channel })).messages.at(-1);
  const opened = await people("press", { channel, user: member(5), message: posted.id, id: "ticket" });
  await taken(opened);
  await killBot();
  await startBot();
  await said(opened, /Your ticket is/);
  const mine = (await people("channels", { guild })).channels.filter((c) => c.topic === `ticket:${opened.id}`);
  assert.equal(mine.length, 1, "one channel");
  const at = mine[0].id;
  const ticket = async () => (await guildhall(`/tickets/${opened.id}`)).data;
  await until("the ticket knows its channel", async () => (await ticket()).channel_id === at);

  const asked = await people("message", { channel: at, user: member(5), content: "It does not wrok" });
  await people("edit", { channel: at, id: asked.id, content: "It does not work" });
  const answer = await guildhall(`/tickets/${opened.id}/message`, { method: "POST", body: JSON.stringify({ content: "Have you tried again?" }) });
  assert.equal(answer.status, 201);
  const transcript = async () => {
    const { data } = await guildhall(`/tickets/${opened.id}/messages`);
    return data.filter((m) => m.kind === "message").map((m) => [m.author_type, m.content]).sort();
  };
  const want = [["staff", "Have you tried again?"], ["opener", "It does not work"]].sort();
  await until("the transcript has both", async () => JSON.stringify(await transcript()) === JSON.stringify(want));
  const there = (await people("messages", { channel: at })).messages.map((m) => m.content);
  assert.ok(there.includes("Have you tried again?"), "the channel has what came over the API");

  const help = (await people("messages", { channel: at })).messages.find((m) => m.components.length > 0);
  await said(await people("press", { channel: at, user: member(9), message: help.id, id: "close" }), /is closed/);
  assert.equal((await ticket()).status, "closed");
  console.log("ticket: one channel, both ways, closed, with a kill in between");
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
  await until("the giveaway remembers it", async () => (await of()).metadata.announced === "yes");
  console.log("giveaway: entered by button, drawn, announced");
}
