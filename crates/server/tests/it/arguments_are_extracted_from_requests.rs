use std::cell::Cell;

use blitz::extract::{Form, Headers, Json, Local, Path, Query, State, Text};
use blitz::{App, Method, Peer};
use blitz_testing::{Client, Response};
use serde::{Deserialize, Serialize};

use crate::server::on_both_drivers;

#[derive(Deserialize)]
struct Date {
    year: u16,
    month: Option<u8>,
    rest: String,
}

#[derive(Deserialize)]
struct Page {
    offset: u32,
    #[serde(default)]
    tag: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Point {
    x: i32,
    y: i32,
}

struct Name(&'static str);

#[derive(Deserialize, Debug)]
#[serde(rename_all = "lowercase")]
enum Color {
    Red,
}

fn app() -> App {
    App::new()
        .state(Name("blitz"))
        .local(|| Cell::new(0_u32))
        .body_bytes_max(64)
        .get("/one/{id}", |Path(id): Path<u8>| id.to_string())
        .get("/text/{name}", |Path(name): Path<String>| name)
        .get("/color/{color}", |Path(color): Path<Color>| {
            format!("{color:?}")
        })
        .get("/two/{a}/{b}", |Path((a, b)): Path<(String, i64)>| {
            format!("{a} {b}")
        })
        .get(
            "/date/{year}/{month}/{rest...}",
            |Path(date): Path<Date>| format!("{} {:?} {}", date.year, date.month, date.rest),
        )
        .get("/page", |Query(page): Query<Page>| {
            format!("{} {:?}", page.offset, page.tag)
        })
        .post("/point", |Json(point): Json<Point>| {
            Json(Point {
                x: point.y,
                y: point.x,
            })
        })
        .post("/form", |Form(point): Form<Point>| {
            format!("{} {}", point.x, point.y)
        })
        .post("/text", async |Text(text): Text| text)
        .get(
            "/state",
            |State(name): State<Name>, count: Local<Cell<u32>>| {
                count.set(count.get() + 1);
                format!("{} {}", name.0, count.get())
            },
        )
        .any("/head", |method: Method, peer: Peer, headers: Headers| {
            let local = peer.remote.is_some_and(|remote| remote.ip().is_loopback());
            format!("{method:?} {local} {:?}", headers.get_str("x-color"))
        })
}

fn post(client: &mut Client, path: &str, kind: &str, content: &str) -> Response {
    let length = content.len();
    client.send(format!(
        "POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: {kind}\r\n\
         Content-Length: {length}\r\n\r\n{content}"
    ));
    client.response()
}

#[test]
fn paths_are_decoded_and_typed() {
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        assert_eq!(client.get("/one/200").text(), "200");
        assert_eq!(client.get("/text/a%20b%2Fc%C3%A9").text(), "a b/c\u{e9}");
        assert_eq!(client.get("/text/<c\u{e9}>").text(), "<c\u{e9}>");
        assert_eq!(client.get("/color/red").text(), "Red");
        assert_eq!(client.get("/two/x/-7").text(), "x -7");
        assert_eq!(client.get("/date/2026/11/a/b").text(), "2026 Some(11) a/b");
    });
}

#[test]
fn a_path_that_does_not_match_is_400_and_names_the_parameter() {
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        for path in [
            "/one/256",
            "/one/x",
            "/text/%FF",
            "/color/blue",
            "/date/1/x/y",
        ] {
            let answer = client.get(path);
            assert_eq!(answer.status, 400, "{path}");
            assert!(
                answer.text().contains("the path does not match"),
                "{}",
                answer.text()
            );
        }
        assert!(client.get("/one/x").text().contains("`id`"));
    });
}

#[test]
fn queries_fill_structs_and_lists() {
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        assert_eq!(
            client.get("/page?tag=a+b&offset=3&tag=\u{e9}").text(),
            "3 [\"a b\", \"\u{e9}\"]"
        );
        assert_eq!(client.get("/page?offset=x").status, 400);
        assert_eq!(client.get("/page").status, 400);
    });
}

#[test]
fn json_must_be_declared_well_formed_matching_and_small() {
    const JSON: &str = "application/json";
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        let answer = post(&mut client, "/point", JSON, r#"{"x": 1, "y": 2}"#);
        assert_eq!(answer.text(), r#"{"x":2,"y":1}"#);
        assert_eq!(answer.field("content-type"), Some(JSON));
        let patch = post(
            &mut client,
            "/point",
            "application/a+json; a=b",
            r#"{"x":1,"y":2}"#,
        );
        assert_eq!(patch.status, 200);
        assert_eq!(
            post(&mut client, "/point", "text/plain", r#"{"x":1,"y":2}"#).status,
            415
        );
        assert_eq!(post(&mut client, "/point", JSON, "{").status, 400);
        assert_eq!(post(&mut client, "/point", JSON, "{}").status, 422);
        assert_eq!(
            post(&mut client, "/point", JSON, &" ".repeat(65)).status,
            413
        );
    });
}

#[test]
fn content_can_be_a_form_text_or_chunks() {
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        let form = "application/x-www-form-urlencoded";
        assert_eq!(post(&mut client, "/form", form, "x=1&y=-2").text(), "1 -2");
        assert_eq!(
            post(&mut client, "/text", "text/plain", "caf\u{e9}").text(),
            "caf\u{e9}"
        );
        client.send("POST /text HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send("3\r\nabc\r\n");
        client.send("2\r\nde\r\n0\r\n\r\n");
        assert_eq!(client.response().text(), "abcde");
        client.send("POST /text HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send(format!("41\r\n{}\r\n0\r\n\r\n", "x".repeat(65)));
        assert_eq!(client.response().status, 413);
    });
}

#[test]
fn states_heads_and_peers_are_extracted() {
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        assert_eq!(client.get("/state").text(), "blitz 1");
        assert_eq!(client.get("/state").text(), "blitz 2");
        client.send("PATCH /head HTTP/1.1\r\nHost: test\r\nX-Color: red\r\n\r\n");
        assert_eq!(client.response().text(), "Patch true Some(\"red\")");
    });
}
