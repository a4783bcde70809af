//! nginx.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use super::{
    CONTENT_FOLDER, REQUESTS_PER_CONNECTION_MAX, SMALL_PATH, STREAMS_MAX, StartOptions, is_http3,
    write,
};
use crate::board;
use crate::group::{ClientProtocol, Group, ServerWork};
use crate::process::Workers;
use crate::programs::locate;
use crate::sites::{self, SITES};

/// nginx, with its files in the folder of this run.
pub(crate) fn command(
    group: &Group,
    workers: Workers,
    options: &StartOptions<'_>,
) -> Result<Command, String> {
    if is_http3(group) {
        return Err("nginx before 1.25 does not support HTTP/3".to_owned());
    }
    let listener = listener(group.protocol, options)?;
    if group.role == ServerWork::Board {
        return start(workers, options, &board_server(&listener, options));
    }
    let (upstream, location) = location(group.role, options)?;
    let small = small_location(options);
    let server = format!("{upstream} server {{ {listener} location / {{ {location} }} {small} }}");
    start(workers, options, &server)
}

/// The requests of the board: fixed texts, pages of JSON from files, and the files with those that are compressed already.
fn board_server(listener: &str, options: &StartOptions<'_>) -> String {
    let root = options.folder.join(board::FOLDER);
    let root = root.display();
    let (pipeline, text) = board::PIPELINE;
    let (sum, _) = board::SUM;
    let (without, _, with) = board::SUM_RESULTS;
    let (sum_streams, _, result) = board::SUM_STREAMS;
    let types = board::TYPES.map(|(ending, kind, _)| format!("{kind} {ending};"));
    format!(
        "map $request_method $sum {{ POST {with}; default {without}; }}
  server {{
    {listener}
    types {{ {} }}
    sendfile on; tcp_nopush on; open_file_cache max=100 inactive=1h;
    location = {pipeline} {{ default_type text/plain; return 200 {text}; }}
    location = {sum} {{ default_type text/plain; return 200 $sum; }}
    location = {sum_streams} {{ default_type text/plain; return 200 {result}; }}
    location /{}/ {{ root {root}; try_files $uri.json =404; }}
    location /{}/ {{ root {root}; gzip_static on; gzip_vary on; }}
  }}",
        types.concat(),
        board::PAGES,
        board::STATIC,
    )
}

/// nginx as the backend of proxies: it sends files with `sendfile on`, as it is mostly configured.
pub(crate) fn file_backend(options: &StartOptions<'_>) -> Result<Command, String> {
    let listener = listener(ClientProtocol::Http1, options)?;
    let files = files(options);
    let server =
        format!("server {{ {listener} location / {{ {files} sendfile on; tcp_nopush on; }} }}");
    start(Workers::One, options, &server)
}

/// nginx with a server for each of the [sites](crate::sites), which has these directives.
pub(crate) fn with_sites(
    directives: &str,
    workers: Workers,
    options: &StartOptions<'_>,
) -> Result<Command, String> {
    let mut text = upstream("backend", options.backend, options);
    for site in 0..SITES {
        // The options of an address stand in one server.
        let listener = match site {
            0 => listener(ClientProtocol::Http1, options)?,
            _ => format!("listen {};", options.listen),
        };
        let host = sites::host(site);
        text += &format!(
            "\n  server {{ {listener} server_name {host}; {directives} \
             location / {{ proxy_pass http://backend; {PROXY} }} }}"
        );
    }
    start(workers, options, &text)
}

/// nginx with this content of its `http` block.
fn start(workers: Workers, options: &StartOptions<'_>, server: &str) -> Result<Command, String> {
    let StartOptions {
        listen,
        connections,
        requests,
        ..
    } = options;
    // Each request of a proxy may need a backend connection.
    let worker_connections = connections + requests + 200;
    let workers = workers.count();
    let config = format!(
        "worker_processes {workers};
daemon off;
pid nginx.pid;
error_log stderr crit;
worker_rlimit_nofile 20000;
events {{ worker_connections {worker_connections}; }}
http {{
  access_log off;
  default_type \"text/plain; charset=utf-8\";
  keepalive_requests {REQUESTS_PER_CONNECTION_MAX};
  keepalive_timeout 1h;
  http2_max_concurrent_streams {STREAMS_MAX};
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  {server}
}}
"
    );
    let prefix = options.folder.join(format!("nginx-{}", listen.port()));
    fs::create_dir_all(&prefix).map_err(|e| format!("{}: {e}", prefix.display()))?;
    let file = prefix.join("nginx.conf");
    write(&file, &config)?;
    let mut command = Command::new(locate("nginx")?);
    command
        .arg("-p")
        .arg(&prefix)
        .args(["-e", "stderr", "-c"])
        .arg(&file);
    Ok(command)
}

