use blitz::{App, Method};
use blitz_testing::Client;

use crate::server::on_both_drivers;

fn app() -> App {
    App::new()
        .get("/both", || "got")
        .post("/both", || "posted")
        .any("/any", || "anything")
        .route(Method::Options, "/own", || "own options")
        .get("/users/me", || "me")
        .get("/users/{id:u64}", || "number")
        .get("/users/{name}", || "name")
}

fn ask(client: &mut Client, request: &str) -> blitz_testing::Response {
    client.send(format!("{request} HTTP/1.1\r\nHost: test\r\n\r\n"));
    client.response()
}

#[test]
fn each_method_has_its_route() {
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        assert_eq!(client.get("/both").text(), "got");
        assert_eq!(ask(&mut client, "POST /both").text(), "posted");
        assert_eq!(ask(&mut client, "DELETE /any").text(), "anything");
        assert_eq!(ask(&mut client, "BREW /any").text(), "anything");
        assert_eq!(ask(&mut client, "OPTIONS /own").text(), "own options");
    });
}

#[test]
fn head_is_get_without_content() {
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        client.send("HEAD /both HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        let answer = String::from_utf8(client.rest()).expect("text");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("Content-Length: 3\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\n"), "{answer}");
    });
}

#[test]
fn options_names_the_methods() {
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        let answer = ask(&mut client, "OPTIONS /both");
        assert_eq!((answer.status, answer.body.len()), (204, 0));
        assert_eq!(answer.field("allow"), Some("GET, HEAD, POST, OPTIONS"));
        assert_eq!(ask(&mut client, "OPTIONS *").status, 204);
        assert_eq!(ask(&mut client, "OPTIONS /nowhere").status, 404);
    });
}

#[test]
fn other_methods_are_405_with_allow() {
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        for method in ["PUT", "DELETE", "TRACE", "BREW"] {
            let answer = ask(&mut client, &format!("{method} /both"));
            assert_eq!(answer.status, 405, "{method}");
            assert_eq!(
                answer.field("allow"),
                Some("GET, HEAD, POST, OPTIONS"),
                "{method}"
            );
        }
        client.send("HEAD /own HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        assert!(client.rest().starts_with(b"HTTP/1.1 405 "));
    });
}

#[test]
fn connect_is_refused() {
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        client.send("CONNECT test:80 HTTP/1.1\r\nHost: test:80\r\n\r\n");
        assert_eq!(client.response().status, 405);
    });
}

#[test]
fn the_most_specific_route_responds() {
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        assert_eq!(client.get("/users/me").text(), "me");
        assert_eq!(client.get("/users/12").text(), "number");
        assert_eq!(client.get("/users/melanie").text(), "name");
        assert_eq!(client.get("/x/../users/%6De").text(), "me");
    });
}

#[test]
fn the_root_of_a_nested_app_has_both_spellings() {
    let app = || {
        let inner = App::new()
            .get("/", || "root")
            .nest("/deep", App::new().get("/", || "deep"));
        let shadowed = App::new().get("/", || "inner").post("/", || "made");
        App::new()
            .nest("/admin", inner)
            .nest("/own", shadowed)
            .get("/own", || "outer")
    };
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        for (path, text) in [
            ("/admin", "root"),
            ("/admin/", "root"),
            ("/admin/deep", "deep"),
            ("/admin/deep/", "deep"),
            ("/own", "outer"),
            ("/own/", "inner"),
        ] {
            assert_eq!(client.get(path).text(), text, "{path}");
        }
        assert_eq!(client.get("/admin//").status, 404);
        assert_eq!(client.get("/administrator").status, 404);
    });
}
