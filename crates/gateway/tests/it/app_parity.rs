//! Policies and files of an app give the verdicts of those of a route, over every version.

use blitz::extract::{Body, Identity};
use blitz::policy::{
    AppPolicy, BasicAuthPolicy, JwtPolicy, allow, any_of, api_keys, basic_auth, body_max, cors,
    deny, headers, jwt, rate_limit, request_headers, security_headers,
};
use blitz::{App, Files, Request};
use blitz_gateway::{Gateway, Options, TrustedProxies, TrustedProxy};
use blitz_http::{BodyLength, IoChoice, Method, RequestHead, Status};
use blitz_site::EndpointMaker;
use blitz_site::matcher::RouteKey;
use blitz_testing::h3::headers as h3_headers;

use crate::basic_auth::basic;
use crate::files::Tree;
use crate::h2::h2;
use crate::h3_support::{QuicServer, block_on};
use crate::site_rules::{HOST, sites_of, test_file};
use crate::support::{Proxy, numbers};

const SECRET: &str = "a secret of exactly 32 bytes ...";

/// With the secret above: `{"exp":4102444800,"sub":"alice"}`.
const TOKEN: &str = "Bearer eyJhbGciOiJIUzI1NiJ9.eyJleHAiOjQxMDI0NDQ4MDAsInN1YiI6ImFsaWNlIn0.1KiKXLBiB6CHqvr169EaNMr9SFI5ZvPIKO-VqJ0nQe0";

/// The routes below `/route`, which have the policies of the parts of the app with the same names below `/app`.
const ROUTES: &str = r#"
[site."*"]
respond = "200 in"
"/route/allow".allow = ["10.0.0.0/8"]
"/route/allowed".allow = ["127.0.0.0/8", "10.0.0.0/8"]
"/route/deny" = { allow = ["127.0.0.0/8"], deny = ["127.0.0.1"] }
"/route/basic".basic_auth = { users_file = "users.htpasswd", realm = "administration" }
"/route/keys".api_keys = { file = "api-keys", forward = "X-Client" }
"/route/jwt".jwt = { secret = "a secret of exactly 32 bytes ..." }
"/route/any" = { satisfy = "any", basic_auth = "users.htpasswd", jwt = { secret = "a secret of exactly 32 bytes ..." } }
"/route/near" = { satisfy = "any", allow = ["127.0.0.0/8"], basic_auth = "users.htpasswd" }
"/route/secure".security_headers = true
"/route/framed".security_headers = { frame = "sameorigin", csp = "default-src 'self'", opener = false }
"/route/headers".headers = { X-A = "b", X-Added = { add = "c" }, Vary = { default = "X" } }
"/route/body".body_max = "3"
"/route/claims" = { jwt = { secret = "a secret of exactly 32 bytes ..." }, rate_limit = { rate = "2/h", by = "jwt:sub" } }
"/route/all" = { cors = ["https://a.example"], security_headers = true, deny = ["10.0.0.0/8"], basic_auth = "users.htpasswd" }
"#;

/// The fields that are the same.
const COMPARED: [&str; 15] = [
    "allow",
    "www-authenticate",
    "access-control-allow-origin",
    "access-control-allow-methods",
    "vary",
    "x-a",
    "x-added",
    "x-content-type-options",
    "x-frame-options",
    "referrer-policy",
    "cross-origin-opener-policy",
    "permissions-policy",
    "content-security-policy",
    "strict-transport-security",
    "x-client",
];

fn content_of(name: &str) -> Vec<u8> {
    test_file(name).unwrap().content.to_vec()
}

fn part(app: App) -> App {
    app.any("/", || "in")
}

fn users() -> BasicAuthPolicy {
    basic_auth().users(content_of("users.htpasswd"))
}

fn token() -> JwtPolicy {
    jwt().secret(SECRET)
}

fn app() -> EndpointMaker {
    let app = App::new()
        .nest("/app", parts_of_access())
        .nest("/app", parts_of_messages());
    let app = app.build().unwrap();
    EndpointMaker::new(move || app.on_core())
}

