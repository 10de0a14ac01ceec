# Common to every application here: it records how it routes a request, and answers with all its
# fields.
import os

ASKED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "asked")


def note(method, path):
    file = os.open(ASKED, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{method} {path}\n".encode("latin-1", "replace"))
    os.close(file)


def told(method, path, variables):
    lines = [f"{method} {path}"] + sorted(f"{name}={value}" for name, value in variables)
    return ("\n".join(lines) + "\n").encode("latin-1", "replace")
