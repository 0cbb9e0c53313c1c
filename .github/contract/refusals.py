"""Holds a run of schemathesis against the list of what may be refused.

    refusals.py REPORT...

REPORT is what --report ndjson writes. Prints each refusal that was met, with
its reason, and exits with 1 for every finding that is not on the list.
"""

import base64
import collections
import json
import pathlib
import re
import sys
import tomllib
from typing import Any, Iterator

LISTED = tomllib.loads(pathlib.Path(__file__).with_name("refusals.toml").read_text())["refusal"]


def findings(report: str) -> Iterator[tuple[dict[str, Any], int, str]]:
    """Each failed check of a run, with the status and the body of the answer."""
    finished = False
    for line in open(report):
        event = json.loads(line)
        finished = finished or "EngineFinished" in event
        for problem in event.get("NonFatalError", {}), event.get("FatalError", {}):
            if problem:
                raise SystemExit(f"{report}: {json.dumps(problem)[:1000]}")
        recorder = event.get("ScenarioFinished", {}).get("recorder", {})
        for case, checks in recorder.get("checks", {}).items():
            response = recorder["interactions"][case]["response"] or {}
            body = base64.b64decode((response.get("content") or {}).get("$base64", "")).decode(errors="replace")
            for check in checks:
                if check["status"] == "failure":
                    yield check["failure_info"]["failure"], response.get("status_code", 0), body
    if not finished:
        raise SystemExit(f"{report}: the run has not come to its end")


def listed(failure: dict[str, Any], status: int, body: str) -> dict[str, Any] | None:
    if failure["type"] != "RejectedPositiveData":
        return None
    try:
        error = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        return None
    places = re.split("; (?=body[ :])", error["message"])
    for entry in LISTED:
        if entry["status"] != status or entry.get("operation", failure["operation"]) != failure["operation"]:
            continue
        if error["code"] == entry.get("code"):
            return entry
        if "message" in entry and all(re.match(entry["message"], p) for p in places):
            return entry
    return None


def main() -> int:
    met: collections.Counter[str] = collections.Counter()
    others: dict[str, int] = collections.Counter()
    for report in sys.argv[1:]:
        for failure, status, body in findings(report):
            entry = listed(failure, status, body)
            if entry:
                met[f"{status} {entry.get('code', entry.get('message'))}: {entry['reason']}"] += 1
            else:
                others[f"{failure['operation']}: {failure['title']}: {status} {body.strip()[:500] or failure['message']}"] += 1
    for text, times in sorted(met.items()):
        print(f"refused {times} times, as listed: {text}")
    for text, times in sorted(others.items()):
        print(f"NOT LISTED, {times} times: {text}", file=sys.stderr)
    return 1 if others else 0


if __name__ == "__main__":
    sys.exit(main())
