"""A constant load of requests with unique ids over HTTP/1.1, and their outcomes."""

import asyncio
import time
from dataclasses import dataclass

# A request that has no response by then has failed.
REQUEST_WITHIN = 15.0


@dataclass
class Outcome:
    """A request that has ended. Times are those of the monotonic clock, in seconds."""

    number: int
    method: str
    started: float
    took: float
    # None if there is no whole response.
    status: int | None
    # The member that responded; None for responses of the gateway.
    member: str | None
    # Why it failed; None if it did not.
    failure: str | None

    @property
    def ended(self):
        return self.started + self.took


class Load:
    """Sends requests at a constant rate, whatever becomes of those before. Every `posts_every`th is a POST."""

    def __init__(self, port, rate, posts_every=0):
        self.port, self.rate, self.posts_every = port, rate, posts_every
        self.outcomes = []
        # The longest time by which a timer of this process came late: a busy machine.
        self.lag = 0.0
        self.idle = []
        self.ends = asyncio.Event()

    async def run(self):
        """Sends until `stop`, and waits for all responses."""
        tasks = set()
        begun = time.monotonic()
        number = 0
        while not self.ends.is_set():
            planned = begun + number / self.rate
            wait = planned - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            self.lag = max(self.lag, time.monotonic() - planned)
            is_post = self.posts_every and number % self.posts_every == 0
            task = asyncio.create_task(self.request(number, "POST" if is_post else "GET"))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            number += 1
        await asyncio.gather(*tasks)
        for _, writer in self.idle:
            writer.close()

    def stop(self):
        self.ends.set()

    async def request(self, number, method):
        started = time.monotonic()
        status = member = failure = None
        connection = None
        try:
            async with asyncio.timeout(REQUEST_WITHIN):
                connection = self.idle.pop() if self.idle else await asyncio.open_connection("127.0.0.1", self.port)
                status, member, content, stays_open = await self.exchange(connection, number, method)
            if status != 200:
                failure = f"status {status}"
            elif content != f"/id/{number}":
                failure = f"the response of another request: {content[:40]!r}"
            if stays_open:
                self.idle.append(connection)
                connection = None
        except TimeoutError:
            failure = "no response"
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            failure = f"{type(error).__name__}: {error}"
        finally:
            if connection:
                connection[1].close()
        took = time.monotonic() - started
        self.outcomes.append(Outcome(number, method, started, took, status, member, failure))

    async def exchange(self, connection, number, method):
        reader, writer = connection
        content = b"content" if method == "POST" else b""
        length = f"Content-Length: {len(content)}\r\n" if content else ""
        writer.write(f"{method} /id/{number} HTTP/1.1\r\nHost: app.example\r\n{length}\r\n".encode() + content)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
        status = int(head[0].split(" ")[1])
        if "content-length" not in fields:
            raise ValueError("a response without Content-Length")
        received = await reader.readexactly(int(fields["content-length"]))
        stays_open = fields.get("connection") != "close"
        return status, fields.get("x-member"), received.decode("latin-1"), stays_open
