"""The floor of a server: aiohttp passes on what the provider streams, and does nothing else.

python -m bench.echo URL PORT
"""

import asyncio
import sys

import aiohttp
from aiohttp import web


async def main(url: str, port: int) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

        async def chat(request: web.Request) -> web.StreamResponse:
            body = await request.read()
            headers = {"Content-Type": "application/json", "Authorization": "Bearer bench"}
            async with http.post(url + "/chat/completions", data=body, headers=headers) as answer:
                if answer.content_type != "text/event-stream":
                    return web.Response(body=await answer.read(), content_type="application/json")
                response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
                await response.prepare(request)
                async for data in answer.content.iter_any():
                    await response.write(data)
                await response.write_eof()
                return response

        async def health(request: web.Request) -> web.Response:
            return web.json_response({"status": "ok"})

        app = web.Application()
        app.router.add_post("/v1/chat/completions", chat)
        app.router.add_get("/health", health)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, backlog=1024).start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
