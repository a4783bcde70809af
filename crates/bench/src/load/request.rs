//! The requests of a run: their heads and contents, as templates, and the order in which they are sent.

use blitz_http::{BodyLength, Method, RequestHead, is_authority};
use bytes::Bytes;

use super::template::{Template, Values};
use crate::random::Random;

/// One kind of request of a mix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestSpec {
    pub(super) method: String,
    /// The URL.
    pub(super) url: String,
    /// Whether the URL has placeholders. That of an archive is sent as it is.
    pub(super) has_placeholders: bool,
    /// Fields that are sent as they are, before the others.
    pub(super) literal_fields: Vec<(String, String)>,
    /// Fields with placeholders.
    pub(super) fields: Vec<(String, String)>,
    pub(super) content: RequestContent,
    /// How often it is sent, compared with the others of a random mix.
    pub(super) weight: u32,
}

/// The content of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RequestContent {
    None,
    /// The same bytes in each request.
    Bytes(Vec<u8>),
    /// Text with placeholders.
    Text(String),
    /// So many bytes of zero, sent in pieces.
    Zeros(u64),
}

/// A request of one core: ready to be sent, or to be filled in.
pub(super) struct PreparedRequest {
    head: RequestHead,
    content: PreparedContent,
    templates: Option<Templates>,
}

enum PreparedContent {
    None,
    Bytes(Bytes),
    Template(Template),
    Zeros(u64),
}

/// The parts of a head with placeholders.
struct Templates {
    method: String,
    url: Template,
    fields: Vec<(String, Template)>,
    filled: String,
}

/// Content that is about to be sent.
pub(super) enum ContentToSend {
    None,
    Bytes(Bytes),
    Zeros(u64),
}

impl ContentToSend {
    pub(super) fn length(&self) -> BodyLength {
        match self {
            ContentToSend::None => BodyLength::Empty,
            ContentToSend::Bytes(bytes) => BodyLength::Known(bytes.len() as u64),
            ContentToSend::Zeros(length) => BodyLength::Known(*length),
        }
    }
}

impl RequestSpec {
    /// Method and URL, for messages and results.
    pub(super) fn name(&self) -> String {
        format!("{} {}", self.method, self.url)
    }

    /// A GET of a URL, whose fragment is not sent (RFC 9110, section 4.2.5).
    pub(super) fn get(url: &str) -> RequestSpec {
        let url = url.split_once('#').map_or(url, |(url, _)| url);
        RequestSpec {
            method: "GET".to_owned(),
            url: url.to_owned(),
            has_placeholders: true,
            literal_fields: Vec::new(),
            fields: Vec::new(),
            content: RequestContent::None,
            weight: 1,
        }
    }

    /// Checks everything that can be wrong, so that preparing it cannot fail.
    ///
    /// # Errors
    /// The fault, for people.
    pub(super) fn check(&self) -> Result<(), String> {
        for values in Values::examples() {
            self.check_head(&values)?;
        }
        if let RequestContent::Text(text) = &self.content {
            Template::parse(text)?;
        }
        Ok(())
    }

    fn check_head(&self, values: &Values) -> Result<(), String> {
        let mut url = String::new();
        self.url_template()?.fill(values, &mut url);
        let head = RequestHead::parse(&self.method, &url)
            .map_err(|error| format!("`{} {}` is no request: {error}", self.method, self.url))?;
        if head.authority().is_none() {
            return Err(format!(
                "`{}` has no host; write http://HOST/PATH",
                self.url
            ));
        }
        let mut head = RequestHead::new(Method::Get, "/");
        for (name, value, template) in self.field_templates()? {
            let mut filled = String::new();
            template.fill(values, &mut filled);
            let appended = head.fields.try_append(name, filled.as_bytes());
            appended.map_err(|_| format!("`{name}: {value}` is no header field"))?;
            if is_host(name) && (filled.is_empty() || !is_authority(filled.as_bytes())) {
                return Err(format!(
                    "`{name}: {value}` is no host; write 'Host: NAME' or 'Host: NAME:PORT'"
                ));
            }
        }
        Ok(())
    }

    fn url_template(&self) -> Result<Template, String> {
        match self.has_placeholders {
            true => Template::parse(&self.url),
            false => Ok(Template::literal(&self.url)),
        }
    }

    /// Name, text and template of each field.
    fn field_templates(&self) -> Result<Vec<(&str, &str, Template)>, String> {
        let literal = self.literal_fields.iter();
        let literal =
            literal.map(|(name, value)| Ok((&**name, &**value, Template::literal(value))));
        let fields = self.fields.iter();
        let fields = fields.map(|(name, value)| Ok((&**name, &**value, Template::parse(value)?)));
        literal.chain(fields).collect()
    }

    /// # Errors
    /// Those of [`RequestSpec::check`].
    pub(super) fn prepare(&self) -> Result<PreparedRequest, String> {
        self.check()?;
        let mut templates = Templates {
            method: self.method.clone(),
            url: self.url_template()?,
            fields: Vec::new(),
            filled: String::new(),
        };
        for (name, _, template) in self.field_templates()? {
            templates.fields.push((name.to_owned(), template));
        }
        let mut head = RequestHead::default();
        let [values, _] = Values::examples();
        templates.fill(&values, &mut head);
        let content = match &self.content {
            RequestContent::None => PreparedContent::None,
            RequestContent::Bytes(bytes) => PreparedContent::Bytes(Bytes::from(bytes.clone())),
            RequestContent::Text(text) => match Template::parse(text)? {
                template if template.is_constant() => {
                    PreparedContent::Bytes(Bytes::from(text.clone()))
                }
                template => PreparedContent::Template(template),
            },
            RequestContent::Zeros(length) => PreparedContent::Zeros(*length),
        };
        Ok(PreparedRequest {
            head,
            content,
            templates: (!templates.are_constant()).then_some(templates),
        })
    }
}

