// A bot that lives on Guildhall: it keeps no database of its own, but the file of
// the changes that are on their way (see books.ts).
import {
  ActionRowBuilder, ApplicationCommandOptionType, ButtonBuilder, ButtonStyle, ChannelType, Client, DiscordAPIError, Events, GatewayDispatchEvents, GatewayIntentBits,
  OverwriteType, Partials, PermissionFlagsBits, RESTJSONErrorCodes as Code, Routes, SnowflakeUtil,
  type APIGuildMember, type APIUser, type ApplicationCommandDataResolvable, type ButtonInteraction, type ChatInputCommandInteraction, type Guild, type GuildBasedChannel,
  type GatewayGuildMemberAddDispatchData, type GatewayGuildMemberRemoveDispatchData, type GatewayGuildMemberUpdateDispatchData,
  type GuildMember, type Interaction, type Message, type PartialMessage, type SendableChannels, type TextChannel,
} from "discord.js";
import { Books, check, connect, type Event, type GuildRecord, type Outcome, type Schemas } from "./books.js";

function setting(name: string, otherwise?: string): string {
  const value = process.env[name] ?? otherwise;
  if (value === undefined) throw new Error(`${name} is not set`);
  return value;
}

const xpPerMessage = 20;
const cooldown = 1000 * Number(setting("BOT_XP_COOLDOWN", "60")); // ms between two messages that count
const dailyCoins = 100;
const levelRoles = new Map([[5, "Level 5"], [10, "Level 10"], [25, "Level 25"]]); // a role is given where the guild has one of that name

const api = connect(setting("GUILDHALL_URL"), setting("GUILDHALL_BOT_KEY"));
const client = new Client({
  intents: [GatewayIntentBits.Guilds, GatewayIntentBits.GuildMembers, GatewayIntentBits.GuildMessages, GatewayIntentBits.MessageContent],
  partials: [Partials.Message], // edits and deletions of messages from before the bot's start
  rest: { api: setting("DISCORD_API", "https://discord.com/api") },
});
const books = new Books(api, setting("BOT_FILE", "bot.jsonl"), { answered, guildMade, ticketMade, giveawayMade });

const option = <T>(name: string, description: string, type: T) => ({ name, description, type, required: true });
const member = (description: string) => option("member", description, ApplicationCommandOptionType.User as const);
const text = (name: string, description: string) => option(name, description, ApplicationCommandOptionType.String as const);
const whole = (name: string, description: string) => ({ ...option(name, description, ApplicationCommandOptionType.Integer as const), minValue: 1 });
const priorities = ["low", "normal", "high", "urgent"] as const;
const commands: ApplicationCommandDataResolvable[] = [
  { name: "balance", description: "Your coins" },
  { name: "daily", description: `${dailyCoins} coins, once a day` },
  { name: "pay", description: "Give coins to a member", options: [member("To whom"), whole("coins", "How many")] },
  { name: "warn", description: "Warn a member", defaultMemberPermissions: PermissionFlagsBits.ModerateMembers, options: [member("Whom"), text("reason", "Why")] },
  { name: "cases", description: "The latest cases of a member", defaultMemberPermissions: PermissionFlagsBits.ModerateMembers, options: [member("Of whom")] },
  { name: "tickets", description: "Post the button that opens a ticket here", defaultMemberPermissions: PermissionFlagsBits.ManageGuild },
  { name: "priority", description: "Say how urgent this ticket is", defaultMemberPermissions: PermissionFlagsBits.ManageMessages,
    options: [{ ...text("priority", "How urgent"), choices: priorities.map((name) => ({ name, value: name })) }] },
  { name: "giveaway", description: "Start a giveaway here", defaultMemberPermissions: PermissionFlagsBits.ManageGuild,
    options: [text("prize", "What there is to win"), whole("minutes", "How long"), whole("winners", "How many win")] },
  { name: "forget-me", description: "Remove what is kept about you in this server" },
];

