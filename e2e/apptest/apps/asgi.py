# Routes by the path below root_path, as Django does.
import seen


async def application(scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    method, path, root = scope["method"], scope["path"], scope.get("root_path", "").rstrip("/")
    if root and path.startswith(root):
        path = path[len(root):]
    seen.note(method, path)
    fields = [(name.decode("latin-1").upper().replace("-", "_"), value.decode("latin-1")) for name, value in scope["headers"]]
    body = seen.told(method, path, [("HTTP_" + name, value) for name, value in fields])
    head = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": body})
