//! Requests to authorizers: services that decide on the requests of a route (`forward_auth`).
//!
//! They go over the connections of the core's upstreams, and get the head of a request with the same fields about the
//! client that an upstream gets.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use blitz_http::{
    BodyLength, Chunk, ClientError, Connection, FieldName, LocalShortage, Name, Peer, PoolFuture,
    RequestHead, RequestOptions, Response, Scheme, TlsError, Upstream,
};
use blitz_site::{
    Authorizer, AuthorizerAnswer, AuthorizerAttempt, AuthorizerQuestion, Edit, Failure,
    FieldChange, ForwardAuthSettings, PolicyResponse, Rejection, apply_to_request,
};

use super::connect::{PENDING_PAUSE, is_reported, note_failure, upstream_for};
use crate::forward::{self, ForwardedClient, NotForwarded};
use crate::rules::{Edits, Facts};
use crate::service::GatewayService;
use crate::snapshot::CoreSnapshot;
use crate::upstream::{Balancer, Pick, Tried, failure_of_name};

/// The most requests of a core that wait for authorizers.
const WAITING_MAX: usize = 4096;

/// The most content of a refusal, in bytes.
const CONTENT_MAX: usize = 64 * 1024;

/// How long the content of another response may take, which nobody needs: after it the connection can be used again.
const DISCARD_TIME: Duration = Duration::from_millis(100);

/// Asks authorizers about a request.
pub(super) struct CoreAuthorizer<'a, E> {
    pub(super) gateway: &'a GatewayService<E>,
    /// That of the request.
    pub(super) snapshot: &'a CoreSnapshot,
    pub(super) peer: &'a Peer,
    pub(super) head: &'a RequestHead,
    /// Whether authorizers get the certificate of the client, as upstreams do.
    pub(super) sends_certificate: bool,
    /// The changes of the request for its upstream.
    pub(super) request_edits: Option<&'a Edits>,
}

impl<E> Authorizer for CoreAuthorizer<'_, E> {
    fn ask(
        &self,
        question: AuthorizerQuestion<'_>,
    ) -> Result<PoolFuture<AuthorizerAnswer>, Rejection> {
        let settings = question.settings;
        let known = self
            .snapshot
            .authorizer(&settings.origin, &self.gateway.upstreams);
        let (balancer, authority) = known.ok_or(Rejection::AuthorizerUnreachable)?;
        let waiting = Waiting::begin(&self.gateway.waiting_for_authorizers)?;
        let timeout = settings.timeout;
        let call = Call {
            balancer: Rc::clone(balancer),
            head: self.question(&question, authority)?,
            timeout,
            sends_via: self.gateway.options.via,
            attempt: RefCell::default(),
            connecting: RefCell::default(),
        };
        Ok(PoolFuture::new(async move {
            let _waiting = waiting;
            let answered = {
                // Its place in a queue is known as long as it is there.
                let mut run = pin!(call.run());
                let answered = blitz_http::timeout(timeout, run.as_mut()).await;
                answered.unwrap_or_else(|_| Err(call.timed_out()))
            };
            let answered = match answered {
                Ok(response) => call.receive(response).await,
                Err(rejection) => Err(rejection),
            };
            AuthorizerAnswer {
                outcome: answered,
                attempt: call.attempt.take(),
            }
        }))
    }

    fn is_secure(&self) -> bool {
        let trusted = &self.gateway.options.trusted_proxies;
        Facts::of(self.head, self.peer, trusted).scheme == Scheme::Https
    }

    fn trusts_peer(&self) -> bool {
        self.gateway.options.trusted_proxies.contains(self.peer)
    }
}

