"""A short bot that lives on Guildhall: XP for messages, roles for levels, /balance, /daily, tickets, its servers and their members, and work.

It keeps no database. A change is written to a file before it is sent, and crossed out once it is
answered; after a kill the open ones are sent again, each under the idempotency key that it had.
Events are fetched from a stream, and acknowledged once they are handled. Work (tickets' messages and
channels, giveaways) is fetched likewise, carried out, and answered by such a change.
"""
import asyncio
import contextlib
import datetime
import json
import os
import pathlib
import random
import re
import ssl
import sys
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Literal

import aiohttp
import discord
import yarl
from discord import app_commands

URL, KEY = os.environ["GUILDHALL_URL"], os.environ["GUILDHALL_BOT_KEY"]
FILE = pathlib.Path(os.environ.get("BOT_FILE", "bot.jsonl"))
COOLDOWN = float(os.environ.get("BOT_XP_COOLDOWN", "60"))  # seconds between two messages that count
DAILY = 100
LEVEL_ROLES = {5: "Level 5", 10: "Level 10", 25: "Level 25"}  # a role is given where the guild has one of that name
PARTY = "🎉"
REFUSALS = (400, 404, 405, 413, 415, 422)  # stay refusals however often the same is sent

Handler = Callable[[Any], Awaitable[Any]]


