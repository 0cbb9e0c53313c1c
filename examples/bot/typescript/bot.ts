// A bot that lives on Guildhall: it keeps no database of its own, but the file of
// the changes that are on their way (see books.ts).
import {
  ActionRowBuilder, ApplicationCommandOptionType, ButtonBuilder, ButtonStyle, ChannelType, Client, Events, GatewayIntentBits,
  OverwriteType, PermissionFlagsBits, Routes,
  type ApplicationCommandDataResolvable, type ButtonInteraction, type ChatInputCommandInteraction, type Guild, type GuildMember, type Interaction, type Message,
  type PartialMessage, type TextChannel,
} from "discord.js";
import { Books, connect, type GuildRecord, type Outcome, type Schemas } from "./books.js";

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
  intents: [GatewayIntentBits.Guilds, GatewayIntentBits.GuildMessages, GatewayIntentBits.MessageContent],
  rest: { api: setting("DISCORD_API", "https://discord.com/api") },
});
const books = new Books(api, setting("BOT_FILE", "bot.jsonl"), { answered, levelled, ticketMade, ticketClosed, giveawayMade });

const commands: ApplicationCommandDataResolvable[] = [
  { name: "balance", description: "Your coins" },
  { name: "daily", description: `${dailyCoins} coins, once a day` },
  { name: "pay", description: "Give coins to a member", options: [member("To whom"), whole("coins", "How many")] },
  {
    name: "warn", description: "Warn a member", defaultMemberPermissions: PermissionFlagsBits.ModerateMembers,
    options: [member("Whom"), text("reason", "Why")],
  },
  { name: "cases", description: "The latest cases of a member", defaultMemberPermissions: PermissionFlagsBits.ModerateMembers, options: [member("Of whom")] },
  { name: "tickets", description: "Post the button that opens a ticket here", defaultMemberPermissions: PermissionFlagsBits.ManageGuild },
  {
    name: "giveaway", description: "Start a giveaway here", defaultMemberPermissions: PermissionFlagsBits.ManageGuild,
    options: [text("prize", "What there is to win"), whole("minutes", "How long"), whole("winners", "How many win")],
  },
  { name: "forget-me", description: "Remove what is kept about you in this server" },
];
function member(description: string) {
  return { name: "member", description, type: ApplicationCommandOptionType.User as const, required: true };
}
function text(name: string, description: string) {
  return { name, description, type: ApplicationCommandOptionType.String as const, required: true };
}
function whole(name: string, description: string) {
  return { name, description, type: ApplicationCommandOptionType.Integer as const, required: true, minValue: 1 };
}

// Facts of guilds. A record changes what differs, so nothing is lost by sending it at each start.
function tellFacts(guild: Guild): void {
  books.record(guild.id, {
    record: "guild", name: guild.name, icon_url: guild.iconURL(), owner_id: guild.ownerId, member_count: guild.memberCount,
    locale: guild.preferredLocale, joined_at: guild.joinedAt.toISOString(),
  });
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
  books.call(message.guildId, "/levelling/adjust", message.id, { user_id: message.author.id, delta: xpPerMessage }, "levelled", message.author.id);
}

async function levelled(change: { guild: string; note: string }, { data }: Outcome): Promise<void> {
  const record = data as Schemas["XpAdjustment"] | undefined;
  if (!record || record.level <= record.previous_level) return;
  const guild = await client.guilds.fetch(change.guild);
  for (const [level, name] of levelRoles) {
    const role = guild.roles.cache.find((r) => r.name === name);
    if (role && record.previous_level < level && level <= record.level) await guild.members.addRole({ user: change.note, role });
  }
}

