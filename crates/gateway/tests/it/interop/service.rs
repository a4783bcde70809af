//! `grpc.testing.TestService`, on tonic.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::server::Grpc;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};

use super::messages::{
    EchoStatus, Empty, SimpleRequest, SimpleResponse, StreamingInputCallRequest,
    StreamingInputCallResponse, StreamingOutputCallRequest, StreamingOutputCallResponse, payload,
};

/// The prefix of its methods.
pub(crate) const PATH: &str = "/grpc.testing.TestService/";

/// Metadata that are echoed in the response head.
const ECHO_INITIAL: &str = "x-grpc-test-echo-initial";
/// Metadata that are echoed in the trailers.
const ECHO_TRAILING: &str = "x-grpc-test-echo-trailing-bin";

type Outputs = ReceiverStream<Result<StreamingOutputCallResponse, Status>>;

/// Serves until its task is dropped.
pub(crate) async fn serve(
    listener: tokio::net::TcpListener,
) -> Result<(), tonic::transport::Error> {
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    Server::builder()
        .serve_with_incoming(TestService, incoming)
        .await
}

#[derive(Clone)]
struct TestService;

impl Service<http::Request<Body>> for TestService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async { Ok(answer(request).await) })
    }
}

async fn answer(request: http::Request<Body>) -> http::Response<Body> {
    let initial = request.headers().get(ECHO_INITIAL).cloned();
    let trailing = request.headers().get(ECHO_TRAILING).cloned();
    let method = request.uri().path().strip_prefix(PATH).map(str::to_owned);
    let mut response = match method.as_deref() {
        Some("EmptyCall") => {
            let call = service_fn(|_: Request<Empty>| async { Ok(Response::new(Empty {})) });
            Grpc::new(ProstCodec::default()).unary(call, request).await
        }
        Some("UnaryCall") => {
            let mut grpc = Grpc::new(ProstCodec::default());
            grpc.unary(service_fn(unary_call), request).await
        }
        Some("StreamingInputCall") => {
            let mut grpc = Grpc::new(ProstCodec::default());
            let call = service_fn(streaming_input_call);
            grpc.client_streaming(call, request).await
        }
        Some("StreamingOutputCall") => {
            let mut grpc = Grpc::new(ProstCodec::default());
            let call = service_fn(streaming_output_call);
            grpc.server_streaming(call, request).await
        }
        Some("FullDuplexCall") => {
            let mut grpc = Grpc::new(ProstCodec::default());
            grpc.streaming(service_fn(full_duplex_call), request).await
        }
        _ => Status::unimplemented("there is no such method").into_http(),
    };
    if let Some(value) = initial {
        response.headers_mut().insert(ECHO_INITIAL, value);
    }
    let Some(value) = trailing else {
        return response;
    };
    response.map(|body| {
        Body::new(body.map_frame(move |mut frame| {
            if let Some(trailers) = frame.trailers_mut() {
                trailers.insert(ECHO_TRAILING, value.clone());
            }
            frame
        }))
    })
}

/// Fails with the status that the client requests, if it requests one.
fn check_status(status: Option<EchoStatus>) -> Result<(), Status> {
    match status {
        Some(status) => Err(Status::new(Code::from_i32(status.code), status.message)),
        None => Ok(()),
    }
}

async fn unary_call(request: Request<SimpleRequest>) -> Result<Response<SimpleResponse>, Status> {
    let request = request.into_inner();
    check_status(request.response_status)?;
    let payload = Some(payload(request.response_size));
    Ok(Response::new(SimpleResponse { payload }))
}

async fn streaming_input_call(
    request: Request<Streaming<StreamingInputCallRequest>>,
) -> Result<Response<StreamingInputCallResponse>, Status> {
    let mut requests = request.into_inner();
    let mut sum = 0;
    while let Some(request) = requests.try_next().await? {
        sum += request.payload.unwrap_or_default().body.len();
    }
    let aggregated_payload_size = i32::try_from(sum).unwrap_or(i32::MAX);
    Ok(Response::new(StreamingInputCallResponse {
        aggregated_payload_size,
    }))
}

async fn streaming_output_call(
    request: Request<StreamingOutputCallRequest>,
) -> Result<Response<Outputs>, Status> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let _ = send(request.into_inner(), &sender).await;
    });
    Ok(Response::new(ReceiverStream::new(receiver)))
}

/// Responds to each request when it arrives.
async fn full_duplex_call(
    request: Request<Streaming<StreamingOutputCallRequest>>,
) -> Result<Response<Outputs>, Status> {
    let (sender, receiver) = mpsc::channel(1);
    let mut requests = request.into_inner();
    tokio::spawn(async move {
        while let Ok(Some(request)) = requests.try_next().await {
            if send(request, &sender).await.is_err() {
                return;
            }
        }
    });
    Ok(Response::new(ReceiverStream::new(receiver)))
}

/// Sends the responses that are asked for, each after its time.
///
/// # Errors
/// The client is gone, or has asked for a status that ends the call.
async fn send(
    request: StreamingOutputCallRequest,
    to: &mpsc::Sender<Result<StreamingOutputCallResponse, Status>>,
) -> Result<(), ()> {
    for parameters in request.response_parameters {
        let interval = u64::try_from(parameters.interval_us).unwrap_or_default();
        tokio::time::sleep(Duration::from_micros(interval)).await;
        let payload = Some(payload(parameters.size));
        let response = StreamingOutputCallResponse { payload };
        to.send(Ok(response)).await.map_err(drop)?;
    }
    if let Err(status) = check_status(request.response_status) {
        let _ = to.send(Err(status)).await;
        return Err(());
    }
    Ok(())
}