// Facts of guilds. A record changes what differs, so nothing is lost by sending it at each start.
function tellFacts(guild: Guild, then?: "guildMade"): void {
  books.record(guild.id, {
    record: "guild", name: guild.name, icon_url: guild.iconURL(), owner_id: guild.ownerId, member_count: guild.memberCount,
    locale: guild.preferredLocale, joined_at: guild.joinedAt.toISOString(),
  }, then);
}

// Members: who is in a guild, and by what name. The instants of a record only rise, so a fill and what the gateway tells meanwhile need no order.
type Person = Pick<APIGuildMember, "user" | "nick" | "avatar"> & { joined_at?: string | null };
function memberOf(guildId: string, { user, nick, avatar, joined_at }: Person): GuildRecord {
  const cdn = client.rest.cdn;
  const avatar_url = avatar ? cdn.guildMemberAvatar(guildId, user.id, avatar) : user.avatar ? cdn.avatar(user.id, user.avatar) : null;
  return { record: "member", user_id: user.id, name: nick ?? user.global_name ?? user.username, avatar_url, ...(joined_at && { joined_at }) };
}
function tellMember({ guild_id, ...person }: Person & { guild_id: string }): void {
  if (!person.user.bot) books.record(guild_id, memberOf(guild_id, person));
}
function tellLeave({ guild_id, user }: GatewayGuildMemberRemoveDispatchData): void {
  if (!user.bot) books.record(guild_id, { record: "member", user_id: user.id, left_at: new Date().toISOString() });
}

/** Tells of all who are in the guild, without events, and then of those who have left while the bot was away. */
async function tellMembers(guildId: string): Promise<void> {
  const begun = new Date().toISOString(); // who comes meanwhile has joined after it, and so has not left
  const gone = await books.present(guildId);
  for (let [after, more] = ["0", true]; more; ) {
    const query = new URLSearchParams({ after, limit: "1000" });
    const page = (await client.rest.get(Routes.guildMembers(guildId), { query })) as APIGuildMember[];
    await books.fill(guildId, page.filter((m) => !m.user.bot).map((m) => memberOf(guildId, m)));
    for (const m of page) gone.delete(m.user.id);
    [after, more] = [page.at(-1)?.user.id ?? after, page.length === 1000];
  }
  for (const user_id of gone) books.record(guildId, { record: "member", user_id, left_at: begun });
}
/** The guild is there, so that its members can be told. That takes a while, and nothing waits for it. */
function guildMade({ guild }: { guild: string }): void {
  guarded(`the members of guild ${guild}`, tellMembers)(guild);
}

// XP for messages, and roles for levels.
const counted = new Map<string, number>(); // when a member's message last counted
function earn(message: Message<true>): void {
  const who = `${message.guildId}/${message.author.id}`;
  if (message.createdTimestamp - (counted.get(who) ?? 0) < cooldown) return;
  counted.delete(who); // so that the map is ordered by time
  counted.set(who, message.createdTimestamp);
  for (const [first, at] of counted) {
    if (message.createdTimestamp - at < cooldown) break;
    counted.delete(first);
  }
  books.call(message.guildId, "/levelling/adjust", message.id, { user_id: message.author.id, delta: xpPerMessage });
}

/** A member has risen, by a message or because a website has given XP. */
async function levelled(risen: Schemas["LevelUp"], guildId: string): Promise<void> {
  const guild = await client.guilds.fetch(guildId);
  for (const [level, name] of levelRoles) {
    const role = guild.roles.cache.find((r) => r.name === name);
    if (role && risen.previous_level < level && level <= risen.level) await guild.members.addRole({ user: risen.user_id, role });
  }
}

// Commands. What changes something is written down, then acknowledged to the
// platform, and answered by the handler, after a restart too: the token of an
// interaction lives for 15 minutes.
interface Reply { token: string; what: "warned" | "paid" | "daily" | "forgotten" | "closed" | "sorted" | "entered"; amount?: number }
const acknowledged = new Map<string, Promise<unknown>>(); // by token

