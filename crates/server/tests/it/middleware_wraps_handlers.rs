use blitz::middleware::{default_header, request_id};
use blitz::{App, Next, Outcome, Request, Response, Status};
use blitz_testing::Client;

use crate::server::on_both_drivers;

/// Adds its name to a header of the response.
fn mark(name: &'static str) -> impl Fn(Request, Next) -> Outcome + Send + Sync + 'static {
    move |request, next| {
        next.run(request)
            .map(move |response| response.header("x-mark", name))
    }
}

fn marks(response: &blitz_testing::Response) -> Vec<&str> {
    let marks = response.fields.iter().filter(|(name, _)| name == "x-mark");
    marks.map(|(_, value)| value.as_str()).collect()
}

#[test]
fn the_first_is_the_outermost_and_all_see_404() {
    let app = || {
        App::new()
            .wrap(mark("outer"))
            .wrap(mark("inner"))
            .get("/", || "in")
    };
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        assert_eq!(marks(&client.get("/")), ["inner", "outer"]);
        let missing = client.get("/missing");
        assert_eq!(
            (missing.status, marks(&missing)),
            (404, vec!["inner", "outer"])
        );
    });
}

#[test]
fn middleware_may_respond_itself() {
    let guard = |request: Request, next: Next| async move {
        blitz::sleep(std::time::Duration::from_millis(1)).await;
        match request.fields().contains("authorization") {
            true => next.run(request).await,
            false => Response::new(Status::UNAUTHORIZED),
        }
    };
    on_both_drivers(
        || App::new().wrap(guard).get("/", || "in"),
        |address| {
            let mut client = Client::connect(address);
            assert_eq!(client.get("/").status, 401);
            client.send("GET / HTTP/1.1\r\nHost: test\r\nAuthorization: yes\r\n\r\n");
            assert_eq!(client.response().text(), "in");
        },
    );
}

#[test]
fn a_nested_app_keeps_its_middleware() {
    let app = || {
        let inner = App::new()
            .wrap(mark("nested"))
            .get("/{id:u64}", |request: Request| {
                format!("{} {:?}", request.route(), request.param("id"))
            });
        App::new()
            .wrap(mark("whole"))
            .nest("/api/", inner)
            .get("/", || "root")
    };
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        let nested = client.get("/api/7");
        assert_eq!(nested.text(), "/api/{id:u64} Some(\"7\")");
        assert_eq!(marks(&nested), ["nested", "whole"]);
        assert_eq!(marks(&client.get("/")), ["whole"]);
    });
}

#[test]
fn request_ids_are_kept_or_generated() {
    let app = || {
        let show = |request: Request| request.fields().get_str("x-request-id").map(str::to_owned);
        App::new().wrap(request_id()).get("/", show)
    };
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        client.send("GET / HTTP/1.1\r\nHost: test\r\nX-Request-Id: abc-1\r\n\r\n");
        let kept = client.response();
        assert_eq!(
            (kept.text(), kept.field("x-request-id")),
            ("abc-1", Some("abc-1"))
        );
        let (first, second) = (client.get("/"), client.get("/"));
        assert_eq!(first.text().len(), 32);
        assert_eq!(first.field("x-request-id"), Some(first.text()));
        assert_ne!(first.text(), second.text());
        client.send("GET / HTTP/1.1\r\nHost: test\r\nX-Request-Id: <script>\r\n\r\n");
        assert_eq!(client.response().text().len(), 32);
    });
}

#[test]
fn default_headers_do_not_replace() {
    let app = || {
        App::new()
            .wrap(default_header("cache-control", "no-store"))
            .get("/", || "plain")
            .get("/own", || {
                Response::text("own").header("cache-control", "max-age=1")
            })
    };
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        assert_eq!(client.get("/").field("cache-control"), Some("no-store"));
        assert_eq!(client.get("/own").field("cache-control"), Some("max-age=1"));
    });
}

#[test]
fn a_header_with_a_line_break_is_omitted() {
    let app = || App::new().get("/", || Response::text("x").header("x-a", "1\r\nx-b: 2"));
    on_both_drivers(app, |address| {
        let answer = Client::connect(address).get("/");
        assert_eq!((answer.field("x-a"), answer.field("x-b")), (None, None));
    });
}