class Books:
    """Changes on their way to Guildhall: one at a time for each guild, in their order."""

    def __init__(self) -> None:
        lines = [json.loads(line) for line in FILE.read_text().split("\n")[:-1]] if FILE.exists() else []  # without what a kill has cut off
        done = {line["done"] for line in lines if "done" in line}
        self.last = max((line.get("id", 0) for line in lines), default=0)
        self.queues: dict[str, asyncio.Queue[dict[str, Any]]] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.answering: set[str] = set()  # the paths of changes on their way
        self.open = [line for line in lines if "id" in line and line["id"] not in done]
        answered = {line.get("path") for line in lines}
        self.begun = {line["begun"]: line["at"] for line in lines if "begun" in line and line["begun"] not in answered}  # work that may be done, since when
        self.posted = {line["body"]["done"].get("message_id") for line in lines if "done" in line.get("body", {})}
        new = FILE.with_name(FILE.name + ".new")  # a kill leaves one of the two whole
        new.write_text("".join(json.dumps(line) + "\n" for line in [{"begun": path, "at": at} for path, at in self.begun.items()] + self.open))
        new.replace(FILE)

    async def start(self) -> None:
        self.http = aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}, timeout=aiohttp.ClientTimeout(total=20))
        self.tls = ssl.create_default_context(cafile=os.environ.get("GUILDHALL_CA"))
        await self.check()
        for change in self.open:
            self.queue(change)

    async def check(self) -> None:
        """Ends the program where the key opens nothing: with a revoked key every call would wait for ever."""
        with contextlib.suppress(aiohttp.ClientError, asyncio.TimeoutError):  # an outage is waited for by each call
            async with self.http.get(URL + "/bot/streams", ssl=self.tls) as response:
                if response.status in (401, 403):
                    raise SystemExit(f"GUILDHALL_BOT_KEY is refused ({response.status}): {await response.text()}")

    def add(self, guild: int, path: str, key: str, body: Any, opens: Any = None) -> None:
        """opens says for which ticket a channel is made when the change has been answered, also after a restart."""
        self.last += 1
        change = {"id": self.last, "guild": str(guild), "path": path, "key": key, "body": body, "opens": opens}
        self.write(change)
        self.queue(change)

    def record(self, guild: int, record: Any, opens: Any = None) -> None:
        self.add(guild, "/records", "", {"records": [record]}, opens)  # a record names its thing and needs no key

    def write(self, line: Any) -> None:
        with FILE.open("a") as file:
            file.write(json.dumps(line) + "\n")

    async def follow(self, stream: str, handlers: dict[str, Handler]) -> None:
        """Follows a stream of events, which it begins under this name."""
        async def handle(event: Any) -> None:
            if handler := handlers.get(event["type"]):
                await handler(event)
        while True:
            await self.call("PUT", f"/bot/streams/{stream}", body={"events": [*handlers], "echo": True})
            await self.fetch(stream, handle, True)
            await asyncio.sleep(10)  # there is no such stream any more

    async def work(self, carry_out: Handler) -> None:
        """Has work carried out. It is settled by its answer."""
        async def answer(event: Any) -> None:
            path = f"/bot/work/{event['data']['work_id']}"
            if path in self.answering:
                return  # its answer is on its way
            event["begun"] = self.begun.get(path)
            if not event["begun"]:
                self.begun[path] = time.time()
                self.write({"begun": path, "at": self.begun[path]})
            self.add(int(event["guild_id"]), path, "", await carry_out(event))
            del self.begun[path]
        await self.fetch("work", answer, False)

    async def fetch(self, stream: str, take: Handler, acknowledge: bool) -> None:
        """Fetches events as long as there is such a stream. One that fails comes again when its lease is over, and holds up none of the others."""
        while "data" in (answer := (await self.call("POST", "/bot/events/pull", body={"stream": stream, "limit": 20, "lease": 20, "wait": 15}))[1]):
            events = answer["data"]
            taken = await asyncio.gather(*map(take, events), return_exceptions=True)
            for event, error in zip(events, taken):
                if error:
                    print(f"{event['type']} comes again:", repr(error), file=sys.stderr)
            done = [event["id"] for event, error in zip(events, taken) if not error]
            if acknowledge and done:
                await self.call("POST", "/bot/events/ack", body={"stream": stream, "event_ids": done})

    def queue(self, change: dict[str, Any]) -> None:
        self.answering.add(change["path"])
        if change["guild"] not in self.queues:
            self.queues[change["guild"]] = asyncio.Queue()
            self.tasks.append(watched(self.send(self.queues[change["guild"]])))
        self.queues[change["guild"]].put_nowait(change)

    async def send(self, queue: "asyncio.Queue[dict[str, Any]]") -> None:
        while change := await queue.get():
            status, answer = await self.call("POST", change["path"], change["guild"], change["key"], change["body"])
            if status >= 300:
                print(f"{change['path']} is refused:", answer["error"]["message"], file=sys.stderr)
            if opens := change.get("opens"):
                await until_done(lambda: open_channel(change["guild"], opens, answer["error"]["message"] if status >= 300 else None))
            self.write({"done": change["id"]})
            self.answering.discard(change["path"])

    async def call(self, method: str, path: str, guild: str = "", key: str = "", body: Any = None) -> tuple[int, Any]:
        """Calls until an answer is final: any 2xx, or a refusal that stays one."""
        pause = 0.5
        while True:
            headers = {name: value for name, value in (("Guild-Id", guild), ("Idempotency-Key", key)) if value}
            try:
                async with self.http.request(method, URL + path, json=body, headers=headers, ssl=self.tls) as response:
                    wait = float(response.headers.get("Retry-After", 0))
                    answer = json.loads(await response.text() or "{}")  # a 204 has no body
                    if 200 <= response.status < 300:
                        return response.status, answer
                    error = answer["error"]
                    if response.status in REFUSALS or error["code"] == "idempotency_key_reused":
                        return response.status, answer
                    print(f"{path} has to wait: {error['code']}: {error['message']}", file=sys.stderr)
            except (aiohttp.ClientError, asyncio.TimeoutError, ValueError, LookupError, TypeError) as error:  # no answer, or another program's
                wait = 0
                print(f"{path} has to wait:", repr(error), file=sys.stderr)
            await asyncio.sleep(max(wait, pause * random.uniform(0.5, 1)))
            pause = min(2 * pause, 30)


async def until_done(act: Callable[[], Awaitable[None]]) -> None:
    """Acts on the platform until the platform has done it, or refuses it."""
    while True:
        try:
            return await act()
        except (discord.HTTPException, aiohttp.ClientError, OSError) as error:  # a timeout is an OSError
            print("the platform does not do it:", repr(error), file=sys.stderr)
            if isinstance(error, discord.HTTPException) and error.status in (400, 403, 404):
                return
        await asyncio.sleep(5)


