//! The access log of the gateway has one line for each request that it has received, which says what its client got.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use blitz_gateway::access_log::{AccessLog, LogField, LogFormat, LogSettings, LogSink};

use crate::ledger::{Ending, Ledger};

/// The lines of all cores.
#[derive(Default)]
pub(crate) struct LoggedLines(Arc<Kept>);

#[derive(Default)]
struct Kept(Mutex<Vec<u8>>);

impl LogSink for Kept {
    fn write(&self, mut lines: Vec<u8>) -> Vec<u8> {
        let mut kept = self.0.lock().expect("no thread panics while it adds lines");
        kept.extend_from_slice(&lines);
        lines.clear();
        lines
    }
}

/// The parts of a line that are checked.
#[derive(Debug)]
struct LoggedRequest {
    status: Option<u16>,
    ended: String,
}

impl LoggedLines {
    /// A log whose lines are kept here.
    pub(crate) fn log(&self) -> Arc<AccessLog> {
        let fields = ["path", "status", "ended", "cause"];
        let settings = LogSettings {
            format: LogFormat::Logfmt,
            fields: fields
                .map(|field| field.parse::<LogField>().expect("there is such a field"))
                .to_vec(),
            ..LogSettings::default()
        };
        let sink = Arc::clone(&self.0) as Arc<dyn LogSink>;
        Arc::new(AccessLog::new(settings, sink))
    }

    /// The lines of each request, by its id.
    fn by_id(&self) -> BTreeMap<u64, Vec<LoggedRequest>> {
        let kept = self
            .0
            .0
            .lock()
            .expect("no thread panics while it adds lines");
        let text = String::from_utf8_lossy(&kept);
        let mut lines = BTreeMap::<u64, Vec<LoggedRequest>>::new();
        for line in text.lines() {
            let value = |name: &str| {
                let mut fields = line.split(' ').filter_map(|field| field.split_once('='));
                fields
                    .find(|(field, _)| *field == name)
                    .map(|(_, value)| value)
            };
            if value("path").is_none() {
                // A handshake failed, or the request line was cut off or refused, and with it the id.
                continue;
            }
            let path = value("path").unwrap_or_default();
            let path = path.split('?').next().unwrap_or_default();
            let id = path.rsplit('/').next().and_then(|id| id.parse().ok());
            let request = LoggedRequest {
                status: value("status").and_then(|status| status.parse().ok()),
                ended: value("ended").unwrap_or_default().to_owned(),
            };
            lines
                .entry(id.unwrap_or_default())
                .or_default()
                .push(request);
        }
        lines
    }
}

/// Compares the lines with what the clients got.
pub(crate) fn check(ledger: &Ledger) {
    let mut lines = ledger.logged.by_id();
    for (id, arrivals, ending) in ledger.endings() {
        let lines = lines.remove(&id).unwrap_or_default();
        let is_right = match (&ending, lines.as_slice()) {
            // A client of HTTP/1.1 needs no more than the content of a response whose upstream has not ended it.
            (Ending::Complete, [line]) => {
                let is_cut_off = line.ended == "cut-off" && ledger.upstream_resets(id);
                line.status.is_some() && (line.ended == "complete" || is_cut_off)
            }
            (Ending::Refused(status), [line]) => {
                // A call ends with a status of gRPC.
                let is_call = ledger
                    .find(id)
                    .is_some_and(|request| request.call.is_some());
                line.status == Some(*status) || (is_call && line.status == Some(200))
            }
            (Ending::NotSent, []) => true,
            (Ending::Complete | Ending::Refused(_) | Ending::NotSent, _) => false,
            (_, [line]) => line.ended != "complete" || line.status.is_some(),
            // The client may have left before its head was complete.
            (_, []) => arrivals == 0,
            _ => false,
        };
        if !is_right {
            ledger.violate(format!(
                "request {id} ended with {ending:?} and arrived at an upstream {arrivals} times, and the access log \
                 has {lines:?}"
            ));
        }
    }
    if let Some((id, lines)) = lines.first_key_value() {
        ledger.violate(format!(
            "the access log has lines of request {id}, which nobody sent: {lines:?}"
        ));
    }
}
