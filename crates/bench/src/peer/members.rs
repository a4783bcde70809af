//! Proxies before several members: with the defaults that each has, and with good settings.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{REQUESTS_PER_CONNECTION_MAX, write};
use crate::programs::{Programs, locate};

/// A proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MembersProxy {
    Blitz,
    Nginx,
    Haproxy,
    Envoy,
}

/// How much of a proxy is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settings {
    /// The members, and what no configuration can leave out.
    Default,
    /// The recommendations of its documentation against failing members. All have the same deadlines.
    Tuned,
}

/// The addresses and the files of a start.
pub(crate) struct Front<'a> {
    pub(crate) listen: SocketAddr,
    pub(crate) members: &'a [SocketAddr],
    pub(crate) folder: &'a Path,
    pub(crate) programs: &'a Programs,
}

/// Connections of clients that every proxy has room for.
const CLIENTS_MAX: u32 = 8_000;
/// Connections to members that nginx keeps. Without them a run would use up the ports.
const KEPT: u32 = 256;
/// More than any run has in flight.
const IN_FLIGHT_MAX: u32 = 100_000;
const EXTENSIONS: &str = "type.googleapis.com/envoy.extensions";

/// Shorter deadlines, as many attempts as there are members, and checks. The rest is on by default.
const BLITZ_SITE: &str = "retries = 2\ntimeout = { connect = \"500ms\", response = \"1s\" }\n";
const BLITZ_UPSTREAM: &str =
    "health = { path = \"/\", interval = \"500ms\", timeout = \"500ms\", rise = 2, fall = 2 }\n";

/// With `random two least_conn` a slow member gets less, as with the defaults of Blitz.
const NGINX_UPSTREAM: &str = "random two least_conn;";
const NGINX_SERVER: &str = " max_fails=1 fail_timeout=10s";
const NGINX_LOCATION: &str = "\
    proxy_connect_timeout 500ms; proxy_send_timeout 1s; proxy_read_timeout 1s; \
    proxy_next_upstream error timeout http_502 http_503 http_504; \
    proxy_next_upstream_tries 3; proxy_next_upstream_timeout 3s;";

/// HAProxy warns of missing timeouts, so that its defaults have those of its documentation.
const HAPROXY_DEFAULTS: &str = "  timeout connect 5s\n  timeout client 50s\n  timeout server 50s\n";
const HAPROXY_TUNED: &str =
    "  timeout connect 500ms\n  timeout client 50s\n  timeout server 1s\n  timeout check 500ms\n";
const HAPROXY_BACKEND: &str = "  balance leastconn
  option httpchk GET /
  option redispatch 1
  retries 2
  retry-on conn-failure empty-response response-timeout 502 503 504
  default-server check inter 500ms fall 2 rise 2 observe layer7 error-limit 5 on-error mark-down
";

impl MembersProxy {
    /// The installed program; `None` for Blitz.
    pub(crate) fn program(self) -> Option<&'static str> {
        match self {
            MembersProxy::Blitz => None,
            MembersProxy::Nginx => Some("nginx"),
            MembersProxy::Haproxy => Some("haproxy"),
            MembersProxy::Envoy => Some("envoy"),
        }
    }

    /// The command; writes the configuration.
    ///
    /// # Errors
    /// The program is not installed, or the file cannot be written.
    pub(crate) fn command(self, settings: Settings, front: &Front<'_>) -> Result<Command, String> {
        let program = match self.program() {
            Some(program) => locate(program)?,
            None => front.programs.blitz().to_owned(),
        };
        let port = front.listen.port();
        let mut command = Command::new(program);
        match self {
            MembersProxy::Blitz => {
                let file = front.folder.join(format!("blitz-{port}.toml"));
                write(&file, &blitz(settings, front))?;
                command.args(["run", "--cores", "1", "--config"]).arg(file);
            }
            MembersProxy::Nginx => {
                let prefix = front.folder.join(format!("nginx-{port}"));
                fs::create_dir_all(&prefix).map_err(|e| format!("{}: {e}", prefix.display()))?;
                let file = prefix.join("nginx.conf");
                write(&file, &nginx(settings, front))?;
                command.arg("-p").arg(&prefix);
                command.args(["-e", "stderr", "-c"]).arg(file);
            }
            MembersProxy::Haproxy => {
                let file = front.folder.join(format!("haproxy-{port}.cfg"));
                write(&file, &haproxy(settings, front))?;
                command.args(["-db", "-q", "-f"]).arg(file);
            }
            MembersProxy::Envoy => {
                let file = front.folder.join(format!("envoy-{port}.json"));
                write(&file, &format!("{:#}", envoy(settings, front)))?;
                let flags = ["--concurrency", "1", "--disable-hot-restart", "-l", "off"];
                command.args(flags).arg("-c").arg(file);
            }
        }
        Ok(command)
    }
}