def watched(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Begins a task that never ends by itself. If it does, the program ends too, and is started anew: what is open stands in the file."""
    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            print("a task has ended:", repr(task.exception()), file=sys.stderr)
            raise SystemExit(1)
    task = asyncio.create_task(work)
    task.add_done_callback(ended)
    return task


class Bot(discord.Client):
    books: Books

    async def setup_hook(self) -> None:
        self.books = Books()
        self.counted: dict[tuple[int, int], float] = {}
        self.filling: dict[int, asyncio.Task[None]] = {}  # the tasks that tell of the members, by guild
        await self.books.start()
        await tree.sync()
        self.fetching = watched(self.fetch())

    async def fetch(self) -> None:
        await self.wait_until_ready()
        await asyncio.gather(self.books.work(carry_out), self.books.follow(os.environ.get("BOT_STREAM", "short-bot"), {
            "xp.level_up": levelled, "webhook.failing": tell_owner, "webhook.disabled": tell_owner, "token.expiring": tell_owner,
        }))

    async def on_ready(self) -> None:
        for guild in self.guilds:
            await self.on_guild_join(guild)
        print("ready", flush=True)

    async def on_guild_join(self, guild: discord.Guild) -> None:
        self.tell_facts(guild)
        self.filling[guild.id] = asyncio.create_task(tell_members(guild))

    def tell_facts(self, guild: discord.Guild) -> None:
        self.books.record(guild.id, facts_of(guild))

    async def on_guild_update(self, _: discord.Guild, guild: discord.Guild) -> None:
        self.tell_facts(guild)

    async def on_member_join(self, member: discord.Member) -> None:
        if not member.bot:
            self.books.record(member.guild.id, member_of(member))

    async def on_member_update(self, _: discord.Member, member: discord.Member) -> None:
        await self.on_member_join(member)

    async def on_user_update(self, _: discord.User, user: discord.User) -> None:
        for member in filter(None, (guild.get_member(user.id) for guild in self.guilds)):
            await self.on_member_join(member)

    async def on_raw_member_remove(self, left: discord.RawMemberRemoveEvent) -> None:
        if not left.user.bot:
            self.books.record(left.guild_id, left_at(left.user.id, discord.utils.utcnow()))

    async def on_message(self, message: discord.Message) -> None:
        self.mirror(message)
        now = message.created_at.timestamp()
        if message.guild is None or message.author.bot:
            return
        who = (message.guild.id, message.author.id)
        if now - self.counted.get(who, 0) >= COOLDOWN:
            self.counted[who] = now
            self.books.add(message.guild.id, "/levelling/adjust", str(message.id), {"user_id": str(message.author.id), "delta": 20})

    async def on_raw_message_edit(self, edit: discord.RawMessageUpdateEvent) -> None:
        self.mirror(edit.message)

    async def on_raw_message_delete(self, deletion: discord.RawMessageDeleteEvent) -> None:
        self.unmirror(deletion.guild_id, deletion.channel_id, [deletion.message_id])

    async def on_raw_bulk_message_delete(self, deletion: discord.RawBulkMessageDeleteEvent) -> None:
        self.unmirror(deletion.guild_id, deletion.channel_id, deletion.message_ids)

    def unmirror(self, guild: int | None, channel: int, messages: Iterable[int]) -> None:
        """Marks messages that were deleted in a ticket's channel; they stay in the transcript."""
        if guild and (ticket := ticket_of(self.get_channel(channel))):
            for message in messages:
                self.books.record(guild, entry_of(ticket, message) | {"deleted_at": discord.utils.utcnow().isoformat()})

    def mirror(self, message: discord.Message) -> None:
        """Records a message of a ticket's channel, or its edit, in the transcript, where Guildhall's own posts are already."""
        if message.guild and message.author != self.user and (ticket := ticket_of(message.channel)):
            self.books.record(message.guild.id, message_of(ticket, message))


def refused(reason: str) -> Any:
    return {"refused": {"reason": reason[:500]}}


def facts_of(guild: discord.Guild) -> Any:
    return {"record": "guild", "name": guild.name, "owner_id": str(guild.owner_id), "member_count": guild.member_count}


def member_of(member: discord.Member) -> Any:
    avatar = member.guild_avatar or member.avatar
    record = {"record": "member", "user_id": str(member.id), "name": member.display_name, "avatar_url": avatar.url if avatar else None}
    return record | ({"joined_at": member.joined_at.isoformat()} if member.joined_at else {})


def left_at(user: int | str, at: datetime.datetime) -> Any:
    return {"record": "member", "user_id": str(user), "left_at": at.isoformat()}


def ticket_of(channel: Any) -> str | None:
    """Returns the id of the ticket in a channel, which the channel's topic names."""
    named = re.fullmatch(r"ticket:(\d+)", getattr(channel, "topic", None) or "")
    return named and named[1]


async def open_channel(guild_id: str, opens: Any, refusal: str | None) -> None:
    """Makes the channel of a ticket that has been recorded, and tells the opener. It may be called again after a kill, and then finds the channel by its topic."""
    if refusal is None:
        guild: Any = await bot.fetch_guild(int(guild_id))
        there = next((c for c in await guild.fetch_channels() if ticket_of(c) == opens["ticket"]), None)
        try:
            channel = there or await make_channel(guild, opens)
            bot.books.record(guild.id, {"record": "ticket", "id": opens["ticket"], "channel_id": str(channel.id)})
        except discord.HTTPException as error:
            if error.status >= 500:
                raise
            refusal = error.text  # the bot may not, or the server has as many channels as it may have; staff sees the ticket
    text = f"Your ticket is {channel.mention}." if refusal is None else f"That did not work: {refusal}"
    interaction: Any = discord.Webhook.partial(bot.application_id or 0, opens["token"], client=bot)
    await interaction.edit_message("@original", content=text)


async def make_channel(guild: Any, opens: Any) -> Any:
    allowed = discord.PermissionOverwrite(view_channel=True, send_messages=True)
    who = {discord.Object(user, type=discord.Member): allowed for user in (opens["opener"], bot.user.id)}  # type: ignore[union-attr]
    overwrites = {guild.default_role: discord.PermissionOverwrite(view_channel=False)} | who
    return await guild.create_text_channel(f"ticket-{opens['ticket'][-4:]}", topic=f"ticket:{opens['ticket']}", overwrites=overwrites)


def entry_of(ticket: str, message: int) -> Any:
    return {"record": "ticket_message", "ticket_id": ticket, "channel_message_id": str(message)}


def message_of(ticket: str, message: discord.Message) -> Any:
    author = message.author
    is_staff = isinstance(author, discord.Member) and author.guild_permissions.manage_messages
    files = [{"name": a.filename, "url": a.url, "size": a.size} | ({"content_type": a.content_type} if a.content_type else {}) for a in message.attachments]
    return entry_of(ticket, message.id) | {
        "content": message.content, "attachments": files, "created_at": message.created_at.isoformat(),
        "author_id": str(author.id), "author_type": "bot" if author.bot else "staff" if is_staff else "opener",
    } | ({"edited_at": message.edited_at.isoformat()} if message.edited_at else {})


async def tell_members(guild: discord.Guild) -> None:
    """Tells of all who are in the guild, without events, and then of those who have left while the bot was away.

    The instants of a record only rise, so this needs no order with what the gateway tells meanwhile.
    """
    begun = discord.utils.utcnow()  # who comes meanwhile has joined after it, and so has not left
    await bot.books.call("POST", "/records", str(guild.id), body={"records": [facts_of(guild)]})  # the guild is there from then on
    gone: set[str] = set()
    since, page = "1970-01-01T00:00:00Z", 1  # read by instants, since a page far behind costs as much as all before it
    while "data" in (answer := (await bot.books.call("GET", f"/members?present=true&per_page=100&updated_since={since}&page={page}", str(guild.id)))[1]):
        gone |= {known["user_id"] for known in answer["data"]}
        if not answer["has_more"]:
            break
        last = answer["data"][-1]["updated_at"]
        since, page = last, page + 1 if last == since else 1
    try:
        there = [member_of(m) async for m in guild.fetch_members(limit=None) if not m.bot]
    except discord.HTTPException as error:  # an outage of the platform is no leave
        return print(f"the members of {guild.name} are told at the next start:", repr(error), file=sys.stderr)
    for n in range(0, len(there), 500):
        await bot.books.call("POST", "/records", str(guild.id), body={"records": there[n : n + 500], "on_refusal": "skip", "tell": False})
    for user in sorted(gone - {record["user_id"] for record in there}):
        bot.books.record(guild.id, left_at(user, begun))


async def tell_owner(event: Any) -> None:
    """Tells the guild's owner of a webhook that fails, or of a token that ends."""
    about = event["data"]
    if "token" in about:
        text = f"the token \"{about['token']['name']}\" ends on {about['token']['expires_at']}."
    else:
        what = "was disabled" if event["type"] == "webhook.disabled" else "fails"
        text = f"the webhook to {about['host']} {what}. {about['health']['problem'] or ''}"
    with contextlib.suppress(discord.NotFound, discord.Forbidden):  # the owner takes no messages, or the bot has left
        guild = await bot.fetch_guild(int(event["guild_id"]))
        await (await bot.fetch_user(guild.owner_id or 0)).send(f"{guild.name}: {text}")


async def levelled(event: Any) -> None:
    """Gives a member the roles of a new level, whoever has given the XP."""
    risen = event["data"]
    with contextlib.suppress(discord.NotFound, discord.Forbidden):  # the member has left, or the bot has, or it may not
        guild = await bot.fetch_guild(int(event["guild_id"]))
        member = await guild.fetch_member(int(risen["user_id"]))
        names = [name for level, name in LEVEL_ROLES.items() if risen["previous_level"] < level <= risen["level"]]
        await member.add_roles(*(role for role in guild.roles if role.name in names))


async def carry_out(event: Any) -> Any:
    """Does a piece of work, which may come twice, and returns the answer. What may work later is raised."""
    work = event["data"]
    try:
        channel: Any = await bot.fetch_channel(int(work["channel_id"]))
        if str(getattr(getattr(channel, "guild", None), "id", "")) != event["guild_id"]:
            return refused("channel_not_allowed")
        match work["kind"]:
            case "close_channel" if work["action"] == "delete":
                await channel.delete()
            case "close_channel" | "reopen_channel" as kind:
                await set_open(channel, kind == "reopen_channel")
            case "edit_giveaway":
                await channel.get_partial_message(int(work["message_id"])).edit(content=work["content"])
            case "collect_entries":
                await collect(await channel.fetch_message(int(work["message_id"])), work)
            case "post_message" | "post_giveaway" | "announce_giveaway" as kind:
                message = await post(channel, event)
                if kind == "post_giveaway":
                    with contextlib.suppress(discord.Forbidden):  # the message is there, even where the bot may not react to it
                        await message.add_reaction(PARTY)
                return {"done": {"message_id": str(message.id)}}
            case kind:
                return refused(f"this bot does not know {kind}")
        return {"done": {}}
    except discord.HTTPException as error:
        if error.code == 10003 and work["action"] == "delete":
            return {"done": {}}
        if error.status in (400, 403, 404):
            return refused("channel_not_allowed" if error.code in (10003, 50001) else error.text or str(error))
        raise


posting: weakref.WeakValueDictionary[int, asyncio.Lock] = weakref.WeakValueDictionary()  # by channel


async def post(channel: Any, event: Any) -> Any:
    """Posts once. The platform knows a nonce for some minutes, so what was begun before is looked for first."""
    async with posting.setdefault(channel.id, asyncio.Lock()):
        message = await find(channel, event) if event["begun"] else None
        message = message or await send(channel, event["data"])
        bot.books.posted.add(str(message.id))
        return message


async def find(channel: Any, event: Any) -> Any:
    """The message of an earlier attempt, unless it is another piece's that says the same."""
    begun = datetime.datetime.fromtimestamp(event["begun"] - 60, datetime.timezone.utc)
    async for there in channel.history(after=begun, limit=1000):
        if there.author == bot.user and there.content == event["data"]["content"].strip() and str(there.id) not in bot.books.posted:
            return there


async def send(channel: Any, work: Any) -> Any:
    mentions = discord.AllowedMentions(everyone=False, roles=False, users=work["kind"] == "announce_giveaway", replied_user=False)
    reply = {}
    if work["message_id"]:
        reply["reference"] = discord.MessageReference(message_id=int(work["message_id"]), channel_id=channel.id, fail_if_not_exists=False)
    return await channel.send(work["content"], nonce=work["work_id"], allowed_mentions=mentions, **reply)


async def collect(message: discord.Message, work: Any) -> None:
    """Who has reacted takes part, by an ordinary reaction or a super one."""
    users = {u.id for r in message.reactions if r.emoji == PARTY for t in discord.ReactionType async for u in r.users(type=t) if not u.bot}
    entries = [{"record": "giveaway_entry", "giveaway_id": work["giveaway_id"], "user_id": str(u)} for u in sorted(users)]
    for n in range(0, len(entries), 500):
        bot.books.add(message.guild.id if message.guild else 0, "/records", "", {"records": entries[n : n + 500], "on_refusal": "skip"})


async def set_open(channel: Any, is_open: bool) -> None:
    """Closes a ticket's channel to all but staff's roles, or undoes that."""
    if isinstance(channel, discord.Thread):
        if channel.archived == is_open:
            await channel.edit(archived=not is_open, locked=not is_open)
        return
    given = None if is_open else False
    of = {channel.guild.default_role: discord.PermissionOverwrite()} | channel.overwrites
    for who, overwrite in of.items():
        is_member = discord.Role not in (type(who), getattr(who, "type", None))  # who is not at hand is an Object with a type
        if who.id == bot.user.id or not is_member and who.id != channel.guild.id:  # type: ignore[union-attr]
            continue
        overwrite.update(create_public_threads=given, create_private_threads=given, send_messages_in_threads=given)
        overwrite.send_messages = is_open if is_member else given
    await channel.edit(overwrites=of)


if api := os.environ.get("DISCORD_API"):  # another platform than Discord: the story's
    discord.http.Route.BASE = f"{api}/v10"
    discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(os.environ["DISCORD_GATEWAY"])
intents = discord.Intents(guilds=True, members=True, guild_messages=True, message_content=True)
bot = Bot(intents=intents)
tree = app_commands.CommandTree(bot)


@tree.command(description="Your coins")
@app_commands.guild_only()
async def balance(i: discord.Interaction) -> None:
    await i.response.defer(ephemeral=True)
    status, answer = await bot.books.call("GET", f"/economy/wallet/{i.user.id}", str(i.guild_id))
    await i.edit_original_response(content=f"You have {answer['data']['balance']} coins." if status < 300 else answer["error"]["message"])


@tree.command(description="100 coins, once a day")
@app_commands.guild_only()
async def daily(i: discord.Interaction) -> None:
    await i.response.defer(ephemeral=True)
    body = {"user_id": str(i.user.id), "delta": DAILY, "reason": "Daily coins", "reference": f"daily-{i.user.id}-{i.created_at:%Y-%m-%d}"}
    status, answer = await bot.books.call("POST", "/economy/adjust", str(i.guild_id), str(i.id), body)
    text = f"Today's {DAILY} coins are yours: you have {answer['data']['balance']}." if status < 300 else answer["error"]["message"]
    await i.edit_original_response(content=text)


@tree.command(description="Open a ticket")
@app_commands.guild_only()
async def ticket(i: discord.Interaction) -> None:
    await i.response.defer(ephemeral=True)
    # The ticket is recorded first. A kill after that leaves a ticket whose channel is made at the next start.
    bot.books.record(i.guild_id or 0, {
        "record": "ticket", "id": str(i.id), "opener_id": str(i.user.id), "subject": f"Ticket of {i.user.name}", "category": "help", "status": "open",
    }, {"ticket": str(i.id), "opener": i.user.id, "token": i.token})


@tree.command(description="Say how urgent this ticket is")
@app_commands.guild_only()
@app_commands.default_permissions(manage_messages=True)
async def priority(i: discord.Interaction, priority: Literal["low", "normal", "high", "urgent"]) -> None:
    await i.response.defer(ephemeral=True)
    text = "This is no ticket."
    if of := ticket_of(i.channel):
        body = {"records": [{"record": "ticket", "id": of, "priority": priority}]}
        status, answer = await bot.books.call("POST", "/records", str(i.guild_id), body=body)
        text = "Staff sees it." if status < 300 else answer["error"]["message"]
    await i.edit_original_response(content=text)


if __name__ == "__main__":
    bot.run(os.environ["DISCORD_TOKEN"])
