//! A question, from the command line or from a query of the control socket.

use std::net::{IpAddr, Ipv4Addr};

use clap::ValueEnum;

use crate::check::Format;

/// The client of a question that names none.
pub(super) const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The request to explain, or the site whose routes are to be listed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(super) method: String,
    pub(super) url: String,
    pub(super) headers: Vec<String>,
    pub(super) from: IpAddr,
    /// All routes of this host, in place of a request.
    pub(super) routes: Option<String>,
    pub(super) format: Format,
}

impl Question {
    /// The question of a query.
    ///
    /// # Errors
    /// A name or a value is unknown.
    pub(crate) fn of_pairs(pairs: Vec<(String, String)>) -> Result<Question, String> {
        let mut question = Question {
            method: "GET".to_owned(),
            url: String::new(),
            headers: Vec::new(),
            from: LOCALHOST,
            routes: None,
            format: Format::Text,
        };
        for (name, value) in pairs {
            let wrong = || format!("`{name}` cannot be {value}");
            match name.as_str() {
                "method" => question.method = value,
                "url" => question.url = value,
                "header" => question.headers.push(value),
                "routes" => question.routes = Some(value),
                "from" => question.from = value.parse().map_err(|_| wrong())?,
                "format" => {
                    question.format = Format::from_str(&value, false).map_err(|_| wrong())?;
                }
                _ => return Err(format!("a question has no `{name}`")),
            }
        }
        Ok(question)
    }

    /// The query of the question.
    pub(super) fn pairs(&self) -> Vec<(&'static str, String)> {
        let mut pairs = match &self.routes {
            Some(host) => vec![("routes", host.clone())],
            None => vec![("method", self.method.clone()), ("url", self.url.clone())],
        };
        pairs.extend(self.headers.iter().map(|line| ("header", line.clone())));
        pairs.push(("from", self.from.to_string()));
        if self.format == Format::Json {
            pairs.push(("format", "json".to_owned()));
        }
        pairs
    }
}