async function command(i: ChatInputCommandInteraction<"cached">): Promise<void> {
  const reply = (what: Reply["what"], amount?: number): Reply => ({ token: i.token, what, ...(amount !== undefined && { amount }) });
  const note = `<@${i.user.id}>`;
  acknowledged.set(i.token, i.deferReply({ flags: "Ephemeral" }));
  switch (i.commandName) {
    case "balance": {
      const { data, error } = await api.GET("/economy/wallet/{userId}", { params: { path: { userId: i.user.id } }, headers: { "Guild-Id": i.guildId } });
      return say(i.token, data ? `You have ${data.data.balance} coins.` : `That did not work: ${error?.error.message}`);
    }
    case "cases": {
      const user_id = i.options.getUser("member", true).id;
      const { data, error } = await api.GET("/cases", { params: { query: { user_id, per_page: 5 } }, headers: { "Guild-Id": i.guildId } });
      if (!data) return say(i.token, `That did not work: ${error?.error.message}`);
      const lines = data.data.map((c) => `#${c.number} ${c.type}, ${c.status}: ${c.reason}`);
      return say(i.token, lines.join("\n") || `<@${user_id}> has no cases.`);
    }
    case "daily": {
      const day = i.createdAt.toISOString().slice(0, 10);
      return books.call(i.guildId, "/economy/adjust", i.id,
        { user_id: i.user.id, delta: dailyCoins, reason: "Daily coins", reference: `daily-${i.user.id}-${day}` }, "answered", reply("daily"));
    }
    case "pay": {
      const [to, coins] = [i.options.getUser("member", true).id, i.options.getInteger("coins", true)];
      if (to === i.user.id) return say(i.token, "That is you.");
      return books.call(i.guildId, "/economy/transfers", i.id,
        { from_user_id: i.user.id, to_user_id: to, amount: coins, reason: "Paid to a member", reference: `pay-${i.id}` }, "answered", reply("paid", coins));
    }
    case "warn":
      return books.call(i.guildId, "/cases", i.id,
        { type: "warn", user_id: i.options.getUser("member", true).id, moderator_id: i.user.id, reason: i.options.getString("reason", true) },
        "answered", reply("warned"));
    case "tickets":
      await i.channel?.send({ content: "Do you need help?", components: [button("ticket", "Open a ticket")] });
      return say(i.token, "There it is.");
    case "priority": {
      const ticket = i.channel && "topic" in i.channel ? ticketOf(i.channel) : undefined;
      if (!ticket) return say(i.token, "This is no ticket.");
      const priority = i.options.getString("priority", true) as (typeof priorities)[number];
      return books.record(i.guildId, { record: "ticket", id: ticket, priority }, "answered", reply("sorted"));
    }
    case "giveaway": {
      const ends = new Date(i.createdTimestamp + 60_000 * i.options.getInteger("minutes", true));
      return books.record(i.guildId, {
        record: "giveaway", id: i.id, source: "bot", status: "active", prize: i.options.getString("prize", true), channel_id: i.channelId,
        winner_count: i.options.getInteger("winners", true), host_id: i.user.id, ends_at: ends.toISOString(), metadata: { by: "button" },
      }, "giveawayMade", { token: i.token, id: i.id, channel: i.channelId, text: `${note} gives away **${i.options.getString("prize", true)}**, until <t:${Math.floor(+ends / 1000)}:f>.` });
    }
    case "forget-me":
      return books.call(i.guildId, "/members/{userId}/forget", i.id, {}, "answered", reply("forgotten"), { userId: i.user.id });
  }
}

