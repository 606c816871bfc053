"""A scripted MCP server over HTTP with one tool, which needs an access token. Other requests are remembered."""

from serving import Handler, Record, serve

TOKEN = "token-of-the-desk"
TOOL = {
    "name": "get_hours",
    "description": "Tells when the desk is open.",
    "inputSchema": {"type": "object", "properties": {"day": {"type": "string"}}, "required": ["day"]},
}


class Desk(Handler):
    """The MCP server."""

    record = Record()

    def do_DELETE(self):
        self.send_json(405, {})

    def get(self, path):
        self.send_json(405, {})

    def post(self, path, body):
        if self.headers.get("authorization") != f"Bearer {TOKEN}":
            self.violated("a request without the access token")
            return
        method, parameters = body.get("method"), body.get("params") or {}
        if "id" not in body:
            self.send_json(202, {})
            return
        match method:
            case "initialize":
                server = {"name": "desk", "version": "1"}
                result = {"protocolVersion": parameters["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": server}
            case "ping":
                result = {}
            case "tools/list":
                result = {"tools": [TOOL]}
            case "tools/call":
                day = parameters["arguments"].get("day")
                said = f"closed on {day}" if day == "Sunday" else f"nine to five on {day}"
                result = {"content": [{"type": "text", "text": said}], "isError": day == "Sunday"}
                self.record.call({"day": day})
            case _:
                error = {"code": -32601, "message": f"no method {method}"}
                self.send_json(200, {"jsonrpc": "2.0", "id": body["id"], "error": error})
                return
        self.send_json(200, {"jsonrpc": "2.0", "id": body["id"], "result": result})


if __name__ == "__main__":
    serve(Desk)
