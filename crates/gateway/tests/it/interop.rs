//! gRPC's interoperability tests, between a client and a server of tonic.

mod messages;
mod service;

use std::future::Future;
use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use blitz_gateway::Failure;
use blitz_http::{IoChoice, ServerTls, TlsSlot};
use blitz_testing::refusing_address;
use http::uri::PathAndQuery;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::support::{Proxy, SOON, Upstream};
use messages::{
    EchoStatus, Empty, ResponseParameters, SimpleRequest, SimpleResponse,
    StreamingInputCallRequest, StreamingInputCallResponse, StreamingOutputCallRequest,
    StreamingOutputCallResponse, payload,
};

/// A gateway between a client and a server of tonic.
struct InteropTest {
    proxy: Proxy,
    runtime: Runtime,
    channel: Channel,
}

impl InteropTest {
    fn new(io: IoChoice) -> InteropTest {
        InteropTest::before(io, &format!("h2c://{}", start_server()))
    }

    fn before(io: IoChoice, upstream: &str) -> InteropTest {
        let proxy = Proxy::to(io, &[upstream]);
        let endpoint = Endpoint::from_shared(format!("http://{}", proxy.address)).unwrap();
        InteropTest::connect(proxy, &endpoint)
    }

    /// The client uses TLS.
    fn over_tls(io: IoChoice) -> InteropTest {
        let made = rcgen::generate_simple_self_signed([String::from("localhost")]).unwrap();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let pair = blitz_http::Certificate::from_pem(certificate.as_bytes(), key.as_bytes());
        let tls = ServerTls::builder().certificate(pair.unwrap()).build();
        let upstream = format!("h2c://{}", start_server());
        let proxy = Proxy::over_tls(io, &[&upstream], TlsSlot::new(tls.unwrap()));
        let trusted = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(certificate))
            .domain_name("localhost");
        let endpoint = Endpoint::from_shared(format!("https://{}", proxy.address)).unwrap();
        let endpoint = endpoint
            .origin("https://localhost".parse().unwrap())
            .tls_config(trusted);
        InteropTest::connect(proxy, &endpoint.unwrap())
    }

    fn connect(proxy: Proxy, endpoint: &Endpoint) -> InteropTest {
        let runtime = runtime();
        let channel = runtime.block_on(endpoint.connect()).unwrap();
        InteropTest {
            proxy,
            runtime,
            channel,
        }
    }

    /// Waits for a call, with a time limit.
    fn wait<T>(&self, call: impl Future<Output = T>) -> T {
        let within = self
            .runtime
            .block_on(async { tokio::time::timeout(SOON, call).await });
        within.unwrap()
    }

    fn grpc(&self) -> Grpc<Channel> {
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(16 << 20);
        self.wait(grpc.ready()).unwrap();
        grpc
    }

    fn empty_call(&self, request: Request<Empty>, method: &str) -> Result<Response<Empty>, Status> {
        self.wait(
            self.grpc()
                .unary(request, path(method), ProstCodec::default()),
        )
    }

    fn unary_call(
        &self,
        request: Request<SimpleRequest>,
    ) -> Result<Response<SimpleResponse>, Status> {
        self.wait(
            self.grpc()
                .unary(request, path("UnaryCall"), ProstCodec::default()),
        )
    }

    /// A call in both directions, and the sender of its requests.
    fn full_duplex_call(
        &self,
        change: impl FnOnce(&mut Request<ReceiverStream<StreamingOutputCallRequest>>),
    ) -> (
        mpsc::Sender<StreamingOutputCallRequest>,
        Result<Streaming<StreamingOutputCallResponse>, Status>,
    ) {
        let (sender, receiver) = mpsc::channel(8);
        let mut request = Request::new(ReceiverStream::new(receiver));
        change(&mut request);
        let mut grpc = self.grpc();
        let call = grpc.streaming(request, path("FullDuplexCall"), ProstCodec::default());
        let answer = self.wait(call).map(Response::into_inner);
        (sender, answer)
    }

    /// Whether the shared upstream connection has no stream of a call that has ended. Otherwise it
    /// would finally accept no more calls.
    fn is_still_usable(&self) -> bool {
        self.is_usable_after(1)
    }

    /// Whether a call succeeds, with so many connections to the upstream in all.
    fn is_usable_after(&self, connects: u64) -> bool {
        self.empty_call(Request::new(Empty {}), "EmptyCall").is_ok()
            && self.proxy.http_counters().upstream_connects == connects
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Serves until the tests end.
fn start_server() -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        runtime().block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            service::serve(listener).await
        })
    });
    address
}

fn path(method: &str) -> PathAndQuery {
    let path = match method.starts_with('/') {
        true => method.to_owned(),
        false => format!("{}{method}", service::PATH),
    };
    path.parse().unwrap()
}

