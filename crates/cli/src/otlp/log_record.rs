//! Requests as log records: the fields of a line of the access log are attributes.

use std::sync::Arc;

use blitz_gateway::access_log::{
    AccessLog, FieldValue, LineWriter, LogField, LogFormat, LogSettings, LogSink,
};
use blitz_gateway::{OwnedRecord, RecordBatch};
use blitz_http::Status;

use super::protobuf::{Attribute, Message};
use super::span::unix_nanos;

/// Fields of `LogRecord`.
pub(super) const TIME: u32 = 1;
pub(super) const SEVERITY: u32 = 2;
pub(super) const SEVERITY_TEXT: u32 = 3;
pub(super) const BODY: u32 = 5;
pub(super) const ATTRIBUTES: u32 = 6;
const FLAGS: u32 = 8;
const TRACE_ID: u32 = 9;
const SPAN_ID: u32 = 10;
pub(super) const OBSERVED_TIME: u32 = 11;

/// The status of nginx for a request whose client has left before the response.
const NO_RESPONSE: u16 = 499;

/// Makes log records.
pub(super) struct LogRecords {
    /// The fields and their redaction.
    log: AccessLog,
    names: Vec<String>,
    lines: LineWriter,
}

/// No lines are written.
struct NoLines;

impl LogSink for NoLines {
    fn write(&self, lines: Vec<u8>) -> Vec<u8> {
        lines
    }
}

impl LogRecords {
    /// With the fields of an access log.
    pub(super) fn new(settings: &LogSettings) -> LogRecords {
        let settings = LogSettings {
            // The combined format has other fields.
            format: LogFormat::Json,
            ..settings.clone()
        };
        let names = settings.fields.iter().map(LogField::name);
        LogRecords {
            names: names.collect(),
            log: AccessLog::new(settings, Arc::new(NoLines)),
            lines: LineWriter::default(),
        }
    }

    /// The log record of a request.
    pub(super) fn record(&mut self, batch: &RecordBatch, record: &OwnedRecord) -> Vec<u8> {
        let mut out = Message::default();
        let time = unix_nanos(batch.wall_clock(record.finished));
        out.fixed64(TIME, time);
        out.fixed64(OBSERVED_TIME, time);
        let (number, text) = severity(record.status);
        out.number(SEVERITY, number);
        out.bytes(SEVERITY_TEXT, text.as_bytes());
        out.message(BODY, |body| body.text(1, &summary(record)));
        let names = &self.names;
        self.lines.fields(batch, record, &self.log, |index, value| {
            let value = match value {
                FieldValue::Text(text) => Attribute::Bytes(text),
                FieldValue::Number(number) => Attribute::Number(number),
                FieldValue::Duration(duration) => Attribute::Decimal(duration.as_secs_f64()),
                FieldValue::True => Attribute::True,
            };
            if let Some(name) = names.get(index) {
                out.attribute(ATTRIBUTES, name, value);
            }
        });
        if let Some(trace) = &record.trace {
            out.fixed32(FLAGS, trace.flags.into());
            out.bytes(TRACE_ID, &trace.trace_id.bytes());
            out.bytes(SPAN_ID, &trace.span_id.bytes());
        }
        out.into_bytes()
    }
}

/// `GET /path 200`.
fn summary(record: &OwnedRecord) -> Vec<u8> {
    let mut text = record.method_name().to_vec();
    text.push(b' ');
    text.extend_from_slice(record.path());
    let status = record.status.map(|status| format!(" {}", status.code()));
    text.extend_from_slice(status.unwrap_or_default().as_bytes());
    text
}

/// The severity by the class of the status.
fn severity(status: Option<Status>) -> (u64, &'static str) {
    match status.map_or(NO_RESPONSE, Status::code) {
        500.. => (17, "ERROR"),
        400.. => (13, "WARN"),
        _ => (9, "INFO"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_of_the_status_is_the_severity() {
        for (status, text) in [
            (Some(Status::OK), "INFO"),
            (Some(Status::NOT_FOUND), "WARN"),
            (Some(Status::BAD_GATEWAY), "ERROR"),
            (None, "WARN"),
        ] {
            assert_eq!(severity(status).1, text);
        }
    }
}
