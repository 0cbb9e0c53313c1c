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
const guilds = new Map(); // id: { name, roles, members }, members being a Map of those that the gateway shows
const channels = new Map();
const messages = new Map(); // by channel: Map id -> message
const nonces = new Map();
const reactions = new Map(); // by message: [{ user, type }]
const hidden = new Set(); // channels that the bot may not see
const faults = []; // { methods, path, how }: what the next such calls come to
const answers = new Map(); // by the token of an interaction
const given = []; // roles: { guild, user, role }
const left = new Set(); // members
let missed = 0; // calls about them
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
    premium_progress_bar_enabled: false, safety_alerts_channel_id: null, large: false, unavailable: false, member_count: g.members.size,
    approximate_member_count: g.members.size, joined_at: "2024-01-01T00:00:00.000Z", voice_states: [], presences: [], threads: [...channels.values()].filter((c) => c.guild_id === id && c.type === 11), stage_instances: [],
    guild_scheduled_events: [], soundboard_sounds: [], members: [memberOf(bot)],
    roles: g.roles, channels: [...channels.values()].filter((c) => c.guild_id === id && c.type !== 11),
  };
}
function memberOf(user, more = {}) {
  return { user, roles: [], joined_at: "2024-01-01T00:00:00.000Z", deaf: false, mute: false, flags: 0, avatar: null, nick: null, ...more };
}
function person(id) {
  return { id, username: `user-${id.slice(-3)}`, discriminator: "0", avatar: null, global_name: null };
}

/** Someone comes into a guild, as the gateway and the REST calls show it. */
function joins(guild, user, name, at) {
  const m = memberOf({ ...person(user), global_name: name }, { joined_at: at });
  guilds.get(guild).members.set(user, m);
  return m;
}

function tell(t, d) {
  sequence++;
  for (const socket of sockets) socket.send(JSON.stringify({ op: 0, s: sequence, t, d }));
}

function addChannel(guild, body) {
  const c = { id: snowflake(), type: body.type ?? 0, guild_id: guild, name: body.name, topic: body.topic ?? null, position: 0,
    permission_overwrites: (body.permission_overwrites ?? []).map((o) => ({ allow: "0", deny: "0", ...o })), nsfw: false, parent_id: null,
    rate_limit_per_user: 0, last_message_id: null, flags: 0 };
  if (body.parent) {
    delete c.permission_overwrites;
    Object.assign(c, { parent_id: body.parent, owner_id: owner, message_count: 0, member_count: 1, total_message_sent: 0,
      thread_metadata: { archived: false, locked: false, auto_archive_duration: 1440, archive_timestamp: new Date().toISOString() } });
  }
  channels.set(c.id, c);
  tell(body.parent ? "THREAD_CREATE" : "CHANNEL_CREATE", c);
  return c;
}

