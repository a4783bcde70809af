//! The site of the entry: sums of queries and contents, and items of a data set as JSON, are an app; files are a route
//! of the gateway.

use std::fs;
use std::path::Path as FilePath;

use blitz::extract::{Path, Query, State, Text};
use blitz::{App, Problem, Response, Status};
use blitz_config::{Document, Environment, read, render};
use blitz_gateway::{Site, compile};
use blitz_site::EndpointMaker;
use blitz_site::matcher::RouteKey;
use serde::{Deserialize, Serialize};

/// Contents are numbers.
const CONTENT_BYTES_MAX: usize = 64;

/// One line of the data set.
#[derive(Deserialize)]
struct Item {
    id: u64,
    name: String,
    category: String,
    price: i64,
    quantity: i64,
    active: bool,
    tags: Vec<String>,
    rating: Rating,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Rating {
    score: u32,
    count: u32,
}

/// The data set, which all cores share.
pub(crate) struct Items(Vec<Item>);

/// An item with its total.
#[derive(Serialize)]
struct Counted<'a> {
    id: u64,
    name: &'a str,
    category: &'a str,
    price: i64,
    quantity: i64,
    active: bool,
    tags: &'a [String],
    rating: Rating,
    total: i64,
}

#[derive(Serialize)]
struct Page<'a> {
    items: Vec<Counted<'a>>,
    count: usize,
}

#[derive(Deserialize)]
struct Terms {
    a: i64,
    b: i64,
}

#[derive(Deserialize)]
struct Multiplier {
    #[serde(default = "one")]
    m: i64,
}

fn one() -> i64 {
    1
}

impl Items {
    /// Parses a data set.
    ///
    /// # Errors
    /// The place of the mistake.
    pub(crate) fn parse(text: &str) -> Result<Items, String> {
        let items = serde_json::from_str(text);
        items.map(Items).map_err(|error| error.to_string())
    }

    /// Reads the file with the data set.
    ///
    /// # Errors
    /// The name of the file, and the problem.
    pub(crate) fn read(file: &FilePath) -> Result<Items, String> {
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        let text = fs::read_to_string(file).map_err(|error| named(&error))?;
        Items::parse(&text).map_err(|error| named(&error))
    }
}

/// A site for all hosts: the files of a folder below `/static`, and the app for all other paths.
///
/// # Errors
/// The folder cannot be served.
pub(crate) fn site(files: &str, items: Items) -> Result<Site, String> {
    if files.contains(['\'', '$', '\n']) {
        return Err(format!("{files}: a folder with a quote or a dollar sign"));
    }
    let text = format!("[site.\"*\"]\n\"/static\" = {{ files = '{files}' }}\n");
    let document = Document::new("entry.toml", &text);
    let (configuration, mut diagnostics) = read(&document, &Environment::default());
    let mut read_file = |_: &str| Err(("the entry has no pages".to_owned(), String::new()));
    let mut sites = compile(&configuration, &mut read_file, &mut diagnostics);
    if !diagnostics.is_empty() {
        return Err(render(&document, &diagnostics, false));
    }
    let app = app(items).build().map_err(|error| error.to_string())?;
    let app = EndpointMaker::new(move || app.on_core());
    let mut site = sites.pop().ok_or("the entry has no site")?;
    let everything = RouteKey::parse("/").map_err(|error| format!("{error:?}"))?;
    site.serve(everything, app).map_err(|gap| gap.to_string())?;
    Ok(site)
}

fn app(items: Items) -> App {
    App::new()
        .state(items)
        .body_bytes_max(CONTENT_BYTES_MAX)
        .get("/pipeline", || "ok")
        .get("/baseline11", sum)
        .post("/baseline11", sum_with_content)
        .get("/baseline2", sum)
        .get("/json/{count}", page)
}

fn sum(Query(terms): Query<Terms>) -> Result<String, Problem> {
    add(&[terms.a, terms.b])
}

fn sum_with_content(Query(terms): Query<Terms>, Text(content): Text) -> Result<String, Problem> {
    let number = content.trim().parse().map_err(|_| {
        Problem::new(Status::BAD_REQUEST).detail("the content is no number of 64 bits")
    })?;
    add(&[terms.a, terms.b, number])
}

fn add(terms: &[i64]) -> Result<String, Problem> {
    let sum = terms
        .iter()
        .try_fold(0_i64, |sum, &term| sum.checked_add(term));
    let sum = sum.ok_or_else(too_large)?;
    Ok(sum.to_string())
}

fn too_large() -> Problem {
    Problem::new(Status::BAD_REQUEST).detail("the result has more than 64 bits")
}

/// The first items, as many as the path says, with their totals.
fn page(
    State(items): State<Items>,
    Path(count): Path<usize>,
    Query(by): Query<Multiplier>,
) -> Result<Response, Problem> {
    let items = items.0.iter().take(count).map(|item| {
        let total = item.price.checked_mul(item.quantity)?.checked_mul(by.m)?;
        Some(Counted {
            id: item.id,
            name: &item.name,
            category: &item.category,
            price: item.price,
            quantity: item.quantity,
            active: item.active,
            tags: &item.tags,
            rating: item.rating,
            total,
        })
    });
    let items: Vec<Counted<'_>> = items.collect::<Option<_>>().ok_or_else(too_large)?;
    let count = items.len();
    Ok(Response::json(&Page { items, count }))
}