impl<E> CoreAuthorizer<'_, E> {
    /// The head of the request to the authorizer.
    fn question(
        &self,
        question: &AuthorizerQuestion<'_>,
        authority: &str,
    ) -> Result<RequestHead, Rejection> {
        let settings = question.settings;
        let mut head = question.head.clone();
        let options = &self.gateway.options;
        // WebSockets over HTTP/2 and HTTP/3 are opened by CONNECT.
        let method = match head.protocol() {
            Some(_) => "GET",
            None => head.method_str(),
        };
        let method = method.to_owned();
        let uri = head.path_and_query().to_owned();
        let client = ForwardedClient {
            peer: self.peer,
            trusted_proxies: &options.trusted_proxies,
            is_trusted: options.trusted_proxies.contains(self.peer),
            upgrade: None,
            length: BodyLength::Empty,
            default_authority: authority,
            loop_id: &self.gateway.loop_id,
            sends_via: options.via,
            sends_certificate: self.sends_certificate,
            random: blitz_http::random_u64,
        };
        let scratch = &mut self.gateway.scratch.borrow_mut();
        let edited = forward::edit_request(&mut head, &client, scratch);
        edited.map_err(|problem| match problem {
            NotForwarded::TooManyConnectionOptions => Rejection::ConnectionOptions,
            NotForwarded::Loop => Rejection::AuthorizerFailed,
        })?;
        let mut fields = std::mem::take(&mut head.fields);
        question.identify(&mut fields);
        // The upstream gets others in their place.
        if let Some(edits) = self.request_edits.filter(|edits| edits.have_identity()) {
            apply_to_request(&edits.without_identity(), &mut fields);
        }
        fields.retain(|name, _| is_asked(settings, name));
        let (scheme, host) = (Name::XForwardedProto, Name::XForwardedHost);
        let text = |name| fields.get_str(name).unwrap_or_default().to_owned();
        let url = format!("{}://{}{uri}", text(scheme), text(host));
        let about = [
            ("x-forwarded-method", &method),
            ("x-forwarded-uri", &uri),
            ("x-original-method", &method),
            ("x-original-uri", &uri),
            ("x-original-url", &url),
        ];
        let about = about.map(|(name, value)| Edit {
            name: name.into(),
            change: FieldChange::Set(vec![value.clone().into_bytes()]),
        });
        apply_to_request(&about, &mut fields);
        let asked = RequestHead::parse("GET", &settings.target);
        let mut asked = asked.map_err(|_| Rejection::AuthorizerFailed)?;
        asked.fields = fields;
        asked.set_authority(authority);
        Ok(asked)
    }
}

/// Whether an authorizer gets a field of the request.
fn is_asked(settings: &ForwardAuthSettings, name: FieldName<'_>) -> bool {
    let begins = |start: &[u8]| {
        let name = name.as_bytes().get(..start.len());
        name.is_some_and(|name| name.eq_ignore_ascii_case(start))
    };
    let is_of_message = matches!(
        name.known(),
        Name::Host
            | Name::Expect
            | Name::Trailer
            | Name::Te
            | Name::Range
            | Name::IfMatch
            | Name::IfModifiedSince
            | Name::IfNoneMatch
            | Name::IfRange
            | Name::IfUnmodifiedSince
    );
    if is_of_message || begins(b"content-") || begins(b"sec-websocket-") {
        return false;
    }
    let is_sent = |names: &Vec<String>| {
        let mut names = names.iter();
        names.any(|known| name.as_bytes().eq_ignore_ascii_case(known.as_bytes()))
    };
    settings.send.as_ref().is_none_or(is_sent) || forward::is_of_gateway(name)
}

/// A request that waits, counted until it is dropped.
struct Waiting(Rc<Cell<usize>>);

