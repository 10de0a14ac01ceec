#!/usr/bin/python3
# Routes as Symfony, Laminas and Yii do, or did, behind IIS: by the fields that override the path
# and the method.
import os
import sys

import seen

env = os.environ
sys.stdin.buffer.read(int(env.get("CONTENT_LENGTH") or 0))
method = env.get("HTTP_X_HTTP_METHOD_OVERRIDE", env["REQUEST_METHOD"])
path = env.get("HTTP_X_REWRITE_URL", env["REQUEST_URI"]).split("?")[0]
seen.note(method, path)
body = seen.told(method, path, env.items())
sys.stdout.buffer.write(b"Content-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
