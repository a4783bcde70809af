//! The profiles of the board: protocol, requests, connections.

use std::path::{Path, PathBuf};

use crate::board;
use crate::group::{ClientProtocol, Group, LoadTool, Requests as Http3Requests, ServerWork};
use crate::load_tool::wrk;
use crate::peer::write;
use crate::study::{Program, Requests, Version};
use ProfileLoad::{Files, Limited, Pages, Pipelined, Query, Sums};
use Version::{Http1, Http2, Http3};

/// A profile.
#[derive(Debug)]
pub(super) struct Profile {
    pub(super) title: &'static str,
    pub(super) version: Version,
    pub(super) load: ProfileLoad,
    pub(super) connections: u32,
    /// Requests in flight on each.
    pub(super) streams: u32,
    /// For the servers; its name selects it.
    pub(super) group: Group,
}

/// The requests of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProfileLoad {
    /// GET and POST, with and without chunks, by wrk.
    Sums,
    /// 16 requests at once, by wrk.
    Pipelined,
    /// The sums, and every tenth request ends its connection, by wrk.
    Limited,
    /// The sum of a query.
    Query,
    /// Pages of JSON of seven sizes in turn.
    Pages,
    /// 20 files in turn.
    Files,
}

/// Requests that are sent at once on a connection.
const PIPELINE: u32 = 16;

const fn profile(
    name: &'static str,
    title: &'static str,
    version: Version,
    load: ProfileLoad,
    (connections, streams): (u32, u32),
) -> Profile {
    let (protocol, load_tool) = match (version, load) {
        (Http1, Pages) => (ClientProtocol::Tls, LoadTool::Wrk),
        (Http1, _) => (ClientProtocol::Http1, LoadTool::Wrk),
        (Http2, _) => (ClientProtocol::Tls, LoadTool::H2load { varied: false }),
        (Http3, _) => (ClientProtocol::Tls, LoadTool::Http3(Http3Requests::Same)),
    };
    Profile {
        title,
        version,
        load,
        connections,
        streams,
        group: Group {
            name,
            title,
            protocol,
            role: ServerWork::Board,
            load_tool,
            bases: &[],
            plausible: None,
        },
    }
}

/// In the order of the board. It has more connections, for 64 cores.
pub(super) static PROFILES: [Profile; 9] = [
    profile("baseline", "Sums over HTTP/1.1", Http1, Sums, (512, 1)),
    profile(
        "pipelined",
        "Pipelined requests",
        Http1,
        Pipelined,
        (512, PIPELINE),
    ),
    profile(
        "limited-conn",
        "Connections of ten requests",
        Http1,
        Limited,
        (512, 1),
    ),
    profile("json-tls", "JSON over TLS", Http1, Pages, (512, 1)),
    profile("static", "Files over HTTP/1.1", Http1, Files, (256, 1)),
    profile("baseline-h2", "Sums over HTTP/2", Http2, Query, (64, 100)),
    profile("static-h2", "Files over HTTP/2", Http2, Files, (16, 32)),
    profile("baseline-h3", "Sums over HTTP/3", Http3, Query, (64, 64)),
    profile("static-h3", "Files over HTTP/3", Http3, Files, (16, 32)),
];

