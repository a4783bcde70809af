//! The loads: the rows of a published benchmark of a framework, measured again.

use std::thread;

use clap::ValueEnum;

use super::{AXUM, Stage};
use crate::process::LOAD_CORE;
use crate::study::{Case, Length, Load};

/// A part of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum CaseGroup {
    /// Latency of many clients at a time
    Latency,
    /// Requests of three sizes
    Requests,
    /// 1 to 8 client threads
    Threads,
    /// 32 to 1,000 connections
    Connections,
    /// One connection
    One,
    /// A new connection for each request
    Churn,
    /// Head parser and router, without a network
    Parser,
    /// As many connections as there are descriptors
    Descriptors,
}

/// One load.
#[derive(Debug, Clone)]
pub(super) struct Work {
    title: String,
    connections: u32,
    threads: u32,
    length: Length,
    flags: Vec<String>,
}

/// The header fields of a request, beside `Host`: none, 5 as of a program, 10 as of a browser.
const SIZES: [(&str, &[&str]); 3] = [
    ("minimal request", &[]),
    (
        "medium request",
        &[
            "User-Agent: blitz",
            "Accept: text/plain",
            "Accept-Language: en",
            "Accept-Encoding: gzip",
        ],
    ),
    (
        "large request",
        &[
            "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
            "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "Accept-Language: en-GB,en;q=0.7",
            "Accept-Encoding: gzip, deflate, br, zstd",
            "Referer: https://www.example.org/articles/",
            "Cookie: session=0123456789abcdef0123456789abcdef; theme=dark",
            "Cache-Control: no-cache",
            "Sec-Fetch-Mode: navigate",
            "Sec-Fetch-Site: same-origin",
        ],
    ),
];

const CLIENT_THREADS: [u32; 4] = [1, 2, 4, 8];
const CONNECTIONS: [u32; 5] = [32, 100, 256, 500, 1_000];
/// Connections of loads that are about something else.
const CONCURRENT: u32 = 100;
const THREADED: u32 = 64;
const CHURNING: u32 = 32;
/// A number of requests, because the ports of so many new connections are limited.
const CHURN_REQUESTS: u32 = 10_000;
const CHURN_REQUESTS_QUICK: u32 = 2_000;

impl CaseGroup {
    pub(super) const ALL: [CaseGroup; 8] = [
        CaseGroup::Latency,
        CaseGroup::Requests,
        CaseGroup::Threads,
        CaseGroup::Connections,
        CaseGroup::One,
        CaseGroup::Churn,
        CaseGroup::Parser,
        CaseGroup::Descriptors,
    ];

    /// The loads of this part; none for parts that need no load. A quick run has the last one only, which is the
    /// largest.
    pub(super) fn works(self, length: Length, is_quick: bool) -> Vec<Work> {
        let mut works = self.all_works(length, is_quick);
        if is_quick {
            works.drain(..works.len().saturating_sub(1));
        }
        works
    }

    fn all_works(self, length: Length, is_quick: bool) -> Vec<Work> {
        let work = |title: String, connections, threads| Work {
            title,
            connections,
            threads,
            length,
            flags: Vec::new(),
        };
        match self {
            CaseGroup::Latency => {
                let title = format!("{CONCURRENT} concurrent requests");
                vec![work(title, CONCURRENT, 1)]
            }
            CaseGroup::Requests => SIZES
                .iter()
                .map(|(name, fields)| Work {
                    flags: header_flags(fields),
                    ..work((*name).to_owned(), THREADED, 1)
                })
                .collect(),
            CaseGroup::Threads => CLIENT_THREADS
                .iter()
                .map(|&threads| {
                    let title = format!("client threads: {threads}");
                    work(title, THREADED, threads)
                })
                .collect(),
            CaseGroup::Connections => CONNECTIONS
                .iter()
                .map(|&count| work(format!("connections: {count}"), count, 1))
                .collect(),
            CaseGroup::One => vec![work("one connection".to_owned(), 1, 1)],
            CaseGroup::Churn => vec![Work {
                length: Length::Requests(match is_quick {
                    true => CHURN_REQUESTS_QUICK,
                    false => CHURN_REQUESTS,
                }),
                flags: vec!["--new-connections".to_owned()],
                ..work("new connections".to_owned(), CHURNING, 1)
            }],
            CaseGroup::Parser | CaseGroup::Descriptors => Vec::new(),
        }
    }

