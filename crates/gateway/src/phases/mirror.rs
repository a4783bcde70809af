//! Phase `mirror`: a copy of the request goes to another upstream. The request waits for nothing of it.
//!
//! The copy is what the upstream gets, with all its fields. It has a task of its own, which reads the response and drops
//! it; a failure is counted and logged for developers, and nothing is tried again.

use std::rc::Rc;
use std::time::Duration;

use blitz_http::{
    BodyLength, Chunk, ClientError, Connection, Name, Part, RequestHead, RequestOptions, Response,
    Upstream,
};
use blitz_site::{Endpoint, Failure, count};

use super::connect::{PENDING_PAUSE, note_failure, upstream_for};
use crate::mirror::{CONTENT_MAX, ContentCopy, Mirror, Slot};
use crate::request::Request;
use crate::request_kind::RequestKind;
use crate::service::GatewayService;
use crate::snapshot::CoreSnapshot;
use crate::upstream::{Balancer, Choice, Pick, Tried};

/// How long a copy may take, from the connection to the end of the response.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The most content of a response that is read; its connection closes then.
const RESPONSE_MAX: usize = 1024 * 1024;

/// Copies the request if its turn has come. WebSockets, calls of gRPC and requests to switch protocols are not copied.
#[inline(never)]
pub(super) fn mirror<E: Endpoint>(
    gateway: &Rc<GatewayService<E>>,
    snapshot: &Rc<CoreSnapshot>,
    mirror: &Mirror,
    request: &mut Request<'_>,
) {
    let is_plain = matches!(request.kind, RequestKind::Plain);
    if !is_plain || !mirror.percent.chooses(blitz_http::random_u64()) {
        return;
    }
    let length = request.upload.length();
    if matches!(length, BodyLength::Known(length) if length > CONTENT_MAX as u64) {
        return count(|counters| counters.mirrors_without_content += 1);
    }
    let Some(slot) = Slot::take(&gateway.mirrored) else {
        return count(|counters| counters.mirrors_over_limit += 1);
    };
    let mut head = (*request.head).clone();
    // The content is there as a whole, and trailers are not copied.
    for name in [Name::Expect, Name::Trailer] {
        head.fields.remove(name);
    }
    if mirror.sends_own_host {
        head.set_authority(&mirror.target.authority);
    }
    let copy = Copy {
        gateway: Rc::clone(gateway),
        snapshot: Rc::clone(snapshot),
        mirror: mirror.clone(),
        head,
        _slot: slot,
    };
    match length {
        BodyLength::Empty | BodyLength::Known(0) | BodyLength::NothingButTrailers => {
            copy.start(None);
        }
        BodyLength::Known(_) | BodyLength::Unknown => {
            let content = ContentCopy::new(|content| copy.start(Some(content)));
            request.upload.copy_to(content);
        }
    }
}

/// A copy of a request on its way.
struct Copy<E> {
    gateway: Rc<GatewayService<E>>,
    snapshot: Rc<CoreSnapshot>,
    mirror: Mirror,
    head: RequestHead,
    _slot: Slot,
}

/// Why a copy has no response.
enum Lost {
    /// The upstream has no address.
    NoAddress,
    /// It sheds load.
    Shed,
    Failed(ClientError),
}

impl From<ClientError> for Lost {
    fn from(error: ClientError) -> Lost {
        Lost::Failed(error)
    }
}

impl<E: Endpoint> Copy<E> {
    fn start(self, content: Option<Vec<u8>>) {
        count(|counters| counters.mirrored += 1);
        blitz_http::spawn(self.run(content));
    }

    async fn run(mut self, content: Option<Vec<u8>>) {
        let url = self.mirror.target.url();
        let lost = match blitz_http::timeout(TIMEOUT, self.send(content)).await {
            Ok(Ok(())) => return,
            Ok(Err(Lost::NoAddress)) => "it has no address".to_owned(),
            Ok(Err(Lost::Shed)) => "it sheds load".to_owned(),
            Ok(Err(Lost::Failed(error))) => error.to_string(),
            Err(_) => "it took too long".to_owned(),
        };
        count(|counters| counters.mirror_failures += 1);
        tracing::debug!(url, error = lost, "a copy of a request got no response");
    }