const replies: Record<Reply["what"], (data: never, amount?: number) => string> = {
  warned: (data: Schemas["Case"]) => `Case #${data.number} is written.`,
  paid: (data: Schemas["BalanceTransfer"], amount) => `Paid ${amount} coins. You have ${data.from.balance} left.`,
  daily: (data: Schemas["BalanceAdjustment"]) => `Today's ${dailyCoins} coins are yours: you have ${data.balance}. Come back tomorrow.`,
  forgotten: () => "What is kept about you goes within a minute.",
  closed: () => "The ticket is closed.", // its channel follows, as work
  sorted: () => "Staff sees it.",
  entered: () => "You are in.",
};

async function answered({ note }: { note: Reply }, { data, refused }: Outcome): Promise<void> {
  if (refused?.code === "balance_would_be_negative") return say(note.token, "You have not got that much.");
  await say(note.token, refused ? `That did not work: ${refused.message}` : replies[note.what](data as never, note.amount));
}

/** Answers an interaction by its token. After a restart it may have run out, or never have been acknowledged: then there is no place for the answer. */
async function say(token: string, content: string): Promise<void> {
  await acknowledged.get(token)?.catch(() => undefined);
  acknowledged.delete(token);
  await client.rest.patch(Routes.webhookMessage(client.application!.id, token), { body: { content } });
}

// Tickets. A channel is a ticket's if its topic says so; so no list is kept.
const topic = (id: string) => `ticket:${id}`;
const ticketOf = (channel: { topic?: string | null } | null) => /^ticket:(\d+)$/.exec(channel?.topic ?? "")?.[1];

function button(id: string, label: string): ActionRowBuilder<ButtonBuilder> {
  return new ActionRowBuilder<ButtonBuilder>().addComponents(new ButtonBuilder().setCustomId(id).setLabel(label).setStyle(ButtonStyle.Primary));
}

async function ticketMade({ guild: guildId, note }: { guild: string; note: { token: string; id: string; opener: string } }, { refused }: Outcome): Promise<void> {
  if (refused) return say(note.token, `That did not work: ${refused.message}`);
  const guild = await client.guilds.fetch(guildId);
  const channels = await guild.channels.fetch(); // a process that was killed here may have made it
  const there = channels.find((c) => c?.type === ChannelType.GuildText && c.topic === topic(note.id));
  const channel = there ?? await guild.channels.create({
    name: `ticket-${note.id.slice(-4)}`, type: ChannelType.GuildText, topic: topic(note.id),
    permissionOverwrites: [
      { id: guild.id, type: OverwriteType.Role, deny: PermissionFlagsBits.ViewChannel },
      ...[note.opener, client.user!.id].map((id) => ({ id, type: OverwriteType.Member, allow: PermissionFlagsBits.ViewChannel | PermissionFlagsBits.SendMessages })),
    ],
  });
  books.record(guildId, { record: "ticket", id: note.id, channel_id: channel.id });
  await (channel as TextChannel).send({ content: `<@${note.opener}>, how can we help?`, components: [button("close", "Close")], nonce: note.id, enforceNonce: true });
  await say(note.token, `Your ticket is <#${channel.id}>.`);
}

/** A message in a ticket's channel is an entry of its transcript. What Guildhall has posted through the bot stands there already. */
async function mirror(message: Message | PartialMessage): Promise<void> {
  const whole = message.partial ? await message.fetch() : message;
  const ticket = whole.inGuild() && "topic" in whole.channel ? ticketOf(whole.channel) : undefined;
  if (!ticket || !whole.inGuild() || whole.author.id === client.user?.id) return;
  books.record(whole.guildId, {
    record: "ticket_message", ticket_id: ticket, channel_message_id: whole.id, content: whole.content.slice(0, 4096), author_id: whole.author.id,
    author_type: whole.author.bot ? "bot" : isStaff(whole.member) ? "staff" : "opener", created_at: whole.createdAt.toISOString(),
    ...(whole.editedAt && { edited_at: whole.editedAt.toISOString() }),
    attachments: [...whole.attachments.values()].slice(0, 10).map((a) => ({ name: a.name, url: a.url, size: a.size, ...(a.contentType && { content_type: a.contentType }) })),
  });
}

