"""A short bot that lives on Guildhall: XP for messages, /balance, /daily, and the facts of its servers.

It keeps no database. A change is written to a file before it is sent, and crossed out once it is
answered; after a kill the open ones are sent again, each under the idempotency key that it had.
"""
import asyncio
import json
import os
import pathlib
import random
import ssl
from typing import Any

import aiohttp
import discord
import yarl
from discord import app_commands

URL, KEY = os.environ["GUILDHALL_URL"], os.environ["GUILDHALL_BOT_KEY"]
FILE = pathlib.Path(os.environ.get("BOT_FILE", "bot.jsonl"))
COOLDOWN = float(os.environ.get("BOT_XP_COOLDOWN", "60"))  # seconds between two messages that count
DAILY = 100


class Books:
    """Changes on their way to Guildhall: one at a time for each guild, in their order."""

    def __init__(self) -> None:
        lines = [json.loads(line) for line in FILE.read_text().splitlines() if line.endswith("}")] if FILE.exists() else []
        done = {line["done"] for line in lines if "done" in line}
        self.last = max((line.get("id", 0) for line in lines), default=0)
        self.queues: dict[str, asyncio.Queue[dict[str, Any]]] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.open = [line for line in lines if "id" in line and line["id"] not in done]
        FILE.write_text("".join(json.dumps(change) + "\n" for change in self.open))

    async def start(self) -> None:
        self.http = aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}, timeout=aiohttp.ClientTimeout(total=20))
        self.tls = ssl.create_default_context(cafile=os.environ.get("GUILDHALL_CA"))
        for change in self.open:
            self.queue(change)

    def add(self, guild: int, path: str, key: str, body: Any) -> None:
        self.last += 1
        change = {"id": self.last, "guild": str(guild), "path": path, "key": key, "body": body}
        self.write(change)
        self.queue(change)

    def write(self, line: Any) -> None:
        with FILE.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def queue(self, change: dict[str, Any]) -> None:
        if change["guild"] not in self.queues:
            self.queues[change["guild"]] = asyncio.Queue()
            self.tasks.append(asyncio.create_task(self.send(self.queues[change["guild"]])))
        self.queues[change["guild"]].put_nowait(change)

    async def send(self, queue: "asyncio.Queue[dict[str, Any]]") -> None:
        while change := await queue.get():
            status, answer = await self.call("POST", change["path"], change["guild"], change["key"], change["body"])
            if status != 200:
                print(f"{change['path']} is refused:", answer["error"]["message"])
            self.write({"done": change["id"]})

    async def call(self, method: str, path: str, guild: str, key: str = "", body: Any = None) -> tuple[int, Any]:
        """Calls until there is an answer that stays one."""
        pause = 0.5
        while True:
            headers = {"Guild-Id": guild} | ({"Idempotency-Key": key} if key else {})
            try:
                async with self.http.request(method, URL + path, json=body, headers=headers, ssl=self.tls) as response:
                    answer = await response.json()
                    if response.status in (200, 400, 404, 422) or answer["error"]["code"] == "idempotency_key_reused":
                        return response.status, answer
                    wait = float(response.headers.get("Retry-After", 0))
            except (aiohttp.ClientError, asyncio.TimeoutError):
                wait = 0
            await asyncio.sleep(max(wait, pause * random.uniform(0.5, 1)))
            pause = min(2 * pause, 30)


class Bot(discord.Client):
    books: Books

    async def setup_hook(self) -> None:
        self.books = Books()
        self.counted: dict[tuple[int, int], float] = {}
        await self.books.start()
        await tree.sync()

    async def on_ready(self) -> None:
        for guild in self.guilds:
            await self.on_guild_join(guild)
        print("ready", flush=True)

    async def on_guild_join(self, guild: discord.Guild) -> None:
        facts = {"record": "guild", "name": guild.name, "owner_id": str(guild.owner_id), "member_count": guild.member_count}
        self.books.add(guild.id, "/records", "", {"records": [facts]})  # a record names its thing and needs no key

    async def on_guild_update(self, _: discord.Guild, guild: discord.Guild) -> None:
        await self.on_guild_join(guild)

    async def on_message(self, message: discord.Message) -> None:
        now = message.created_at.timestamp()
        if message.guild is None or message.author.bot:
            return
        who = (message.guild.id, message.author.id)
        if now - self.counted.get(who, 0) >= COOLDOWN:
            self.counted[who] = now
            self.books.add(message.guild.id, "/levelling/adjust", str(message.id), {"user_id": str(message.author.id), "delta": 20})


if api := os.environ.get("DISCORD_API"):  # another platform than Discord: the story's
    discord.http.Route.BASE = f"{api}/v10"
    discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(os.environ["DISCORD_GATEWAY"])
intents = discord.Intents(guilds=True, guild_messages=True, message_content=True)
bot = Bot(intents=intents)
tree = app_commands.CommandTree(bot)


@tree.command(description="Your coins")
@app_commands.guild_only()
async def balance(i: discord.Interaction) -> None:
    await i.response.defer(ephemeral=True)
    _, answer = await bot.books.call("GET", f"/economy/wallet/{i.user.id}", str(i.guild_id))
    await i.edit_original_response(content=f"You have {answer['data']['balance']} coins.")


@tree.command(description="100 coins, once a day")
@app_commands.guild_only()
async def daily(i: discord.Interaction) -> None:
    await i.response.defer(ephemeral=True)
    body = {"user_id": str(i.user.id), "delta": DAILY, "reason": "Daily coins", "reference": f"daily-{i.user.id}-{i.created_at:%Y-%m-%d}"}
    status, answer = await bot.books.call("POST", "/economy/adjust", str(i.guild_id), str(i.id), body)
    text = f"Today's {DAILY} coins are yours: you have {answer['data']['balance']}." if status == 200 else answer["error"]["message"]
    await i.edit_original_response(content=text)


bot.run(os.environ["DISCORD_TOKEN"])
