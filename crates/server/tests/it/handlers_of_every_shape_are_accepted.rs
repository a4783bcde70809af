use std::cell::Cell;
use std::collections::HashMap;

use blitz::extract::{Arena, Body, Form, Headers, Json, Local, Path, Query, State, Text};
use blitz::{App, Method, Next, Peer, Problem, Request, Response, Status};

struct Name(&'static str);

fn plain() -> &'static str {
    "plain"
}

async fn waiting(Path(id): Path<u64>, request: Text) -> Result<String, Problem> {
    let number: u64 = request.0.parse()?;
    Ok(format!("{}", id + number))
}

#[allow(clippy::needless_pass_by_value)] // the signature of a handler
fn whole(request: Request) -> String {
    request.path().to_owned()
}

#[test]
fn functions_and_closures_sync_and_async_with_up_to_eight_arguments() {
    type Map = HashMap<String, String>;
    let app = App::new()
        .state(Name("blitz"))
        .local(|| Cell::new(0_u32))
        .get("/plain", plain)
        .post("/waiting/{id}", waiting)
        .get("/whole", whole)
        .get("/whole/async", async |request: Request| {
            request.path().to_owned()
        })
        .get("/never", || -> Result<&'static str, Status> {
            Err(Status::NOT_FOUND)
        })
        .get(
            "/state",
            |State(name): State<Name>, Local(count): Local<Cell<u32>>| {
                count.set(count.get() + 1);
                format!("{} {}", name.0, count.get())
            },
        )
        .post("/json", |Json(value): Json<Map>| Json(value))
        .post("/form", async |Form(value): Form<Map>| {
            (Status::CREATED, Json(value))
        })
        .post("/bytes", |content: Vec<u8>| content)
        .post(
            "/eight/{id}",
            async |_: Path<u64>,
                   _: Query<Map>,
                   _: State<Name>,
                   _: Headers,
                   _: Method,
                   _: Peer,
                   _: Arena,
                   body: Body| Response::text(format!("{:?}", body.length())),
        )
        .wrap(|request: Request, next: Next| next.run(request))
        .wrap(|request, next| async move { next.run(request).await.header("x-seen", "1") })
        .wrap(blitz::middleware::request_id())
        .fallback(|request: Request| (Status::NOT_FOUND, request.path().to_owned()));
    app.build().map(drop).expect("all of them fit");
}

#[track_caller]
fn refused(app: App, because: &[&str]) {
    let error = app.build().err().expect("it cannot work").to_string();
    for reason in because {
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn two_routes_for_the_same_paths_are_refused_with_both_names() {
    let app = App::new()
        .get("/users/{id}", plain)
        .get("/users/{name}", plain);
    refused(
        app,
        &[
            "GET /users/{id}",
            "GET /users/{name}",
            "match the same paths",
        ],
    );
    let app = App::new().any("/a", plain).any("/a", plain);
    refused(app, &["any /a"]);
    let app = App::new()
        .nest("/v1", App::new().get("/a", plain))
        .get("/v1/a", plain);
    refused(app, &["GET /v1/a"]);
}

#[test]
fn the_same_path_may_have_several_methods_and_kinds() {
    let app = App::new()
        .get("/users/{id}", plain)
        .post("/users/{name}", plain)
        .get("/users/{id:u64}", plain)
        .any("/users/{any}", plain);
    assert!(app.build().is_ok());
}

#[test]
fn a_missing_state_is_an_error_at_start() {
    refused(
        App::new().get("/x", |_: State<Name>| ""),
        &["GET /x", "State<", "Name>"],
    );
    refused(
        App::new().get("/x", |_: Local<Name>| ""),
        &["GET /x", "Local<"],
    );
}

#[test]
fn a_path_argument_without_a_parameter_is_an_error_at_start() {
    refused(
        App::new().get("/x", |_: Path<u64>| ""),
        &["GET /x", "no `{parameter}`"],
    );
}

#[test]
fn an_error_is_readable_when_main_returns_it() {
    let error = App::new()
        .get("oops", plain)
        .build()
        .err()
        .expect("no slash");
    assert_eq!(
        format!("{error:?}"),
        "the route `oops` cannot be used: a route starts with `/`"
    );
}
