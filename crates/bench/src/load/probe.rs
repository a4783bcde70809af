//! The first requests: which protocol the server has, and what its responses look like.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use blitz_http::{
    Address, BodyError, BodyLength, ClientConnection, ClientError, Config, ConnectOptions, Method,
    Part, Pinning, Protocol, TlsInfo, block_on, random_u64, sleep, timeout,
};

use super::arguments::Check;
use super::check::Expected;
use super::exchange::Upload;
use super::plan::LoadPlan;
use super::refusal;
use super::request::RequestSpec;
use super::template::Values;
use crate::{number, output};

/// The most content of a response that is compared byte by byte, and of all first responses.
const CONTENT_BYTES_MAX: u64 = 64 * 1024 * 1024;
const CONTENTS_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// How often each request is sent before the run.
pub(super) const SAMPLES: u64 = 2;

/// The time between two responses to one request, so that contents with a time differ.
const APART: Duration = Duration::from_millis(30);

/// Attempts of the first requests, if failures do not end the run.
const ATTEMPTS: u32 = 5;

/// The results of the first requests.
pub(super) struct Probed {
    /// The first address that a connection could be made to.
    pub(super) address: Address,
    pub(super) protocol: Protocol,
    /// Version and cipher suite.
    pub(super) tls: Option<String>,
    pub(super) expected: Vec<Expected>,
}

/// The demands on responses.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) check: Check,
    pub(super) status: Option<u16>,
    pub(super) sha256: Option<[u8; 32]>,
    /// Whether statuses from 400 on are allowed in the first response.
    pub(super) keep_going: bool,
}

/// One response.
struct Sample {
    status: u16,
    /// The length of the content; `None` if it was not read to its end, and did not say it.
    length: Option<u64>,
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
        let attempts = if wanted.keep_going { ATTEMPTS } else { 1 };
        for attempt in 1..attempts {
            match run(plan, addresses, protocols, wanted).await {
                Ok(probed) => return Ok(probed),
                // Each may take as long as the timeout.
                Err(error) => output::message(&format!(
                    "blitz load: the first requests failed, attempt {attempt} of {attempts}: {error}"
                )),
            }
        }
        run(plan, addresses, protocols, wanted).await
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
    let mut room = CONTENTS_BYTES_MAX;
    let mut number = 0;
    for _ in 0..SAMPLES {
        for ((spec, _), samples) in plan.requests.iter().zip(&mut samples) {
            if !is_safe(spec) {
                continue;
            }
            let ready = timeout(plan.timeout, connection.ready()).await;
            let ready = ready.map_err(|_| {
                let time = number::exact_duration(plan.timeout);
                format!("{address}: the server allows no request on a connection within {time}")
            })?;
            if ready.is_err() {
                connection = connect(plan, &address, &[protocol]).await?;
            }
            let sample = sample(&connection, (spec, number), plan.timeout, &mut room);
            samples.push(sample.await?);
            number += 1;
        }
        sleep(APART).await;
    }
    connection.close();
    let specs = plan.requests.iter().map(|(spec, _)| spec);
    let expected = specs
        .zip(samples)
        .map(|(spec, samples)| expect(spec, &samples, wanted));
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
        let options = plan.connect_options_for(protocol);
        match open(address, &options).await {
            Ok(connection) => return Ok(connection),
            Err(error) => {
                problem = format!("{address}: {error}");
                if let (Protocol::Http3, Address::Tcp(to)) = (protocol, address)
                    && matches!(error, ClientError::Refused | ClientError::ConnectTimedOut)
                {
                    problem = format!("{problem} over UDP; {}", refusal::over_tcp(*to));
                }
                if !is_without_protocol(&error) {
                    break;
                }
            }
        }
    }
    Err(problem)
}

