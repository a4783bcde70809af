//! `/tail`: a line for each request that ends from now on, in the forms of the access log.

use std::sync::Arc;

use blitz::extract::{Query, State};
use blitz::{Peer, Response, Status};
use blitz_config::{Network, parse_duration_sum};
use blitz_gateway::access_log::LogFormat;

use super::access::Reach;
use super::state::ControlState;
use crate::followers::{FOLLOWERS_MAX, FORMATS, Filter, Refused, WantedStatus};

pub(super) async fn tail(
    State(state): State<Arc<ControlState>>,
    Query(pairs): Query<Vec<(String, String)>>,
    peer: Peer,
) -> Response {
    // Paths of requests and addresses of clients are for the user of the process.
    if Reach::of(&peer) != Reach::Socket {
        let problem = "only the control socket shows requests\n  \
                       use blitz tail, or curl --unix-socket PATH, where PATH is `control.socket`";
        return refusal(Status::FORBIDDEN, problem);
    }
    let (filter, format) = match asked(&pairs) {
        Ok(asked) => asked,
        Err(problem) => return refusal(Status::BAD_REQUEST, &problem),
    };
    let following = match state.followers.follow(filter, format) {
        Ok(following) => following,
        Err(Refused::TooMany) => {
            let problem = format!(
                "{FOLLOWERS_MAX} others follow requests already\n  end one of them, or read the access log"
            );
            return refusal(Status::SERVICE_UNAVAILABLE, &problem);
        }
        Err(Refused::Ending) => {
            let problem = "this process is ending\n  ask the next one";
            return refusal(Status::SERVICE_UNAVAILABLE, problem);
        }
    };
    let response = Response::stream(async move |writer| {
        while let Some(lines) = following.next().await {
            writer.send(lines).await?;
        }
        Ok(())
    });
    let kind = match format {
        LogFormat::Json => "application/x-ndjson",
        LogFormat::Logfmt | LogFormat::Combined => "text/plain; charset=utf-8",
    };
    response
        .content_type(kind)
        .header("Cache-Control", "no-store")
}

fn refusal(status: Status, problem: &str) -> Response {
    Response::text(format!("{problem}\n")).with_status(status)
}

/// The filter and the form of lines that a query asks for.
///
/// # Errors
/// A pair has no meaning: the problem and the remedy.
fn asked(pairs: &[(String, String)]) -> Result<(Filter, LogFormat), String> {
    let (mut filter, mut format) = (Filter::default(), LogFormat::Json);
    for (name, value) in pairs {
        let problem = |problem: String| format!("{name}={value}: {problem}");
        match name.as_str() {
            "status" => filter
                .statuses
                .push(WantedStatus::parse(value).map_err(problem)?),
            "site" => filter.sites.push(value.clone()),
            "route" => filter.routes.push(value.clone()),
            "client" => {
                let client = Network::parse(value);
                let client = client.map_err(|error| problem(error.to_string()))?;
                filter.clients.push(client);
            }
            "slower" => {
                let slower = parse_duration_sum(value);
                filter.slower = Some(slower.map_err(|error| problem(error.to_string()))?);
            }
            "format" => {
                let found = FORMATS.iter().find(|(name, _)| name == value);
                let found =
                    found.ok_or("there is no such format\n  write json, logfmt or combined");
                format = found.map_err(|text| problem(text.to_owned()))?.1;
            }
            _ => {
                return Err(format!(
                    "there is no condition `{name}`\n  write status, site, route, client, slower or format"
                ));
            }
        }
    }
    Ok((filter, format))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Result<(Filter, LogFormat), String> {
        let pairs = pairs.iter();
        let pairs: Vec<_> = pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        asked(&pairs)
    }

    #[test]
    fn a_query_is_a_filter_and_a_form() {
        let (filter, format) = of(&[
            ("status", "5xx"),
            ("status", "404"),
            ("site", "app.example"),
            ("route", "/api"),
            ("client", "192.0.2.0/24"),
            ("slower", "100ms"),
            ("format", "logfmt"),
        ])
        .unwrap();
        let expected = Filter {
            statuses: vec![WantedStatus::Class(5), WantedStatus::Code(404)],
            sites: vec!["app.example".to_owned()],
            routes: vec!["/api".to_owned()],
            clients: vec![Network::parse("192.0.2.0/24").unwrap()],
            slower: Some(Duration::from_millis(100)),
        };
        assert_eq!((filter, format), (expected, LogFormat::Logfmt));
        assert_eq!(of(&[]), Ok((Filter::default(), LogFormat::Json)));
    }

    #[test]
    fn mistakes_have_a_remedy() {
        for (name, value, expected) in [
            ("status", "6xx", "status=6xx: this is no status\n  write"),
            (
                "client",
                "a",
                "client=a: this is neither an address nor a network\n  write",
            ),
            ("slower", "1", "slower=1: "),
            (
                "format",
                "text",
                "format=text: there is no such format\n  write json",
            ),
            (
                "stat",
                "5xx",
                "there is no condition `stat`\n  write status",
            ),
        ] {
            let problem = of(&[(name, value)]).unwrap_err();
            assert!(problem.starts_with(expected), "{problem}");
        }
    }
}
