//! Valid files: examples of the documents, and one that has all keys.

/// All keys of this version, each on its line; tables are parted by empty lines.
pub(crate) const ALL_KEYS: &str = r#"config_version = 1
include = ["sites/*.toml"]
listen = [":80"]
listen_tls = [":443", { address = ":8443", proxy_protocol = true }]
trusted_proxies = ["10.0.0.0/8", "unix"]
certificates = ["certs/*.pem", { cert = "own.pem", key = "own.key" }]
defaults.tls = true
defaults.https_redirect = false
defaults.headers.X-Frame-Options = "DENY"
defaults.timeout.connect = "500ms"
control.listen = "127.0.0.1:9180"
control.socket = "/run/blitz/control.sock"

[server]
alt_svc_max_age = "1h"
alt_svc_port = 443
cores = 2
drain_delay = "0"
drain_timeout = "forever"
h2c_upgrade = false
half_close_grace = "0"
http3 = true
id = "edge-1"
io = "auto"
lingering_time = "30s"
lingering_timeout = "5s"
pin = "on"
via = false
watch = true

[log]
level = "warn"
summary = "0"

[log.access]
to = "/var/log/blitz/access.log"
format = "json"
fields = ["ts", "status", "header.Accept"]
redact = ["Cookie", "query"]
when = { status = [404, "5xx"], slower = "1s" }
sample = 0.01
handshakes = false

[limits]
cookies_max = 1000
fields_max = 100
head_max = "32k"
request_line_max = "8k"
trailer_fields_max = 32
trailers_max = "8k"
upstream_fields_max = 200
upstream_head_max = "1m"

[metrics]
series_max = 20000

[tracing]
otlp = "https://collector.example:4317"
protocol = "grpc"
sample = 0.1
logs = true
service = "edge"
headers = { X-Api-Key = "${APP}" }

[redis]
url = "redis://blitz:${APP}@127.0.0.1:6379/2"
timeout = "100ms"
prefix = "edge:"

[site]
"shop.example" = "http://127.0.0.1:3001"
"own.example" = { to = "http://127.0.0.1:3002", tls = { cert = "shop.pem", key = "shop.key", min = "1.3" } }

[site."app.example"]
aliases = ["www.app.example"]
canonical_for = ["old.app.example"]
https_redirect = true
listen = [":8443"]
tls = { client_ca = "staff.pem", client_auth = "optional", client_cert_header = true }
to = "app"
sticky = "client"
path = "/base{rest}"
host = "upstream"
raw_path = false
buffer_request = "1m"
retries = 2
limits = { fields_max = 50, head_max = "8k", request_line_max = "4k", trailers_max = "1k" }
upgrade = ["websocket", "tcp"]
allow = { file = ["office.txt", "/etc/blitz/home.txt"], networks = ["10.0.0.0/8", "192.0.2.7"] }
security_headers = { csp = "default-src https:", frame = "sameorigin", hsts = "730d", hsts_subdomains = true, hsts_preload = true, nosniff = true, opener = "unsafe-none", permissions = false, referrer = "no-referrer", replace = true }
deny = ["10.1.0.0/16"]
methods = ["GET", "POST"]
body_max = "10m"
compress = { types = ["text/*", "application/*+json", "text/event-stream"], min_size = "2k", algorithms = ["zstd", "br", "gzip"] }
decompress = { max = "20m" }
request_trailers = true
timeout = { connect = "4s", request = "10m", response = "5m", idle = "forever" }
headers = { Cache-Control = "no-cache", X-A = ["a", "b"], X-B = { default = "c" }, X-C = { add = "{client}" }, X-D = false }
request_headers.X-Forwarded-Path = "{path}"
errors = { 404 = "/srv/404.html", 5xx = "/srv/50x.html" }
cors = { origins = ["https://app.example", "https://*.app.example"], methods = ["PUT"], headers = ["X-A"], expose = ["ETag"], credentials = true, max_age = "1h" }
rate_limit = { rate = "100/s", burst = 50, by = ["client", "user", "header:X-Key", "cookie:id", "jwt:sub"], dry_run = true, store = "redis", on_failure = "closed" }
concurrency = 100
early_hints = ["</style.css>; rel=preload; as=style"]
jwt = { secret_file = "jwt.secret", algorithms = ["HS256"], issuer = "https://id.example/", audience = ["api", "app"], require = { role = ["admin"], email = true }, scopes = "read", forward = { X-User = "sub" }, from = ["header", "cookie:token"], leeway = "1m", optional = false }
forward_auth = { url = "http://127.0.0.1:9091/verify?a=b", send = ["Cookie", "Authorization"], copy = "Remote-User", cookies = true, on_failure = "open", timeout = "500ms", cache = { for = "10s", by = ["cookie:session", "header:Authorization", "client"], any_path = true } }
"/sso".forward_auth = { url = "unix:/run/auth.sock:/verify" }
basic_auth = { users_file = "users.htpasswd", realm = "administration", forward = "X-Staff" }
api_keys = { file = "api-keys", from = ["header:X-Key", "cookie:key", "query:key"], forward = ["X-Client"] }
client_cert = true
"/any" = { allow = ["10.0.0.0/8"], basic_auth = "users.htpasswd", satisfy = "any" }
"/keys".jwt = { keys_file = "jwks.json", leeway = "0" }
"/fetched".jwt = { keys_url = "https://id.example/jwks.json", keys_ca = "id.pem" }
"/own".jwt = { secret = "${APP}", from = "query:token", optional = true }
access_log = false
replace_errors = true
importance = "high"
mirror = { to = "http://127.0.0.1:9000", percent = 12.5 }
"/img*" = "unix:/run/img.sock"
"/v1".path = "/v2{rest}"
"=/health".allow = false
"/u/{id}/posts" = { redirect = "301 /posts/{id}" }
'~/n/(?<number>\d+)' = { path = "/numbers/{number}", priority = 2 }
"GET,HEAD /gone" = { respond = 410 }
"/static" = { files = "/srv/www", index = ["index.html"], extensions = [".html"], fallback = "/index.html", hidden = false, list = true, symlinks = "deny" }
"/text".respond = "503 back soon"
"/calls" = "calls"

