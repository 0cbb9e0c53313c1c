"""Three copies of a guild that follow it while twelve writers race: one by
webhooks alone, one by updated_since alone, one by both, and a copy of the ledger
by since. In the end all of them are the guild. GUILDHALL_URL, GUILDHALL_TOKEN and
GUILDHALL_CA say where and who; the one argument is how many rounds to run."""

import hashlib
import hmac
import json
import os
import random
import ssl
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

Row = dict[str, Any]
WRITERS, WRITES, EACH = 12, 40, 50
PATIENCE = 60.0
STAFF = "1344871507951616014"
USERS = [str(810000000000000000 + n) for n in range(EACH)]
EVENTS = """case.created case.updated economy.balance_changed ticket.closed ticket.claimed ticket.assigned ticket.reopened
    giveaway.created giveaway.started giveaway.paused giveaway.resumed giveaway.ended""".split()

http = httpx.Client(
    base_url=os.environ["GUILDHALL_URL"],
    headers={"Authorization": "Bearer " + os.environ["GUILDHALL_TOKEN"]},
    verify=ssl.create_default_context(cafile=os.environ.get("GUILDHALL_CA")),
    timeout=30,
    limits=httpx.Limits(max_connections=32),
)


def call(method: str, path: str, body: Row | None = None, **query: str | int) -> Row:
    """The answer; a refusal by the guild's state (422) is an answer too."""
    while True:
        res = http.request(method, path, json=body, params=query)
        if res.status_code in (429, 503):
            time.sleep(float(res.headers.get("Retry-After", "1")))
            continue
        if res.status_code >= 400 and res.status_code != 422:
            raise RuntimeError(f"{method} {path}: {res.status_code} {res.text}")
        return dict(res.json()) if res.content else {}


def earlier(instant: str, seconds: float) -> str:
    return (datetime.fromisoformat(instant) - timedelta(seconds=seconds)).isoformat()


