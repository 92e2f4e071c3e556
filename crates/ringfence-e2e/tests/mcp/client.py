"""Drives an MCP server by the official Python client, with a plan from the command line.

Reads one JSON object: `server` (program, arguments and variables, or `url` and `token`), `mode`,
`answer` (the user's answer to every question), and `steps`. Prints one with their results.
"""

import asyncio
import json
import sys
import time

import anyio
import httpx2
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

questions = []


def answering(answer):
    async def says(_, params):
        questions.append(params.model_dump(mode="json"))
        if answer == "cancel":
            return types.ElicitResult(action="cancel")
        return types.ElicitResult(action="accept", content={"answer": answer})

    return says


async def step(client, wanted):
    if "list" in wanted:
        return [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in (await client.list_tools()).tools]
    if "together" in wanted:
        results = [None] * len(wanted["together"])

        async def one(index, inner):
            # The order in which they are sent is the one they are written in.
            await anyio.sleep(index * 0.2)
            results[index] = await step(client, inner)

        async with anyio.create_task_group() as group:
            for index, inner in enumerate(wanted["together"]):
                group.start_soon(one, index, inner)
        return results
    if "host" in wanted:
        # A command at another terminal.
        done = await anyio.run_process(wanted["host"], check=False, env=wanted["variables"], cwd=wanted["cwd"])
        return {"status": done.returncode, "stdout": done.stdout.decode(), "stderr": done.stderr.decode()}
    progress = []

    async def heard(value, _, message):
        progress.append([value, message])

    began = time.monotonic()
    result = None
    with anyio.move_on_after(wanted.get("cancelAfter", 60)):
        try:
            result = await client.call_tool(wanted["call"], wanted.get("arguments", {}), progress_callback=heard)
        except MCPError as error:
            return {"protocolError": str(error)}
    report = {"seconds": time.monotonic() - began, "progress": progress, "cancelled": result is None}
    if result is not None:
        report["isError"] = result.is_error
        report["structured"] = result.structured_content
        report["text"] = "".join(block.text for block in result.content)
    return report


async def tour(client, steps):
    version = client.session.protocol_version
    return {"version": version, "results": [await step(client, wanted) for wanted in steps], "questions": questions}


async def main(plan):
    server, mode = plan["server"], plan["mode"]
    callback = answering(plan["answer"]) if plan.get("answer") else None
    if "url" in server:
        headers = {"Authorization": "Bearer " + server["token"]}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
            transport = streamable_http_client(server["url"], http_client=http)
            async with Client(transport, mode=mode, elicitation_callback=callback) as client:
                return await tour(client, plan["steps"])
    parameters = StdioServerParameters(command=server["program"], args=server["arguments"], env=server["variables"], cwd=server["cwd"])
    async with Client(parameters, mode=mode, elicitation_callback=callback) as client:
        return await tour(client, plan["steps"])


print(json.dumps(asyncio.run(main(json.load(sys.stdin)))))
