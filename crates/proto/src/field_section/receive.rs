//! From field lines to heads and trailers.

use super::{
    CRUMB_DELIMITER, DecodedLine, FieldLines, FieldSectionLimits, LineName, Overflow, Pseudo,
};
use crate::error::ErrorKind;
use crate::field_compression::Malformed;
use crate::message::refused;
use crate::message::target::{self, PseudoHeaders};
use crate::message::{
    FieldLine, Fields, Method, Name, RequestHead, ResponseHead, Status, StoredName, encode_refused,
    parse_content_length,
};
use crate::priority::Priority;

/// Facts that follow from the fields of a request head.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestFacts {
    pub(crate) content_length: Option<u64>,
    pub(crate) expects_continue: bool,
    pub(crate) priority: Option<Priority>,
}

/// Takes the lines of a request head.
#[inline]
pub(crate) fn request_head(
    lines: &mut impl FieldLines,
    limits: &FieldSectionLimits,
    head: &mut RequestHead,
) -> Result<Result<RequestFacts, ErrorKind>, Malformed> {
    let mut section = ReceivedSection::new(OF_REQUESTS);
    head.fields.clear();
    section.collect(lines, &mut head.fields)?;
    // A loop, so that the parser has one caller and stays inlined.
    loop {
        match section.finish_request(limits, head) {
            Err(refusal) if section.encode_path(refusal, &mut head.fields) => {}
            Err(refusal) => {
                section.keep_refused(head);
                return Ok(Err(refusal));
            }
            finished => return Ok(finished),
        }
    }
}

/// Takes the lines of a response head; returns the length that it declares.
#[inline]
pub(crate) fn response_head(
    lines: &mut impl FieldLines,
    head: &mut ResponseHead,
) -> Result<Result<Option<u64>, ErrorKind>, Malformed> {
    let mut section = ReceivedSection::new(OF_RESPONSES);
    head.fields.clear();
    section.collect(lines, &mut head.fields)?;
    Ok(section.finish_response(head))
}

/// Takes the lines of trailers. Fields that no trailer section may have are left out, as in HTTP/1.
pub(crate) fn trailers(
    lines: &mut impl FieldLines,
    fields: &mut Fields,
) -> Result<Result<(), ErrorKind>, Malformed> {
    let mut section = ReceivedSection::new(0);
    fields.clear();
    section.collect(lines, fields)?;
    if lines.overflow().is_some() {
        return Ok(Err(ErrorKind::TrailersTooLarge));
    }
    fields.retain(|name, _| !name.known().is_forbidden_in_trailers());
    Ok(section.problem.map_or(Ok(()), Err))
}

/// Pseudo-header fields of a request, a bit for each.
const OF_REQUESTS: u8 = bit(Pseudo::Method)
    | bit(Pseudo::Scheme)
    | bit(Pseudo::Authority)
    | bit(Pseudo::Path)
    | bit(Pseudo::Protocol);

const OF_RESPONSES: u8 = bit(Pseudo::Status);

const fn bit(pseudo: Pseudo) -> u8 {
    1 << pseudo as u8
}

/// A section that is being received.
struct ReceivedSection {
    /// Pseudo-header fields that are allowed, and those that were received.
    allowed: u8,
    seen: u8,
    /// Ranges of their values, by pseudo-header field.
    values: [(u32, u32); 6],
    host: Option<FieldLine>,
    content_length: Option<u64>,
    has_cookie: bool,
    /// Not all crumbs could be joined as they came, because other fields were between them.
    has_scattered_crumbs: bool,
    expects_continue: bool,
    priority: Option<Priority>,
    problem: Option<ErrorKind>,
}

impl ReceivedSection {
    fn new(allowed: u8) -> ReceivedSection {
        ReceivedSection {
            allowed,
            seen: 0,
            values: [(0, 0); 6],
            host: None,
            content_length: None,
            has_cookie: false,
            has_scattered_crumbs: false,
            expects_continue: false,
            priority: None,
            problem: None,
        }
    }

    /// Takes all lines. The first problem is kept; the rest is still decoded, because with HPACK the peer's next
    /// section relies on the state of the compression.
    #[inline]
    fn collect(
        &mut self,
        lines: &mut impl FieldLines,
        fields: &mut Fields,
    ) -> Result<(), Malformed> {
        while let Some(line) = lines.next_line(&mut fields.block)? {
            let outcome = match (line.problem, line.name) {
                (Some(problem), _) => Err(problem),
                (None, LineName::Pseudo(pseudo)) => self.note_pseudo(pseudo, line, fields),
                (None, LineName::Field(name)) => self.note_field(name, line, fields),
            };
            if let Err(problem) = outcome {
                self.problem.get_or_insert(problem);
            }
        }
        if let Some(overflow) = lines.overflow() {
            self.problem.get_or_insert(match overflow {
                Overflow::Bytes => ErrorKind::HeadTooLarge,
                Overflow::Fields => ErrorKind::TooManyFields,
                Overflow::Crumbs => ErrorKind::TooManyCookieCrumbs,
            });
        }
        if self.has_scattered_crumbs {
            join_scattered_crumbs(fields);
        }
        Ok(())
    }

