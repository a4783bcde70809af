//! Which form of a response a client prefers (RFC 9110, section 12.5.1), and which it has (section 13.1.2). Several lines of
//! a field are one list (section 5.3).

use blitz_http::Fields;

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
pub(super) fn metrics_format(fields: &Fields) -> Format {
    let mut best = (0, Format::OpenMetrics);
    for range in ranges(fields) {
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

/// Whether a client names HTML with at least the weight of plain text, as browsers do.
pub(super) fn prefers_html(fields: &Fields) -> bool {
    let weight_of = |media_type| {
        let named = ranges(fields).filter(|range| range.media_type == media_type);
        named.map(|range| range.weight).max().unwrap_or(0)
    };
    let weight = weight_of("text/html");
    weight > 0 && weight >= weight_of("text/plain")
}

/// Whether `If-None-Match` has the tag of a response, or takes any.
pub(super) fn has_tag(fields: &Fields, tag: &str) -> bool {
    let mut known = elements(fields, "If-None-Match");
    known.any(|known| known == "*" || known.trim_start_matches("W/") == tag)
}

/// The elements of a list. Lines with other bytes than text have none.
fn elements<'a>(fields: &'a Fields, name: &'a str) -> impl Iterator<Item = &'a str> {
    let lines = fields.get_all(name).map(str::from_utf8);
    let lines = lines.filter_map(Result::ok);
    lines.flat_map(|line| line.split(',').map(str::trim))
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

fn ranges(fields: &Fields) -> impl Iterator<Item = Range> {
    elements(fields, "Accept").map(|range| {
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

    fn fields(name: &str, values: &[&str]) -> Fields {
        let mut fields = Fields::new();
        values.iter().for_each(|value| fields.append(name, *value));
        fields
    }

    fn accept(values: &[&str]) -> Fields {
        fields("Accept", values)
    }

    #[test]
    fn the_greatest_weight_decides() {
        const PROTOBUF: &str = "application/vnd.google.protobuf;\
            proto=io.prometheus.client.MetricFamily;encoding=delimited";
        let of_prometheus = format!(
            "{PROTOBUF};q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.3"
        );
        let of_prometheus_2 =
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
        for (value, expected) in [
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
            let fields = accept(value.as_slice());
            assert_eq!(metrics_format(&fields), expected, "{value:?}");
        }
    }

    #[test]
    fn several_lines_are_one_list() {
        let lines = accept(&["application/json", "text/plain"]);
        assert_eq!(metrics_format(&lines), Format::Text);
        let lines = accept(&["text/plain;q=0.5", "application/openmetrics-text"]);
        assert_eq!(metrics_format(&lines), Format::OpenMetrics);
        assert!(prefers_html(&accept(&["image/png", "text/html"])));
        let has = |values: &[&str]| has_tag(&fields("If-None-Match", values), "\"1\"");
        assert!(has(&["\"1\""]) && has(&["\"0\", W/\"1\""]) && has(&["*"]));
        assert!(has(&["\"0\"", "*"]) && has(&["\"0\"", "\"1\""]));
        assert!(!has(&[]) && !has(&["\"0\"", "\"2\""]));
    }

    #[test]
    fn browsers_get_a_page() {
        for (value, is_page) in [
            ("text/html,*/*;q=0.8", true),
            ("text/html, text/plain", true),
            ("text/html;q=0.9, text/plain;q=0.5", true),
            ("text/plain, text/html;q=0.1", false),
            ("text/html;q=0", false),
            ("*/*", false),
        ] {
            assert_eq!(prefers_html(&accept(&[value])), is_page, "{value}");
        }
        assert!(!prefers_html(&Fields::new()));
    }
}