impl Profile {
    pub(super) fn name(&self) -> &'static str {
        self.group.name
    }

    pub(super) fn scheme(&self) -> &'static str {
        match self.group.protocol {
            ClientProtocol::Tls => "https",
            ClientProtocol::Http1 | ClientProtocol::H2c => "http",
        }
    }

    /// Whether wrk sends the requests: it can send chunks, and several requests at once.
    pub(super) fn needs_wrk(&self) -> bool {
        matches!(self.load, Sums | Pipelined | Limited)
    }

    /// The load in words, with so many connections.
    pub(super) fn words(&self, connections: u32) -> String {
        let requests = match self.load {
            Sums => "a GET, a POST with a length, a POST in chunks, in turn",
            Pipelined => "16 requests at once on each connection",
            Limited => "the same, and every tenth request ends its connection",
            Query => "GET with a query",
            Pages => "seven pages of 1 to 50 items, in turn",
            Files => "20 files of 3 to 300 kB, in turn",
        };
        let streams = match self.streams {
            2.. if self.version != Http1 => format!(" with {} streams each", self.streams),
            _ => String::new(),
        };
        format!(
            "{}, {requests}, {connections} connections{streams}",
            self.version.name(),
        )
    }

    /// The requests for `blitz load`.
    pub(super) fn requests(&self) -> Requests {
        let (path, query, _) = board::SUM_STREAMS;
        match self.load {
            Pages => Requests::Mix(
                board::PAGE_REQUESTS
                    .map(|(count, by)| format!("{}?m={by}", board::page_path(count)))
                    .into(),
            ),
            Files => Requests::Mix(
                board::FILES
                    .map(|(name, _)| {
                        format!(
                            "/{}/{name}\nAccept-Encoding: {}",
                            board::STATIC,
                            board::ACCEPT_ENCODING
                        )
                    })
                    .into(),
            ),
            _ => Requests::Path(format!("{path}?{query}")),
        }
    }

    /// The program that sends the load; writes the script of wrk.
    pub(super) fn program(&self, folder: &Path) -> Result<Program, String> {
        let lines = match self.load {
            Sums => sums() + IN_TURN,
            Limited => sums() + ENDING,
            Pipelined => pipelined(),
            Query | Pages | Files => return Ok(Program::Blitz),
        };
        let file: PathBuf = folder.join(format!("{}.lua", self.name()));
        write(&file, &wrk::script(&lines))?;
        Ok(Program::Script(file))
    }
}

/// Makes the three requests, with and without the end of their connection.
fn sums() -> String {
    let (path, query) = board::SUM;
    let (_, content, _) = board::SUM_RESULTS;
    let length = content.len();
    format!(
        r#"
local requests, ending, turn = {{}}, {{}}, 0
local function three(connection)
  local path = "{path}?{query}"
  local function fields(more)
    more["Connection"] = connection
    return more
  end
  return {{
    wrk.format("GET", path, fields({{}})),
    wrk.format("POST", path, fields({{ ["Content-Type"] = "text/plain" }}), "{content}"),
    wrk.format("POST", path, fields({{ ["Content-Type"] = "text/plain", ["Transfer-Encoding"] = "chunked" }})) ..
      "{length:x}\r\n{content}\r\n0\r\n\r\n",
  }}
end
function init(arguments)
  requests, ending = three(nil), three("close")
end
"#
    )
}

const IN_TURN: &str = r"
function request()
  turn = turn + 1
  return requests[turn % 3 + 1]
end
";

/// The thread has all connections, so that a connection has ten requests in the mean.
const ENDING: &str = r"
function request()
  turn = turn + 1
  if turn % 10 == 0 then return ending[turn % 3 + 1] end
  return requests[turn % 3 + 1]
end
";

fn pipelined() -> String {
    let (path, _) = board::PIPELINE;
    format!(
        r#"
local batch = ""
function init(arguments)
  batch = string.rep(wrk.format("GET", "{path}"), {PIPELINE})
end
function request()
  return batch
end
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_entry() {
        let entry = include_str!("../../../../../boards/httparena/meta.json");
        let entry: serde_json::Value = serde_json::from_str(entry).unwrap();
        let names: Vec<&str> = PROFILES.iter().map(Profile::name).collect();
        assert_eq!(entry["tests"], serde_json::json!(names));
    }

    #[test]
    fn files_are_a_mix_with_what_clients_accept() {
        let files = PROFILES.iter().find(|it| it.name() == "static").unwrap();
        let Requests::Mix(lines) = files.requests() else {
            panic!("no mix")
        };
        assert_eq!(lines.len(), 20);
        assert_eq!(
            lines[0],
            "/static/reset.css\nAccept-Encoding: br;q=1, gzip;q=0.8"
        );
        assert!(!files.needs_wrk());
    }
}