// Commands. What changes something is written down, then acknowledged to the
// platform, and answered by the handler, after a restart too: the token of an
// interaction lives for 15 minutes.
interface Reply { token: string; what: "warned" | "paid" | "daily" | "forgotten"; amount?: number }
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
      return books.call(i.guildId, "/economy/adjustments", i.id, {
        adjustments: [
          { user_id: i.user.id, delta: -coins, reason: "Paid to a member", reference: `pay-${i.id}/from` },
          { user_id: to, delta: coins, reason: "Paid by a member", reference: `pay-${i.id}/to` },
        ],
      }, "answered", reply("paid", coins));
    }
    case "warn":
      return books.call(i.guildId, "/cases", i.id,
        { type: "warn", user_id: i.options.getUser("member", true).id, moderator_id: i.user.id, reason: i.options.getString("reason", true) },
        "answered", reply("warned"));
    case "tickets":
      await i.channel?.send({ content: "Do you need help?", components: [button("ticket", "Open a ticket")] });
      return say(i.token, "There it is.");
    case "giveaway": {
      const ends = new Date(i.createdTimestamp + 60_000 * i.options.getInteger("minutes", true));
      return books.record(i.guildId, {
        record: "giveaway", id: i.id, source: "bot", status: "active", prize: i.options.getString("prize", true), channel_id: i.channelId,
        winner_count: i.options.getInteger("winners", true), host_id: i.user.id, ends_at: ends.toISOString(), metadata: { announced: "no" },
      }, "giveawayMade", { token: i.token, id: i.id, channel: i.channelId, text: `${note} gives away **${i.options.getString("prize", true)}**, until <t:${Math.floor(+ends / 1000)}:f>.` });
    }
    case "forget-me":
      return books.call(i.guildId, "/members/{userId}/forget", i.id, {}, "answered", reply("forgotten"), { userId: i.user.id });
  }
}

async function answered({ note }: { note: Reply }, { data, refused }: Outcome): Promise<void> {
  if (refused) return say(note.token, refused.code === "balance_would_be_negative" ? "You have not got that much." : `That did not work: ${refused.message}`);
  switch (note.what) {
    case "warned":
      return say(note.token, `Case #${(data as Schemas["Case"]).number} is written.`);
    case "paid":
      return say(note.token, `Paid ${note.amount} coins. You have ${(data as Schemas["BalanceAdjustmentList"]["data"])[0]?.balance} left.`);
    case "daily":
      return say(note.token, `Today's ${dailyCoins} coins are yours: you have ${(data as Schemas["BalanceAdjustment"]).balance}. Come back tomorrow.`);
    case "forgotten":
      return say(note.token, "What is kept about you goes within a minute.");
  }
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
      { id: note.opener, type: OverwriteType.Member, allow: PermissionFlagsBits.ViewChannel | PermissionFlagsBits.SendMessages },
    ],
  });
  books.record(guildId, { record: "ticket", id: note.id, channel_id: channel.id });
  await (channel as TextChannel).send({ content: `<@${note.opener}>, how can we help?`, components: [button("close", "Close")], nonce: note.id, enforceNonce: true });
  await say(note.token, `Your ticket is <#${channel.id}>.`);
}

async function ticketClosed({ guild, note }: { guild: string; note: { token: string; channel: string; opener?: string } }, { refused }: Outcome): Promise<void> {
  if (refused) return say(note.token, `That did not work: ${refused.message}`);
  const channel = await (await client.guilds.fetch(guild)).channels.fetch(note.channel);
  await say(note.token, "The ticket is closed.");
  if (channel?.type === ChannelType.GuildText) await channel.permissionOverwrites.edit(guild, { SendMessages: false }, { type: OverwriteType.Role });
}

/** A message in a ticket's channel is an entry of its transcript. What Guildhall has posted through the bot stands there already. */
async function mirror(message: Message | PartialMessage): Promise<void> {
  const whole = message.partial ? await message.fetch() : message;
  const ticket = whole.inGuild() && "topic" in whole.channel ? ticketOf(whole.channel) : undefined;
  if (!ticket || !whole.inGuild() || whole.author.id === client.user?.id) return;
  books.record(whole.guildId, {
    record: "ticket_message", ticket_id: ticket, channel_message_id: whole.id, content: whole.content.slice(0, 4000), author_id: whole.author.id,
    author_type: whole.author.bot ? "bot" : isStaff(whole.member) ? "staff" : "opener", created_at: whole.createdAt.toISOString(),
  });
}
const isStaff = (m: GuildMember | null) => m?.permissions.has(PermissionFlagsBits.ManageMessages) ?? false;

