//! The text of OpenMetrics that Blitz writes, read.

use std::collections::HashMap;

/// Labels in the order of the text, which is the same in each reading.
pub(super) type Labels = Vec<(Box<str>, Box<str>)>;

/// The metrics of one moment.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    /// By the name of the samples, with its suffix.
    samples: HashMap<Box<str>, Vec<Sample>>,
    /// The meaning of each family.
    helps: HashMap<Box<str>, Box<str>>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) labels: Labels,
    pub(super) value: f64,
}

impl Sample {
    /// The text of a label; empty without the label.
    pub(super) fn label(&self, name: &str) -> &str {
        let mut labels = self.labels.iter();
        let found = labels.find(|(known, _)| &**known == name);
        found.map_or("", |(_, text)| text)
    }
}

impl Exposition {
    /// # Errors
    /// The text is not complete, or has a line of another form: the problem.
    pub(super) fn parse(text: &str) -> Result<Exposition, String> {
        if text.trim_end().lines().next_back() != Some("# EOF") {
            return Err("the metrics are incomplete".to_owned());
        }
        let mut parsed = Exposition::default();
        for (at, line) in text.lines().enumerate() {
            if let Some(comment) = line.strip_prefix('#') {
                let help = comment.strip_prefix(" HELP ");
                if let Some((family, help)) = help.and_then(|help| help.split_once(' ')) {
                    parsed.helps.insert(family.into(), help.into());
                }
                continue;
            }
            let (name, sample) = sample(line)
                .ok_or_else(|| format!("line {} of the metrics cannot be read", at + 1))?;
            match parsed.samples.get_mut(name) {
                Some(samples) => samples.push(sample),
                None => {
                    parsed.samples.insert(name.into(), vec![sample]);
                }
            }
        }
        Ok(parsed)
    }

    /// All samples of a name.
    pub(super) fn samples(&self, name: &str) -> &[Sample] {
        self.samples.get(name).map_or(&[], Vec::as_slice)
    }

    /// The sum of the samples of a name; `None` if there are none.
    pub(super) fn sum(&self, name: &str) -> Option<f64> {
        let samples = self.samples.get(name)?;
        Some(samples.iter().map(|sample| sample.value).sum())
    }

    /// The meaning of a family.
    pub(super) fn help(&self, family: &str) -> &str {
        self.helps.get(family).map_or("", |help| help)
    }
}

/// A line such as `name{label="text"} 1`. A timestamp and an exemplar may follow the value.
fn sample(line: &str) -> Option<(&str, Sample)> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Labels::new(), rest),
    };
    let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
    Some((name, Sample { labels, value }))
}

/// The labels up to `}`, and the text behind it.
fn labels(mut rest: &str) -> Option<(Labels, &str)> {
    let mut labels = Labels::new();
    loop {
        rest = rest.trim_start_matches(',');
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, quoted) = rest.split_once("=\"")?;
        let (text, behind) = unquoted(quoted)?;
        labels.push((name.into(), text.into()));
        rest = behind;
    }
}

/// The text up to a quote, without escapes, and the text behind the quote.
fn unquoted(quoted: &str) -> Option<(String, &str)> {
    let mut text = String::new();
    let mut letters = quoted.char_indices();
    loop {
        match letters.next()? {
            (at, '"') => return Some((text, &quoted[at + 1..])),
            (_, '\\') => text.push(match letters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            (_, other) => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r##"# HELP blitz_retries Requests that were sent again.
# TYPE blitz_retries counter
blitz_retries_total 3 # {trace_id="a b"} 1 1700000000
# TYPE request_seconds histogram
request_seconds_bucket{route="a \"b\" \\ \n,}=",le="+Inf"} 2
request_seconds_bucket{route="é",le="5e-05"} 1 1700000000.5
request_seconds_bucket{} NaN
# EOF
"##;

    #[test]
    fn samples_have_labels_and_values() {
        let metrics = Exposition::parse(TEXT).unwrap();
        assert_eq!(metrics.sum("blitz_retries_total"), Some(3.0));
        assert_eq!(
            metrics.help("blitz_retries"),
            "Requests that were sent again."
        );
        assert_eq!(
            (metrics.sum("blitz_none"), metrics.help("blitz_none")),
            (None, "")
        );
        let buckets = metrics.samples("request_seconds_bucket");
        assert_eq!(buckets[0].label("route"), "a \"b\" \\ \n,}=");
        assert_eq!((buckets[0].label("le"), buckets[0].value), ("+Inf", 2.0));
        assert_eq!(
            (buckets[1].label("route"), buckets[1].label("le")),
            ("é", "5e-05")
        );
        assert!(buckets[2].labels.is_empty() && buckets[2].value.is_nan());
        assert_eq!(buckets[2].label("route"), "");
    }

    #[test]
    fn incomplete_and_foreign_texts_are_errors() {
        for (text, problem) in [
            ("", "the metrics are incomplete"),
            ("blitz_retries_total 3\n", "the metrics are incomplete"),
            ("<html>\n# EOF\n", "line 1 of the metrics cannot be read"),
            (
                "a 1\nb{c=\"d} 1\n# EOF\n",
                "line 2 of the metrics cannot be read",
            ),
            ("a x\n# EOF\n", "line 1 of the metrics cannot be read"),
        ] {
            assert_eq!(Exposition::parse(text).unwrap_err(), problem, "{text}");
        }
    }
}
