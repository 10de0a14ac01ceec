# Python's own server, which keeps connections and does not read bodies; this handler reads those of
# POST.
import http.server
import socket

import seen


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        path = self.path.split("?")[0]
        seen.note(self.command, path)
        fields = [("HTTP_" + name.upper().replace("-", "_"), value) for name, value in self.headers.items()]
        body = seen.told(self.command, path, fields)
        self.send_response(304 if path.endswith("/unchanged") else 200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        self.answer()

    do_HEAD = do_OPTIONS = do_DELETE = do_GET

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.answer()

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
server.daemon_threads = True
server.socket.close()
server.socket = socket.socket(fileno=3)
server.serve_forever()