fn parts_of_access() -> App {
    let with = |policy: AppPolicy| part(App::new().policy(policy));
    let near = || allow().networks(["127.0.0.0/8"]);
    let keys = api_keys().keys(content_of("api-keys")).forward("X-Client");
    App::new()
        .nest("/allow", with(allow().networks(["10.0.0.0/8"]).into()))
        .nest("/allowed", with(near().networks(["10.0.0.0/8"]).into()))
        .nest(
            "/deny",
            part(
                App::new()
                    .policy(deny().networks(["127.0.0.1"]))
                    .policy(near()),
            ),
        )
        .nest("/basic", with(users().realm("administration").into()))
        .nest("/keys", with(keys.into()))
        .nest("/jwt", with(token().into()))
        .nest("/any", with(any_of().or(users()).or(token()).into()))
        .nest("/near", with(any_of().or(near()).or(users()).into()))
        .nest(
            "/claims",
            part(
                App::new()
                    .policy(rate_limit("2/h").by_claim("sub"))
                    .policy(token()),
            ),
        )
}

fn parts_of_messages() -> App {
    let framed = security_headers()
        .frame("SAMEORIGIN")
        .csp("default-src 'self'")
        .opener(None);
    let changes = headers()
        .set("X-A", "b")
        .add("X-Added", "c")
        .default("Vary", "X");
    let all = App::new()
        .policy(users())
        .policy(security_headers())
        .policy(cors().allow_origin("https://a.example"))
        .policy(deny().networks(["10.0.0.0/8"]));
    App::new()
        .nest("/secure", part(App::new().policy(security_headers())))
        .nest("/framed", part(App::new().policy(framed)))
        .nest("/headers", part(App::new().policy(changes)))
        .nest("/body", part(App::new().policy(body_max(3))))
        .nest("/all", part(all))
}

fn with(gateway: Gateway, text: &str, app: EndpointMaker) -> Gateway {
    let mut sites = sites_of(text);
    let served = sites[0].serve(RouteKey::parse("/app").unwrap(), app);
    served.map_err(|gap| gap.to_string()).unwrap();
    sites.into_iter().fold(gateway, Gateway::site)
}

