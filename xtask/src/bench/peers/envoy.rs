//! Envoy.

use std::process::Command;

use serde_json::{Value, json};

use super::super::group::{ClientProtocol, Group, ServerRole};
use super::super::machine::locate;
use super::{STREAMS_MAX, StartOptions, write};

/// More than any run has in flight: Envoy's default limits would respond with 503.
const IN_FLIGHT_MAX: u32 = 1_000_000;
/// The limit that H2O announces, whatever its configuration is.
const BACKEND_STREAMS_MAX: u32 = 100;
const EXTENSIONS: &str = "type.googleapis.com/envoy.extensions";

/// Envoy with one worker.
pub(crate) fn command(group: &Group, options: &StartOptions<'_>) -> Result<Command, String> {
    let program = locate("envoy").ok_or_else(|| "envoy is not installed".to_owned())?;
    if group.role == ServerRole::Respond {
        return Err("Envoy is compared only as a proxy".to_owned());
    }
    let config = json!({
        "static_resources": {
            "listeners": [listener(group, options)?],
            "clusters": [cluster(group, options)],
        }
    });
    let file = options
        .folder
        .join(format!("envoy-{}.json", options.listen.port()));
    write(&file, &config.to_string())?;
    let mut command = Command::new(program);
    command
        .args(["--concurrency", "1", "--disable-hot-restart", "-l", "error"])
        .arg("-c")
        .arg(&file);
    Ok(command)
}

fn listener(group: &Group, options: &StartOptions<'_>) -> Result<Value, String> {
    let mut chain = json!({
        "filters": [{
            "name": "http",
            "typed_config": {
                "@type": format!("{EXTENSIONS}.filters.network.http_connection_manager.v3.HttpConnectionManager"),
                "stat_prefix": "front",
                "codec_type": "AUTO",
                "stream_idle_timeout": "0s",
                "generate_request_id": false,
                "http2_protocol_options": { "max_concurrent_streams": STREAMS_MAX },
                "route_config": { "virtual_hosts": [{
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{
                        "match": { "prefix": "/" },
                        "route": { "cluster": "backend", "timeout": "0s" },
                    }],
                }]},
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
        let tls = options.tls()?;
        chain["transport_socket"] = json!({
            "name": "tls",
            "typed_config": {
                "@type": format!("{EXTENSIONS}.transport_sockets.tls.v3.DownstreamTlsContext"),
                "common_tls_context": {
                    "alpn_protocols": ["h2", "http/1.1"],
                    "tls_params": {
                        "tls_minimum_protocol_version": "TLSv1_3",
                        "tls_maximum_protocol_version": "TLSv1_3",
                    },
                    "tls_certificates": [{
                        "certificate_chain": { "filename": tls.certificate },
                        "private_key": { "filename": tls.key },
                    }],
                },
            },
        });
    }
    Ok(json!({ "address": address(options.listen), "filter_chains": [chain] }))
}

fn cluster(group: &Group, options: &StartOptions<'_>) -> Value {
    // The limit that backends announce: Envoy would open more streams before it knows the limit.
    let (protocol, protocol_options) = match group.role {
        ServerRole::ProxyToH2c => (
            "http2_protocol_options",
            json!({ "max_concurrent_streams": BACKEND_STREAMS_MAX }),
        ),
        ServerRole::Respond
        | ServerRole::SendContent
        | ServerRole::ProxyToHttp1
        | ServerRole::ProxyContentToHttp1 => ("http_protocol_options", json!({})),
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
