//! One check of a server: a connection to each of its addresses, and a request over it.

use std::future::poll_fn;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use blitz_config::{HEALTH_BODY_MAX, HealthKind, HttpCheck};
use blitz_host::names::LookupResult;
use blitz_http::{
    Address, BodyLength, ClientOptions, Connection, Limits, Method, Name, Part, Pool, ProxyHeader,
    RecvBody, RequestHead, Response, Upstream, UpstreamTls,
};

use super::grpc;
use super::problem::Problem;
use super::user_agent::USER_AGENT;
use crate::target::Origin;
use crate::upstream::{Check, CheckSubject, Outcome, failure_of_name};

/// The most addresses of a server that are checked.
const ADDRESSES_MAX: usize = 16;

/// The most addresses whose problems are told.
const PROBLEMS_MAX: usize = 4;

/// Pause between looks for the first addresses of a name.
const PENDING_PAUSE: Duration = Duration::from_millis(20);

/// How long the rest of a response may take that nobody needs: with it the server sees an ordinary end.
const DISCARD_TIME: Duration = Duration::from_millis(100);

/// Checks a server once. It is up if one of its addresses is.
pub(super) async fn probe(check: &Arc<Check>) -> Outcome {
    let timeout = check.settings.timeout;
    let addresses = match blitz_http::timeout(timeout, addresses(&check.subject)).await {
        Ok(Ok(addresses)) => addresses,
        Ok(Err(problem)) => return Outcome::Failed(problem),
        Err(_) => return Outcome::Undecided("its name is being resolved".to_owned()),
    };
    let attempts = addresses.into_iter().map(|address| {
        let check = Arc::clone(check);
        let attempt: Attempt = Box::pin(async move {
            let attempt = attempt(&check, &address);
            let ended = blitz_http::timeout(timeout, attempt).await;
            let ended = ended.unwrap_or_else(|_| Err("no answer in time".into()));
            ended.map_err(|problem| (address, problem))
        });
        attempt
    });
    let problems = match first_success(attempts.collect()).await {
        Ok(()) => return Outcome::Passed,
        Err(problems) => problems,
    };
    let text = text_of(&problems);
    // Another address may be up that could not be tried.
    match problems.iter().any(|(_, problem)| problem.is_local) {
        true => Outcome::Undecided(text),
        false => Outcome::Failed(text),
    }
}

type Attempt = Pin<Box<dyn Future<Output = Result<(), (Address, Problem)>>>>;

/// Ends with the first success, or with all problems.
async fn first_success(mut attempts: Vec<Attempt>) -> Result<(), Vec<(Address, Problem)>> {
    let mut problems = Vec::with_capacity(attempts.len());
    poll_fn(|cx| {
        let mut has_succeeded = false;
        attempts.retain_mut(|attempt| match attempt.as_mut().poll(cx) {
            Poll::Pending => true,
            Poll::Ready(ended) => {
                has_succeeded |= ended.is_ok();
                problems.extend(ended.err());
                false
            }
        });
        match has_succeeded || attempts.is_empty() {
            true => Poll::Ready(has_succeeded),
            false => Poll::Pending,
        }
    })
    .await
    .then_some(())
    .ok_or(problems)
}

fn text_of(problems: &[(Address, Problem)]) -> String {
    match problems {
        [(_, problem)] => problem.text.clone(),
        several => {
            let shown = several.iter().take(PROBLEMS_MAX);
            let shown: Vec<String> = shown
                .map(|(address, problem)| format!("{address}: {}", problem.text))
                .collect();
            shown.join("; ")
        }
    }
}

/// The addresses of a server. Waits until its name is resolved.
async fn addresses(subject: &CheckSubject) -> Result<Vec<Address>, String> {
    match (&subject.origin, &subject.name) {
        (Origin::Ip(address), _) => Ok(vec![Address::Tcp(*address)]),
        (Origin::Unix(path), _) => Ok(vec![Address::unix(path)]),
        (Origin::Localhost(port), _) => Ok(vec![
            Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, *port))),
            Address::Tcp(SocketAddr::from((Ipv6Addr::LOCALHOST, *port))),
        ]),
        (Origin::Service(_), _) => Err("its name has no server".to_owned()),
        (Origin::Name(..), None) => Err("its name is not resolved".to_owned()),
        (Origin::Name(..), Some(name)) => loop {
            match &**name.latest() {
                LookupResult::Pending => {}
                LookupResult::Failed(reason) => {
                    return Err(failure_of_name(*reason).detail().to_owned());
                }
                LookupResult::Addresses(all) => {
                    let all = all.iter().take(ADDRESSES_MAX).copied();
                    return Ok(all.map(Address::Tcp).collect());
                }
            }
            blitz_http::sleep(PENDING_PAUSE).await;
        },
    }
}

