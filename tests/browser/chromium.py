"""A real Chromium over its DevTools protocol: pages are used by role and name, as a reader of screens would."""

import asyncio
import base64
import itertools
import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

INSTALL = "needs Chromium: as root, apt-get install -y --no-install-recommends chromium"
BINARY = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WIDTH, HEIGHT = 1180, 1000
FLAGS = (
    "--headless=new", "--remote-debugging-port=0", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-extensions", "--hide-scrollbars", "--lang=en-GB",
    f"--window-size={WIDTH},{HEIGHT}",
)  # fmt: skip
SECONDS = 60.0

UNTIL = """(seconds) => new Promise((done, failed) => {
  const isSo = () => { try { return %s } catch { return false } };
  const look = () => isSo() && (watch.disconnect(), done(true));
  const watch = new MutationObserver(look);
  watch.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
  setTimeout(() => failed(new Error("never so: " + document.body.innerText)), seconds * 1000);
  look();
})"""


class Page:
    """A tab: what it asked for, what went wrong in it, and hands to use it."""

    def __init__(self, browser: "Browser", session: str, context: str) -> None:
        self._browser = browser
        self._session = session
        self.context = context
        self.requests: list[dict[str, Any]] = []
        self.wrong: list[str] = []

    def note(self, said: dict[str, Any]) -> None:
        """An event of this tab."""
        if said["method"] == "Network.requestWillBeSent":
            self.requests.append(said["params"]["request"])
        elif said["method"] == "Runtime.exceptionThrown" or _is_mishap(said):
            self.wrong.append(str(said["params"]))

    async def do(self, method: str, **params: Any) -> Any:
        """A command of the protocol; its result."""
        return await self._browser.do(method, session=self._session, **params)

    async def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = await self.do("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        return found["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until it is true of the page."""
        await self.run(f"({UNTIL % expression})({SECONDS})")

    async def find(self, role: str, name: str) -> dict[str, Any]:
        """The node with this role and accessible name: the parameters that name it to the protocol."""
        root = (await self.do("DOM.getDocument", depth=0))["root"]["nodeId"]
        found = await self.do("Accessibility.queryAXTree", nodeId=root, role=role, accessibleName=name)
        nodes = [node["backendDOMNodeId"] for node in found["nodes"] if not node["ignored"]]
        assert len(nodes) == 1, (role, name, found["nodes"])
        return {"backendNodeId": nodes[0]}

    async def click(self, role: str, name: str) -> None:
        """Focus it, and press it by keyboard."""
        await self.do("DOM.focus", **await self.find(role, name))
        await self.press("Enter", 13, "\r")

    async def press(self, key: str, code: int, text: str = "") -> None:
        """A key down and up."""
        for kind in ("keyDown", "keyUp"):
            sent = {"text": text} if text and kind == "keyDown" else {}
            await self.do("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **sent)

    async def type(self, role: str, name: str, text: str) -> None:
        """Put text into a field."""
        await self.do("DOM.focus", **await self.find(role, name))
        await self.do("Input.insertText", text=text)

    async def choose(self, name: str, value: str) -> None:
        """An option of a list."""
        found = await self.do("DOM.resolveNode", **await self.find("combobox", name))
        script = "function(v) { this.value = v; this.dispatchEvent(new Event('change')); return this.value }"
        sent = {
            "objectId": found["object"]["objectId"],
            "arguments": [{"value": value}],
            "returnByValue": True,
        }
        answer = await self.do("Runtime.callFunctionOn", functionDeclaration=script, **sent)
        assert answer["result"]["value"] == value

    async def picture(self, path: Path) -> None:
        """What is seen, as a PNG."""
        path.write_bytes(base64.b64decode((await self.do("Page.captureScreenshot"))["data"]))


class Browser:
    """A running Chromium."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._pages: dict[str, Page] = {}

    async def listen(self) -> None:
        """Hand out replies and events, until the browser is gone."""
        async for message in self._socket:
            said = message.json()
            if waits := self._waiting.pop(said.get("id", 0), None):
                waits.set_result(said)
            elif page := self._pages.get(said.get("sessionId", "")):
                page.note(said)

    async def do(self, method: str, session: str | None = None, **params: Any) -> Any:
        """A command of the protocol, to the browser or to a tab; its result."""
        number = next(self._numbers)
        waits = self._waiting[number] = asyncio.get_running_loop().create_future()
        sent = {"id": number, "method": method, "params": params}
        await self._socket.send_json({**sent, "sessionId": session} if session else sent)
        async with asyncio.timeout(2 * SECONDS):
            said = await waits
        assert "error" not in said, (method, said["error"])
        assert "exceptionDetails" not in said["result"], (params, said["result"]["exceptionDetails"])
        return said["result"]

    @asynccontextmanager
    async def page(self) -> AsyncIterator[Page]:
        """A tab that shares nothing with any other: as with a new profile, there are no cookies, storage or cache."""
        context = (await self.do("Target.createBrowserContext"))["browserContextId"]
        asked = {"browserContextId": context, "newWindow": True, "width": WIDTH, "height": HEIGHT}
        target = await self.do("Target.createTarget", url="about:blank", **asked)
        attached = await self.do("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page = self._pages[attached["sessionId"]] = Page(self, attached["sessionId"], context)
        for domain in ("Page", "Runtime", "Network", "Log", "DOM", "Accessibility"):
            await page.do(f"{domain}.enable")
        try:
            yield page
        finally:
            del self._pages[attached["sessionId"]]
            await self.do("Target.disposeBrowserContext", browserContextId=context)


def _is_mishap(said: dict[str, Any]) -> bool:
    """The browser's own complaint, of its Content-Security-Policy say; a reply of 401 is none."""
    return said.get("method") == "Log.entryAdded" and said["params"]["entry"]["source"] != "network"


@asynccontextmanager
async def chromium(profile: Path) -> AsyncIterator[Browser]:
    """A browser of its own, until the block ends."""
    assert BINARY is not None
    root = ("--no-sandbox",) if os.getuid() == 0 else ()
    argv = (BINARY, *FLAGS, *root, f"--user-data-dir={profile}", "about:blank")
    process = await asyncio.create_subprocess_exec(*argv, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        said = b""
        async with asyncio.timeout(SECONDS):
            while not (found := re.search(rb"listening on (ws://\S+)\n", said)):
                said += await process.stderr.readline()
        drain = asyncio.create_task(process.stderr.read())  # a full pipe would stop it
        async with aiohttp.ClientSession() as client:
            async with client.ws_connect(found[1].decode(), max_msg_size=1 << 26) as socket:
                browser = Browser(socket)
                listens = asyncio.create_task(browser.listen())
                yield browser
                await browser.do("Browser.close")
            await listens
        await process.wait()
        await drain
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