    async fn send(&mut self, content: Option<Vec<u8>>) -> Result<(), Lost> {
        let snapshot = Rc::clone(&self.snapshot);
        let upstreams = &self.gateway.upstreams;
        let balancer = Rc::clone(snapshot.balancer(self.mirror.upstream, upstreams));
        let mut choice = self.mirror.group.as_ref().map(|group| {
            let group = snapshot.group(group.number, upstreams);
            Choice::new(group, |_| None, || false)
        });
        let (balancer, upstream, connection) = connect(
            &mut self.head,
            self.mirror.sends_own_host,
            balancer,
            &mut choice,
        )
        .await?;
        let sent = blitz_http::now();
        balancer.sent(&upstream, sent);
        let length = match &content {
            Some(content) => BodyLength::Known(content.len() as u64),
            None => BodyLength::Empty,
        };
        let (mut body, mut stream) = connection.request(&self.head, length);
        stream.set_options(RequestOptions {
            response_timeout: Some(TIMEOUT),
            body_timeout: Some(TIMEOUT),
        });
        if let Some(content) = content {
            // An upstream that takes no content may have responded already.
            let queued = body.queue(Chunk::from(content));
            let _ = queued.and_then(|()| body.finish(None));
        }
        match stream.response().await {
            Ok(response) => {
                let now = blitz_http::now();
                let is_failure = response.head.status.code() >= 500;
                let time = now.saturating_duration_since(sent);
                balancer.responded(&upstream, time, is_failure, now);
                if let Some(choice) = &mut choice {
                    choice.answered(is_failure);
                }
                discard(response).await;
                Ok(())
            }
            Err(error) => {
                let now = blitz_http::now();
                let time = now.saturating_duration_since(sent);
                balancer.unanswered(&upstream, time, !error.is_unprocessed(), now);
                Err(Lost::Failed(error))
            }
        }
    }
}

/// A connection for a copy: to any server that can be reached.
async fn connect(
    head: &mut RequestHead,
    sends_own_host: bool,
    mut balancer: Rc<Balancer>,
    choice: &mut Option<Box<Choice<'_>>>,
) -> Result<(Rc<Balancer>, Upstream, Connection), Lost> {
    let mut tried = Tried::default();
    let mut failed = Lost::NoAddress;
    loop {
        let pick = match choice {
            None => balancer.pick(&mut tried, blitz_http::now),
            Some(choice) => {
                let pick = choice.pick(&mut tried, blitz_http::now());
                if let Some((target, server)) = choice.server() {
                    balancer = Rc::clone(server);
                    if sends_own_host {
                        head.set_authority(&target.authority);
                    }
                }
                pick
            }
        };
        let upstream = match pick {
            Pick::Upstream(upstream) => upstream_for(head, &upstream).clone(),
            Pick::Pending => {
                blitz_http::sleep(PENDING_PAUSE).await;
                continue;
            }
            Pick::Unresolved(_) | Pick::Exhausted => return Err(failed),
        };
        if let Some(choice) = choice
            && let Some(shed) = choice.wanted_permit()
        {
            // A copy does not wait, so that it takes no place of a request.
            let permit = shed.try_admit(blitz_http::now());
            choice.set_permit(permit.ok_or(Lost::Shed)?);
        }
        match upstream.checkout().await {
            Ok(connection) => {
                balancer.connected(&upstream);
                return Ok((balancer, upstream, connection));
            }
            Err(error) => {
                let failure = Failure::of_connection(upstream.address(), &error);
                note_failure(&balancer, &upstream, failure, &error);
                failed = Lost::Failed(error);
            }
        }
    }
}

/// Reads the content of a response, so that its connection can be used again.
async fn discard(mut response: Response) {
    let mut left = RESPONSE_MAX;
    if response.upgraded.is_some() {
        return;
    }
    while let Ok(Some(part)) = response.body.next().await {
        if let Part::Data(slice) = part {
            match left.checked_sub(slice.len()) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    }
}