fn blitz(settings: Settings, front: &Front<'_>) -> String {
    let members: Vec<String> = front
        .members
        .iter()
        .map(|member| format!("\"http://{member}\""))
        .collect();
    let (site, upstream) = match settings {
        Settings::Default => ("", ""),
        Settings::Tuned => (BLITZ_SITE, BLITZ_UPSTREAM),
    };
    format!(
        "listen = [\"{}\"]\ncontrol = false\n\n[upstream.members]\nservers = [{}]\n{upstream}\n\
         [site.\"*\"]\nto = \"members\"\n{site}",
        front.listen,
        members.join(", ")
    )
}

fn nginx(settings: Settings, front: &Front<'_>) -> String {
    let (upstream, server, location) = match settings {
        Settings::Default => ("", "", ""),
        Settings::Tuned => (NGINX_UPSTREAM, NGINX_SERVER, NGINX_LOCATION),
    };
    let members: String = front
        .members
        .iter()
        .map(|member| format!("    server {member}{server};\n"))
        .collect();
    format!(
        "worker_processes 1;
daemon off;
pid nginx.pid;
error_log stderr emerg;
worker_rlimit_nofile 20000;
events {{ worker_connections {CLIENTS_MAX}; }}
http {{
  access_log off;
  keepalive_requests {REQUESTS_PER_CONNECTION_MAX};
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  upstream members {{
    {upstream}
{members}    keepalive {KEPT};
    keepalive_requests {REQUESTS_PER_CONNECTION_MAX};
  }}
  server {{
    listen {} backlog=4096;
    location / {{
      proxy_pass http://members;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      {location}
    }}
  }}
}}
",
        front.listen
    )
}

fn haproxy(settings: Settings, front: &Front<'_>) -> String {
    let (timeouts, backend) = match settings {
        Settings::Default => (HAPROXY_DEFAULTS, ""),
        Settings::Tuned => (HAPROXY_TUNED, HAPROXY_BACKEND),
    };
    let members = front.members.iter().enumerate();
    let members: String = members
        .map(|(index, member)| format!("  server member{index} {member}\n"))
        .collect();
    format!(
        "global
  nbthread 1
  no strict-limits
  maxconn {CLIENTS_MAX}
defaults
  mode http
{timeouts}frontend front
  bind {} backlog 4096
  default_backend members
backend members
{backend}{members}",
        front.listen
    )
}

fn envoy(settings: Settings, front: &Front<'_>) -> Value {
    let address = |at: &SocketAddr| json!({ "socket_address": { "address": at.ip().to_string(), "port_value": at.port() } });
    let endpoints = front
        .members
        .iter()
        .map(|member| json!({ "endpoint": { "address": address(member) } }));
    let endpoints: Vec<Value> = endpoints.collect();
    let mut cluster = json!({
        "name": "members",
        "type": "STATIC",
        "load_assignment": {
            "cluster_name": "members",
            "endpoints": [{ "lb_endpoints": endpoints }],
        },
    });
    let mut route = json!({ "cluster": "members" });
    if settings == Settings::Tuned {
        tune_envoy(&mut cluster, &mut route);
    }
    let manager =
        format!("{EXTENSIONS}.filters.network.http_connection_manager.v3.HttpConnectionManager");
    json!({ "static_resources": {
        "clusters": [cluster],
        "listeners": [{
            "address": address(&front.listen),
            "filter_chains": [{ "filters": [{
                "name": "http",
                "typed_config": {
                    "@type": manager,
                    "stat_prefix": "front",
                    "route_config": { "virtual_hosts": [{
                        "name": "all",
                        "domains": ["*"],
                        "routes": [{ "match": { "prefix": "/" }, "route": route }],
                    }]},
                    "http_filters": [{
                        "name": "router",
                        "typed_config": { "@type": format!("{EXTENSIONS}.filters.http.router.v3.Router") },
                    }],
                },
            }]}],
        }],
    }})
}