async function pressed(i: ButtonInteraction<"cached">): Promise<void> {
  acknowledged.set(i.token, i.deferReply({ flags: "Ephemeral" }));
  const [what, id] = i.customId.split(":");
  if (what === "ticket") {
    const ticket: GuildRecord = { record: "ticket", id: i.id, opener_id: i.user.id, subject: `Ticket of ${i.user.username}`, status: "open" };
    books.record(i.guildId, ticket, "ticketMade", { token: i.token, id: i.id, opener: i.user.id });
  } else if (what === "close") {
    const ticket = i.channel && "topic" in i.channel ? ticketOf(i.channel) : undefined;
    if (!ticket) return say(i.token, "This is no ticket.");
    books.record(i.guildId, { record: "ticket", id: ticket, status: "closed", closed_by_id: i.user.id }, "ticketClosed", { token: i.token, channel: i.channelId });
  } else if (what === "enter" && id) {
    books.record(i.guildId, { record: "giveaway_entry", giveaway_id: id, user_id: i.user.id });
    await say(i.token, "You are in.");
  }
}

// Giveaways. Guildhall draws a minute after the end; the bot says who has won.
async function giveawayMade({ guild, note }: { guild: string; note: { token: string; id: string; channel: string; text: string } }, { refused }: Outcome): Promise<void> {
  if (refused) return say(note.token, `That did not work: ${refused.message}`);
  const channel = await client.channels.fetch(note.channel);
  if (!channel?.isSendable()) return say(note.token, "I cannot write here.");
  const message = await channel.send({ content: note.text, components: [button(`enter:${note.id}`, "Enter")], nonce: note.id, enforceNonce: true });
  books.record(guild, { record: "giveaway", id: note.id, message_id: message.id });
  await say(note.token, "It runs.");
}

/** Announces the giveaways of a guild that have been drawn. The giveaway itself remembers that it was announced. */
async function announce(guild: string): Promise<void> {
  const { data } = await api.GET("/giveaways", { params: { query: { status: "ended", per_page: 50 } }, headers: { "Guild-Id": guild } });
  for (const g of data?.data ?? []) {
    if (g.metadata["announced"] !== "no" || !g.message_id) continue;
    const channel = await client.channels.fetch(g.channel_id);
    const winners = g.winners.map((id) => `<@${id}>`).join(", ") || "nobody took part";
    if (channel?.isTextBased()) await channel.messages.edit(g.message_id, { content: `**${g.prize}** is given away: ${winners}.`, components: [] });
    books.record(guild, { record: "giveaway", id: g.id, metadata: { announced: "yes" } });
  }
}

// Everything that the platform tells.
function guarded<T extends unknown[]>(what: string, f: (...of: T) => unknown): (...of: T) => void {
  return (...of) => void (async () => f(...of))().catch((cause: unknown) => console.error(`${what}:`, cause));
}

client.on(Events.ClientReady, guarded("starting", async () => {
  await client.application?.commands.set(commands);
  for (const guild of client.guilds.cache.values()) tellFacts(guild);
  books.start();
  const often = setInterval(guarded("announcing", async () => {
    for (const guild of client.guilds.cache.keys()) await announce(guild);
  }), 1000 * Number(setting("BOT_ANNOUNCE_EVERY", "30")));
  often.unref();
  console.log("ready");
}));
client.on(Events.GuildCreate, tellFacts);
client.on(Events.GuildUpdate, (_, guild) => tellFacts(guild));
client.on(Events.GuildDelete, (guild) => books.call(guild.id, "/guild/remove", `left-${guild.id}-${Date.now()}`, {}));
client.on(Events.MessageCreate, guarded("a message", async (message: Message) => {
  if (message.inGuild() && !message.author.bot) earn(message);
  await mirror(message);
}));
client.on(Events.MessageUpdate, guarded("an edit", (_, message: Message | PartialMessage) => mirror(message)));
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
await client.login(setting("DISCORD_TOKEN"));
