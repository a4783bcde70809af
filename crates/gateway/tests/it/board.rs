//! The entry of `boards/httparena`: its app and its files in one site.

use std::fs;

use blitz_testing::Client;

use crate::board_app::{Items, site};
use crate::site_rules::ask;
use crate::support::Proxy;

const ITEMS: &str = r#"[
    {"id": 1, "name": "first", "category": "a", "price": 3, "quantity": 5, "active": true, "tags": ["x", "y"],
     "rating": {"score": 4, "count": 9}},
    {"id": 2, "name": "second", "category": "b", "price": 7, "quantity": 11, "active": false, "tags": [],
     "rating": {"score": 1, "count": 2}}
]"#;
const HOST: &str = "Host: localhost:8080\r\n";

fn text(client: &mut Client, line: &str, fields: &str) -> (u16, String) {
    let response = ask(client, line, &format!("{HOST}{fields}"));
    (response.status, response.text().to_owned())
}

scenarios! {
    fn the_entry_adds_sends_items_and_serves_files(io) {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("app.js"), "let a;").unwrap();
        let site = site(folder.path().to_str().unwrap(), Items::parse(ITEMS).unwrap()).unwrap();
        let proxy = Proxy::start(Proxy::gateway(io).site(site), &[]);
        let mut client = proxy.client();
        let sum = |terms| format!("GET /baseline11?{terms}");
        assert_eq!(text(&mut client, &sum("a=13&b=42"), ""), (200, "55".to_owned()));
        assert_eq!(text(&mut client, &sum("a=-7&b=7"), ""), (200, "0".to_owned()));
        assert_eq!(text(&mut client, "GET /baseline2?a=1&b=1", ""), (200, "2".to_owned()));
        for wrong in ["a=13", "a=x&b=1", "a=9223372036854775807&b=1", ""] {
            assert_eq!(text(&mut client, &sum(wrong), "").0, 400, "{wrong}");
        }
        let post = "POST /baseline11?a=13&b=42";
        let length = "Content-Length: 2\r\n\r\n20";
        client.send(format!("{post} HTTP/1.1\r\n{HOST}{length}"));
        assert_eq!(client.response().text(), "75");
        let chunks = "Transfer-Encoding: chunked\r\n\r\n1\r\n2\r\n1\r\n0\r\n0\r\n\r\n";
        client.send(format!("{post} HTTP/1.1\r\n{HOST}{chunks}"));
        let response = client.response();
        assert_eq!((response.status, response.text()), (200, "75"));
        assert_eq!(response.field("content-type"), Some("text/plain; charset=utf-8"));
        client.send(format!("{post} HTTP/1.1\r\n{HOST}Content-Length: 2\r\n\r\nno"));
        assert_eq!(client.response().status, 400);

        client.send(format!("GET /pipeline HTTP/1.1\r\n{HOST}\r\n").repeat(16));
        for _ in 0..16 {
            assert_eq!(client.response().text(), "ok");
        }

        let (status, page) = text(&mut client, "GET /json/1?m=4", "");
        let page: serde_json::Value = serde_json::from_str(&page).unwrap();
        assert_eq!((status, &page["count"], &page["items"][0]["total"]), (200, &1.into(), &60.into()));
        assert_eq!(page["items"][0]["tags"], serde_json::json!(["x", "y"]));
        let (_, page) = text(&mut client, "GET /json/50", "");
        let page: serde_json::Value = serde_json::from_str(&page).unwrap();
        assert_eq!((&page["count"], &page["items"][1]["total"]), (&2.into(), &77.into()));
        assert_eq!(text(&mut client, "GET /json/2?m=9223372036854775807", "").0, 400);

        let response = ask(&mut client, "GET /static/app.js", HOST);
        assert_eq!((response.status, response.text()), (200, "let a;"));
        assert!(response.field("content-type").unwrap().contains("javascript"));
        assert_eq!(text(&mut client, "GET /static/none.txt", "").0, 404);
        assert_eq!(text(&mut client, "GET /none", "").0, 404);
    }
}

#[test]
fn a_data_set_or_folder_that_cannot_be_used_is_an_error() {
    assert!(Items::parse("[{\"id\": 1}]").is_err());
    let items = || Items::parse(ITEMS).unwrap();
    assert!(site("/srv/o'clock", items()).is_err());
}
