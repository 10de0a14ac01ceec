"""Calls a server by httpx over HTTP/2, and prints what comes back."""

import re
import sys

import httpx

url = sys.argv[1]
with httpx.Client(http1=False, http2=True, verify=False, timeout=60, trust_env=False) as client:
    r = client.get(url + "/get")
    assert r.http_version == "HTTP/2", r.http_version
    print("get:", r.status_code, r.text)
    r = client.post(url + "/echo", content=bytes(i * 7 % 251 for i in range(100000)))
    print("echo:", r.status_code, len(r.content), sum(r.content))
    r = client.get(url + "/big")
    print("big:", r.status_code, len(r.content), sum(r.content))
    r = client.get(url + "/trailers")  # it does not show them
    print("trailers:", r.status_code, r.text)
    r = client.get(url + "/hints")
    print("hints:", r.status_code)
    events = []
    with client.stream("GET", url + "/events") as stream:
        for part in stream.iter_text():
            for event in re.findall(r"data: (\d)", part):
                events.append(event)
                client.post(url + "/seen?" + event)
    print("events:", *events)
    answers = [client.get(url + "/limited") for _ in range(3)]
    last = answers[-1].headers
    print("limited:", *(r.status_code for r in answers), last["x-ratelimit-remaining"], str(int(last["retry-after"]) > 0).lower())