function post(channel, author, body, more = {}) {
  const { nonce, enforce_nonce, allowed_mentions, message_reference } = body;
  if (enforce_nonce && nonces.has(nonce)) return nonces.get(nonce);
  const m = { id: snowflake(), type: 0, channel_id: channel, content: body.content ?? "", author, timestamp: new Date().toISOString(),
    edited_timestamp: null, tts: false, mention_everyone: false, mentions: [], mention_roles: [], attachments: body.attachments ?? [], embeds: [],
    components: body.components ?? [], pinned: false, flags: 0, ...(nonce !== undefined && { nonce }), ...(message_reference && { message_reference }) };
  Object.defineProperty(m, "notifies", { value: allowed_mentions?.parse ?? ["everyone", "roles", "users"] }); // not shown to the bot
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
    guilds.set(id, { name, members: new Map([[bot.id, memberOf(bot)]]), roles: [everyone, ...roles.map((r, i) => ({ ...everyone, id: snowflake(), name: r, position: i + 1 }))] });
    return { channel: addChannel(id, { name: "general" }).id };
  },
  rename: ({ id, name }) => {
    guilds.get(id).name = name;
    tell("GUILD_UPDATE", guildOf(id));
    return {};
  },
  message: ({ channel, user, content, attachments }) => {
    const { user: _, ...member } = memberOf(person(user));
    return post(channel, person(user), { content, attachments }, { member });
  },
  edit: ({ channel, id, content }) => {
    const m = messages.get(channel).get(id);
    m.content = content;
    m.edited_timestamp = new Date().toISOString();
    tell("MESSAGE_UPDATE", { ...m, guild_id: channels.get(channel).guild_id });
    return {};
  },
  remove: ({ channel, id }) => {
    messages.get(channel).delete(id);
    tell("MESSAGE_DELETE", { id, channel_id: channel, guild_id: channels.get(channel).guild_id });
    return {};
  },
  purge: ({ channel, ids }) => {
    for (const id of ids) messages.get(channel).delete(id);
    tell("MESSAGE_DELETE_BULK", { ids, channel_id: channel, guild_id: channels.get(channel).guild_id });
    return {};
  },
  command: ({ channel, user, name, options = [], users = [] }) => {
    const resolved = { users: Object.fromEntries(users.map((id) => [id, person(id)])) };
    return interaction(channel, user, 2, { id: snowflake(), type: 1, name, options, resolved });
  },
  press: ({ channel, user, message, id }) =>
    interaction(channel, user, 3, { custom_id: id, component_type: 2 }, { message: messages.get(channel).get(message) }),
  answer: ({ token }) => ({ answer: answers.get(token) ?? null }),
  messages: ({ channel }) => ({ messages: [...(messages.get(channel)?.values() ?? [])].map((m) => ({ ...m, notifies: m.notifies, reactions: reactions.get(m.id) ?? [] })) }),
  channel: ({ guild, ...body }) => ({ channel: addChannel(guild, body).id }),
  react: ({ message, user, type = 0 }) => {
    reactions.set(message, [...(reactions.get(message) ?? []), { user: person(user), type }]);
    return {};
  },
  hide: ({ channel }) => void hidden.add(channel) ?? {},
  fault: (of) => void faults.push(of) ?? {},
  faults: () => ({ faults }),
  forget: () => nonces.clear() ?? {}, // as after some minutes
  channels: ({ guild }) => ({ channels: [...channels.values()].filter((c) => c.guild_id === guild) }),
  given: () => ({ given, missed }),
  crowd: ({ guild, users }) => users.forEach((user) => joins(guild, user, `Name of ${user}`, "2024-01-01T00:00:00.000Z")) ?? {},
  join: ({ guild, user, name }) => tell("GUILD_MEMBER_ADD", { ...joins(guild, user, name, new Date().toISOString()), guild_id: guild }) ?? {},
  nick: ({ guild, user, nick }) => {
    const m = Object.assign(guilds.get(guild).members.get(user), { nick });
    tell("GUILD_MEMBER_UPDATE", { ...m, guild_id: guild });
    return {};
  },
  leave: ({ guild, user }) => {
    left.add(user);
    guilds.get(guild).members.delete(user);
    tell("GUILD_MEMBER_REMOVE", { guild_id: guild, user: person(user) });
    return {};
  },
  written: ({ user }) => ({ messages: [...(messages.get(user)?.values() ?? [])].map((m) => m.content) }),
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
  ["GET", "/guilds/:g/members", ([g], _, query) => {
    const all = [...guilds.get(g).members.values()].sort((a, b) => (BigInt(a.user.id) < BigInt(b.user.id) ? -1 : 1));
    return all.filter((m) => BigInt(m.user.id) > BigInt(query.get("after") ?? 0)).slice(0, Number(query.get("limit")));
  }],
  ["GET", "/users/:u", ([u]) => person(u)],
  ["POST", "/users/@me/channels", (_, { recipient_id: user }) => {
    const c = { id: user, type: 1, last_message_id: null, recipients: [person(user)] }; // a channel's id is the user's here
    channels.set(c.id, c);
    return c;
  }],
  ["GET", "/guilds/:g/members/:u", ([, u]) => (left.has(u) ? !++missed : memberOf(u === bot.id ? bot : person(u)))],
  ["GET", "/guilds/:g/roles", ([g]) => guildOf(g).roles],
  ["POST", "/guilds/:g/channels", ([g], body) => addChannel(g, body)],
  ["PUT", "/guilds/:g/members/:u/roles/:r", ([guild, user, role]) => (left.has(user) ? !++missed : void given.push({ guild, user, role }))],
  ["GET", "/channels/:c", ([c]) => channels.get(c)],
  ["PATCH", "/channels/:c", ([c], body) => {
    const channel = channels.get(c);
    Object.assign(channel.thread_metadata ?? channel, body);
    tell(channel.thread_metadata ? "THREAD_UPDATE" : "CHANNEL_UPDATE", channel);
    return channel;
  }],
  ["DELETE", "/channels/:c", ([c]) => {
    const channel = channels.get(c);
    channels.delete(c);
    if (channel) tell("CHANNEL_DELETE", channel);
    return channel;
  }],
  ["PUT", "/channels/:c/permissions/:o", ([c, id], body) => {
    const channel = channels.get(c);
    channel.permission_overwrites = [...channel.permission_overwrites.filter((o) => o.id !== id), { id, allow: "0", deny: "0", ...body }];
    tell("CHANNEL_UPDATE", channel);
  }],
  ["POST", "/channels/:c/messages", ([c], body) => post(c, bot, body)],
  ["GET", "/channels/:c/messages", ([c], _, query) => {
    const later = [...(messages.get(c)?.values() ?? [])].filter((m) => BigInt(m.id) > BigInt(query.get("after") ?? 0));
    return (query.has("after") ? later.slice(0, 100) : later.slice(-100)).reverse();
  }],
  ["PUT", "/channels/:c/messages/:m/reactions/:e/@me", ([, m, emoji]) => emoji === "🎉" && people.react({ message: m, user: bot.id }) && undefined],
  ["GET", "/channels/:c/messages/:m/reactions/:e", ([, m], _, query) => {
    const of = (reactions.get(m) ?? []).filter((r) => r.type === Number(query.get("type") ?? 0)).map((r) => (r.user.id === bot.id ? bot : r.user));
    of.sort((a, b) => (BigInt(a.id) < BigInt(b.id) ? -1 : 1));
    return of.filter((u) => BigInt(u.id) > BigInt(query.get("after") ?? 0)).slice(0, Number(query.get("limit")));
  }],
  ["GET", "/channels/:c/messages/:m", ([c, m]) => {
    const of = reactions.get(m) ?? [];
    const [normal, burst] = [0, 1].map((type) => of.filter((r) => r.type === type).length);
    const shown = { emoji: { id: null, name: "🎉" }, count: normal + burst, count_details: { normal, burst }, me: true, me_burst: false, burst_colors: [] };
    return messages.get(c)?.has(m) && { ...messages.get(c).get(m), ...(of.length > 0 && { reactions: [shown] }) };
  }],
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