/// Requests responses of these sizes.
fn output(sizes: &[i32], interval_us: i32) -> StreamingOutputCallRequest {
    let parameters = |&size| ResponseParameters { size, interval_us };
    StreamingOutputCallRequest {
        response_parameters: sizes.iter().map(parameters).collect(),
        ..StreamingOutputCallRequest::default()
    }
}

fn size(response: &StreamingOutputCallResponse) -> usize {
    response.payload.as_ref().unwrap().body.len()
}

fn has_echo(metadata: &MetadataMap, trailers: &MetadataMap) -> bool {
    let trailing = trailers.get_bin("x-grpc-test-echo-trailing-bin");
    metadata
        .get("x-grpc-test-echo-initial")
        .is_some_and(|value| value == "test_initial_metadata_value")
        && trailing.is_some_and(|value| value.to_bytes().unwrap().as_ref() == b"\xab\xab\xab")
}

fn with_echo<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let metadata = request.metadata_mut();
    let initial = MetadataValue::from_static("test_initial_metadata_value");
    metadata.insert("x-grpc-test-echo-initial", initial);
    let trailing = MetadataValue::from_bytes(b"\xab\xab\xab");
    metadata.insert_bin("x-grpc-test-echo-trailing-bin", trailing);
    request
}

/// A status message with characters that need encoding.
const SPECIAL: &str = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈 100%\t\n";

