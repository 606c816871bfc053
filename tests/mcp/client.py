"""An MCP client on the official Python package: lists the tools of a server over streamable HTTP, and calls one.

Arguments: the URL, the API key, the name of a tool and its arguments as JSON. Prints one line of JSON.
"""

import json
import sys

import anyio
from mcp import ClientSession
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client


async def main(url: str, key: str, tool: str, arguments: str) -> None:
    told = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        told.append(message)

    headers = {"authorization": f"Bearer {key}"}
    async with (
        create_mcp_http_client(headers=headers) as http,
        streamable_http_client(url, http_client=http) as (reading, writing, *_),
        ClientSession(reading, writing) as session,
    ):
        started = await session.initialize()
        tools = await session.list_tools()
        result = await session.call_tool(tool, json.loads(arguments), progress_callback=progress)
        line = {
            "version": started.protocol_version,
            "tools": [tool.name for tool in tools.tools],
            "progress": [message for message in told if message],
            "result": result.model_dump(mode="json", by_alias=True, exclude_none=True),
        }
        print(json.dumps(line))


anyio.run(main, *sys.argv[1:])
