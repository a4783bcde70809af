//! Which form of a response a client prefers (RFC 9110, section 12.5.1).

/// The forms of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    OpenMetrics,
    /// The text of Prometheus before OpenMetrics, version 0.0.4.
    Text,
    Protobuf,
}

/// Weights are in thousandths.
const WEIGHT_MAX: u32 = 1000;

/// The form with the greatest weight, of equal ones the first that is named; OpenMetrics if none is.
pub(super) fn metrics_format(accept: Option<&str>) -> Format {
    let mut best = (0, Format::OpenMetrics);
    for range in ranges(accept) {
        let format = match range.media_type.as_str() {
            "application/openmetrics-text" => Format::OpenMetrics,
            "application/vnd.google.protobuf" if range.is_metric_family() => Format::Protobuf,
            // A browser shows it.
            "text/plain" | "text/html" => Format::Text,
            _ => continue,
        };
        if range.weight > best.0 {
            best = (range.weight, format);
        }
    }
    best.1
}

/// Whether a client names HTML, as browsers do.
pub(super) fn prefers_html(accept: Option<&str>) -> bool {
    ranges(accept).any(|range| range.media_type == "text/html" && range.weight > 0)
}

struct Range {
    /// In lower case.
    media_type: String,
    parameters: Vec<(String, String)>,
    weight: u32,
}

impl Range {
    fn is_metric_family(&self) -> bool {
        let has = |name: &str, value: &str| {
            let mut parameters = self.parameters.iter();
            parameters.any(|(known, found)| known == name && found == value)
        };
        has("proto", "io.prometheus.client.MetricFamily") && has("encoding", "delimited")
    }
}

fn ranges(accept: Option<&str>) -> impl Iterator<Item = Range> {
    let ranges = accept.unwrap_or_default().split(',');
    ranges.map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default().to_ascii_lowercase();
        let pair = |part: &str| {
            let (name, value) = part.split_once('=')?;
            let value = value.trim().trim_matches('"');
            Some((name.trim().to_ascii_lowercase(), value.to_owned()))
        };
        let parameters: Vec<_> = parts.filter_map(pair).collect();
        let weight = parameters.iter().find(|(name, _)| name == "q");
        let weight = weight.map_or(Some(1.0), |(_, value)| value.parse::<f32>().ok());
        let weight = weight.unwrap_or_default().clamp(0.0, 1.0);
        Range {
            media_type,
            parameters,
            weight: (weight * WEIGHT_MAX as f32) as u32,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_weight_decides() {
        const PROTOBUF: &str = "application/vnd.google.protobuf;\
            proto=io.prometheus.client.MetricFamily;encoding=delimited";
        let of_prometheus = format!(
            "{PROTOBUF};q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.3"
        );
        let of_prometheus_2 =
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
        for (accept, expected) in [
            (None, Format::OpenMetrics),
            (Some("*/*"), Format::OpenMetrics),
            (Some(&*of_prometheus), Format::Protobuf),
            (Some(PROTOBUF), Format::Protobuf),
            (Some(of_prometheus_2), Format::OpenMetrics),
            (Some("application/vnd.google.protobuf"), Format::OpenMetrics),
            (Some("text/plain; version=0.0.4"), Format::Text),
            (
                Some("TEXT/PLAIN;q=0.5, application/openmetrics-text;q=0"),
                Format::Text,
            ),
            (
                Some("text/html,application/xhtml+xml,*/*;q=0.8"),
                Format::Text,
            ),
            (Some("text/plain;q=x"), Format::OpenMetrics),
        ] {
            assert_eq!(metrics_format(accept), expected, "{accept:?}");
        }
    }

    #[test]
    fn browsers_get_a_page() {
        assert!(prefers_html(Some("text/html,*/*;q=0.8")));
        assert!(!prefers_html(Some("*/*")) && !prefers_html(None));
    }
}