    #[inline]
    fn note_pseudo(
        &mut self,
        pseudo: Pseudo,
        line: DecodedLine,
        fields: &Fields,
    ) -> Result<(), ErrorKind> {
        let bit = bit(pseudo);
        if self.allowed & !self.seen & bit == 0 || !fields.entries.is_empty() {
            return Err(self.pseudo_problem(bit));
        }
        self.seen |= bit;
        self.values[pseudo as usize] = (line.value_start, line.value_len);
        Ok(())
    }

    /// RFC 9113, section 8.3: "Endpoints MUST treat a request or response that contains undefined
    /// or invalid pseudo-header fields as malformed." "The same pseudo-header field name MUST NOT
    /// appear more than once in a field block." "All pseudo-header fields MUST appear in a field
    /// block before all regular field lines."
    #[cold]
    fn pseudo_problem(&self, bit: u8) -> ErrorKind {
        match bit {
            _ if self.allowed & bit == 0 => ErrorKind::PseudoUnknown,
            _ if self.seen & bit != 0 => ErrorKind::PseudoRepeated,
            _ => ErrorKind::PseudoLate,
        }
    }

    #[inline]
    fn note_field(
        &mut self,
        name: Name,
        line: DecodedLine,
        fields: &mut Fields,
    ) -> Result<(), ErrorKind> {
        let never_indexed = if line.never_indexed {
            FieldLine::NEVER_INDEXED
        } else {
            0
        };
        let entry = FieldLine {
            value_start: line.value_start,
            value_len: line.value_len,
            name_start: (line.value_start - u32::from(line.name_len)) | never_indexed,
            label: StoredName {
                len: line.name_len,
                name,
            },
        };
        fields.entries.push(entry);
        if name.frames_or_routes() || matches!(name, Name::Cookie | Name::Priority) {
            return self.note_special(entry, fields);
        }
        Ok(())
    }

    fn note_special(&mut self, entry: FieldLine, fields: &mut Fields) -> Result<(), ErrorKind> {
        if entry.label.name == Name::Cookie {
            let is_first = !std::mem::replace(&mut self.has_cookie, true);
            self.has_scattered_crumbs |= !is_first && !join_crumb(fields);
            return Ok(());
        }
        let value = entry.value_in(&fields.block);
        match entry.label.name {
            Name::Priority => self.priority = Some(Priority::parse(value)),
            Name::Host if self.host.is_some() => return Err(ErrorKind::HostRepeated),
            Name::Host => self.host = Some(entry),
            Name::ContentLength => {
                let length = parse_content_length(value)?;
                // Equal lines of a response are one (RFC 9110, section 8.6); a request is refused.
                let before = self.content_length.replace(length);
                if before.is_some_and(|before| before != length || self.allowed != OF_RESPONSES) {
                    return Err(ErrorKind::ContentLengthRepeated);
                }
            }
            Name::Expect if value.eq_ignore_ascii_case(b"100-continue") => {
                self.expects_continue = true;
            }
            Name::Expect if self.allowed == OF_REQUESTS => {
                return Err(ErrorKind::ExpectationUnknown);
            }
            _ => {}
        }
        Ok(())
    }

