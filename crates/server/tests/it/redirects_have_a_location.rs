use blitz::{App, Response, Status};
use blitz_http::Name;
use blitz_testing::Client;

use crate::server::on_both_drivers;

/// Invalid URI references, except the last two.
const LOCATIONS: [&str; 8] = [
    "",
    "/a b",
    "/a\r\nSet-Cookie: b=c",
    "/caf\u{e9}",
    "/tab\there",
    "\u{7f}",
    "/fine?a=b#c",
    "https://b.example/",
];

fn app() -> App {
    let by = |at: usize| move || Response::redirect(Status::PERMANENT_REDIRECT, LOCATIONS[at]);
    let app = (0..LOCATIONS.len()).fold(App::new(), |app, at| app.get(&format!("/{at}"), by(at)));
    app.get("/field", || {
        Response::new(Status::FOUND).header(Name::Location, LOCATIONS[2])
    })
    .get("/status", || {
        Response::redirect(Status::FOUND, LOCATIONS[2]).with_status(Status::SEE_OTHER)
    })
    .get("/bare", || Status::TEMPORARY_REDIRECT)
    .get("/choices", || Response::new(Status::NOT_MODIFIED))
}

#[test]
fn a_redirect_without_a_valid_location_is_a_500() {
    on_both_drivers(app, |address| {
        let mut client = Client::connect(address);
        for (at, location) in LOCATIONS.into_iter().enumerate() {
            let answer = client.get(&format!("/{at}"));
            if at < 6 {
                assert_eq!(answer.status, 500, "{location:?}");
                assert_eq!(
                    answer.field("content-type"),
                    Some("application/problem+json")
                );
                assert_eq!(answer.field("location"), None);
            } else {
                assert_eq!(answer.status, 308, "{location:?}");
                assert_eq!(answer.field("location"), Some(location));
            }
        }
        for path in ["/field", "/status", "/bare"] {
            let answer = client.get(path);
            assert_eq!(
                (answer.status, answer.field("location")),
                (500, None),
                "{path}"
            );
        }
        assert_eq!(client.get("/choices").status, 304);
    });
}
