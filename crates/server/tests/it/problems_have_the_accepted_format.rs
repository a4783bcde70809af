use std::io;

use blitz::{App, Problem, Response, Status};
use blitz_testing::Client;

use crate::server::on_both_drivers;

fn fails() -> Result<&'static str, Problem> {
    Err(io::Error::other("a secret of the house"))?;
    Ok("never")
}

fn panics() -> &'static str {
    panic!("on purpose")
}

fn app() -> App {
    App::new()
        .get("/fails", fails)
        .get("/panics", panics)
        .get("/panics/later", async || {
            blitz::sleep(std::time::Duration::from_millis(1)).await;
            panics()
        })
        .get("/interim", || Response::new(Status::CONTINUE))
        .get("/fine", || "fine")
}

#[test]
fn json_by_default_and_text_on_request() {
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        let answer = client.get("/nowhere");
        assert_eq!(answer.status, 404);
        assert_eq!(
            answer.field("content-type"),
            Some("application/problem+json")
        );
        assert_eq!(answer.text(), r#"{"status":404,"title":"Not Found"}"#);

        client.send("GET /nowhere HTTP/1.1\r\nHost: test\r\nAccept: text/plain\r\n\r\n");
        let answer = client.response();
        assert_eq!(
            answer.field("content-type"),
            Some("text/plain; charset=utf-8")
        );
        assert_eq!(answer.text(), "404 Not Found\n");
    });
}

#[test]
fn the_text_of_an_unexpected_error_is_not_sent() {
    on_both_drivers(app, |address| {
        let answer = Client::connect(address).get("/fails");
        assert_eq!(answer.status, 500);
        assert!(!answer.text().contains("secret"), "{}", answer.text());
    });
}

#[test]
fn a_panic_is_a_500_and_the_core_continues() {
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        assert_eq!(client.get("/panics").status, 500);
        assert_eq!(client.get("/panics/later").status, 500);
        assert_eq!(client.get("/fine").text(), "fine");
    });
}

#[test]
fn an_informational_status_is_a_500() {
    on_both_drivers(app, |address| {
        assert_eq!(Client::connect(address).get("/interim").status, 500);
    });
}
