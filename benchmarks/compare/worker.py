"""Drives openai-embeddings-model for the comparison.

Reads one JSON object a line from stdin and answers each with one on stdout. A run
is answered twice: when its lanes wait for the start, and, after the line
{"op": "go"}, when they are done. Times are nanoseconds of a clock that all
processes of the machine share.
"""

import asyncio
import concurrent.futures
import hashlib
import json
import os
import platform
import sys
import threading
import time
from importlib import metadata

import diskcache
import openai
from openai_embeddings_model import AsyncOpenAIEmbeddingsModel, ModelSettings, OpenAIEmbeddingsModel

PACKAGES = ("openai-embeddings-model", "diskcache", "tiktoken", "openai", "numpy")
SETTINGS = ModelSettings()

texts = []

# API clients outlive stores, as they do in a program: connections are kept.
api_clients = {}


def api_client(kind, base_url, i):
    """Client i of its kind."""
    if (kind, i) not in api_clients:
        api_clients[kind, i] = kind(base_url=base_url, api_key="none")
    return api_clients[kind, i]


class Lane:
    """The calls of one caller in one run."""

    def __init__(self, starts, request):
        self.starts = starts
        self.per_call = request["per_call"]
        self.limit = request.get("limit_ns", 0)
        self.check_all = request.get("check_all", False)
        self.calls = []
        self.kept = []
        self.hits = 0
        self.end = 0
        self.error = None

    def next_start(self, begin):
        """The first text of the next call, or None when the lane is done."""
        i = len(self.calls)
        if self.limit == 0:
            return self.starts[i] if i < len(self.starts) else None
        if i > 0 and time.perf_counter_ns() - begin >= self.limit:
            return None
        return self.starts[i % len(self.starts)]

    def batch(self, start):
        return texts[start : start + self.per_call]

    def done(self, start, began, response, matrix):
        self.calls.append(time.perf_counter_ns() - began)
        self.hits += response.usage.cache_hits
        if not self.check_all:
            self.kept.clear()
        self.kept.append((start, matrix))

    def answers(self):
        return [{"start": start, "digest": hashlib.sha256(matrix.tobytes()).hexdigest()} for start, matrix in self.kept]


class Threads:
    """The synchronous model, with one thread a lane, which stays from run to run."""

    def __init__(self, request):
        self.cache = diskcache.Cache(request["dir"])
        self.pool = None
        self.models = []
        for i in range(request["clients"]):
            client = api_client(openai.OpenAI, request["base_url"], i)
            self.models.append(OpenAIEmbeddingsModel(request["model"], client, cache=self.cache))

    def run(self, lanes, wait_for_start):
        begin = 0
        barrier = threading.Barrier(len(lanes) + 1)
        opened = threading.Barrier(len(lanes) + 1)

        def work(lane, model):
            try:
                # diskcache has a connection for each thread: open it before the start.
                self.cache.get("none")
            except Exception as e:
                lane.error = e
            opened.wait()
            barrier.wait()
            try:
                while lane.error is None and (start := lane.next_start(begin)) is not None:
                    batch = lane.batch(start)
                    began = time.perf_counter_ns()
                    response = model.get_embeddings(batch, SETTINGS)
                    lane.done(start, began, response, response.to_numpy())
            except Exception as e:
                lane.error = e
            lane.end = time.perf_counter_ns()

        if self.pool is None:
            # A lane holds its thread from barrier to barrier, so each has its own.
            self.pool = concurrent.futures.ThreadPoolExecutor(max_workers=len(lanes))
        running = [self.pool.submit(work, lane, self.models[i % len(self.models)]) for i, lane in enumerate(lanes)]
        opened.wait()
        wait_for_start()
        begin = time.perf_counter_ns()
        barrier.wait()
        concurrent.futures.wait(running)
        return begin

    def close(self):
        if self.pool is not None:
            self.pool.shutdown()
        self.cache.close()


class Tasks:
    """The asynchronous model, with one task a lane on one event loop."""

    loop = None  # the same for all stores: the API clients belong to it

    def __init__(self, request):
        Tasks.loop = Tasks.loop or asyncio.new_event_loop()
        self.cache = diskcache.Cache(request["dir"])
        self.models = []
        for i in range(request["clients"]):
            client = api_client(openai.AsyncOpenAI, request["base_url"], i)
            self.models.append(AsyncOpenAIEmbeddingsModel(request["model"], client, cache=self.cache))

    def run(self, lanes, wait_for_start):
        wait_for_start()
        begin = time.perf_counter_ns()

        async def work(lane, model):
            try:
                while (start := lane.next_start(begin)) is not None:
                    batch = lane.batch(start)
                    began = time.perf_counter_ns()
                    response = await model.get_embeddings(batch, SETTINGS)
                    lane.done(start, began, response, response.to_numpy())
            except Exception as e:
                lane.error = e
            lane.end = time.perf_counter_ns()

        async def all_lanes():
            await asyncio.gather(
                *(work(lane, self.models[i % len(self.models)]) for i, lane in enumerate(lanes))
            )

        self.loop.run_until_complete(all_lanes())
        return begin

    def close(self):
        async def close_all():
            for model in self.models:
                await model.aclose()

        self.loop.run_until_complete(close_all())
        self.cache.close()


def main():
    global texts
    # What a library prints must not get between the answers.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    store = None

    def reply(**fields):
        out.write(json.dumps(fields) + "\n")
        out.flush()

    def wait_for_start():
        reply(ready=True)
        if json.loads(sys.stdin.readline())["op"] != "go":
            raise ValueError("a run was not followed by go")

    for line in sys.stdin:
        request = json.loads(line)
        op = request["op"]
        try:
            if op == "hello":
                versions = {name: metadata.version(name) for name in PACKAGES}
                reply(versions={"python": platform.python_version(), **versions})
            elif op == "texts":
                texts = request["texts"]
                reply()
            elif op == "open":
                store = (Tasks if request["tasks"] else Threads)(request)
                reply()
            elif op == "run":
                lanes = [Lane(starts, request) for starts in request["starts"]]
                begin = store.run(lanes, wait_for_start)
                for lane in lanes:
                    if lane.error is not None:
                        raise lane.error
                reply(
                    begin=begin,
                    end=max(lane.end for lane in lanes),
                    calls=[ns for lane in lanes for ns in lane.calls],
                    hits=sum(lane.hits for lane in lanes),
                    answers=[answer for lane in lanes for answer in lane.answers()],
                )
            elif op == "close":
                if store is not None:
                    store.close()
                    store = None
                reply()
            else:
                raise ValueError(f"unknown op {op}")
        except Exception as e:
            reply(error=f"{type(e).__name__}: {e}")


if __name__ == "__main__":
    main()