/// Connects; over UDP only as long as the port is not refused, which would be silence until the timeout.
async fn open(
    address: &Address,
    options: &ConnectOptions,
) -> Result<ClientConnection, ClientError> {
    let mut connecting = pin!(ClientConnection::connect(address, options));
    let (Protocol::Http3, Address::Tcp(to)) = (options.protocol, address) else {
        return connecting.await;
    };
    let mut refused = pin!(refusal::refused(*to));
    poll_fn(|cx| match connecting.as_mut().poll(cx) {
        Poll::Pending => refused
            .as_mut()
            .poll(cx)
            .map(|()| Err(ClientError::Refused)),
        ready => ready,
    })
    .await
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
pub(super) fn is_safe(spec: &RequestSpec) -> bool {
    let method = Method::parse(spec.method.as_bytes());
    matches!(method, Method::Get | Method::Head | Method::Options)
}

/// Sends a request, and reads its response: as much of it as is compared, and no longer than `within`. `room` is what may
/// be kept of all of them.
async fn sample(
    connection: &ClientConnection,
    (spec, number): (&RequestSpec, u64),
    within: Duration,
    room: &mut u64,
) -> Result<Sample, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{} {}: {error}", spec.method, spec.url);
    let mut prepared = spec.prepare()?;
    let (head, content) = prepared.next(&Values {
        number,
        random: random_u64(),
    });
    let begun = connection.request(head, content.length());
    let (body, mut response) = begun.map_err(|error| failed(&error))?;
    let mut upload = Upload::new(body, content);
    let response = upload.response(&mut response).await;
    let mut response = response.map_err(|error| failed(&error))?;
    let declared = match response.body.length() {
        BodyLength::Known(length) if spec.method != "HEAD" => Some(length),
        _ => None,
    };
    let mut content = Vec::new();
    let read = async {
        while let Some(part) = upload.next(&mut response.body).await? {
            let Part::Data(slice) = part else { continue };
            if (content.len() + slice.len()) as u64 > CONTENT_BYTES_MAX.min(*room) {
                return Ok(false);
            }
            content.extend_from_slice(&slice);
        }
        Ok(true)
    };
    // A response that does not end in time is not compared: the run shows whether others do.
    let is_whole = timeout(within, read).await.unwrap_or(Ok(false));
    let is_whole = is_whole.map_err(|error: BodyError| failed(&error))?;
    let length = content.len() as u64;
    let content = is_whole.then_some(content);
    if content.is_some() {
        *room -= length;
    }
    Ok(Sample {
        status: response.head.status.code(),
        length: content.as_ref().map(|_| length).or(declared),
        content,
    })
}

