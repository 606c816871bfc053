"""A scripted tool server: the dispatch URL. Checks that every call is what the wire contract promises."""

import re

from serving import Handler, Record, serve

REQUIRED = {
    "name": str,
    "arguments": dict,
    "tool_call_id": str,
    "request_id": str,
    "round": int,
    "model": str,
    "timeout_ms": int,
}
OPTIONAL = {"session_id": str, "session_key": str, "owner": str, "user": str}
TRACEPARENT = r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"


def violations(body, headers, before):
    """Everything that is wrong with a call, in words."""
    if not isinstance(body, dict):
        return ["the body is not a JSON object"]
    found = []
    for key, kind in REQUIRED.items():
        if not isinstance(body.get(key), kind) or body[key] == "":
            found.append(f"`{key}` is {body.get(key)!r}")
    for key in body.keys() - REQUIRED.keys():
        if key not in OPTIONAL or not isinstance(body[key], (OPTIONAL[key], type(None))):
            found.append(f"`{key}` is {body[key]!r}")
    if not (headers.get("content-type") or "").startswith("application/json"):
        found.append(f"the content type is `{headers.get('content-type')}`")
    if not (headers.get("user-agent") or "").startswith("loopwright"):
        found.append(f"the user agent is `{headers.get('user-agent')}`")
    if not re.fullmatch(TRACEPARENT, headers.get("traceparent") or ""):
        found.append(f"the traceparent is `{headers.get('traceparent')}`")
    key = headers.get("idempotency-key")
    if not key or any(call["idempotency_key"] == key for call in before):
        found.append(f"the idempotency key `{key}` is missing or was used before, and nothing here asks for retries")
    return found


class Webhook(Handler):
    """The tool server."""

    record = Record()

    def post(self, path, body):
        if path != "/run":
            self.not_found(path)
            return
        found = violations(body, self.headers, self.record.calls())
        if found:
            self.violated("; ".join(found))
            return
        self.record.call({**body, "idempotency_key": self.headers["idempotency-key"]})
        arguments = body["arguments"]
        match body["name"]:
            case "get_ticket" if arguments.get("id") == -1:
                self.send_json(200, {"content": "there is no ticket -1", "is_error": True})
                return
            case "get_ticket":
                content = {"ticket": arguments.get("id"), "state": "open since Tuesday"}
            case "charge_card":
                content = {"charged": arguments.get("reference")}
            case name:
                # Tools of the client must never come here.
                self.violated(f"the tool `{name}` is not run here")
                return
        self.send_json(200, {"content": content})


if __name__ == "__main__":
    serve(Webhook)
