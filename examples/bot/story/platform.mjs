// A stand-in of the chat platform, as far as the example bots and Guildhall use it:
// the gateway, and the REST calls. The story controls it over POST /control/…: what
// people do comes in there, and what the bots did can be read.
//
// It prints where it is and writes nothing.
import { createServer } from "node:http";
import { WebSocketServer } from "ws";

const bot = { id: "100000000000000001", username: "bot", discriminator: "0", avatar: null, bot: true };
const owner = "100000000000000002";
let last = 0n;
const snowflake = () => String(((BigInt(Date.now()) - 1420070400000n) << 22n) + (last++ % 4194304n));

const application = { id: bot.id, name: "bot", icon: null, description: "", bot_public: true, bot_require_code_grant: false, owner: person(owner), team: null,
  verify_key: "", flags: 0, hook: true };
const guilds = new Map(); // id: { guild, channels, roles, members }
const channels = new Map();
const messages = new Map(); // by channel: Map id -> message
const nonces = new Map();
const answers = new Map(); // by the token of an interaction
const given = []; // roles: { guild, user, role }
const unknown = []; // calls that no rule below answers
const sockets = new Set();
let sequence = 0;

function guildOf(id) {
  const g = guilds.get(id);
  return {
    id, name: g.name, icon: null, splash: null, discovery_splash: null, owner_id: owner, afk_channel_id: null, afk_timeout: 300,
    verification_level: 0, default_message_notifications: 0, explicit_content_filter: 0, mfa_level: 0, features: [], emojis: [], stickers: [],
    application_id: null, system_channel_id: null, system_channel_flags: 0, rules_channel_id: null, vanity_url_code: null, description: null,
    banner: null, premium_tier: 0, premium_subscription_count: 0, preferred_locale: "en-US", public_updates_channel_id: null, nsfw_level: 0,
    premium_progress_bar_enabled: false, safety_alerts_channel_id: null, large: false, unavailable: false, member_count: g.members,
    approximate_member_count: g.members, joined_at: "2024-01-01T00:00:00.000Z", voice_states: [], presences: [], threads: [], stage_instances: [],
    guild_scheduled_events: [], soundboard_sounds: [], members: [memberOf(bot)],
    roles: g.roles, channels: [...channels.values()].filter((c) => c.guild_id === id),
  };
}
function memberOf(user, more = {}) {
  return { user, roles: [], joined_at: "2024-01-01T00:00:00.000Z", deaf: false, mute: false, flags: 0, avatar: null, nick: null, ...more };
}
function person(id) {
  return { id, username: `user-${id.slice(-3)}`, discriminator: "0", avatar: null, global_name: null };
}

function tell(t, d) {
  sequence++;
  for (const socket of sockets) socket.send(JSON.stringify({ op: 0, s: sequence, t, d }));
}

function addChannel(guild, body) {
  const c = { id: snowflake(), type: body.type ?? 0, guild_id: guild, name: body.name, topic: body.topic ?? null, position: 0,
    permission_overwrites: (body.permission_overwrites ?? []).map((o) => ({ allow: "0", deny: "0", ...o })), nsfw: false, parent_id: null,
    rate_limit_per_user: 0, last_message_id: null, flags: 0 };
  channels.set(c.id, c);
  tell("CHANNEL_CREATE", c);
  return c;
}

function post(channel, author, body, more = {}) {
  const { nonce, enforce_nonce } = body;
  if (enforce_nonce && nonces.has(nonce)) return nonces.get(nonce);
  const m = { id: snowflake(), type: 0, channel_id: channel, content: body.content ?? "", author, timestamp: new Date().toISOString(),
    edited_timestamp: null, tts: false, mention_everyone: false, mentions: [], mention_roles: [], attachments: [], embeds: [],
    components: body.components ?? [], pinned: false, flags: 0, ...(nonce !== undefined && { nonce }) };
  if (!messages.has(channel)) messages.set(channel, new Map());
  messages.get(channel).set(m.id, m);
  if (enforce_nonce) nonces.set(nonce, m);
  tell("MESSAGE_CREATE", { ...m, guild_id: channels.get(channel).guild_id, ...more });
  return m;
}