/// The expected response of later requests: the parts that the samples have in common, as far as they are to be
/// checked.
fn expect(spec: &RequestSpec, samples: &[Sample], wanted: &Wanted) -> Result<Expected, String> {
    let mut expected = Expected {
        status: wanted.status,
        sha256: wanted.sha256,
        is_head: spec.method == "HEAD",
        ..Expected::default()
    };
    // The response of a server that does not work is no template for others.
    let is_wanted = |status: u16| match wanted.status {
        Some(wanted) => status == wanted,
        None => status < 400,
    };
    let is_template = |sample: &&Sample| !wanted.keep_going || is_wanted(sample.status);
    let mut samples = samples.iter().filter(is_template);
    let (Some(first), second) = (samples.next(), samples.next()) else {
        return Ok(expected);
    };
    let wrong = |problem: String| Err(format!("{} {}: {problem}", spec.method, spec.url));
    if !is_wanted(first.status) {
        return wrong(format!(
            "the status is {}; --expect-status {} measures such responses",
            first.status, first.status
        ));
    }
    if let (Some(wanted), Some(content)) = (wanted.sha256, &first.content) {
        if digest(&SHA256, content).as_ref() != wanted {
            return wrong("the content does not have the SHA-256 of --expect-sha256".to_owned());
        }
        // Comparing is cheaper than hashing, and finds the same.
        expected.sha256 = None;
    }
    expected.status = wanted.status.or(Some(first.status));
    let Some(second) = second else {
        expected.sha256 = wanted.sha256;
        return Ok(expected);
    };
    // Content with a time, for example, has the same length by chance only.
    let is_same = first.content.is_some() && first.content == second.content;
    let is_long = first.content.is_none() && first.length == second.length;
    let (has_length, has_content) = match wanted.check {
        _ if wanted.sha256.is_some() => (true, true),
        Check::Auto => (is_same || is_long, is_same),
        Check::Status => (false, false),
        Check::Length => (true, false),
        Check::Content => (true, true),
    };
    expected.length = first.length.filter(|_| has_length);
    expected.content = first.content.clone().filter(|_| has_content);
    Ok(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(status: u16, content: &[u8]) -> Sample {
        Sample {
            status,
            length: Some(content.len() as u64),
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

    fn expected(samples: &[Sample; 2], wanted: &Wanted) -> Result<Expected, String> {
        expect(&RequestSpec::get("http://a/"), samples, wanted)
    }

    #[test]
    fn what_two_responses_have_in_common_is_checked() {
        let auto = wanted(Check::Auto);
        let same = expected(&[sample(200, b"ab"), sample(200, b"ab")], &auto).unwrap();
        assert_eq!(
            same.describe(),
            "status 200, length 2, every byte of the content"
        );
        let dated = expected(&[sample(200, b"ab"), sample(200, b"ac")], &auto).unwrap();
        assert_eq!(dated.describe(), "status 200");
        let varied = expected(&[sample(200, b"ab"), sample(200, b"abc")], &auto).unwrap();
        assert_eq!(varied.describe(), "status 200");
        let status = wanted(Check::Status);
        let same = expected(&[sample(200, b"ab"), sample(200, b"ab")], &status).unwrap();
        assert_eq!(same.describe(), "status 200");
    }

    #[test]
    fn failures_are_no_template_if_the_run_goes_on() {
        let keep_going = Wanted {
            keep_going: true,
            ..wanted(Check::Auto)
        };
        let failing = expected(&[sample(500, b"a"), sample(500, b"a")], &keep_going).unwrap();
        assert_eq!(failing.describe(), "status below 400");
        let later = expected(&[sample(503, b"a"), sample(200, b"b")], &keep_going).unwrap();
        assert_eq!(later.describe(), "status 200");
        let asked_for = Wanted {
            status: Some(200),
            ..keep_going
        };
        let failing = expected(&[sample(500, b"a"), sample(500, b"a")], &asked_for).unwrap();
        assert_eq!(failing.describe(), "status 200");
    }

    #[test]
    fn a_hash_that_is_asked_for_is_checked_in_each_response() {
        let of = digest(&SHA256, b"ab");
        let hash = Wanted {
            sha256: Some(of.as_ref().try_into().unwrap()),
            ..wanted(Check::Auto)
        };
        let same = expected(&[sample(200, b"ab"), sample(200, b"ac")], &hash).unwrap();
        assert!(same.describe().ends_with("every byte of the content"));
        let post = RequestSpec {
            method: "POST".to_owned(),
            ..RequestSpec::get("http://a/")
        };
        let unseen = expect(&post, &[], &hash).unwrap();
        assert!(unseen.describe().ends_with("the SHA-256 of the content"));
    }

    #[test]
    fn a_first_response_that_is_wrong_ends_the_run_before_it_begins() {
        let samples = || [sample(503, b""), sample(503, b"")];
        let error = expected(&samples(), &wanted(Check::Auto)).unwrap_err();
        assert!(error.contains("--expect-status 503"), "{error}");
        let allowed = Wanted {
            status: Some(503),
            ..wanted(Check::Auto)
        };
        assert_eq!(expected(&samples(), &allowed).unwrap().status, Some(503));
        let hash = Wanted {
            sha256: Some([0; 32]),
            ..wanted(Check::Auto)
        };
        let error = expected(&[sample(200, b"a"), sample(200, b"a")], &hash).unwrap_err();
        assert!(error.contains("--expect-sha256"), "{error}");
    }
}
