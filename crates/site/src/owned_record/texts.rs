//! The texts of a record, in one piece of memory.

use blitz_http::{Method, Name, RequestHead};

use crate::access_log::{NotedHeader, REDACTED, url_without_user};

/// Longest method.
const METHOD_MAX: usize = 32;
/// Longest host.
const HOST_MAX: usize = 255;
/// Longest path, and longest query.
const PATH_MAX: usize = 2048;
/// Longest name of a client.
const USER_MAX: usize = 255;
/// Longest value of a field.
const VALUE_MAX: usize = 1024;

/// The end of a text that is longer than its maximum.
const CUT: &[u8] = b"...";

/// Largest capacity that is kept for a next request.
const KEPT_BYTES_MAX: usize = 2048;

/// The texts of each record beside fields of its head.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Text {
    Method,
    Host,
    Path,
    /// With its question mark.
    Query,
    Id,
    User,
    Site,
    Route,
    ServerName,
    Alpn,
    /// The path and query that were sent to the upstream.
    SentTarget,
    TraceState,
}

const TEXTS: usize = Text::TraceState as usize + 1;

/// The place of a text.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    start: u32,
    end: u32,
}

#[derive(Debug, Default)]
pub(super) struct Texts {
    bytes: Vec<u8>,
    places: [Place; TEXTS],
    headers: Vec<Place>,
}

impl Texts {
    #[inline]
    pub(super) fn get(&self, text: Text) -> &[u8] {
        self.at(self.places[text as usize])
    }

    pub(super) fn query(&self) -> Option<&[u8]> {
        self.get(Text::Query).split_first().map(|(_, query)| query)
    }

    pub(super) fn header_at(&self, index: usize) -> &[u8] {
        self.headers.get(index).map_or(b"", |place| self.at(*place))
    }

    #[inline]
    fn at(&self, place: Place) -> &[u8] {
        &self.bytes[place.start as usize..place.end as usize]
    }

    #[inline]
    pub(super) fn set(&mut self, text: Text, value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.places[text as usize] = self.since(start);
    }

    #[inline]
    fn since(&self, start: usize) -> Place {
        Place {
            start: start as u32,
            end: self.bytes.len() as u32,
        }
    }

    pub(super) fn note(&mut self, head: &RequestHead, headers: &[NotedHeader]) {
        if head.method == Method::Other {
            self.set_start(Text::Method, head.method_str().as_bytes(), METHOD_MAX);
        }
        if let Some(host) = head.authority() {
            self.set_start(Text::Host, host.as_bytes(), HOST_MAX);
        }
        let path = head.known_path().unwrap_or_default();
        self.set_start(Text::Path, path.as_bytes(), PATH_MAX);
        if let Some(query) = head.query() {
            let start = self.bytes.len();
            self.bytes.push(b'?');
            self.push(query.as_bytes(), PATH_MAX);
            self.places[Text::Query as usize] = self.since(start);
        }
        for header in headers {
            let start = self.bytes.len();
            self.push_header(header, head);
            let place = self.since(start);
            self.headers.push(place);
        }
    }

    /// Notes the name of the client.
    pub(super) fn note_user(&mut self, user: &str) {
        self.set_start(Text::User, user.as_bytes(), USER_MAX);
    }

    /// Notes path and query as they are sent to the upstream; `OPTIONS *` and CONNECT have none.
    pub(super) fn note_sent(&mut self, head: &RequestHead) {
        let path = head.sent_path();
        if !path.starts_with('/') || head.method == Method::Connect {
            return;
        }
        let start = self.bytes.len();
        self.push(path.as_bytes(), PATH_MAX);
        if let Some(query) = head.query() {
            self.bytes.push(b'?');
            self.push(query.as_bytes(), PATH_MAX);
        }
        self.places[Text::SentTarget as usize] = self.since(start);
    }