/** A message that was deleted in a ticket's channel stays in the transcript, marked. */
function unmirror(message: Message | PartialMessage): void {
  const ticket = message.inGuild() && "topic" in message.channel ? ticketOf(message.channel) : undefined;
  if (!ticket || !message.guildId) return;
  books.record(message.guildId, { record: "ticket_message", ticket_id: ticket, channel_message_id: message.id, deleted_at: new Date().toISOString() });
}
const isStaff = (m: GuildMember | null) => m?.permissions.has(PermissionFlagsBits.ManageMessages) ?? false;

async function pressed(i: ButtonInteraction<"cached">): Promise<void> {
  acknowledged.set(i.token, i.deferReply({ flags: "Ephemeral" }));
  const [what, id] = i.customId.split(":");
  if (what === "ticket") {
    const ticket: GuildRecord = { record: "ticket", id: i.id, opener_id: i.user.id, subject: `Ticket of ${i.user.username}`, category: "help", status: "open" };
    books.record(i.guildId, ticket, "ticketMade", { token: i.token, id: i.id, opener: i.user.id });
  } else if (what === "close") {
    const ticket = i.channel && "topic" in i.channel ? ticketOf(i.channel) : undefined;
    if (!ticket) return say(i.token, "This is no ticket.");
    books.call(i.guildId, "/tickets/{id}/close", i.id, { reason: "Closed by button", author_id: i.user.id }, "answered", { token: i.token, what: "closed" }, { id: ticket });
  } else if (what === "enter" && id) {
    books.record(i.guildId, { record: "giveaway_entry", giveaway_id: id, user_id: i.user.id }, "answered", { token: i.token, what: "entered" });
  }
}

// Giveaways of the bot. Guildhall draws a minute after the end; the bot says who has won.
async function giveawayMade({ guild, note }: { guild: string; note: { token: string; id: string; channel: string; text: string } }, { refused }: Outcome): Promise<void> {
  if (refused) return say(note.token, `That did not work: ${refused.message}`);
  const channel = await client.channels.fetch(note.channel);
  if (!channel?.isSendable()) return say(note.token, "I cannot write here.");
  const message = await channel.send({ content: note.text, components: [button(`enter:${note.id}`, "Enter")], nonce: note.id, enforceNonce: true });
  books.record(guild, { record: "giveaway", id: note.id, message_id: message.id });
  await say(note.token, "It runs.");
}

/** A giveaway has been drawn. Those that came over the API are announced as work. */
async function drawn(g: Schemas["Giveaway"]): Promise<void> {
  if (g.metadata["by"] !== "button" || !g.message_id) return;
  const channel = await client.channels.fetch(g.channel_id);
  const winners = g.winners.map((id) => `<@${id}>`).join(", ") || "nobody took part";
  if (channel?.isTextBased()) await channel.messages.edit(g.message_id, { content: `**${g.prize}** is given away: ${winners}.`, components: [] });
}

// What the guild's owner should know: a webhook that fails, a token that ends.
async function tellOwner(text: string, guildId: string): Promise<void> {
  const guild = await client.guilds.fetch(guildId);
  await client.users.send(guild.ownerId, `${guild.name}: ${text}`);
}
const failing = (n: Schemas["WebhookNotice"], guild: string) => tellOwner(`the webhook to ${n.host} fails. ${n.health.problem ?? ""}`, guild);
const disabled = (n: Schemas["WebhookNotice"], guild: string) => tellOwner(`the webhook to ${n.host} was disabled. ${n.health.problem ?? ""}`, guild);
const expiring = ({ token }: Schemas["ExpiringTokenNotice"], guild: string) => tellOwner(`the token "${token.name}" ends on ${token.expires_at}.`, guild);

// Work: what integrators and staff have asked Guildhall for, and what only a bot can do.
// It may come twice, so each piece does nothing more the second time.
type Answer = Schemas["AnswerBotWorkRequest"];
const party = "🎉";
const refuse = (reason: string): Answer => ({ refused: { reason: reason.slice(0, 500) || "no reason" } });

