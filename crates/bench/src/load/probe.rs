//! The first requests: which protocol the server has, and what its responses look like.

use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use blitz_http::{
    Address, ClientConnection, ClientError, Config, Method, Part, Pinning, Protocol, TlsInfo,
    block_on, sleep,
};

use super::arguments::Check;
use super::check::Expected;
use super::exchange::Upload;
use super::plan::LoadPlan;
use super::request::RequestSpec;
use super::template::Values;

/// The most content that is compared byte by byte.
const CONTENT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The time between two responses to one request, so that contents with a time differ.
const APART: Duration = Duration::from_millis(30);

/// Attempts of the first requests, if failures do not end the run.
const ATTEMPTS: u32 = 5;

/// What the first requests have shown.
pub(super) struct Probed {
    /// The first address that a connection could be made to.
    pub(super) address: Address,
    pub(super) protocol: Protocol,
    /// Version and cipher suite.
    pub(super) tls: Option<String>,
    pub(super) expected: Vec<Expected>,
}

/// What responses must be.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) check: Check,
    pub(super) status: Option<u16>,
    pub(super) sha256: Option<[u8; 32]>,
    /// Whether statuses from 400 on are allowed in the first response.
    pub(super) keep_going: bool,
}

/// One response, whole.
struct Sample {
    status: u16,
    length: u64,
    /// `None` if it is too long to be compared.
    content: Option<Vec<u8>>,
}

/// Requests everything twice, so that what differs from response to response is not checked. Requests that may change
/// something are not sent.
///
/// # Errors
/// The server cannot be reached, or its responses are not those that are wanted.
pub(super) fn probe(
    plan: &LoadPlan,
    addresses: &[Address],
    protocols: &[Protocol],
    wanted: &Wanted,
) -> Result<Probed, String> {
    let config = Config {
        io: plan.io,
        cores: 1,
        pin: Pinning::Off,
        ..Config::default()
    };
    let probed = block_on(&config, async {
        let mut attempts = if wanted.keep_going { ATTEMPTS } else { 1 };
        loop {
            attempts -= 1;
            let probed = run(plan, addresses, protocols, wanted).await;
            if probed.is_ok() || attempts == 0 {
                break probed;
            }
        }
    });
    probed.map_err(|error| format!("the I/O driver cannot be opened: {error}"))?
}

async fn run(
    plan: &LoadPlan,
    addresses: &[Address],
    protocols: &[Protocol],
    wanted: &Wanted,
) -> Result<Probed, String> {
    let (address, mut connection) = connect_to_first(plan, addresses, protocols).await?;
    let protocol = connection.protocol();
    let tls = connection.tls().as_deref().map(describe);
    let mut samples: Vec<Vec<Sample>> = plan.requests.iter().map(|_| Vec::new()).collect();
    for number in 0..2 {
        for ((spec, _), samples) in plan.requests.iter().zip(&mut samples) {
            if !is_safe(spec) {
                continue;
            }
            if connection.ready().await.is_err() {
                connection = connect(plan, &address, &[protocol]).await?;
            }
            samples.push(request(&connection, spec, number).await?);
        }
        sleep(APART).await;
    }
    connection.close();
    let specs = plan.requests.iter().map(|(spec, _)| spec);
    let expected = specs
        .zip(samples)
        .map(|(spec, samples)| expect(spec, samples, wanted));
    let expected = expected.collect::<Result<_, _>>()?;
    Ok(Probed {
        address,
        protocol,
        tls,
        expected,
    })
}

/// A connection to the first of the addresses that one can be made to.
async fn connect_to_first(
    plan: &LoadPlan,
    addresses: &[Address],
    protocols: &[Protocol],
) -> Result<(Address, ClientConnection), String> {
    let mut problems = Vec::new();
    for address in addresses {
        match connect(plan, address, protocols).await {
            Ok(connection) => return Ok((address.clone(), connection)),
            Err(problem) => problems.push(problem),
        }
    }
    let mut problems = problems.join("; ");
    if problems.contains("certificate") {
        problems.push_str("; --ca FILE trusts an authority, --insecure any certificate");
    }
    Err(problems)
}

/// A connection with the first of the protocols that the server has.
async fn connect(
    plan: &LoadPlan,
    address: &Address,
    protocols: &[Protocol],
) -> Result<ClientConnection, String> {
    let mut problem = String::new();
    for &protocol in protocols {
        let mut options = plan.connect_options();
        options.protocol = protocol;
        match ClientConnection::connect(address, &options).await {
            Ok(connection) => return Ok(connection),
            Err(error) => {
                problem = format!("{address}: {error}");
                if !is_without_protocol(&error) {
                    break;
                }
            }
        }
    }
    Err(problem)
}

/// Whether the server does not have the protocol that was offered.
fn is_without_protocol(error: &ClientError) -> bool {
    error.rule().is_some_and(|rule| {
        rule.contains("application_protocol") || rule.contains("application-protocol")
    })
}

fn describe(info: &TlsInfo) -> String {
    let exchange = info.key_exchange.unwrap_or("resumed");
    format!(
        "{}, {}, {exchange}",
        info.version.as_str(),
        info.cipher_suite
    )
}