[site."app.example"."/closed"]
respond = { status = 503, file = "/srv/closed.html", headers.Retry-After = "600" }

[site."app.example"."/note"]
respond = { status = "200", body = "{{ {host} }" }

[site."app.example"."/api"]
to = "${APP}"
errors = false
body_max = false
timeout.response = false
buffer_request = { memory = "1m", file = "1g" }
upgrade = false
compress = "files"

[upstream.app]
servers = { "https://app.internal" = 3, "https://app-2.internal" = 1 }
balance = "hash"
hash = "header:X-User"
sticky = "cookie:side"
proxy_protocol = "v2"
shed = { min = 4, max = 500, queue = 100, wait = "50ms" }
limits = { fields_max = 300, head_max = "64k" }
outlier = { failures = 7, latency = 10, time = "10s" }
slow_start = "30s"
connections_max = 100
hedge = "200ms"
queue = { max = 64, timeout = "2s" }
retry = { on = [502, "503", "5xx"], budget = 0.1 }
health = { kind = "http", path = "/healthz?a=b", host = "app.internal", status = ["2xx", 404], body = "ok", interval = "5s", timeout = "1s", rise = 3, fall = 5 }

[upstream.calls]
servers = ["h2c://calls.internal"]
health = { kind = "grpc", service = "shop.Cart" }
"#;

/// One application.
pub(crate) const APPLICATION: &str = r#"[site."app.example"]
to = "http://127.0.0.1:3000"
"#;

/// Many hosts with TLS.
pub(crate) const HOSTS: &str = r#"certificates = ["/etc/blitz/certs/*.pem"]
defaults.tls = true

[site]
"shop.example" = "http://127.0.0.1:3001"
"blog.example" = "http://127.0.0.1:3002"
"*.apps.example" = "http://127.0.0.1:3007"
"#;

/// An application with its API on another server.
pub(crate) const API: &str = r#"[site."app.example"]
to = "http://127.0.0.1:3000"
"/api" = "http://127.0.0.1:4000"
"/shop.v1.*" = "h2c://127.0.0.1:50051"

[site."app.example"."/api/reports"]
timeout.response = "5m"
"#;

/// A moved site.
pub(crate) const MOVED: &str = r#"[site."old.example"]
redirect = "301 https://new.example{path}"

[site."new.example"]
to = "app"
canonical_for = ["www.new.example"]
"/blog/{year}/{slug}" = { redirect = "301 /posts/{slug}" }
"/v1".path = "/v2{rest}"
"/admin" = { allow = ["10.0.0.0/8"] }

[upstream.app]
servers = ["http://10.0.0.1:3000"]
"#;

/// Presets, and variants of routes.
pub(crate) const VARIANTS: &str = r#"defaults.use = ["common"]

[preset.common]
headers.X-Frame-Options = "DENY"
timeout.idle = "5m"

[preset.private]
allow = ["10.0.0.0/8"]
path = "{rest}"

[site."shop.example"]
to = "http://127.0.0.1:3000"
"/admin".use = "private"
"/api" = { to = "http://127.0.0.1:4000", when = [{ header.X-Canary = true, to = "http://127.0.0.1:4001" }] }
"/live" = { when = [{ websocket = true, cookie.beta = "!~^(no|off)$", to = "http://127.0.0.1:4002" }, { grpc = false, method = ["GET", "POST"], query = { v = "2*", w = false }, respond = 426 }] }

[[site."shop.example".when]]
client = ["!10.0.0.0/8", "!unix"]
respond = { status = 503, headers.Retry-After = "600" }
"#;

/// Several servers, and a canary.
pub(crate) const SERVERS: &str = r#"[site]
"list.example" = { to = ["http://10.0.0.1:3000", "http://10.0.0.2:3000"], sticky = "header:X-User" }
"canary.example" = { to = { stable = 95, canary = 5, "http://10.0.0.9:3000" = 0 }, sticky = "cookie:side" }

[upstream.stable]
servers = ["http://10.0.0.1:3000", "http://10.0.0.2:3000"]
balance = "least_requests"
sticky = "cookie"

[upstream.canary]
servers = ["http://10.0.0.3:3000"]
"#;

/// All of them.
pub(crate) const ALL: [&str; 7] = [ALL_KEYS, APPLICATION, HOSTS, API, MOVED, VARIANTS, SERVERS];