    fn value<'a>(&self, pseudo: Pseudo, fields: &'a Fields) -> Option<&'a [u8]> {
        let (start, len) = self.values[pseudo as usize];
        let value = &fields.block[start as usize..][..len as usize];
        (self.seen & bit(pseudo) != 0).then_some(value)
    }

    fn finish_request(
        &self,
        limits: &FieldSectionLimits,
        head: &mut RequestHead,
    ) -> Result<RequestFacts, ErrorKind> {
        let fields = &head.fields;
        let parts = PseudoHeaders {
            method: self.value(Pseudo::Method, fields).unwrap_or(b""),
            scheme: self.value(Pseudo::Scheme, fields),
            authority: self.value(Pseudo::Authority, fields),
            path: self.value(Pseudo::Path, fields),
            protocol: self.value(Pseudo::Protocol, fields),
        };
        if let Some(problem) = self.problem {
            return Err(problem);
        }
        if self.seen & bit(Pseudo::Method) == 0 {
            return Err(ErrorKind::PseudoMissing);
        }
        let path_len = self.values[Pseudo::Path as usize].1 as usize;
        if path_len + parts.method.len() > limits.path_bytes_max {
            return Err(ErrorKind::RequestLineTooLong);
        }
        let host = self.host.map(|host| host.value_in(&fields.block));
        head.method = target::parse_pseudo_headers(&mut head.target, &parts, host)?;
        if head.method == Method::Connect && self.content_length.is_some() {
            return Err(ErrorKind::ConnectWithContent);
        }
        let has_content = self.content_length != Some(0);
        Ok(RequestFacts {
            content_length: self.content_length,
            expects_continue: self.expects_continue && has_content,
            priority: self.priority,
        })
    }

    /// A refused request still gets a response and a log line, by what it seems to be.
    #[cold]
    fn keep_refused(&self, head: &mut RequestHead) {
        let fields = &head.fields;
        let value = |pseudo| self.value(pseudo, fields).unwrap_or_default();
        let host = self.value(Pseudo::Authority, fields);
        let host = host.or(fields.get(Name::Host)).unwrap_or_default();
        let (method, path) = (value(Pseudo::Method), value(Pseudo::Path));
        head.method = refused::keep(&mut head.target, method, path, host);
    }

    /// Encodes the raw bytes of a path that was refused; `false` if it was refused for another reason.
    #[cold]
    fn encode_path(&mut self, refusal: ErrorKind, fields: &mut Fields) -> bool {
        let path = self.value(Pseudo::Path, fields).unwrap_or(b"");
        let Ok(encoded) = encode_refused(refusal, path, usize::MAX) else {
            return false;
        };
        self.values[Pseudo::Path as usize] = (fields.block.len() as u32, encoded.len() as u32);
        fields.block.extend_from_slice(&encoded);
        true
    }

    fn finish_response(&self, head: &mut ResponseHead) -> Result<Option<u64>, ErrorKind> {
        if let Some(problem) = self.problem {
            return Err(problem);
        }
        let digits = self
            .value(Pseudo::Status, &head.fields)
            .ok_or(ErrorKind::PseudoMissing)?;
        head.status = parse_status(digits).ok_or(ErrorKind::StatusMalformed)?;
        Ok(self.content_length)
    }
}

/// RFC 9113, section 8.6: "HTTP/2 removes support for the 101 (Switching Protocols) informational
/// status code".
fn parse_status(digits: &[u8]) -> Option<Status> {
    let &[a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] = digits else {
        return None;
    };
    let code = u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0');
    Status::new(code).filter(|&status| status != Status::SWITCHING_PROTOCOLS)
}

/// RFC 9113, section 8.2.3: "If there are multiple Cookie header fields after decompression, these
/// MUST be concatenated into a single octet string using the two-octet delimiter of 0x3b, 0x20 (the
/// ASCII string "; ") before being passed into a non-HTTP/2 context".
///
/// Joins a crumb that has just come to the field before it, which is nearly always the crumb before it, so that no
/// number of crumbs takes more memory than the field. False if it is another field.
fn join_crumb(fields: &mut Fields) -> bool {
    let Fields { block, entries } = fields;
    let [.., before, crumb] = entries.as_mut_slice() else {
        return false;
    };
    let (start, len) = (crumb.value_start as usize, crumb.value_len as usize);
    let joins = before.label.name == Name::Cookie
        && before.value_start + before.value_len == crumb.value_start
        && start + len == block.len();
    if joins {
        block.extend_from_slice(CRUMB_DELIMITER);
        block.copy_within(start..start + len, start + CRUMB_DELIMITER.len());
        block[start..start + CRUMB_DELIMITER.len()].copy_from_slice(CRUMB_DELIMITER);
        before.value_len += CRUMB_DELIMITER.len() as u32 + crumb.value_len;
        entries.pop();
    }
    joins
}

/// Joins crumbs that other fields are between.
#[cold]
fn join_scattered_crumbs(fields: &mut Fields) {
    let start = fields.block.len();
    let mut first = None;
    for at in 0..fields.entries.len() {
        let entry = fields.entries[at];
        if entry.label.name != Name::Cookie {
            continue;
        }
        match first {
            None => first = Some(at),
            Some(_) => fields.block.extend_from_slice(CRUMB_DELIMITER),
        }
        let value = entry.value_start as usize;
        fields
            .block
            .extend_from_within(value..value + entry.value_len as usize);
    }
    let len = fields.block.len() - start;
    let mut index = 0;
    fields.entries.retain_mut(|entry| {
        let is_first = first == Some(index);
        index += 1;
        if is_first {
            (entry.value_start, entry.value_len) = (start as u32, len as u32);
        }
        is_first || entry.label.name != Name::Cookie
    });
}
