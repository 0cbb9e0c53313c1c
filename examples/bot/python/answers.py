"""Runs the bot's books against every answer that the API has, and checks which are final: python answers.py

A change whose answer is final is crossed out, and the change behind it is sent. Any other answer is
waited for, under the same idempotency key.
"""
import asyncio
import os
import pathlib
import tempfile

from aiohttp import web

work = pathlib.Path(tempfile.mkdtemp())
os.environ |= {"GUILDHALL_URL": "http://127.0.0.1:8977", "GUILDHALL_BOT_KEY": "bot_test_x", "BOT_FILE": str(work / "bot.jsonl")}
import bot  # noqa: E402

FINAL: list[tuple[int, str | None]] = [(200, None), (201, None), (202, None), (204, None), *((status, "refused") for status in bot.REFUSALS), (409, "idempotency_key_reused")]
WAITS: list[tuple[int, str | None]] = [(401, "unauthorized"), (403, "forbidden"), (409, "idempotency_key_in_use"), (429, "rate_limited"), (500, "internal_error"),
         (502, "discord_send_failed"), (503, "service_unavailable"), (502, "<html>"), (200, "<html>"), (500, "{}")]
seen: dict[str, list[str]] = {}  # the keys that arrived, by guild
first: dict[str, tuple[int, str | None]] = {}  # the first answer of a guild
revoked = False


async def answer(request: web.Request) -> web.Response:
    guild = request.headers["Guild-Id"]
    keys = seen.setdefault(guild, [])
    keys.append(request.headers["Idempotency-Key"])
    status, code = first[guild] if len(keys) == 1 else (200, None)
    if code and code[0] in "<{":
        return web.Response(status=status, text=code, content_type="text/html" if code[0] == "<" else "application/json")
    if status == 204:
        return web.Response(status=204)
    return web.json_response({"error": {"code": code, "message": "No."}} if code else {"data": {}}, status=status)


async def streams(_: web.Request) -> web.Response:
    return web.json_response({"error": {"code": "unauthorized", "message": "Revoked."}}, status=401) if revoked else web.json_response({"data": []})


async def main() -> None:
    global revoked
    app = web.Application()
    app.add_routes([web.post("/cases", answer), web.get("/bot/streams", streams)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 8977).start()
    books = bot.Books()
    await books.start()
    for n, case in enumerate(FINAL + WAITS):
        first[str(n)] = case
        for key in ("a", "b"):
            books.add(n, "/cases", key, {})
    async with asyncio.timeout(30):
        while any(keys[-1:] != ["b"] for keys in (seen.get(guild, []) for guild in first)):
            await asyncio.sleep(0.05)
    await asyncio.sleep(0.2)  # the last answers are crossed out
    for n, case in enumerate(FINAL + WAITS):
        want = ["a", "b"] if n < len(FINAL) else ["a", "a", "b"]
        assert seen[str(n)] == want, f"after the answer {case} were sent {seen[str(n)]}, want {want}"
    assert not bot.Books().open, "changes are still open"
    revoked = True
    try:
        await books.check()
    except SystemExit as refused:
        assert "Revoked." in str(refused)
    else:
        raise AssertionError("a revoked key goes unnoticed")
    await books.http.close()
    await runner.cleanup()
    print(f"{len(first)} answers")


asyncio.run(main())