scenarios! {
    fn empty_unary(io) {
        let test = InteropTest::new(io);
        let answer = test.empty_call(Request::new(Empty {}), "EmptyCall").unwrap();
        assert_eq!(answer.into_inner(), Empty {});
    }

    fn large_unary(io) {
        for test in [InteropTest::new(io), InteropTest::over_tls(io)] {
            for _ in 0..3 {
                let request = SimpleRequest {
                    response_size: 314_159,
                    payload: Some(payload(271_828)),
                    ..SimpleRequest::default()
                };
                let answer = test.unary_call(Request::new(request)).unwrap().into_inner();
                assert_eq!(answer.payload, Some(payload(314_159)));
            }
            assert!(test.is_still_usable());
        }
    }

    fn client_streaming(io) {
        let test = InteropTest::new(io);
        let requests = [27_182, 8, 1_828, 45_904].map(|size| StreamingInputCallRequest {
            payload: Some(payload(size)),
        });
        let request = Request::new(tokio_stream::iter(requests));
        let mut grpc = test.grpc();
        let call = grpc.client_streaming(request, path("StreamingInputCall"), ProstCodec::default());
        let answer: Response<StreamingInputCallResponse> = test.wait(call).unwrap();
        assert_eq!(answer.into_inner().aggregated_payload_size, 74_922);
    }

    fn server_streaming(io) {
        let test = InteropTest::new(io);
        let sizes = [31_415, 9, 2_653, 58_979];
        let request = Request::new(output(&sizes, 0));
        let mut grpc = test.grpc();
        let call = grpc.server_streaming(request, path("StreamingOutputCall"), ProstCodec::default());
        let mut answers = test.wait(call).unwrap().into_inner();
        for expected in sizes {
            let answer = test.wait(answers.try_next()).unwrap().unwrap();
            assert_eq!(size(&answer), expected as usize);
        }
        assert_eq!(test.wait(answers.try_next()).unwrap(), None);
    }

    fn ping_pong(io) {
        for test in [InteropTest::new(io), InteropTest::over_tls(io)] {
            let (sender, answers) = test.full_duplex_call(|_| ());
            let mut answers = answers.unwrap();
            for (request_size, response_size) in [(27_182, 31_415), (8, 9), (1_828, 2_653), (45_904, 58_979)] {
                let mut request = output(&[response_size], 0);
                request.payload = Some(payload(request_size));
                test.wait(sender.send(request)).unwrap();
                // The next request is sent when the response to this one has arrived.
                let answer = test.wait(answers.try_next()).unwrap().unwrap();
                assert_eq!(size(&answer), response_size as usize);
            }
            drop(sender);
            assert_eq!(test.wait(answers.try_next()).unwrap(), None);
        }
    }

    fn empty_stream(io) {
        let test = InteropTest::new(io);
        let (sender, answers) = test.full_duplex_call(|_| ());
        drop(sender);
        assert_eq!(test.wait(answers.unwrap().try_next()).unwrap(), None);
    }

    fn cancel_after_begin(io) {
        let test = InteropTest::new(io);
        for _ in 0..150 {
            let (sender, receiver) = mpsc::channel::<StreamingInputCallRequest>(1);
            let request = Request::new(ReceiverStream::new(receiver));
            let mut grpc = test.grpc();
            let codec = ProstCodec::<_, StreamingInputCallResponse>::default();
            let call = grpc.client_streaming(request, path("StreamingInputCall"), codec);
            let begun = async { tokio::time::timeout(Duration::from_millis(2), call).await };
            assert!(test.wait(begun).is_err(), "nothing was sent, so nothing is answered");
            drop(sender);
        }
        // More calls than an upstream connection has stream permits, and more cancels than half of the
        // limit of resets (rule 19), so that it rests and another one is used.
        assert!(test.is_usable_after(2));
    }

    fn cancel_after_first_response(io) {
        let test = InteropTest::new(io);
        for _ in 0..150 {
            let (sender, answers) = test.full_duplex_call(|_| ());
            let mut answers = answers.unwrap();
            test.wait(sender.send(output(&[31_415], 0))).unwrap();
            let answer = test.wait(answers.try_next()).unwrap().unwrap();
            assert_eq!(size(&answer), 31_415);
        }
        assert!(test.is_still_usable());
    }

    fn timeout_on_sleeping_server(io) {
        let test = InteropTest::new(io);
        let (sender, answers) = test.full_duplex_call(|request| {
            request.set_timeout(Duration::from_millis(300));
        });
        let mut answers = answers.unwrap();
        test.wait(sender.send(output(&[1, 1], 200_000))).unwrap();
        let answer = test.wait(answers.try_next()).unwrap().unwrap();
        assert_eq!(size(&answer), 1);
        // tonic's own client and server check the deadline only before the first response.
        let status = test.wait(answers.try_next()).unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
        assert_eq!(status.message(), "the deadline of the call has passed");
        assert!(test.is_still_usable());
    }

    fn custom_metadata(io) {
        let test = InteropTest::new(io);
        let request = SimpleRequest {
            response_size: 314_159,
            payload: Some(payload(271_828)),
            ..SimpleRequest::default()
        };
        let answer = test.unary_call(with_echo(request)).unwrap();
        // tonic combines both for the caller of a unary call.
        assert!(has_echo(answer.metadata(), answer.metadata()), "{:?}", answer.metadata());
        let mut request = with_echo(tokio_stream::once(output(&[31_415], 0)));
        request.metadata_mut().insert("x-many", MetadataValue::from_static("a, b"));
        let mut grpc = test.grpc();
        let codec = ProstCodec::<_, StreamingOutputCallResponse>::default();
        let answer = test.wait(grpc.streaming(request, path("FullDuplexCall"), codec)).unwrap();
        let metadata = answer.metadata().clone();
        let mut answers = answer.into_inner();
        while test.wait(answers.try_next()).unwrap().is_some() {}
        let trailers = test.wait(answers.trailers()).unwrap().unwrap();
        assert!(has_echo(&metadata, &trailers), "{metadata:?} {trailers:?}");
    }

    fn status_code_and_message(io) {
        let test = InteropTest::new(io);
        for (code, message) in [(2, "test status message"), (2, SPECIAL), (16, ""), (9, "%")] {
            let message = message.to_owned();
            let response_status = Some(EchoStatus { code, message: message.clone() });
            let request = SimpleRequest {
                response_status: response_status.clone(),
                ..SimpleRequest::default()
            };
            let status = test.unary_call(Request::new(request)).unwrap_err();
            assert_eq!((status.code() as i32, status.message()), (code, &*message));
            let (sender, answers) = test.full_duplex_call(|_| ());
            let mut request = output(&[1], 0);
            request.response_status = response_status;
            test.wait(sender.send(request)).unwrap();
            let mut answers = answers.unwrap();
            assert!(test.wait(answers.try_next()).unwrap().is_some());
            let status = test.wait(answers.try_next()).unwrap_err();
            assert_eq!((status.code() as i32, status.message()), (code, &*message));
        }
    }

    fn unimplemented_method_and_service(io) {
        let test = InteropTest::new(io);
        for method in ["UnimplementedCall", "/grpc.testing.UnimplementedService/UnimplementedCall"] {
            let status = test.empty_call(Request::new(Empty {}), method).unwrap_err();
            assert_eq!(status.code(), Code::Unimplemented);
            assert_eq!(status.message(), "there is no such method");
        }
    }

    fn unreachable_upstream(io) {
        let test = InteropTest::before(io, &format!("h2c://{}", refusing_address()));
        let status = test.empty_call(Request::new(Empty {}), "EmptyCall").unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(status.message(), "the upstream refused the connection");
    }

    fn upstream_with_http1(io) {
        let upstream = Upstream::with_text("hello");
        let test = InteropTest::before(io, &upstream.url());
        let status = test.empty_call(Request::new(Empty {}), "EmptyCall").unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
        assert_eq!(status.message(), Failure::GrpcUnsupported.detail());
        assert!(status.message().contains("h2c:// instead of http://"), "{}", status.message());
    }
}