struct Case {
    part: &'static str,
    method: &'static str,
    fields: Vec<(&'static str, String)>,
    status: u16,
}

fn case(
    part: &'static str,
    method: &'static str,
    fields: &[(&'static str, &str)],
    status: u16,
) -> Case {
    let fields = fields.iter();
    Case {
        part,
        method,
        fields: fields
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect(),
        status,
    }
}

fn cases() -> Vec<Case> {
    let value = |credentials: &str| {
        let line = basic(credentials);
        let (_, value) = line.trim_end().split_once(": ").unwrap();
        value.to_owned()
    };
    let (anna, wrong, nobody) = (
        value("anna:secrets"),
        value("anna:wrong"),
        value("carl:secrets"),
    );
    let (key, old) = ("blitz_test_key_of_billing", "blitz_test_key_of_old");
    let forged = TOKEN.replace("eyJleHAi", "eyJleHAj");
    let authorization = "authorization";
    vec![
        case("allow", "GET", &[], 403),
        case("allowed", "GET", &[], 200),
        case("deny", "GET", &[], 403),
        case("basic", "GET", &[], 401),
        case("basic", "GET", &[(authorization, &wrong)], 401),
        case("basic", "GET", &[(authorization, &nobody)], 401),
        case("basic", "GET", &[(authorization, "Basic !")], 401),
        case("basic", "GET", &[(authorization, &anna)], 200),
        case("keys", "GET", &[], 401),
        case("keys", "GET", &[("x-api-key", "x")], 401),
        case("keys", "GET", &[("x-api-key", old)], 401),
        case("keys", "GET", &[("x-api-key", key)], 200),
        case("jwt", "GET", &[], 401),
        case("jwt", "GET", &[(authorization, &forged)], 401),
        case("jwt", "GET", &[(authorization, TOKEN)], 200),
        case("any", "GET", &[], 401),
        case("any", "GET", &[(authorization, TOKEN)], 200),
        case("any", "GET", &[(authorization, &anna)], 200),
        case("any", "GET", &[(authorization, &wrong)], 401),
        case("near", "GET", &[], 200),
        case("near", "GET", &[(authorization, &wrong)], 401),
        case("secure", "GET", &[], 200),
        case("framed", "GET", &[], 200),
        case("headers", "GET", &[], 200),
        case("body", "GET", &[], 200),
        case("body", "POST", &[("content-length", "4")], 413),
        case("all", "GET", &[("origin", "https://a.example")], 401),
        case(
            "all",
            "OPTIONS",
            &[
                ("origin", "https://a.example"),
                ("access-control-request-method", "GET"),
            ],
            204,
        ),
        case(
            "all",
            "GET",
            &[("origin", "https://a.example"), (authorization, &anna)],
            200,
        ),
    ]
}

/// Status and fields over HTTP/1.1.
fn over_h1(proxy: &Proxy, path: &str, case: &Case) -> (u16, Vec<String>) {
    let mut fields = HOST.to_owned();
    for (name, value) in &case.fields {
        fields += &format!("{name}: {value}\r\n");
    }
    // A client of its own, since refused content ends a connection.
    let mut client = proxy.client();
    client.send(format!("{} {path} HTTP/1.1\r\n{fields}\r\n", case.method));
    let response = client.response();
    let value = |name: &&str| format!("{name}: {:?}", response.all(name));
    (response.status, COMPARED.iter().map(value).collect())
}

/// The same over HTTP/2.
fn over_h2(proxy: &Proxy, path: &str, case: &Case) -> (u16, Vec<String>) {
    let mut head = RequestHead::new(Method::parse(case.method.as_bytes()), path);
    head.set_authority("a.example:8080");
    let mut length = BodyLength::Empty;
    for (name, value) in &case.fields {
        match *name {
            "content-length" => length = BodyLength::Known(value.parse().unwrap()),
            name => head.fields.append(name, value),
        }
    }
    let mut client = h2(proxy);
    let stream = client.send_head(&head, length);
    let answer = client.answer(stream);
    let lines = |name: &str| {
        let lines = answer.fields.get_all(name);
        let lines: Vec<_> = lines
            .map(|line| String::from_utf8_lossy(line).into_owned())
            .collect();
        format!("{name}: {lines:?}")
    };
    let status = answer.status.map_or(0, Status::code);
    (status, COMPARED.iter().map(|name| lines(name)).collect())
}

fn start(io: IoChoice) -> Proxy {
    Proxy::start(with(Proxy::gateway(io), ROUTES, app()), &[])
}

scenarios! {
    fn each_policy_of_an_app_decides_as_that_of_a_route(io) {
        let proxy = start(io);
        for case in cases() {
            let context = format!("{} {} {:?}", case.method, case.part, case.fields);
            let mut expected: Option<(u16, Vec<String>)> = None;
            for kind in ["route", "app"] {
                let path = format!("/{kind}/{}", case.part);
                for response in [over_h1(&proxy, &path, &case), over_h2(&proxy, &path, &case)] {
                    assert_eq!(response.0, case.status, "{kind}: {context}");
                    match &expected {
                        None => expected = Some(response),
                        Some(expected) => assert_eq!(response, *expected, "{kind}: {context}"),
                    }
                }
            }
        }
    }

    fn a_rate_by_claims_counts_the_tokens_of_each_subject(io) {
        let proxy = start(io);
        for kind in ["route", "app"] {
            let path = format!("/{kind}/claims");
            let with_token = case("claims", "GET", &[("authorization", TOKEN)], 200);
            let without = case("claims", "GET", &[], 401);
            let statuses: Vec<u16> = [&without, &with_token, &without, &with_token, &with_token, &without]
                .map(|case| over_h1(&proxy, &path, case).0)
                .to_vec();
            assert_eq!(statuses, [401, 200, 401, 200, 429, 401], "{kind}");
        }
    }

    fn each_policy_of_an_app_decides_so_over_quic(io) {
        let server = QuicServer::with(|tls| {
            let gateway = Proxy::gateway_over_tls(io, tls);
            Proxy::start(with(gateway, ROUTES, app()), &[])
        });
        block_on(async {
            let client = server.raw_client().await;
            for case in cases() {
                // Content that is refused before it comes is for the other versions.
                if case.method == "POST" {
                    continue;
                }
                for kind in ["route", "app"] {
                    let path = format!("/{kind}/{}", case.part);
                    let mut fields = vec![
                        (":method", case.method),
                        (":scheme", "https"),
                        (":authority", "localhost"),
                        (":path", &path),
                    ];
                    fields.extend(case.fields.iter().map(|(name, value)| (*name, value.as_str())));
                    let answer = client.ask(h3_headers(&fields)).await;
                    assert_eq!(answer.heads, [Some(case.status)], "{path} {:?}", case.fields);
                }
            }
        });
    }

    fn an_app_knows_that_a_trusted_proxy_uses_tls(io) {
        let trusted: TrustedProxy = "127.0.0.0/8".parse().unwrap();
        let options = Options { trusted_proxies: TrustedProxies::from_iter([trusted]), ..Options::default() };
        let proxy = Proxy::start(with(Proxy::gateway(io).options(options), ROUTES, app()), &[]);
        for scheme in ["http", "https"] {
            for kind in ["route", "app"] {
                let asked = case("secure", "GET", &[("x-forwarded-for", "192.0.2.1"), ("x-forwarded-proto", scheme)], 200);
                let (status, fields) = over_h1(&proxy, &format!("/{kind}/secure"), &asked);
                let has_hsts = fields.iter().any(|line| line.starts_with("strict-transport-security: [\""));
                assert_eq!((status, has_hsts), (200, scheme == "https"), "{kind} {scheme}");
            }
        }
        // So that a client that has an address inside is served.
        let asked = case("allow", "GET", &[("x-forwarded-for", "10.1.2.3")], 200);
        for kind in ["route", "app"] {
            assert_eq!(over_h1(&proxy, &format!("/{kind}/allow"), &asked).0, 200, "{kind}");
        }
    }

    fn handlers_see_who_the_client_is_and_no_spoofed_field(io) {
        let who = |who: Identity, request: blitz::extract::Headers| {
            let fields = ["x-client", "x_client", "x-role", "x_role"];
            let fields = fields.map(|name| request.get_str(name).unwrap_or("-").to_owned());
            format!("{:?} {:?} {:?} {}", who.user(), who.key(), who.claim("sub"), fields.join(" "))
        };
        let any = any_of()
            .or(basic_auth().users(content_of("users.htpasswd")))
            .or(api_keys().keys(content_of("api-keys")).forward("x-client"))
            .or(jwt().secret(SECRET));
        let app = App::new().policy(any).policy(request_headers().set("X-Role", "user")).get("/app", who);
        let app = app.build().unwrap();
        let app = EndpointMaker::new(move || app.on_core());
        let proxy = Proxy::start(with(Proxy::gateway(io), "[site.\"*\"]\nrespond = 204\n", app), &[]);
        let spoofed = format!("{HOST}X-Client: root\r\nX_Client: root\r\nX-Role: root\r\nX_Role: root\r\n");
        let (anna, key) = (basic("anna:secrets"), "X-Api-Key: blitz_test_key_of_billing\r\n");
        for (fields, expected) in [
            (anna.clone(), "Some(\"anna\") None None - - user -"),
            (key.to_owned(), "None Some(\"billing\") None billing - user -"),
            (format!("Authorization: {TOKEN}\r\n{key}"), "None Some(\"billing\") Some(\"alice\") billing - user -"),
            (format!("Authorization: {TOKEN}\r\n"), "None None Some(\"alice\") - - user -"),
        ] {
            // Of a password the second time it is remembered.
            for _ in 0..2 {
                let mut client = proxy.client();
                client.send(format!("GET /app HTTP/1.1\r\n{spoofed}{fields}\r\n"));
                let response = client.response();
                assert_eq!((response.status, response.text()), (200, expected), "{fields}");
            }
        }
    }

    fn content_without_a_length_is_limited_while_it_is_read(io) {
        let read = async |mut body: Body| {
            let mut bytes = 0;
            while let Some(chunk) = body.chunk().await? {
                bytes += chunk.len();
            }
            Ok::<_, blitz::Problem>(format!("{bytes}"))
        };
        let app = App::new().policy(body_max(3)).post("/app", read).get("/app", |_: Request| "in");
        let app = app.build().unwrap();
        let app = EndpointMaker::new(move || app.on_core());
        let proxy = Proxy::start(with(Proxy::gateway(io), "[site.\"*\"]\nrespond = 204\n", app), &[]);
        for (content, status) in [("3\r\nabc\r\n0\r\n\r\n", 200), ("4\r\nabcd\r\n0\r\n\r\n", 413)] {
            let mut client = proxy.client();
            client.send(format!("POST /app HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n{content}"));
            assert_eq!(client.response().status, status, "{content}");
        }
    }

    fn files_of_an_app_are_sent_as_those_of_a_route(io) {
        let tree = tree();
        let proxy = files_proxy(io, &tree, true);
        let head = |method: &'static str, fields: &[(&'static str, &str)]| case("", method, fields, 0);
        let requests = [
            head("GET", &[]), head("HEAD", &[]), head("GET", &[("range", "bytes=2-5")]), head("GET", &[("range", "bytes=0-1,4-5")]),
            head("GET", &[("range", "bytes=99999999-")]), head("GET", &[("if-none-match", "*")]),
            head("GET", &[("if-match", "\"other\"")]), head("GET", &[("accept-encoding", "gzip")]),
            head("HEAD", &[("accept-encoding", "br, gzip")]), head("GET", &[("accept", "text/html")]), head("POST", &[]), head("OPTIONS", &[]),
        ];
        for path in ["/", "", "/a/b.txt", "/a", "/a/", "/page", "/large.txt", "/x.js", "/none", "/none.png", "/.hidden/x", "/.well-known/y", "/list/"] {
            for asked in &requests {
                let mut all = Vec::new();
                for kind in ["route", "app"] {
                    all.push(file_over_h1(&proxy, &format!("/{kind}{path}"), asked));
                    all.push(file_over_h2(&proxy, &format!("/{kind}{path}"), asked));
                }
                for other in &all[1..] {
                    assert!(*other == all[0], "{} {path} {:?}:\n{:?}\n{:?}", asked.method, asked.fields, all[0].0, other.0);
                }
            }
        }
    }

    fn files_of_an_app_are_sent_over_quic(io) {
        let tree = tree();
        let server = QuicServer::with(|tls| files_proxy_of(Proxy::gateway_over_tls(io, tls), &tree, false));
        let large = "a line of a large file\n".repeat(8000);
        block_on(async {
            let client = server.raw_client().await;
            for (path, range, status, content) in [
                ("/a/b.txt", "", 200, "inside"), ("/page", "", 200, "a page"), ("/large.txt", "", 200, large.as_str()),
                ("/large.txt", "bytes=-5", 206, "file\n"), ("/.hidden/x", "", 404, ""), ("/%2e%2e%2fsecret.txt", "", 400, ""),
            ] {
                for kind in ["route", "app"] {
                    let path = format!("/{kind}{path}");
                    let mut fields = vec![(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", path.as_str())];
                    fields.extend((!range.is_empty()).then_some(("range", range)));
                    let answer = client.ask(h3_headers(&fields)).await;
                    assert_eq!(answer.heads, [Some(status)], "{path} {range}");
                    assert!(status >= 400 || answer.content == content.as_bytes(), "{path} {range}");
                }
            }
        });
    }

    fn no_spelling_of_a_path_leaves_the_folder_of_an_app(io) {
        let tree = tree();
        let proxy = files_proxy(io, &tree, false);
        let parts = [
            "..", ".", "%2e%2e", "%2E.", ".%2e", "..;", "..%00", "%00", "..%2f", "%2f..", "%5c..", "/", "//", "a",
            "b.txt", "secret", "secret.txt", "etc", "passwd", "%252e%252e", "%c0%ae%c0%ae", "..%c0%af", "%u002e", ".hidden", "x",
            "proc", "self", "%2fetc%2fpasswd", "....", "...", "%ff", "%0a", "%7f", "~", "*", "?", "%2e%2e%2f", ";a", "%3b",
        ];
        let mut next = numbers(0xA99);
        let mut served = 0;
        let asked = case("", "GET", &[("accept", "text/html")], 0);
        for number in 0..1500 {
            let mut path = String::new();
            for _ in 0..=next(6) {
                if next(4) > 0 {
                    path.push('/');
                }
                path.push_str(parts[next(parts.len())]);
            }
            // A path that climbs above the root of the route is one of neither.
            let (route, app) = (format!("/route/{path}"), format!("/app/{path}"));
            let (of_route, of_app) = match number % 3 {
                0 => (file_over_h2(&proxy, &route, &asked), file_over_h2(&proxy, &app, &asked)),
                _ => (file_over_h1(&proxy, &route, &asked), file_over_h1(&proxy, &app, &asked)),
            };
            let is_inside = |answer: &(Head, Vec<u8>)| {
                answer.0.status != 200 || answer.1 == b"inside" || answer.1 == b"in"
            };
            assert!(is_inside(&of_route) && is_inside(&of_app), "{path}: {:?}", of_app.0);
            served += usize::from(of_app.1 == b"inside");
            if of_app.0.status != 204 && of_route.0.status != 204 {
                assert_eq!(of_app.0, of_route.0, "{path}");
            }
        }
        assert!(served > 30, "{served}");
    }
}

fn tree() -> Tree {
    let tree = Tree::with(&[
        ("index.html", "inside"),
        ("a/b.txt", "inside"),
        ("page.html", "a page"),
        ("x.js", "let a = 1;"),
        ("x.js.gz", "not really gzip"),
        (".hidden/x", "hidden"),
        (".well-known/y", "known"),
        ("list/one.txt", "1"),
    ]);
    tree.write("large.txt", "a line of a large file\n".repeat(8000));
    tree.write("../secret.txt", "secret");
    tree
}

/// The folder below `/route` and `/app`.
fn files_proxy(io: IoChoice, tree: &Tree, list: bool) -> Proxy {
    files_proxy_of(Proxy::gateway(io), tree, list)
}

fn files_proxy_of(gateway: Gateway, tree: &Tree, list: bool) -> Proxy {
    let root = tree.path("");
    let root = root.display();
    let text = format!(
        "[site.\"*\"]\nrespond = 204\n[site.\"*\".\"/route\"]\nfiles = \"{root}\"\nextensions = [\".html\"]\nlist = {list}\n\
         fallback = \"/index.html\"\n"
    );
    let files = Files::new(tree.path(""))
        .extensions([".html"])
        .list(list)
        .spa("index.html");
    let app = App::new().files("/app", files).build().unwrap();
    let app = EndpointMaker::new(move || app.on_core());
    Proxy::start(with(gateway, &text, app), &[])
}

#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    fields: Vec<(&'static str, Option<String>)>,
}

/// Fields of files. The boundary of several parts is chosen for each response.
const OF_FILES: [&str; 9] = [
    "etag",
    "last-modified",
    "content-encoding",
    "content-range",
    "accept-ranges",
    "vary",
    "allow",
    "location",
    "content-security-policy",
];

fn head_of(status: u16, field: impl Fn(&str) -> Option<String>) -> Head {
    let value = |name: &'static str| {
        // The names of the two.
        let value = field(name).map(|value| value.replacen("/route", "/app", 1));
        (name, value)
    };
    Head {
        status,
        fields: OF_FILES.map(value).to_vec(),
    }
}

/// Errors of an app and of a route have other texts, parts other boundaries, and listings other links.
fn content_of_file(status: u16, content: Vec<u8>) -> Vec<u8> {
    let begin = content.get(..9).unwrap_or_default();
    let is_listing = begin.eq_ignore_ascii_case(b"<!doctype");
    match status {
        200 if !is_listing => content,
        206 if !content.starts_with(b"\r\n--") && !content.starts_with(b"--") => content,
        _ => Vec::new(),
    }
}

fn file_over_h1(proxy: &Proxy, path: &str, case: &Case) -> (Head, Vec<u8>) {
    let mut fields = HOST.to_owned();
    for (name, value) in &case.fields {
        fields += &format!("{name}: {value}\r\n");
    }
    if case.method == "POST" {
        fields += "Content-Length: 0\r\n";
    }
    let mut client = proxy.client();
    client.send(format!(
        "{} {path} HTTP/1.1\r\n{fields}Connection: close\r\n\r\n",
        case.method
    ));
    if case.method == "HEAD" {
        // No content follows, whatever the length.
        let text = String::from_utf8(client.rest()).unwrap();
        let status = text.split(' ').nth(1).unwrap().parse().unwrap();
        let field = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(": "));
            let line = lines.find(|(known, _)| known.eq_ignore_ascii_case(name));
            line.map(|(_, value)| value.to_owned())
        };
        return (head_of(status, field), Vec::new());
    }
    let response = client.response();
    let field = |name: &str| response.field(name).map(str::to_owned);
    let head = head_of(response.status, field);
    (head, content_of_file(response.status, response.body))
}

fn file_over_h2(proxy: &Proxy, path: &str, case: &Case) -> (Head, Vec<u8>) {
    let Ok(mut head) = RequestHead::parse(case.method, path) else {
        return file_over_h1(proxy, path, case);
    };
    head.set_authority("a.example:8080");
    for (name, value) in &case.fields {
        head.fields.append(*name, value);
    }
    let mut client = h2(proxy);
    let stream = client.send_head(&head, BodyLength::Empty);
    let answer = client.answer(stream);
    let status = answer.status.map_or(0, Status::code);
    let field = |name: &str| answer.fields.get_str(name).map(str::to_owned);
    (
        head_of(status, field),
        content_of_file(status, answer.content),
    )
}