async function carryOut(work: Schemas["Work"], event: Event, begun?: number): Promise<Answer> {
  try {
    const channel = await client.channels.fetch(work.channel_id);
    if (!channel || channel.isDMBased() || channel.guildId !== event.guild_id) return refuse("channel_not_allowed");
    if (work.kind === "close_channel" && work.action === "delete") await channel.delete();
    else if (work.kind === "close_channel" || work.kind === "reopen_channel") await setOpen(channel, work.kind === "reopen_channel");
    else if (!channel.isSendable()) return refuse("there are no messages in this channel");
    else if (work.kind === "edit_giveaway") await channel.messages.edit(work.message_id ?? "", { content: work.content });
    else if (work.kind === "collect_entries") await collect(work, event.guild_id);
    else if (!work.kind.startsWith("post_") && work.kind !== "announce_giveaway") return refuse(`this bot does not know ${work.kind}`);
    else {
      const message = await post(channel, work, begun);
      // The message is there, even where the bot may not react to it.
      if (work.kind === "post_giveaway") await message.react(party).catch((cause: unknown) => console.error("no reaction:", refusal(cause)));
      return { done: { message_id: message.id } };
    }
    return { done: {} };
  } catch (cause) {
    const answer = refusal(cause);
    return work.action === "delete" && is(cause, Code.UnknownChannel) ? { done: {} } : answer;
  }
}

const is = (cause: unknown, code: Code) => cause instanceof DiscordAPIError && cause.code === code;
/** What the platform will refuse the next time too. Otherwise the work comes again. */
function refusal(cause: unknown): Answer {
  if (!(cause instanceof DiscordAPIError) || ![400, 403, 404].includes(cause.status)) throw cause;
  return refuse(is(cause, Code.UnknownChannel) || is(cause, Code.MissingAccess) ? "channel_not_allowed" : cause.message);
}
/** Handles an event unless the platform refuses that: the member has left, say. */
const unlessRefused = <T>(handle: (of: T, guild: string) => Promise<void>) => (of: T, guild: string) => handle(of, guild).catch(refusal);

const posting = new Map<string, Promise<unknown>>(); // the last of each channel

/** Posts once. The platform knows a nonce for some minutes, so what was begun before is looked for first. */
function post(channel: SendableChannels, work: Schemas["Work"], begun?: number): Promise<Message> {
  const posted = (posting.get(channel.id) ?? Promise.resolve()).catch(() => undefined).then(async () => {
    const message = (begun && (await find(channel, work, begun))) || (await channel.send({
      content: work.content ?? "", nonce: work.work_id, enforceNonce: true, allowedMentions: { parse: work.kind === "announce_giveaway" ? ["users"] : [] },
      ...(work.message_id && { reply: { messageReference: work.message_id, failIfNotExists: false } }),
    }));
    books.posted.add(message.id);
    return message;
  });
  posting.set(channel.id, posted);
  void posted.catch(() => undefined).then(() => posting.get(channel.id) === posted && posting.delete(channel.id));
  return posted;
}

/** The message of an earlier attempt, unless it is another piece's that says the same. */
async function find(channel: SendableChannels, { content }: Schemas["Work"], begun: number): Promise<Message | undefined> {
  const there = await channel.messages.fetch({ after: String(SnowflakeUtil.generate({ timestamp: begun - 60_000 })), limit: 100 });
  return there.find((m) => m.author.id === client.user?.id && m.content === content?.trim() && !books.posted.has(m.id));
}

