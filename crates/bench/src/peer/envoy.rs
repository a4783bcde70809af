//! Envoy.

use std::process::Command;

use serde_json::{Value, json};

use super::{
    CONTENT_BYTES, CONTENT_PATH, STREAMS_MAX, StartOptions, content_file, is_http3, write,
};
use crate::group::{ClientProtocol, Group, ServerWork};
use crate::programs::locate;
use crate::tls_files::TlsFiles;

/// More than any run has in flight: Envoy's default limits would respond with 503.
const IN_FLIGHT_MAX: u32 = 1_000_000;
/// The limit that H2O announces, whatever its configuration is.
const BACKEND_STREAMS_MAX: u32 = 100;
const EXTENSIONS: &str = "type.googleapis.com/envoy.extensions";

/// Envoy with one worker.
pub(crate) fn command(group: &Group, options: &StartOptions<'_>) -> Result<Command, String> {
    if matches!(group.role, ServerWork::SendFile { .. } | ServerWork::Board) {
        return Err("Envoy does not serve folders".to_owned());
    }
    let program = locate("envoy")?;
    let responds = group.role.fixed_response().is_some() || group.role == ServerWork::SendContent;
    let mut listeners = vec![listener(group, options, Transport::Tcp)?];
    if is_http3(group) {
        listeners.push(listener(group, options, Transport::Quic)?);
    }
    let clusters = if responds {
        vec![]
    } else {
        vec![cluster(group, options)]
    };
    let config = json!({ "static_resources": { "listeners": listeners, "clusters": clusters } });
    let file = options
        .folder
        .join(format!("envoy-{}.json", options.listen.port()));
    write(&file, &format!("{config:#}"))?;
    let mut command = Command::new(program);
    command
        .args(["--concurrency", "1", "--disable-hot-restart", "-l", "error"])
        .arg("-c")
        .arg(&file);
    Ok(command)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Tcp,
    Quic,
}

fn listener(
    group: &Group,
    options: &StartOptions<'_>,
    transport: Transport,
) -> Result<Value, String> {
    let is_quic = transport == Transport::Quic;
    let mut chain = json!({
        "filters": [{
            "name": "http",
            "typed_config": {
                "@type": format!("{EXTENSIONS}.filters.network.http_connection_manager.v3.HttpConnectionManager"),
                "stat_prefix": "front",
                "codec_type": if is_quic { "HTTP3" } else { "AUTO" },
                "stream_idle_timeout": "0s",
                "generate_request_id": false,
                "http2_protocol_options": { "max_concurrent_streams": STREAMS_MAX },
                "route_config": {
                    "max_direct_response_body_size_bytes": CONTENT_BYTES,
                    "virtual_hosts": [{
                        "name": "all",
                        "domains": ["*"],
                        "routes": routes(group, options),
                    }],
                },
                "http_filters": [{
                    "name": "router",
                    "typed_config": {
                        "@type": format!("{EXTENSIONS}.filters.http.router.v3.Router"),
                    },
                }],
            },
        }],
    });
    if group.protocol == ClientProtocol::Tls {
        chain["transport_socket"] = tls_socket(options.tls()?, transport);
    }
    let mut listener = json!({ "filter_chains": [chain] });
    listener["address"] = address(options.listen);
    if is_quic {
        listener["address"]["socket_address"]["protocol"] = json!("UDP");
        let limits = json!({ "max_concurrent_streams": STREAMS_MAX });
        listener["udp_listener_config"] = json!({
            "quic_options": { "quic_protocol_options": limits },
            "downstream_socket_config": { "prefer_gro": true },
        });
    }
    Ok(listener)
}

fn routes(group: &Group, options: &StartOptions<'_>) -> Value {
    let respond = |path: &str, body: Value| {
        json!([{
            "match": { "prefix": path },
            "direct_response": { "status": 200, "body": body },
        }])
    };
    if let Some(response) = group.role.fixed_response() {
        return respond("/", json!({ "inline_string": response.body }));
    }
    match group.role {
        ServerWork::SendContent => {
            let file = options.folder.join(content_file());
            respond(CONTENT_PATH, json!({ "filename": file }))
        }
        _ => json!([{
            "match": { "prefix": "/" },
            "route": { "cluster": "backend", "timeout": "0s" },
        }]),
    }
}

fn tls_socket(tls: &TlsFiles, transport: Transport) -> Value {
    let context = json!({
        "alpn_protocols": if transport == Transport::Quic { json!(["h3"]) } else { json!(["h2", "http/1.1"]) },
        "tls_params": {
            "tls_minimum_protocol_version": "TLSv1_3",
            "tls_maximum_protocol_version": "TLSv1_3",
        },
        "tls_certificates": [{
            "certificate_chain": { "filename": tls.certificate },
            "private_key": { "filename": tls.key },
        }],
    });
    let sockets = format!("{EXTENSIONS}.transport_sockets");
    let config = match transport {
        Transport::Tcp => json!({
            "@type": format!("{sockets}.tls.v3.DownstreamTlsContext"),
            "common_tls_context": context,
        }),
        Transport::Quic => json!({
            "@type": format!("{sockets}.quic.v3.QuicDownstreamTransport"),
            "downstream_tls_context": { "common_tls_context": context },
        }),
    };
    json!({ "name": "tls", "typed_config": config })
}

fn cluster(group: &Group, options: &StartOptions<'_>) -> Value {
    // The limit that backends announce: Envoy would open more streams before it knows the limit.
    let (protocol, protocol_options) = match group.role {
        ServerWork::ProxyToH2c => (
            "http2_protocol_options",
            json!({ "max_concurrent_streams": BACKEND_STREAMS_MAX }),
        ),
        ServerWork::Respond
        | ServerWork::RespondHealth
        | ServerWork::SendContent
        | ServerWork::SendFile { .. }
        | ServerWork::Board
        | ServerWork::ProxyToHttp1
        | ServerWork::ProxyContentToHttp1 => ("http_protocol_options", json!({})),
    };
    json!({
        "name": "backend",
        "type": "STATIC",
        "circuit_breakers": { "thresholds": [{
            "max_connections": IN_FLIGHT_MAX,
            "max_pending_requests": IN_FLIGHT_MAX,
            "max_requests": IN_FLIGHT_MAX,
        }]},
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": format!("{EXTENSIONS}.upstreams.http.v3.HttpProtocolOptions"),
                "explicit_http_config": { protocol: protocol_options },
            },
        },
        "load_assignment": {
            "cluster_name": "backend",
            "endpoints": [{ "lb_endpoints": [{
                "endpoint": { "address": address(options.backend) },
            }]}],
        },
    })
}

fn address(at: std::net::SocketAddr) -> Value {
    json!({ "socket_address": { "address": at.ip().to_string(), "port_value": at.port() } })
}
