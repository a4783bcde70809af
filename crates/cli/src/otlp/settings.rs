//! The settings of an export.

use std::fs;

use blitz_config::{Diagnostic, Placed, Process, Tracing};
use blitz_gateway::access_log::LogSettings;
use blitz_http::{ClientTls, UpstreamTls};

use super::endpoint::{Endpoint, OtlpProtocol};
use crate::authorities;

/// The name of a service of which nobody has chosen another one.
const SERVICE: &str = "blitz";

/// An export and its collector.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ExportSettings {
    pub(super) endpoint: Endpoint,
    pub(super) protocol: OtlpProtocol,
    /// Fields of requests to the collector.
    pub(super) headers: Vec<(String, String)>,
    pub(super) service: String,
    /// The share of new traces that are recorded.
    pub(super) sample: f64,
    /// Whether requests are exported as log records, too.
    pub(super) logs: bool,
    /// The fields of log records, and what is left out of them and of spans.
    pub(super) fields: LogSettings,
}

impl ExportSettings {
    /// `None` if nothing is exported. `fields` are those of the access log.
    pub(super) fn of(process: &Process, fields: LogSettings) -> Option<ExportSettings> {
        let keys = &process.tracing;
        // It was checked.
        let endpoint: Endpoint = keys.otlp.as_ref()?.value.parse().ok()?;
        let text = |key: &Option<Placed<String>>| key.as_ref().map(|text| text.value.clone());
        let protocol = match text(&keys.protocol).as_deref() {
            Some("http") => OtlpProtocol::Http,
            Some(_) => OtlpProtocol::Grpc,
            None => endpoint.protocol(),
        };
        let headers = keys.headers.as_ref();
        Some(ExportSettings {
            endpoint,
            protocol,
            headers: headers.map_or_else(Vec::new, |headers| headers.value.0.clone()),
            service: text(&keys.service).unwrap_or_else(|| SERVICE.to_owned()),
            sample: keys
                .sample
                .as_ref()
                .map_or(1.0, |share| share.value.number()),
            logs: keys.logs.as_ref().is_some_and(|is_on| is_on.value),
            fields,
        })
    }

    /// Whether the keys of `tracing` are equal.
    pub(super) fn has_same_keys(&self, other: &ExportSettings) -> bool {
        let fields = other.fields.clone();
        *other
            == ExportSettings {
                fields,
                ..self.clone()
            }
    }

    /// The attributes of this process, which all spans share.
    pub(super) fn resource(&self) -> Vec<(String, String)> {
        let mut resource = vec![
            ("service.name".to_owned(), self.service.clone()),
            (
                "service.version".to_owned(),
                env!("CARGO_PKG_VERSION").to_owned(),
            ),
        ];
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        if !host.trim().is_empty() {
            resource.push(("host.name".to_owned(), host.trim().to_owned()));
        }
        resource
    }

    /// TLS towards the collector, with the authorities of the system; `None` in clear text.
    ///
    /// # Errors
    /// The host can have no certificate.
    pub(super) fn tls(&self) -> Result<Option<UpstreamTls>, String> {
        if !self.endpoint.is_tls {
            return Ok(None);
        }
        let tls = ClientTls::builder().authorities(authorities::of_system());
        let tls = tls.build();
        let tls = tls.map_err(|error| error.to_string())?;
        let upstream = UpstreamTls::new(&tls.into(), &self.endpoint.host);
        upstream.map(Some).map_err(|error| error.to_string())
    }
}

/// Mistakes that the file's own reader cannot see.
pub(super) fn check(keys: &Tracing, diagnostics: &mut Vec<Diagnostic>) {
    let mut error = |place: &Placed<String>, message: &str, label: String| {
        let span = place.span.clone();
        diagnostics.push(Diagnostic::error("tracing-otlp", span, message, label));
    };
    let Some(otlp) = &keys.otlp else { return };
    let endpoint = match otlp.value.parse::<Endpoint>() {
        Ok(endpoint) => endpoint,
        Err(problem) => {
            return error(otlp, "this is no URL of a collector", problem.to_string());
        }
    };
    let is_grpc = match keys.protocol.as_ref().map(|protocol| &*protocol.value) {
        Some(protocol) => protocol == "grpc",
        None => endpoint.protocol() == OtlpProtocol::Grpc,
    };
    if is_grpc && !endpoint.path.is_empty() {
        let label = "leave out the path, or write protocol = \"http\"".to_owned();
        error(otlp, "a collector has no path over gRPC", label);
    }
}