// What people do. The story names it and gets what it made.
const people = {
  guild: ({ id, name, roles }) => {
    const everyone = { id, name: "@everyone", permissions: "3072", position: 0, color: 0, hoist: false, managed: false, mentionable: false, flags: 0 };
    guilds.set(id, { name, members: 42, roles: [everyone, ...roles.map((r, i) => ({ ...everyone, id: snowflake(), name: r, position: i + 1 }))] });
    return { channel: addChannel(id, { name: "general" }).id };
  },
  rename: ({ id, name }) => {
    guilds.get(id).name = name;
    tell("GUILD_UPDATE", guildOf(id));
    return {};
  },
  message: ({ channel, user, content }) => {
    const { user: _, ...member } = memberOf(person(user));
    return post(channel, person(user), { content }, { member });
  },
  edit: ({ channel, id, content }) => {
    const m = messages.get(channel).get(id);
    m.content = content;
    m.edited_timestamp = new Date().toISOString();
    tell("MESSAGE_UPDATE", { ...m, guild_id: channels.get(channel).guild_id });
    return {};
  },
  command: ({ channel, user, name, options = [], users = [] }) => {
    const resolved = { users: Object.fromEntries(users.map((id) => [id, person(id)])) };
    return interaction(channel, user, 2, { id: snowflake(), type: 1, name, options, resolved });
  },
  press: ({ channel, user, message, id }) =>
    interaction(channel, user, 3, { custom_id: id, component_type: 2 }, { message: messages.get(channel).get(message) }),
  answer: ({ token }) => ({ answer: answers.get(token) ?? null }),
  messages: ({ channel }) => ({ messages: [...(messages.get(channel)?.values() ?? [])] }),
  channels: ({ guild }) => ({ channels: [...channels.values()].filter((c) => c.guild_id === guild) }),
  given: () => ({ given }),
  unknown: () => ({ unknown }),
  connected: () => ({ connected: sockets.size }),
};

function interaction(channel, user, type, data, more = {}) {
  const id = snowflake();
  const token = `token-${id}`;
  const c = channels.get(channel);
  tell("INTERACTION_CREATE", { id, application_id: bot.id, type, data, token, version: 1, guild_id: c.guild_id, channel_id: channel, channel: c,
    guild: { id: c.guild_id, locale: "en-US", features: [] }, guild_locale: "en-US", locale: "en-US", app_permissions: "2147483647",
    entitlements: [], authorizing_integration_owners: {}, context: 0, attachment_size_limit: 10485760,
    member: { ...memberOf(person(user)), permissions: "2147483647", pending: false }, ...more });
  return { id, token };
}

