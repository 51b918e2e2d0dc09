"""One key that asks for all a model can take at once: another key's requests go on being answered."""

import asyncio
import collections
import json

import pytest
import server as heddle

MODEL = "reverser"
GREEDY = 700


def request(key, prompt, tokens):
    body = json.dumps({"model": MODEL, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
    return (head + f"Content-Type: application/json\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body


async def ask(server, key, prompt, tokens=48):
    """(status, seconds)"""
    clock = asyncio.get_running_loop().time
    began = clock()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rsplit(":", 1)[1]))
    writer.write(request(key, prompt, tokens))
    try:
        raw = await reader.read()
    finally:
        writer.close()
    return int(raw.split(b" ", 2)[1]), clock() - began


async def unfinished(server):
    """Requests of the model that wait and run."""
    _, _, said = await asyncio.to_thread(server.call, "/running", None, "GET", {"x-api-key": "rule"})
    return sum(each["requests_running"] + each["requests_waiting"] for each in said["running"])


async def attack(server):
    flood = [asyncio.create_task(ask(server, "greedy", f"reverse {i} a b c", 100)) for i in range(GREEDY)]
    while await unfinished(server) < 400:
        await asyncio.sleep(0.02)
    others = [await ask(server, "honest", f"reverse x {i}", 4) for i in range(4)]
    still = await unfinished(server)
    outcomes = collections.Counter(status for status, _ in await asyncio.gather(*flood))
    return outcomes, others, still


@pytest.mark.slow
def test_another_key_is_answered_in_its_turn():
    extra = "apiKeys: [greedy, honest, {key: rule, role: admin}]\n"
    # Steps are slow here, so that the flood is there for as long as the others ask.
    with heddle.Server(heddle.config(models=[MODEL], extra=extra, device_extra=", pace: {step: 2ms}")) as server:
        outcomes, others, still = asyncio.run(attack(server))
        print(outcomes, [round(seconds, 3) for _, seconds in others], still)
        assert [status for status, _ in others] == [200] * len(others)
        # Each waits for a few of the other key's, not for hundreds.
        assert still > 300, (others, still)
        assert outcomes[200] == 448 and outcomes[429] == GREEDY - 448, outcomes
        assert asyncio.run(unfinished(server)) == 0