/// Whether a request changes nothing (RFC 9110, section 9.2.1).
fn is_safe(spec: &RequestSpec) -> bool {
    let method = Method::parse(spec.method.as_bytes());
    matches!(method, Method::Get | Method::Head | Method::Options)
}

async fn request(
    connection: &ClientConnection,
    spec: &RequestSpec,
    number: u64,
) -> Result<Sample, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{} {}: {error}", spec.method, spec.url);
    let mut prepared = spec.prepare()?;
    let (head, content) = prepared.next(&Values {
        number,
        random: number,
    });
    let begun = connection.request(head, content.length());
    let (body, mut response) = begun.map_err(|error| failed(&error))?;
    let mut upload = Upload::new(body, content);
    let response = upload.response(&mut response).await;
    let mut response = response.map_err(|error| failed(&error))?;
    let mut sample = Sample {
        status: response.head.status.code(),
        length: 0,
        content: Some(Vec::new()),
    };
    while let Some(part) = upload
        .next(&mut response.body)
        .await
        .map_err(|error| failed(&error))?
    {
        let Part::Data(slice) = part else { continue };
        sample.length += slice.len() as u64;
        if sample.length > CONTENT_BYTES_MAX {
            sample.content = None;
        }
        if let Some(content) = &mut sample.content {
            content.extend_from_slice(&slice);
        }
    }
    Ok(sample)
}

/// What later responses must be: what the samples have in common, as far as it is to be checked.
fn expect(spec: &RequestSpec, samples: Vec<Sample>, wanted: &Wanted) -> Result<Expected, String> {
    let mut expected = Expected {
        status: wanted.status,
        ..Expected::default()
    };
    let mut samples = samples.into_iter();
    let (Some(first), Some(second)) = (samples.next(), samples.next()) else {
        return Ok(expected);
    };
    let wrong = |problem: String| Err(format!("{} {}: {problem}", spec.method, spec.url));
    if wanted.status.is_some_and(|status| status != first.status) {
        return wrong(format!("the status is {}", first.status));
    }
    if wanted.status.is_none() && first.status >= 400 && !wanted.keep_going {
        return wrong(format!(
            "the status is {}; --expect-status {} measures such responses",
            first.status, first.status
        ));
    }
    if let (Some(wanted), Some(content)) = (wanted.sha256, &first.content)
        && digest(&SHA256, content).as_ref() != wanted
    {
        return wrong("the content does not have the SHA-256 of --expect-sha256".to_owned());
    }
    expected.status = wanted.status.or(Some(first.status));
    // Content with a time, for example, has the same length by chance only.
    let is_same = first.content.is_some() && first.content == second.content;
    let is_long = first.content.is_none() && first.length == second.length;
    let (has_length, has_content) = match wanted.check {
        Check::Auto => (is_same || is_long, is_same),
        Check::Status => (false, false),
        Check::Length => (true, false),
        Check::Content => (true, true),
    };
    expected.length = has_length.then_some(first.length);
    expected.content = first.content.filter(|_| has_content);
    Ok(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(status: u16, content: &[u8]) -> Sample {
        Sample {
            status,
            length: content.len() as u64,
            content: Some(content.to_vec()),
        }
    }

    fn wanted(check: Check) -> Wanted {
        Wanted {
            check,
            status: None,
            sha256: None,
            keep_going: false,
        }
    }

    fn expected(samples: [Sample; 2], wanted: &Wanted) -> Result<Expected, String> {
        expect(&RequestSpec::get("http://a/"), samples.into(), wanted)
    }

    #[test]
    fn what_two_responses_have_in_common_is_checked() {
        let auto = wanted(Check::Auto);
        let same = expected([sample(200, b"ab"), sample(200, b"ab")], &auto).unwrap();
        assert_eq!(
            same.describe(),
            "status 200, length 2, every byte of the content"
        );
        let dated = expected([sample(200, b"ab"), sample(200, b"ac")], &auto).unwrap();
        assert_eq!(dated.describe(), "status 200");
        let varied = expected([sample(200, b"ab"), sample(200, b"abc")], &auto).unwrap();
        assert_eq!(varied.describe(), "status 200");
        let status = wanted(Check::Status);
        let same = expected([sample(200, b"ab"), sample(200, b"ab")], &status).unwrap();
        assert_eq!(same.describe(), "status 200");
    }

    #[test]
    fn a_first_response_that_is_wrong_ends_the_run_before_it_begins() {
        let samples = || [sample(503, b""), sample(503, b"")];
        let error = expected(samples(), &wanted(Check::Auto)).unwrap_err();
        assert!(error.contains("--expect-status 503"), "{error}");
        let allowed = Wanted {
            status: Some(503),
            ..wanted(Check::Auto)
        };
        assert_eq!(expected(samples(), &allowed).unwrap().status, Some(503));
        let hash = Wanted {
            sha256: Some([0; 32]),
            ..wanted(Check::Auto)
        };
        let error = expected([sample(200, b"a"), sample(200, b"a")], &hash).unwrap_err();
        assert!(error.contains("--expect-sha256"), "{error}");
    }
}
