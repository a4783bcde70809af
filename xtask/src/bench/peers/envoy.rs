//! Envoy.

use std::process::Command;

use serde_json::{Value, json};

use super::super::group::{Front, Group, Task};
use super::super::machine::locate;
use super::super::system::Surroundings;
use super::{STREAMS_MAX, write};

/// Above what any run has under way: Envoy's own bounds would answer with 503.
const UNDER_WAY_MAX: u32 = 1_000_000;
/// What H2O announces, whatever it is told to allow.
const BACKEND_STREAMS_MAX: u32 = 100;
const EXTENSIONS: &str = "type.googleapis.com/envoy.extensions";

/// Envoy with one worker.
pub(crate) fn command(group: &Group, around: &Surroundings<'_>) -> Result<Command, String> {
    let program = locate("envoy").ok_or_else(|| "envoy is not installed".to_owned())?;
    if group.task == Task::Answer {
        return Err("Envoy is only compared as a proxy".to_owned());
    }
    let config = json!({
        "static_resources": {
            "listeners": [listener(group, around)?],
            "clusters": [cluster(group, around)],
        }
    });
    let file = around
        .folder
        .join(format!("envoy-{}.json", around.listen.port()));
    write(&file, &config.to_string())?;
    let mut command = Command::new(program);
    command
        .args(["--concurrency", "1", "--disable-hot-restart", "-l", "error"])
        .arg("-c")
        .arg(&file);
    Ok(command)
}

fn listener(group: &Group, around: &Surroundings<'_>) -> Result<Value, String> {
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
    if group.front == Front::Tls {
        let tls = around.tls()?;
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
    Ok(json!({ "address": address(around.listen), "filter_chains": [chain] }))
}

fn cluster(group: &Group, around: &Surroundings<'_>) -> Value {
    // No more streams than backends announce: it would open them before it knows.
    let (protocol, options) = match group.task {
        Task::ToH2c => (
            "http2_protocol_options",
            json!({ "max_concurrent_streams": BACKEND_STREAMS_MAX }),
        ),
        Task::Answer | Task::ToHttp1 => ("http_protocol_options", json!({})),
    };
    json!({
        "name": "backend",
        "type": "STATIC",
        "circuit_breakers": { "thresholds": [{
            "max_connections": UNDER_WAY_MAX,
            "max_pending_requests": UNDER_WAY_MAX,
            "max_requests": UNDER_WAY_MAX,
        }]},
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": format!("{EXTENSIONS}.upstreams.http.v3.HttpProtocolOptions"),
                "explicit_http_config": { protocol: options },
            },
        },
        "load_assignment": {
            "cluster_name": "backend",
            "endpoints": [{ "lb_endpoints": [{
                "endpoint": { "address": address(around.backend) },
            }]}],
        },
    })
}

fn address(at: std::net::SocketAddr) -> Value {
    json!({ "socket_address": { "address": at.ip().to_string(), "port_value": at.port() } })
}