impl Waiting {
    fn begin(count: &Rc<Cell<usize>>) -> Result<Waiting, Rejection> {
        if count.get() >= WAITING_MAX {
            return Err(Rejection::AuthorizerBusy);
        }
        count.set(count.get() + 1);
        Ok(Waiting(Rc::clone(count)))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// A request to an authorizer.
struct Call {
    balancer: Rc<Balancer>,
    head: RequestHead,
    timeout: Duration,
    sends_via: bool,
    /// The part that is known until now.
    attempt: RefCell<AuthorizerAttempt>,
    /// Where a connection is waited for.
    connecting: RefCell<Option<Upstream>>,
}

impl Call {
    /// Sends it, once more if a used connection ended before a response.
    async fn run(&self) -> Result<Response, Rejection> {
        let mut is_again = false;
        loop {
            let (upstream, connection) = self.connect(is_again).await?;
            let is_reused = connection.is_reused();
            let sent = blitz_http::now();
            self.balancer.sent(&upstream, sent);
            let (_, mut stream) = connection.request(&self.head, BodyLength::Empty);
            stream.set_options(RequestOptions {
                response_timeout: Some(self.timeout),
                body_timeout: Some(self.timeout),
            });
            let mut unanswered = Unanswered(Some((&*self.balancer, &upstream)));
            match stream.response().await {
                Ok(response) => {
                    unanswered.0 = None;
                    let now = blitz_http::now();
                    let time = now.saturating_duration_since(sent);
                    let is_failure = response.head.status.code() >= 500;
                    self.balancer.responded(&upstream, time, is_failure, now);
                    return Ok(response);
                }
                Err(error) => {
                    let may_be_stale = matches!(
                        error,
                        ClientError::Reset { reused: true } | ClientError::Unprocessed
                    );
                    if is_again || !(may_be_stale && is_reused) {
                        tracing::debug!(address = %upstream.address(), %error, "no response of an authorizer");
                        self.note_failure(Failure::from(&error), error.rule());
                        self.attempt.borrow_mut().has_broken_off = has_broken_off(&error);
                        return Err(failure_of(&error));
                    }
                    is_again = true;
                }
            }
        }
    }

    async fn connect(&self, is_again: bool) -> Result<(Upstream, Connection), Rejection> {
        let balancer = &*self.balancer;
        let mut tried = Tried::default();
        // Of several addresses that failed, the one that says most.
        let mut failed: Option<AuthorizerAttempt> = None;
        let mut lacks_ports = false;
        loop {
            match balancer.pick(&mut tried, blitz_http::now) {
                Pick::Upstream(upstream) => {
                    let upstream = upstream_for(&self.head, &upstream).clone();
                    self.note_address(&upstream);
                    *self.connecting.borrow_mut() = Some(upstream.clone());
                    let connected = match is_again {
                        true => upstream.connect().await,
                        false => upstream.checkout().await,
                    };
                    *self.connecting.borrow_mut() = None;
                    match connected {
                        Ok(connection) => {
                            balancer.connected(&upstream);
                            return Ok((upstream, connection));
                        }
                        Err(error) => {
                            tracing::debug!(address = %upstream.address(), %error, "no connection to an authorizer");
                            let failure = Failure::of_connection(upstream.address(), &error);
                            match is_queue_full(&error) {
                                // A later request must not find an address that is known to fail.
                                true => balancer.undecided(&upstream, blitz_http::now()),
                                false => note_failure(balancer, &upstream, failure, &error),
                            }
                            let known = failed.as_ref().and_then(|one| one.failure);
                            if is_reported(failure, known, tried.is_first(&upstream)) {
                                self.note_failure(failure, error.rule());
                                failed = Some(self.attempt.borrow().clone());
                            }
                            if is_at_limit(&error) {
                                return Err(Rejection::AuthorizerBusy);
                            }
                            // Those towards another address may be free.
                            lacks_ports |=
                                matches!(error, ClientError::LocalShortage(LocalShortage::Ports));
                        }
                    }
                }
                Pick::Pending => blitz_http::sleep(PENDING_PAUSE).await,
                Pick::Unresolved(failure) => {
                    self.note_failure(failure_of_name(failure), None);
                    return Err(Rejection::AuthorizerUnreachable);
                }
                Pick::Exhausted => {
                    if let Some(failed) = failed {
                        *self.attempt.borrow_mut() = failed;
                    }
                    return Err(match lacks_ports {
                        true => Rejection::AuthorizerBusy,
                        false => Rejection::AuthorizerUnreachable,
                    });
                }
            }
        }
    }

    /// A further address says nothing about the failure of the one before it.
    fn note_address(&self, upstream: &Upstream) {
        *self.attempt.borrow_mut() = AuthorizerAttempt {
            address: Some(upstream.address().clone()),
            ..AuthorizerAttempt::default()
        };
    }

    /// A request that waits for its turn only says nothing about the authorizer.
    #[cold]
    fn timed_out(&self) -> Rejection {
        let connecting = self.connecting.borrow();
        if connecting.as_ref().is_some_and(Upstream::is_waited_for) {
            self.note_failure(Failure::ConnectionLimitReached, None);
            return Rejection::AuthorizerBusy;
        }
        self.note_failure(Failure::HttpResponseTimeout, None);
        Rejection::AuthorizerTimeout
    }

    #[cold]
    fn note_failure(&self, failure: Failure, rule: Option<&'static str>) {
        let mut attempt = self.attempt.borrow_mut();
        (attempt.failure, attempt.rule) = (Some(failure), rule);
    }

    /// The response, with the content of a refusal. Its head is the decision: without its content, which a client may make
    /// long, the refusal is an empty one.
    async fn receive(&self, response: Response) -> Result<PolicyResponse, Rejection> {
        let Response {
            mut head,
            mut body,
            upgraded,
        } = response;
        if upgraded.is_some() {
            self.attempt.borrow_mut().status = Some(head.status);
            return Err(Rejection::AuthorizerFailed);
        }
        forward::edit_response(&mut head, self.sends_via, &mut Vec::new());
        head.fields.remove(Name::Trailer);
        let is_refusal = (300..500).contains(&head.status.code());
        let content = match is_refusal {
            true => {
                let content = body.read_to_end(CONTENT_MAX);
                let read = blitz_http::timeout(self.timeout, content).await;
                read.ok().and_then(Result::ok).map(Chunk::from)
            }
            false => {
                if !body.is_done() && body.take_whole().is_none() {
                    let rest = body.read_to_end(CONTENT_MAX);
                    let _ = blitz_http::timeout(DISCARD_TIME, rest).await;
                }
                None
            }
        };
        if content.is_none() {
            for name in [
                Name::ContentType,
                Name::ContentEncoding,
                Name::ContentLanguage,
            ] {
                head.fields.remove(name);
            }
        }
        let content = content.unwrap_or_else(|| Chunk::from(""));
        // The length is that of the content that the client gets.
        head.fields.remove(Name::ContentLength);
        Ok(PolicyResponse { head, content })
    }
}

/// A request that is sent and has no response yet.
struct Unanswered<'a>(Option<(&'a Balancer, &'a Upstream)>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some((balancer, upstream)) = self.0 {
            balancer.unanswered(upstream, Duration::ZERO, false, blitz_http::now());
        }
    }
}

/// Whether a limit of this machine is reached, which clients with many requests can reach, rather than the authorizer absent.
fn is_at_limit(error: &ClientError) -> bool {
    let is_shortage = matches!(
        error,
        ClientError::Busy
            | ClientError::QueueFull
            | ClientError::LocalShortage(LocalShortage::Descriptors | LocalShortage::Memory)
    );
    is_shortage || is_queue_full(error)
}

/// Whether more connections wait on a unix socket than it takes.
fn is_queue_full(error: &ClientError) -> bool {
    matches!(error, ClientError::ConnectFailed(io::ErrorKind::WouldBlock))
}

/// Whether nothing of a response came, by no decision of the authorizer. A connection that it ends with an error, because
/// of this request or of another one, does not count: the request may be made for that.
fn has_broken_off(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::Reset { .. } | ClientError::Tls(TlsError::Alert(_))
    )
}

fn failure_of(error: &ClientError) -> Rejection {
    match Failure::from(error) {
        Failure::HttpResponseTimeout => Rejection::AuthorizerTimeout,
        Failure::HttpResponseHeaderSectionSize => Rejection::AuthorizerTooLarge,
        _ => Rejection::AuthorizerFailed,
    }
}
