# Routes by PATH_INFO, as Flask, Django and Pyramid do.
import seen


def application(environ, start_response):
    method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
    environ["wsgi.input"].read()
    seen.note(method, path)
    body = seen.told(method, path, [(n, v) for n, v in environ.items() if n.isupper()])
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
