#!/usr/bin/python3
# Routes as Symfony, Laminas and Yii do behind IIS, or did: by the field that names the real path, and the one that names the method.
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