    /// Notes `tracestate`: the first members of the list, if all are too long (W3C Trace Context, section 3.3.1.5).
    pub(super) fn note_trace_state(&mut self, head: &RequestHead) {
        let start = self.bytes.len();
        for value in head.fields.get_all(Name::Tracestate) {
            if self.bytes.len() > start {
                self.bytes.push(b',');
            }
            self.bytes.extend_from_slice(value);
        }
        if let Some(first) = self.bytes[start..].get(..=VALUE_MAX) {
            let comma = first.iter().rposition(|byte| *byte == b',');
            self.bytes.truncate(start + comma.unwrap_or(0));
        }
        self.places[Text::TraceState as usize] = self.since(start);
    }

    /// Values of several lines are one list (RFC 9110, section 5.3).
    #[inline]
    fn push_header(&mut self, header: &NotedHeader, head: &RequestHead) {
        let mut values = head.fields.get_all(&header.name);
        let Some(first) = values.next() else { return };
        if header.is_redacted {
            return self.bytes.extend_from_slice(REDACTED);
        }
        let mut room = VALUE_MAX;
        if header.name.is(Name::Referer) {
            // It is no list, and a second URL would not be found in it.
            return self.push_url(first);
        }
        self.push(first, room);
        room = room.saturating_sub(first.len());
        for value in values {
            if room == 0 {
                return;
            }
            self.bytes.extend_from_slice(b", ");
            self.push(value, room);
            room = room.saturating_sub(value.len());
        }
    }

    /// A URL that is cut has no user: behind the cut nobody would find the end of its name.
    fn push_url(&mut self, url: &[u8]) {
        if url.len() <= VALUE_MAX {
            return self.bytes.extend_from_slice(url);
        }
        self.push(&url_without_user(url).concat(), VALUE_MAX);
    }

    #[inline]
    fn set_start(&mut self, text: Text, value: &[u8], max: usize) {
        let start = self.bytes.len();
        self.push(value, max);
        self.places[text as usize] = self.since(start);
    }

    #[inline]
    fn push(&mut self, text: &[u8], max: usize) {
        match text.get(..max) {
            Some(start) if text.len() > max => {
                self.bytes.extend_from_slice(start);
                self.bytes.extend_from_slice(CUT);
            }
            _ => self.bytes.extend_from_slice(text),
        }
    }

    /// Forgets all texts. Gives whether their memory is small enough to be kept.
    pub(super) fn clear(&mut self) -> bool {
        self.bytes.clear();
        self.headers.clear();
        self.places = Default::default();
        self.bytes.capacity() <= KEPT_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(note: impl FnOnce(&mut Texts) + 'static, text: Text) -> String {
        let run = async move {
            let mut texts = Texts::default();
            note(&mut texts);
            String::from_utf8_lossy(texts.get(text)).into_owned()
        };
        blitz_http::block_on(&blitz_http::Config::default(), run).unwrap()
    }

    #[test]
    fn a_long_trace_state_loses_its_last_members() {
        let state = |values: &'static [(&'static str, usize)]| {
            let note = move |texts: &mut Texts| {
                let mut head = RequestHead::new(Method::Get, "/");
                for (key, length) in values {
                    let value = format!("{key}={}", "x".repeat(*length));
                    head.fields.append(Name::Tracestate, &value);
                }
                texts.note_trace_state(&head);
            };
            noted(note, Text::TraceState)
        };
        assert_eq!(state(&[]), "");
        assert_eq!(state(&[("a", 1), ("b", 2)]), "a=x,b=xx");
        assert_eq!(state(&[("a", 1), ("b", VALUE_MAX)]), "a=x");
        assert_eq!(state(&[("a", VALUE_MAX)]), "");
        assert_eq!(state(&[("a", VALUE_MAX - 2)]).len(), VALUE_MAX);
    }

    #[test]
    fn the_sent_target_has_a_path() {
        let sent = |method, target: &'static str| {
            let note = move |texts: &mut Texts| {
                texts.note_sent(&RequestHead::parse(method, target).unwrap());
            };
            noted(note, Text::SentTarget)
        };
        assert_eq!(sent("GET", "/a/../b?c=d"), "/b?c=d");
        assert_eq!(sent("GET", "http://a"), "/");
        assert_eq!(sent("OPTIONS", "*"), "");
        assert_eq!(sent("CONNECT", "a:443"), "");
    }
}