/** discord.py sends some ids as numbers, which would be rounded. */
function parsed(text) {
  return JSON.parse(text.toString().replace(/(":\s*)(\d{17,})(?=\s*[,}])/g, '$1"$2"'));
}

function port() {
  return server.address().port;
}

const server = createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = chunks.length > 0 ? parsed(Buffer.concat(chunks)) : undefined;
  const url = new URL(request.url, "http://x");
  const path = decodeURIComponent(url.pathname);
  const send = (status, value) => {
    if (value === undefined) response.writeHead(status).end();
    else response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(value));
  };
  if (path === "/gone") return send(410, {}); // a receiver of webhooks that takes no more
  if (path.startsWith("/control/")) return send(200, people[path.slice("/control/".length)](body ?? {}));
  const call = path.replace(/^\/api(\/v\d+)?/, "");
  if (hidden.has(/^\/channels\/(\d+)/.exec(call)?.[1])) return send(403, { code: 50001, message: "Missing Access" });
  const fault = faults.find((f) => f.methods.includes(request.method) && new RegExp(f.path).test(call));
  if (fault) faults.splice(faults.indexOf(fault), 1);
  if (fault?.how === "fails") return send(503, { code: 0, message: "unavailable" });
  if (fault?.how === "forbidden") return send(403, { code: 50013, message: "Missing Permissions" });
  for (const { method, at, answer } of calls) {
    const named = at.exec(call);
    if (request.method !== method || !named) continue;
    const value = answer(named.slice(1), body, url.searchParams);
    if (fault?.how === "lost") return request.socket.destroy(); // it was done, and the caller does not know
    if (fault?.how === "hangs") return;
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
    const { op, d } = parsed(text);
    if (op === 1) return send({ op: 11 });
    if (op === 8) {
      const members = [...guilds.get(d.guild_id).members.values()];
      const chunk_count = Math.ceil(members.length / 1000);
      for (let n = 0; n < chunk_count; n++) {
        send({ op: 0, s: ++sequence, t: "GUILD_MEMBERS_CHUNK", d: { guild_id: d.guild_id, members: members.slice(1000 * n, 1000 * (n + 1)), chunk_index: n, chunk_count, nonce: d.nonce } });
      }
      return;
    }
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
