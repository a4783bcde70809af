"""A Django site in one file: `gunicorn django_site:application`."""

import hashlib
import threading

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import FileResponse, HttpResponse, HttpResponseRedirect, JsonResponse, StreamingHttpResponse
from django.middleware.csrf import get_token
from django.urls import path

settings.configure(
    SECRET_KEY="for this test only",
    ALLOWED_HOSTS=["localhost"],
    ROOT_URLCONF=__name__,
    SECURE_PROXY_SSL_HEADER=("HTTP_X_FORWARDED_PROTO", "https"),
    USE_X_FORWARDED_HOST=True,
    SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
    MIDDLEWARE=[
        "django.middleware.security.SecurityMiddleware",
        "django.middleware.gzip.GZipMiddleware",
        "django.middleware.http.ConditionalGetMiddleware",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
    ],
)
django.setup()


def facts(request):
    """What Django believes about the client and its own address."""
    return JsonResponse({
        "url": request.build_absolute_uri(),
        "secure": request.is_secure(),
        "client": request.headers.get("X-Forwarded-For"),
        "peer": request.META["REMOTE_ADDR"],
    })


def form(request):
    """A form whose POST stores the name in the session and redirects."""
    if request.method == "POST":
        request.session["name"] = request.POST["name"]
        return HttpResponseRedirect(request.build_absolute_uri("/greeting/"))
    page = f'<form method="post"><input name="csrfmiddlewaretoken" value="{get_token(request)}"><input name="name">'
    return HttpResponse(page + " " * 500)


def greeting(request):
    return HttpResponse(f"Hello, {request.session.get('name', 'stranger')}!")


def upload(request):
    """Returns the uploaded file, with its digest and name in fields."""
    file = request.FILES["file"]
    response = FileResponse(file, content_type="application/octet-stream")
    response["X-Digest"] = hashlib.sha256(file.read()).hexdigest()
    response["X-Note"] = request.POST["note"].encode("unicode_escape").decode()
    response["X-Name"] = file.name.encode("unicode_escape").decode()
    file.seek(0)
    return response


released = threading.Event()


def stream(request):
    """Two lines; the second is sent after a request for /release/."""
    released.clear()

    def lines():
        yield "first\n"
        yield "second\n" if released.wait(10) else "not released\n"

    return StreamingHttpResponse(lines(), content_type="text/plain")


def release(request):
    released.set()
    return HttpResponse(status=204)


urlpatterns = [
    path("facts/", facts),
    path("form/", form),
    path("greeting/", greeting),
    path("upload/", upload),
    path("stream/", stream),
    path("release/", release),
]
application = get_wsgi_application()