/// The directives that serve `data-N` for `/data?size=N`.
fn files(options: &StartOptions<'_>) -> String {
    let folder = options.folder.join(CONTENT_FOLDER);
    let folder = folder.display();
    format!("root {folder}; try_files $uri-$arg_size =404; open_file_cache max=100 inactive=1h;")
}

/// The directives that serve the folder of files as nginx mostly does.
fn folder(options: &StartOptions<'_>) -> String {
    let root = options.folder.display();
    format!("root {root}; sendfile on; tcp_nopush on; open_file_cache max=100 inactive=1h;")
}

/// The upstream block, and the directives of the location.
fn location(role: ServerWork, options: &StartOptions<'_>) -> Result<(String, String), String> {
    let backend = options.backend;
    if let Some(response) = role.fixed_response() {
        let (kind, body) = (response.content_type, response.body);
        let directives = format!("default_type \"{kind}\"; return 200 '{body}';");
        return Ok((String::new(), directives));
    }
    match role {
        ServerWork::SendContent => Ok((String::new(), files(options) + " sendfile off;")),
        ServerWork::SendFile { .. } => Ok((String::new(), folder(options))),
        ServerWork::Board => Err("a board has more than one location".to_owned()),
        ServerWork::ProxyToHttp1 | ServerWork::Respond | ServerWork::RespondHealth => Ok((
            upstream("backend", backend, options),
            format!("proxy_pass http://backend; {PROXY}"),
        )),
        ServerWork::ProxyContentToHttp1 => {
            let mut upstreams = upstream("backend", backend, options);
            if let Some(small) = options.small_backend {
                upstreams += &upstream("small", small, options);
            }
            let location = format!("proxy_pass http://backend; {PROXY} {PROXY_CONTENT}");
            Ok((upstreams, location))
        }
        ServerWork::ProxyToH2c => Err("nginx does not support HTTP/2 to upstreams".to_owned()),
    }
}

/// The directives of every proxy.
const PROXY: &str = "proxy_http_version 1.1; proxy_set_header Connection \"\";";
/// Large bodies: no temporary files, and uploads are forwarded as they arrive.
const PROXY_CONTENT: &str = "\
    proxy_buffers 16 16k; proxy_buffer_size 16k; proxy_busy_buffers_size 128k; \
    proxy_max_temp_file_size 0; proxy_request_buffering off; client_max_body_size 0;";

fn upstream(name: &str, backend: SocketAddr, options: &StartOptions<'_>) -> String {
    let requests = options.requests;
    format!(
        "upstream {name} {{ server {backend}; keepalive {requests}; \
         keepalive_requests {REQUESTS_PER_CONNECTION_MAX}; keepalive_timeout 1h; }}"
    )
}

fn small_location(options: &StartOptions<'_>) -> String {
    match options.small_backend {
        Some(_) => format!("location {SMALL_PATH} {{ proxy_pass http://small; {PROXY} }}"),
        None => String::new(),
    }
}

fn listener(protocol: ClientProtocol, options: &StartOptions<'_>) -> Result<String, String> {
    let listen = options.listen;
    Ok(match protocol {
        ClientProtocol::Http1 => format!("listen {listen} backlog=4096;"),
        ClientProtocol::H2c => format!("listen {listen} http2 backlog=4096;"),
        ClientProtocol::Tls => {
            let tls = options.tls()?;
            let (certificate, key) = (tls.certificate.display(), tls.key.display());
            format!(
                "listen {listen} ssl http2 backlog=4096; ssl_protocols TLSv1.3; \
                 ssl_certificate {certificate}; ssl_certificate_key {key}; \
                 ssl_ecdh_curve X25519; ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;"
            )
        }
    })
}
