"""The page's own files, as they are in the package: nothing is built, nothing comes from anywhere else."""

from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
INDEX = "index.html"

# Scripts and styles only from files of ours; nothing goes anywhere but here; nobody may put the page into a frame.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


def routes() -> list[Route]:
    """A route for each file; the page itself is at `/`. They hold no data, so everybody may have them."""
    found = (each for each in files("partbox.dashboard").joinpath("static").iterdir())
    return [_route(each.name, each.read_bytes()) for each in found if each.name.rpartition(".")[2] in TYPES]


def _route(name: str, content: bytes) -> Route:
    async def answer(_: Request) -> Response:
        kind = TYPES[name.rpartition(".")[2]]
        return Response(content, headers=HEADERS | {"content-type": kind, "cache-control": "no-cache"})

    return Route("/" if name == INDEX else f"/{name}", answer, methods=["GET"], name=name)
