"""A WSGI application that tells how much content it got, and with which length."""


def application(environ, start_response):
    length = environ.get("CONTENT_LENGTH") or "none"
    content = environ["wsgi.input"].read(int(length)) if length != "none" else b""
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{len(content)} of {length}".encode()]
