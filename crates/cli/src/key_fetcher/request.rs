//! One request for a key set.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use blitz_config::KeysUrl;
use blitz_host::names::look_up_once;
use blitz_http::{
    Address, BodyLength, CaSet, ClientOptions, ClientTls, Connection, Limits, Method, Name, Part,
    Pool, RequestHead, Response, UpstreamTls, blocking, timeout,
};

use super::document::{Document, max_age};
use crate::authorities;

/// How long all of it may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The most bytes of a document, as many as those of a file.
pub(super) const DOCUMENT_BYTES_MAX: usize = 256 * 1024;

/// The most addresses whose problems are told.
const PROBLEMS_MAX: usize = 8;

/// Fetches the document. The certificate of its server is verified with these authorities, or those of the system.
///
/// # Errors
/// The problem, and a remedy if there is one.
pub(super) async fn fetch(url: &KeysUrl, authorities: Option<&CaSet>) -> Result<Document, String> {
    let fetched = timeout(TIMEOUT, request(url, authorities)).await;
    fetched.unwrap_or_else(|_| Err("no response in time".to_owned()))
}

async fn request(url: &KeysUrl, authorities: Option<&CaSet>) -> Result<Document, String> {
    let options = ClientOptions {
        response_timeout: TIMEOUT,
        // Over HTTP/2 the rest of a document that is too long is at most as long, or the connection is closed.
        limits: Limits {
            stream_window_bytes_max: DOCUMENT_BYTES_MAX,
            ..Limits::default()
        },
        ..ClientOptions::default()
    };
    // Used once: the next request is minutes away.
    let pool = Pool::new(options);
    let connection = connect(url, authorities, &pool).await?;
    let (_body, stream) = connection.request(&head(url), BodyLength::Empty);
    let response = stream.response().await;
    read(response.map_err(|error| error.to_string())?).await
}

fn head(url: &KeysUrl) -> RequestHead {
    let mut head = RequestHead::new(Method::Get, &url.target);
    head.set_authority(&url.authority);
    head.fields
        .append(Name::Accept, "application/jwk-set+json, application/json");
    let agent = concat!("blitz/", env!("CARGO_PKG_VERSION"));
    head.fields.append(Name::UserAgent, agent);
    head
}

async fn connect(
    url: &KeysUrl,
    authorities: Option<&CaSet>,
    pool: &Pool,
) -> Result<Connection, String> {
    let tls = match url.is_tls {
        false => None,
        true => {
            let authorities = authorities.cloned();
            let authorities = authorities.unwrap_or_else(authorities::of_system);
            let tls = ClientTls::builder().authorities(authorities);
            let tls = tls.build().map_err(|error| error.to_string())?;
            let tls = UpstreamTls::new(&tls.into(), &url.host);
            Some(tls.map_err(|error| error.to_string())?)
        }
    };
    let mut problems = Vec::new();
    for address in look_up(url).await? {
        let upstream = match &tls {
            Some(tls) => pool.upstream_tls(&address, tls),
            None => pool.upstream(&address),
        };
        match upstream.checkout().await {
            Ok(connection) => return Ok(connection),
            Err(error) => problems.push((address, error.to_string())),
        }
    }
    Err(of_all(&problems))
}

/// The problems of all addresses: that of one may be the reason, and that of another only that nothing listens there.
fn of_all(problems: &[(Address, String)]) -> String {
    match problems {
        [] => "it has no address".to_owned(),
        [(_, problem)] => problem.clone(),
        several => {
            let shown = several.iter().take(PROBLEMS_MAX);
            let shown: Vec<String> = shown
                .map(|(address, problem)| format!("{address}: {problem}"))
                .collect();
            shown.join("; ")
        }
    }
}

/// The addresses of the host. Clear text is for this machine, whatever name servers say.
async fn look_up(url: &KeysUrl) -> Result<Vec<Address>, String> {
    let (host, port) = (url.host.clone(), url.port);
    let of_port = |ip| Address::Tcp(SocketAddr::new(ip, port));
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![of_port(ip)]);
    }
    if host == "localhost" {
        let both: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        return Ok(both.map(of_port).into());
    }
    let found = blocking(move || look_up_once(&host, port)).await?;
    Ok(found.into_iter().map(Address::Tcp).collect())
}

async fn read(mut response: Response) -> Result<Document, String> {
    let head = &response.head;
    match head.status.code() {
        200 => {}
        code @ 300..=399 => {
            return Err(format!(
                "it responds with status {code}, and redirects are not followed: write the URL that it leads to"
            ));
        }
        code => return Err(format!("it responds with status {code}")),
    }
    if head.fields.contains(Name::ContentEncoding) {
        return Err("its content is encoded, which nobody has asked for".to_owned());
    }
    let max_age = max_age(&head.fields);
    let mut content = Vec::new();
    loop {
        match response.body.next().await {
            Ok(Some(Part::Data(slice))) => {
                if content.len() + slice.len() > DOCUMENT_BYTES_MAX {
                    return Err(format!("it has more than {DOCUMENT_BYTES_MAX} bytes"));
                }
                content.extend_from_slice(&slice);
            }
            Ok(Some(Part::Trailers(_))) => {}
            Ok(None) => return Ok(Document { content, max_age }),
            Err(error) => return Err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_problems_of_all_addresses_are_told() {
        let problem = |address: &str, problem: &str| {
            (Address::Tcp(address.parse().unwrap()), problem.to_owned())
        };
        let tls = problem("127.0.0.1:443", "unknown issuer");
        let refused = problem("[::1]:443", "connection refused");
        assert_eq!(of_all(&[]), "it has no address");
        assert_eq!(of_all(std::slice::from_ref(&tls)), "unknown issuer");
        assert_eq!(
            of_all(&[tls, refused]),
            "127.0.0.1:443: unknown issuer; [::1]:443: connection refused"
        );
    }
}
