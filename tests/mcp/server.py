"""An MCP server on the official Python package: over stdio, or with a port over streamable HTTP or the older SSE."""

import sys

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image

server = MCPServer("python")
cancelled = 0

# The smallest PNG: one transparent pixel.
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
    "0000000d49444154789c6360000000000500010d0a2db40000000049454e44ae426082"
)


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def picture() -> Image:
    """Draws a picture."""
    return Image(data=PIXEL, format="png")


@server.tool()
async def walk(steps: int, ctx: Context) -> str:
    """Walks, and reports each step."""
    for step in range(steps):
        await ctx.report_progress(step + 1, steps, f"step {step + 1}")
    return f"walked {steps}"


@server.tool()
async def wait(ctx: Context) -> str:
    """Says that it waits, and waits for ever."""
    global cancelled
    try:
        await ctx.report_progress(0, 1, "waiting")
        await anyio.sleep_forever()
    finally:
        cancelled += 1


@server.tool()
def how_many_cancelled() -> str:
    """Counts the calls of wait that were cancelled."""
    return f"{cancelled} cancelled"


@server.tool()
def fail() -> str:
    """Fails."""
    raise ValueError("out of paper")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        server.run("sse", port=int(sys.argv[1]))
    elif len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