/** Who has reacted takes part, by an ordinary reaction or a super one. */
async function collect({ giveaway_id, channel_id, message_id }: Schemas["Work"], guild: string): Promise<void> {
  for (const type of ["0", "1"]) {
    for (let [after, more] = ["0", true]; more; ) {
      const query = new URLSearchParams({ type, after, limit: "100" });
      const users = (await client.rest.get(Routes.channelMessageReaction(channel_id, message_id ?? "", encodeURIComponent(party)), { query })) as APIUser[];
      for (const user of users) if (!user.bot) books.record(guild, { record: "giveaway_entry", giveaway_id: giveaway_id ?? "", user_id: user.id });
      [after, more] = [users.at(-1)?.id ?? after, users.length === 100];
    }
  }
}

/** Closes a ticket's channel to all but staff's roles, or undoes that. */
async function setOpen(channel: GuildBasedChannel, open: boolean): Promise<void> {
  if (channel.isThread()) return void (channel.archived === open && (await channel.edit({ archived: !open, locked: !open })));
  const given = open ? null : false;
  const threads = { CreatePublicThreads: given, CreatePrivateThreads: given, SendMessagesInThreads: given };
  await channel.permissionOverwrites.edit(channel.guildId, { ...threads, SendMessages: given }, { type: OverwriteType.Role });
  for (const { id, type } of [...channel.permissionOverwrites.cache.values()]) {
    if (type !== OverwriteType.Member || id === client.user?.id) continue;
    await channel.permissionOverwrites.edit(id, { ...threads, SendMessages: open }, { type });
  }
}

// Everything that the platform tells.
function guarded<T extends unknown[]>(what: string, f: (...of: T) => unknown): (...of: T) => void {
  return (...of) => void (async () => f(...of))().catch((cause: unknown) => console.error(`${what}:`, cause));
}

client.on(Events.ClientReady, guarded("starting", async () => {
  await client.application?.commands.set(commands);
  for (const guild of client.guilds.cache.values()) tellFacts(guild, "guildMade");
  books.start();
  void books.follow(setting("BOT_STREAM", "example-bot"), {
    "xp.level_up": unlessRefused(levelled), "giveaway.ended": unlessRefused(drawn),
    "webhook.failing": unlessRefused(failing), "webhook.disabled": unlessRefused(disabled), "token.expiring": unlessRefused(expiring),
  });
  void books.work(carryOut);
  console.log("ready");
}));
client.on(Events.GuildCreate, (guild) => tellFacts(guild, "guildMade"));
client.on(Events.GuildUpdate, (_, guild) => tellFacts(guild));
client.on(Events.GuildDelete, (guild) => books.call(guild.id, "/guild/remove", `left-${guild.id}-${Date.now()}`, {}));
// As the gateway sends them: the library passes on a change of name only of members whom it knows.
client.ws.on(GatewayDispatchEvents.GuildMemberAdd, (data: GatewayGuildMemberAddDispatchData) => tellMember(data));
client.ws.on(GatewayDispatchEvents.GuildMemberUpdate, (data: GatewayGuildMemberUpdateDispatchData) => tellMember(data));
client.ws.on(GatewayDispatchEvents.GuildMemberRemove, (data: GatewayGuildMemberRemoveDispatchData) => tellLeave(data));
client.on(Events.MessageCreate, guarded("a message", async (message: Message) => {
  if (message.inGuild() && !message.author.bot) earn(message);
  await mirror(message);
}));
client.on(Events.MessageUpdate, guarded("an edit", (_, message: Message | PartialMessage) => mirror(message)));
client.on(Events.MessageDelete, guarded("a deletion", unmirror));
client.on(Events.MessageBulkDelete, guarded("deletions", (messages) => messages.forEach(unmirror)));
client.on(Events.InteractionCreate, guarded("an interaction", async (i: Interaction) => {
  if (i.isChatInputCommand() && i.inCachedGuild()) await command(i);
  else if (i.isButton() && i.inCachedGuild()) await pressed(i);
}));
client.on(Events.Error, (cause) => console.error("the gateway:", cause));

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => {
    books.stop();
    void client.destroy().then(() => process.exit(0));
  });
}
await check(api);
await client.login(setting("DISCORD_TOKEN"));