/// Outlier detection, health checks, and retries on other hosts with a budget.
fn tune_envoy(cluster: &mut Value, route: &mut Value) {
    cluster["lb_policy"] = json!("LEAST_REQUEST");
    cluster["connect_timeout"] = json!("0.5s");
    cluster["circuit_breakers"] = json!({ "thresholds": [{
        "max_connections": IN_FLIGHT_MAX,
        "max_pending_requests": IN_FLIGHT_MAX,
        "max_requests": IN_FLIGHT_MAX,
        "retry_budget": { "budget_percent": { "value": 20.0 }, "min_retry_concurrency": 10 },
    }]});
    cluster["outlier_detection"] = json!({
        "consecutive_5xx": 5,
        "consecutive_gateway_failure": 3,
        "enforcing_consecutive_gateway_failure": 100,
        "split_external_local_origin_errors": true,
        "consecutive_local_origin_failure": 3,
        "interval": "0.5s",
        "base_ejection_time": "5s",
        "max_ejection_percent": 50,
    });
    cluster["health_checks"] = json!([{
        "timeout": "0.5s",
        "interval": "0.5s",
        "no_traffic_interval": "0.5s",
        "unhealthy_threshold": 2,
        "healthy_threshold": 2,
        "http_health_check": { "path": "/" },
    }]);
    route["timeout"] = json!("3s");
    route["retry_policy"] = json!({
        "retry_on": "connect-failure,reset,refused-stream,gateway-error",
        "num_retries": 2,
        "per_try_timeout": "1s",
        "host_selection_retry_max_attempts": 3,
        "retry_host_predicate": [{
            "name": "previous",
            "typed_config": {
                "@type": format!("{EXTENSIONS}.retry.host.previous_hosts.v3.PreviousHostsPredicate"),
            },
        }],
    });
}

#[cfg(test)]
mod tests {
    use blitz_config::{Document, Environment};

    use super::*;
    use crate::run_folder::TestFolder;

    fn members() -> Vec<SocketAddr> {
        (1..=3)
            .map(|port| SocketAddr::from(([127, 0, 0, 1], 7000 + port)))
            .collect()
    }

    fn with_front<T>(of: impl FnOnce(&Front<'_>) -> T) -> T {
        let programs = Programs::new(None).unwrap();
        let folder = TestFolder::create();
        of(&Front {
            listen: SocketAddr::from(([127, 0, 0, 1], 8000)),
            members: &members(),
            folder: folder.path(),
            programs: &programs,
        })
    }

    #[test]
    fn every_text_has_all_members_and_defaults_have_no_deadlines_of_their_own() {
        with_front(|front| {
            for settings in [Settings::Default, Settings::Tuned] {
                let envoy = envoy(settings, front).to_string();
                let texts = [
                    blitz(settings, front),
                    nginx(settings, front),
                    haproxy(settings, front),
                    envoy.replace("\"address\":\"127.0.0.1\",\"port_value\":", "127.0.0.1:"),
                ];
                for text in texts {
                    for member in front.members {
                        assert!(text.contains(&member.to_string()), "{member}: {text}");
                    }
                }
            }
            assert!(!blitz(Settings::Default, front).contains("timeout"));
            assert!(!nginx(Settings::Default, front).contains("proxy_read_timeout"));
            assert!(!haproxy(Settings::Default, front).contains("check"));
            let default = envoy(Settings::Default, front);
            let cluster = &default["static_resources"]["clusters"][0];
            assert!(cluster.get("outlier_detection").is_none(), "{cluster}");
        });
    }

    #[test]
    fn tuned_proxies_have_the_same_deadlines() {
        with_front(|front| {
            let blitz = blitz(Settings::Tuned, front);
            assert!(
                blitz.contains("connect = \"500ms\", response = \"1s\""),
                "{blitz}"
            );
            let nginx = nginx(Settings::Tuned, front);
            assert!(
                nginx.contains("proxy_connect_timeout 500ms")
                    && nginx.contains("proxy_read_timeout 1s")
            );
            let haproxy = haproxy(Settings::Tuned, front);
            assert!(
                haproxy.contains("timeout connect 500ms") && haproxy.contains("timeout server 1s")
            );
            let envoy = envoy(Settings::Tuned, front);
            let resources = &envoy["static_resources"];
            assert_eq!(resources["clusters"][0]["connect_timeout"], "0.5s");
            let manager =
                &resources["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"];
            let route = &manager["route_config"]["virtual_hosts"][0]["routes"][0]["route"];
            assert_eq!(route["retry_policy"]["per_try_timeout"], "1s");
        });
    }

    #[test]
    fn blitz_reads_its_configuration() {
        with_front(|front| {
            for settings in [Settings::Default, Settings::Tuned] {
                let command = MembersProxy::Blitz.command(settings, front).unwrap();
                let file = front.folder.join("blitz-8000.toml");
                assert_eq!(command.get_args().last(), Some(file.as_os_str()));
                let document = Document::new("blitz.toml", fs::read_to_string(&file).unwrap());
                let (_, diagnostics) = blitz_config::read(&document, &Environment::default());
                assert!(diagnostics.is_empty(), "{diagnostics:?}");
            }
        });
    }
}