/// Checks one address. The pool is its own, so that the connection is, and closes at the end.
async fn attempt(check: &Check, address: &Address) -> Result<(), Problem> {
    let settings = &check.settings;
    let pool = Pool::new(ClientOptions {
        limits: Limits {
            connect_timeout: settings.timeout,
            pool_idle_max: 0,
            ..Limits::default()
        },
        response_timeout: settings.timeout,
        body_timeout: settings.timeout,
        // A certificate is verified in complete handshakes only.
        resume: false,
        ..ClientOptions::default()
    });
    let subject = &check.subject;
    match &settings.kind {
        HealthKind::Http(http) => {
            let connection = upstream(subject, &pool, address)?.connect().await?;
            request(connection, http, subject).await
        }
        HealthKind::Grpc { service, host } => {
            let connection = upstream(subject, &pool, address)?.connect().await?;
            let host = host.as_deref().unwrap_or(&subject.authority);
            grpc::request(connection, service, host).await
        }
        HealthKind::Tcp => {
            with_header(pool.upstream(address), subject)
                .connect()
                .await?;
            Ok(())
        }
        HealthKind::Tls => {
            upstream(subject, &pool, address)?.connect().await?;
            Ok(())
        }
    }
}

/// The connections of the gateway's own kind to an address.
fn upstream(subject: &CheckSubject, pool: &Pool, address: &Address) -> Result<Upstream, Problem> {
    let upstream = match &subject.tls {
        None => pool.upstream_with_protocol(address, subject.protocol),
        Some((slot, host)) => {
            let tls = UpstreamTls::new(slot, host).map_err(|error| error.to_string())?;
            pool.upstream_tls(address, &tls)
        }
    };
    Ok(with_header(upstream, subject))
}

/// A PROXY header without addresses is that of a connection of the proxy's own.
fn with_header(upstream: Upstream, subject: &CheckSubject) -> Upstream {
    match subject.proxy_protocol {
        None => upstream,
        Some(version) => upstream.with_header(ProxyHeader {
            version,
            addresses: None,
        }),
    }
}

async fn request(
    connection: Connection,
    check: &HttpCheck,
    subject: &CheckSubject,
) -> Result<(), Problem> {
    let mut head = RequestHead::new(Method::Get, &check.path);
    head.set_authority(check.host.as_deref().unwrap_or(&subject.authority));
    head.fields.append(Name::Accept, "*/*");
    head.fields.append(Name::UserAgent, USER_AGENT);
    let (_content, stream) = connection.request(&head, BodyLength::Empty);
    let Response { head, mut body, .. } = stream.response().await?;
    let status = head.status.code();
    if !check.statuses.iter().any(|one| one.matches(status)) {
        discard(body).await;
        return Err(format!("it responds with status {status}").into());
    }
    if let Some(text) = &check.body {
        find(&mut body, text.as_bytes()).await?;
    }
    discard(body).await;
    Ok(())
}

async fn discard(mut body: RecvBody) {
    if !body.is_done() && body.take_whole().is_none() {
        let rest = body.read_to_end(HEALTH_BODY_MAX);
        let _ = blitz_http::timeout(DISCARD_TIME, rest).await;
    }
}

/// Reads content until it has this text.
async fn find(body: &mut RecvBody, text: &[u8]) -> Result<(), Problem> {
    let mut content = Vec::new();
    loop {
        match body.next().await {
            Ok(Some(Part::Data(slice))) => {
                // A text may begin in the piece before.
                let start = (content.len() + 1).saturating_sub(text.len());
                let room = HEALTH_BODY_MAX - content.len();
                content.extend_from_slice(&slice[..slice.len().min(room)]);
                if content[start.min(content.len())..]
                    .windows(text.len())
                    .any(|part| part == text)
                {
                    return Ok(());
                }
                if content.len() == HEALTH_BODY_MAX {
                    return Err("the first 64 KiB of its response do not have the text".into());
                }
            }
            Ok(Some(Part::Trailers(_))) => {}
            Ok(None) => return Err("its response does not have the text".into()),
            Err(error) => return Err(error.to_string().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_problems_of_several_addresses_are_told() {
        let problem = |address: &str, text: &str| {
            let address = Address::Tcp(address.parse().unwrap());
            (address, Problem::from(text))
        };
        let one = problem("127.0.0.1:80", "connection refused");
        let other = problem("[::1]:80", "no answer in time");
        assert_eq!(text_of(&[one]), "connection refused");
        let one = problem("127.0.0.1:80", "connection refused");
        assert_eq!(
            text_of(&[one, other]),
            "127.0.0.1:80: connection refused; [::1]:80: no answer in time"
        );
    }
}