def until(met: Any, what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not met():
        if time.monotonic() > deadline:
            raise RuntimeError("in vain: " + what)
        time.sleep(0.1)


class Copy:
    """The newest known state of each resource: instants of one resource only rise,
    and written in one form they are in order as text."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.lock = threading.Lock()

    def keep(self, row: Row) -> bool:
        with self.lock:
            known = self.rows.get(row["id"])
            if known and known["updated_at"] >= row["updated_at"]:
                return False
            self.rows[row["id"]] = row
            return True

    def newest(self) -> str:
        with self.lock:
            return max(str(row["updated_at"]) for row in self.rows.values())


def catch_up(path: str, copies: list[Copy], since: str) -> None:
    """The loop that the document shows at updated_since, until caught up."""
    page = 1
    while True:
        rows = call("GET", path, updated_since=since, page=page, per_page=100)["data"]
        fresh = [row for row in rows if [copy for copy in copies if copy.keep(row)]]
        if len(rows) < 100:
            return
        since, page = (rows[-1]["updated_at"], 1) if fresh else (since, page + 1)


def follow(path: str, copies: list[Copy], done: threading.Event) -> None:
    while True:
        last = done.is_set()
        catch_up(path, copies, earlier(copies[0].newest(), 15))
        if last:
            return
        done.wait(0.1)


def follow_ledger(ledger: dict[str, Row], begin: str, done: threading.Event) -> None:
    """The loop that the document shows at since."""
    since = begin
    while True:
        last, page, more = done.is_set(), 1, True
        while more:
            answer = call("GET", "/economy/ledger", since=since, page=page, per_page=100)
            ledger.update((row["id"], row) for row in answer["data"])
            more, page = answer["has_more"], page + 1
        if last:
            return
        if ledger:
            since = earlier(max(row["created_at"] for row in ledger.values()), 15)
        done.wait(0.1)


def watch_balances(done: threading.Event, seen: list[int]) -> None:
    """The newest row's balance_after is the balance whenever both can be read: that
    is, where no row came between."""
    while not done.is_set():
        user = random.choice(USERS)

        def newest() -> list[Row]:
            return list(call("GET", "/economy/ledger", user_id=user, per_page=1)["data"])

        before, wallet, after = newest(), call("GET", f"/economy/wallet/{user}")["data"], newest()
        if before and before == after:
            if (wallet["balance"], wallet["updated_at"]) != (before[0]["balance_after"], before[0]["created_at"]):
                raise RuntimeError(f"the wallet {wallet} is not its newest row {before[0]}")
            seen.append(1)


class Receiver:
    """Verifies each event over its raw bytes and keeps what it carries."""

    def __init__(self, copies: dict[str, list[Copy]]) -> None:
        self.secret, self.forged = "", 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                t = self.headers["Service-Signature"].split(",")[0].removeprefix("t=")
                want = hmac.new(receiver.secret.encode(), f"{t}.".encode() + body, hashlib.sha256).hexdigest()
                if not hmac.compare_digest(self.headers["Service-Signature"], f"t={t},v1={want}"):
                    receiver.forged += 1
                event = json.loads(body)
                kind, data = event["type"].split(".")[0], event["data"]
                if kind == "economy":
                    data = {"id": data["user_id"], "balance": data["balance"], "updated_at": event["timestamp"]}
                elif kind == "case":
                    data.pop("changed", None)
                for copy in copies[kind]:
                    copy.keep(data)
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def write(cases: list[str], tickets: list[str], giveaways: list[str], paid: dict[str, int]) -> None:
    for _ in range(WRITES):
        case, ticket, giveaway, user = (random.choice(of) for of in (cases, tickets, giveaways, USERS))
        soon = (datetime.now(timezone.utc) + timedelta(seconds=random.uniform(0.1, 1.5))).isoformat()
        match random.randrange(9):
            case 0 | 1:
                call("PATCH", f"/cases/{case}", {"reason": f"edit {random.random()}"})
            case 2:
                call("PATCH", f"/cases/{case}", {"expires_at": soon})
            case 3:
                call("POST", f"/tickets/{ticket}/close", {"reason": "solved", "author_id": STAFF})
            case 4:
                call("POST", f"/tickets/{ticket}/reopen")
            case 5:
                call("POST", f"/tickets/{ticket}/assign", {"user_id": random.choice([STAFF, None])})
            case 6:
                call("POST", f"/giveaways/{giveaway}/{random.choice(['pause', 'resume'])}")
            case _:
                answer = call("POST", "/economy/adjust", {"user_id": user, "delta": random.randrange(-20, 40)})
                if "data" in answer:
                    paid[answer["data"]["ledger_entry"]["id"]] = 1


def prepare() -> tuple[list[str], list[str]]:
    """Fifty tickets and fifty giveaways to change."""
    tickets = [row["id"] for row in call("GET", "/tickets", per_page=EACH)["data"]]
    channel = next(row["channel_id"] for row in call("GET", "/giveaways", per_page=100)["data"])
    ends = (datetime.now(timezone.utc) + timedelta(days=30)).isoformat()
    giveaway = {"channel_id": channel, "prize": "A mirror", "winner_count": 1, "ends_at": ends}
    giveaways = [call("POST", "/giveaways", giveaway)["data"]["id"] for _ in range(EACH)]
    # The bot posts a message for each, which is a change that no event tells.
    until(lambda: all(call("GET", f"/giveaways/{id}")["data"]["message_id"] for id in giveaways), "the giveaways' messages")
    return tickets, giveaways


def run(tickets: list[str], giveaways: list[str]) -> str:
    names = ("webhooks", "polling", "both")
    copies = {name: {kind: Copy() for kind in ("case", "ticket", "giveaway", "economy")} for name in names}
    told = {kind: [copies["webhooks"][kind], copies["both"][kind]] for kind in copies["both"]}
    receiver = Receiver(told)
    hook = call("POST", "/webhooks", {"url": receiver.url, "events": EVENTS})["data"]
    receiver.secret = hook["secret"]
    done, paid, ledger, seen = threading.Event(), dict[str, int](), dict[str, Row](), list[int]()
    try:
        new = {"user_id": USERS[0], "moderator_id": STAFF, "type": "warn", "reason": "A mirror"}
        begin = call("POST", "/cases", new)["data"]
        cases = [begin["id"]] + [call("POST", "/cases", new)["data"]["id"] for _ in range(EACH - 1)]
        ids = {"case": cases, "ticket": tickets, "giveaway": giveaways}
        for kind, some in ids.items():  # every copy begins with a load
            catch_up(f"/{kind}s", [copies[name][kind] for name in names], "2000-01-01T00:00:00Z")
        with ThreadPoolExecutor(32) as pool:
            polled = {kind: [copies["polling"][kind], copies["both"][kind]] for kind in ids}
            followers = [pool.submit(follow, f"/{kind}s", polled[kind], done) for kind in ids]
            followers.append(pool.submit(follow_ledger, ledger, begin["created_at"], done))
            followers.append(pool.submit(watch_balances, done, seen))
            try:
                for writer in [pool.submit(write, cases, tickets, giveaways, paid) for _ in range(WRITERS)]:
                    writer.result()
                until(lambda: settled(cases), "the expiries")
                until(lambda: not call("GET", f"/webhooks/{hook['id']}/deliveries", status="pending", per_page=1)["data"], "the deliveries")
            finally:
                done.set()
            for follower in followers:
                follower.result()
        compare(copies, ids, ledger, paid, receiver)
        return f"{len(paid)} payments, {len(seen)} balances read between two equal looks"
    finally:
        call("DELETE", f"/webhooks/{hook['id']}")
        receiver.server.shutdown()


def settled(cases: list[str]) -> bool:
    now = datetime.now(timezone.utc)
    rows = [call("GET", f"/cases/{id}")["data"] for id in cases]
    return not [r for r in rows if r["status"] == "active" and r["expires_at"] and datetime.fromisoformat(r["expires_at"]) < now + timedelta(seconds=2)]


def compare(copies: dict[str, dict[str, Copy]], ids: dict[str, list[str]], ledger: dict[str, Row], paid: dict[str, int], receiver: Receiver) -> None:
    wrong = [f"{receiver.forged} events with a wrong signature"] if receiver.forged else []
    for kind, some in ids.items():
        for id in some:
            real = call("GET", f"/{kind}s/{id}")["data"]
            wrong += [f"{name}: {kind} {copy[kind].rows.get(id)} is {real}" for name, copy in copies.items() if copy[kind].rows.get(id) != real]
    wrong += [f"the ledger's copy lacks {id}" for id in paid if id not in ledger]
    for user in USERS:
        wallet = call("GET", f"/economy/wallet/{user}")["data"]
        real = {"id": user, "balance": wallet["balance"], "updated_at": wallet["updated_at"]}
        wrong += [f"{name}: {copies[name]['economy'].rows[user]} is {real}" for name in ("webhooks", "both") if copies[name]["economy"].rows.get(user, real) != real]
        rows = sorted((row for row in ledger.values() if row["user_id"] == user), key=lambda row: str(row["created_at"]))
        if rows and (rows[-1]["balance_after"], rows[-1]["created_at"]) != (real["balance"], real["updated_at"]):
            wrong.append(f"the ledger ends with {rows[-1]}, the wallet is {real}")
        wrong += [f"{a} is followed by {b}" for a, b in zip(rows, rows[1:]) if a["balance_after"] + b["delta"] != b["balance_after"]]
    if wrong:
        raise RuntimeError("\n".join(wrong[:10]) + f"\n{len(wrong)} differences")


if __name__ == "__main__":
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    fifty = prepare()
    for n in range(rounds):
        print(f"round {n + 1}: all copies are the guild; {run(*fifty)}", flush=True)