impl PreparedRequest {
    /// The head and the content of the next request of this kind.
    pub(super) fn next(&mut self, values: &Values) -> (&RequestHead, ContentToSend) {
        if let Some(templates) = &mut self.templates {
            templates.fill(values, &mut self.head);
        }
        let content = match &self.content {
            PreparedContent::None => ContentToSend::None,
            PreparedContent::Bytes(bytes) => ContentToSend::Bytes(bytes.clone()),
            PreparedContent::Template(template) => {
                let mut text = String::new();
                template.fill(values, &mut text);
                ContentToSend::Bytes(Bytes::from(text))
            }
            PreparedContent::Zeros(length) => ContentToSend::Zeros(*length),
        };
        (&self.head, content)
    }
}

impl Templates {
    fn are_constant(&self) -> bool {
        self.url.is_constant() && self.fields.iter().all(|(_, value)| value.is_constant())
    }

    fn fill(&mut self, values: &Values, head: &mut RequestHead) {
        self.filled.clear();
        self.url.fill(values, &mut self.filled);
        // Placeholders insert letters, digits and hyphens only, which are valid wherever the examples were.
        *head = RequestHead::parse(&self.method, &self.filled).expect("it was checked");
        for (name, value) in &self.fields {
            self.filled.clear();
            value.fill(values, &mut self.filled);
            match is_host(name) {
                true => head.set_authority(&self.filled),
                false => head.fields.append(name.as_str(), self.filled.as_bytes()),
            }
        }
    }
}

/// Whether a field replaces the authority of the URL.
fn is_host(name: &str) -> bool {
    name.eq_ignore_ascii_case("host")
}

/// The order in which the requests of a mix are sent.
pub(super) struct MixOrder {
    /// The sums of the weights up to each request; empty if the requests are sent in turn.
    sums: Vec<u64>,
    count: usize,
    next: usize,
    random: Random,
}

impl MixOrder {
    /// In turn if all weights are equal, at random otherwise.
    pub(super) fn new(requests: &[RequestSpec], seed: u64) -> MixOrder {
        let is_equal = requests
            .windows(2)
            .all(|pair| pair[0].weight == pair[1].weight);
        let mut sum = 0;
        let sums = requests.iter().map(|request| {
            sum += u64::from(request.weight);
            sum
        });
        MixOrder {
            sums: if is_equal { Vec::new() } else { sums.collect() },
            count: requests.len(),
            next: 0,
            random: Random::new(seed),
        }
    }

    pub(super) fn next(&mut self) -> usize {
        if let Some(&total) = self.sums.last() {
            let at = self.random.index(total as usize) as u64;
            return self.sums.partition_point(|&sum| sum <= at);
        }
        let index = self.next;
        self.next = (index + 1) % self.count;
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weighted(weight: u32) -> RequestSpec {
        RequestSpec {
            weight,
            ..RequestSpec::get("http://a/")
        }
    }

    #[test]
    fn placeholders_are_filled_in_path_fields_and_content() {
        let spec = RequestSpec {
            method: "POST".to_owned(),
            fields: vec![
                ("X-Id".to_owned(), "a-{{n}}".to_owned()),
                ("Host".to_owned(), "b.example".to_owned()),
            ],
            content: RequestContent::Text("{\"n\":{{n}}}".to_owned()),
            ..RequestSpec::get("http://a.example/{{n}}?id={{random}}")
        };
        let mut prepared = spec.prepare().unwrap();
        let values = Values {
            number: 42,
            random: 0xABC,
        };
        let (head, content) = prepared.next(&values);
        assert_eq!(head.path_and_query(), "/42?id=0000000000000abc");
        assert_eq!(head.authority(), Some("b.example"));
        assert_eq!(head.fields.get("x-id"), Some(&b"a-42"[..]));
        assert_eq!(content.length(), BodyLength::Known(8));
    }

    #[test]
    fn wrong_requests_are_found_before_the_run() {
        let wrong = |change: fn(&mut RequestSpec)| {
            let mut spec = RequestSpec::get("http://a.example/");
            change(&mut spec);
            spec.check().unwrap_err()
        };
        assert!(wrong(|spec| spec.url = "/path".to_owned()).contains("no host"));
        assert!(wrong(|spec| spec.method = "GE T".to_owned()).contains("no request"));
        assert!(wrong(|spec| spec.url = "http://a/{{m}}".to_owned()).contains("{{m}}"));
        assert!(
            wrong(|spec| spec.fields = vec![("A B".to_owned(), String::new())])
                .contains("header field")
        );
    }

    #[test]
    fn a_host_that_is_none_is_found_before_the_run() {
        let check = |host: &str| {
            let mut spec = RequestSpec::get("http://a.example/");
            spec.fields = vec![("host".to_owned(), host.to_owned())];
            spec.check()
        };
        for host in ["a b", "a/b", "ü", "", "a:{{n}}", "a:{{random}}"] {
            assert!(check(host).unwrap_err().contains("no host"), "{host}");
        }
        for host in ["b.example:80", "[::1]", "{{uuid}}.example", "a{{n}}"] {
            assert_eq!(check(host), Ok(()), "{host}");
        }
    }

    #[test]
    fn weights_decide_how_often_a_request_is_sent() {
        let mut order = MixOrder::new(&[weighted(1), weighted(3)], 5);
        let second = (0..4_000).filter(|_| order.next() == 1).count();
        assert!((2_850..3_150).contains(&second), "{second}");
        let mut order = MixOrder::new(&[weighted(2), weighted(2)], 5);
        assert_eq!([order.next(), order.next(), order.next()], [0, 1, 0]);
    }
}