// The REST calls: method, path, answer. An answer of undefined is 204.
const calls = [
  ["GET", "/gateway/bot", () => ({ url: `ws://127.0.0.1:${port()}`, shards: 1, session_start_limit: { total: 1000, remaining: 999, reset_after: 1, max_concurrency: 1 } })],
  ["GET", "/users/@me", () => bot],
  ["GET", "/oauth2/applications/@me", () => application],
  ["GET", "/applications/@me", () => application],
  ["PUT", "/applications/:a/commands", (_, body) => body.map((c) => ({ id: snowflake(), application_id: bot.id, version: snowflake(), ...c }))],
  ["GET", "/guilds/:g", ([g]) => guilds.has(g) && guildOf(g)],
  ["GET", "/guilds/:g/channels", ([g]) => guildOf(g).channels],
  ["GET", "/guilds/:g/members/:u", ([, u]) => memberOf(u === bot.id ? bot : person(u))],
  ["GET", "/guilds/:g/roles", ([g]) => guildOf(g).roles],
  ["POST", "/guilds/:g/channels", ([g], body) => addChannel(g, body)],
  ["PUT", "/guilds/:g/members/:u/roles/:r", ([guild, user, role]) => void given.push({ guild, user, role })],
  ["GET", "/channels/:c", ([c]) => channels.get(c)],
  ["PATCH", "/channels/:c", ([c], body) => Object.assign(channels.get(c), body)],
  ["PUT", "/channels/:c/permissions/:o", ([c, id], body) => {
    const channel = channels.get(c);
    channel.permission_overwrites = [...channel.permission_overwrites.filter((o) => o.id !== id), { id, allow: "0", deny: "0", ...body }];
    tell("CHANNEL_UPDATE", channel);
  }],
  ["POST", "/channels/:c/messages", ([c], body) => post(c, bot, body)],
  ["GET", "/channels/:c/messages", ([c]) => [...(messages.get(c)?.values() ?? [])].reverse().slice(0, 100)],
  ["GET", "/channels/:c/messages/:m", ([c, m]) => messages.get(c)?.get(m)],
  ["PATCH", "/channels/:c/messages/:m", ([c, m], body) => Object.assign(messages.get(c).get(m), body)],
  ["POST", "/interactions/:i/:t/callback", ([id, t], _, query) => {
    answers.set(t, answers.get(t) ?? "");
    return query.get("with_response") ? { interaction: { id, type: 2, response_message_id: snowflake(), response_message_loading: true } } : undefined;
  }],
  ["PATCH", "/webhooks/:a/:t/messages/@original", ([, t], body) => {
    if (!answers.has(t)) return false; // it was not acknowledged
    answers.set(t, body.content);
    return { id: snowflake(), channel_id: "1", content: body.content, author: bot, timestamp: new Date().toISOString(), type: 0 };
  }],
].map(([method, path, answer]) => ({ method, at: new RegExp(`^${path.replace(/:\w/g, "([^/]+)")}$`), answer }));

function port() {
  return server.address().port;
}

const server = createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = chunks.length > 0 ? JSON.parse(Buffer.concat(chunks).toString() || "null") : undefined;
  const url = new URL(request.url, "http://x");
  const path = decodeURIComponent(url.pathname);
  const send = (status, value) => {
    if (value === undefined) response.writeHead(status).end();
    else response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(value));
  };
  if (path.startsWith("/control/")) return send(200, people[path.slice("/control/".length)](body ?? {}));
  const call = path.replace(/^\/api(\/v\d+)?/, "");
  for (const { method, at, answer } of calls) {
    const named = at.exec(call);
    if (request.method !== method || !named) continue;
    const value = answer(named.slice(1), body, url.searchParams);
    if (value === undefined && ["PUT", "POST"].includes(method)) return send(204);
    return value ? send(200, value) : send(404, { code: 10003, message: "Unknown" });
  }
  unknown.push(`${request.method} ${call}`);
  send(404, { code: 0, message: "404: Not Found" });
});

const gateway = new WebSocketServer({ server });
gateway.on("connection", (socket) => {
  const send = (of) => socket.send(JSON.stringify(of));
  send({ op: 10, d: { heartbeat_interval: 20_000 } });
  socket.on("close", () => sockets.delete(socket));
  socket.on("message", (text) => {
    const { op, d } = JSON.parse(text);
    if (op === 1) return send({ op: 11 });
    if (op === 6) return send({ op: 9, d: false }); // no session is kept: the bot begins anew
    if (op !== 2) return;
    if (d.token !== process.env.DISCORD_TOKEN) return socket.close(4004);
    send({ op: 0, s: ++sequence, t: "READY", d: { v: 10, user: bot, session_id: snowflake(), resume_gateway_url: `ws://127.0.0.1:${port()}`,
      guilds: [...guilds.keys()].map((id) => ({ id, unavailable: true })), application: { id: bot.id, flags: 0 } } });
    sockets.add(socket);
    for (const id of guilds.keys()) send({ op: 0, s: ++sequence, t: "GUILD_CREATE", d: guildOf(id) });
  });
});

server.listen(0, "127.0.0.1", () => console.log(`PLATFORM_URL=http://127.0.0.1:${port()}`));