    pub(super) fn heading(self) -> &'static str {
        match self {
            CaseGroup::Latency => "Latency under concurrent load",
            CaseGroup::Requests => "Requests of different sizes",
            CaseGroup::Threads => "Client threads",
            CaseGroup::Connections => "Connections",
            CaseGroup::One => "One keep-alive connection",
            CaseGroup::Churn => "A new connection for each request",
            CaseGroup::Parser => "Head parser and router",
            CaseGroup::Descriptors => "Descriptors",
        }
    }

    pub(super) fn explanation(self) -> &'static str {
        match self {
            CaseGroup::Latency => {
                "Each client sends its next request when it has the response to the last one."
            }
            CaseGroup::Requests => {
                "The minimal request has the field Host only, the medium one 5 header fields, the large one 10."
            }
            CaseGroup::Threads => {
                "The threads of the generator share the processors that the servers do not use; on a machine with two \
                 processors that is one."
            }
            CaseGroup::Connections => "Keep-alive, one request at a time on each.",
            CaseGroup::One => {
                "One request at a time: the latency is that of one exchange, and the server waits in between."
            }
            CaseGroup::Churn => {
                "Connect, one request, close; each run is a new client that sends a fixed number of requests. The \
                 requests per second are connections per second."
            }
            CaseGroup::Parser => {
                "Nanoseconds of one call in one process, without a network. A sample is the mean of a batch; the \
                 percentiles are those of the batches of a run, and of these the medians of all runs."
            }
            CaseGroup::Descriptors => {
                "Connections that one process opens to each server and keeps open, up to the limit of descriptors. Each \
                 counts when its request was answered."
            }
        }
    }
}

impl Work {
    pub(super) fn case(&self, group: CaseGroup, stage: &Stage) -> Case {
        let cores = match group {
            CaseGroup::Threads => load_cores(),
            _ => LOAD_CORE,
        };
        let load = |load: Load| {
            let mut load = load.with(self.connections, 1);
            load.cores = cores;
            load.threads = self.threads;
            load.flags.extend(self.flags.iter().cloned());
            load
        };
        let connections = match group {
            CaseGroup::Churn => format!("{} at a time", self.connections),
            _ => format!("{} connections, keep-alive", self.connections),
        };
        Case {
            title: self.title.clone(),
            load: format!(
                "GET /hello, {connections}, generator threads: {}.",
                self.threads
            ),
            subjects: stage.subjects(load, self.length),
            base: Some(AXUM.to_owned()),
            not_run: stage.not_run.clone(),
        }
    }
}

fn header_flags(fields: &[&str]) -> Vec<String> {
    let flags = fields.iter().flat_map(|&field| ["-H", field]);
    flags.map(str::to_owned).collect()
}

/// All processors but the server's, in the form of taskset.
fn load_cores() -> &'static str {
    match thread::available_parallelism().map_or(1, usize::from) {
        0..=2 => LOAD_CORE,
        count => format!("1-{}", count - 1).leak(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_document_has_its_load() {
        let length = Length::Requests(1);
        let works = |group: CaseGroup| group.works(length, false);
        assert_eq!(
            CaseGroup::Connections.works(length, true)[0].connections,
            1_000
        );
        let connections = works(CaseGroup::Connections);
        let counts: Vec<u32> = connections.iter().map(|work| work.connections).collect();
        assert_eq!(counts, [32, 100, 256, 500, 1_000]);
        let threads = works(CaseGroup::Threads);
        let counts: Vec<u32> = threads.iter().map(|work| work.threads).collect();
        assert_eq!(counts, [1, 2, 4, 8]);
        // With Host.
        let requests = works(CaseGroup::Requests);
        let fields = requests.iter().map(|work| work.flags.len() / 2 + 1);
        assert_eq!(fields.collect::<Vec<_>>(), [1, 5, 10]);
    }

    #[test]
    fn titles_are_unique() {
        let works = CaseGroup::ALL
            .into_iter()
            .flat_map(|group| group.works(Length::Requests(1), false));
        let mut titles: Vec<String> = works.map(|work| work.title).collect();
        let count = titles.len();
        titles.sort();
        titles.dedup();
        assert_eq!(titles.len(), count);
    }
}
