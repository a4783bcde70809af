//! `Date`, `Server` and `Alt-Svc`: the last lines of every response head of a listener.

use std::cell::{Cell, RefCell};
use std::time::Instant;

use blitz_proto::{Fields, Name};

use crate::date::{http_date, next_second};

/// The default lines of one listener, in a buffer that is rewritten once a second.
pub(crate) struct DefaultHeaders {
    /// `Server: …` with its line end; empty without a configured value.
    server: Vec<u8>,
    /// The same for `Alt-Svc: …`.
    alt_svc: Vec<u8>,
    has_date: bool,
    /// The time at which `lines` must be rewritten.
    until: Cell<Option<Instant>>,
    /// All lines, and the empty line at the end of the head.
    lines: RefCell<Vec<u8>>,
}

impl DefaultHeaders {
    pub(crate) fn new(
        has_date: bool,
        server: Option<&str>,
        alt_svc: Option<&str>,
    ) -> DefaultHeaders {
        let line = |name, value: &str| format!("{name}: {value}\r\n").into();
        DefaultHeaders {
            server: server.map_or_else(Vec::new, |value| line("Server", value)),
            alt_svc: alt_svc.map_or_else(Vec::new, |value| line("Alt-Svc", value)),
            has_date,
            until: Cell::new(None),
            lines: RefCell::default(),
        }
    }

    /// Adds the lines that are missing in `fields` to the head at the end of `out`.
    #[inline]
    pub(crate) fn add(&self, fields: &Fields, out: &mut Vec<u8>) {
        assert!(out.ends_with(EMPTY_LINE), "a head ends with an empty line");
        out.truncate(out.len() - EMPTY_LINE.len());
        let is_ours = |name| matches!(name, Name::Date | Name::Server | Name::AltSvc);
        if fields.names().any(is_ours) {
            self.add_missing(|name| fields.contains(name), out);
        } else {
            self.add_all(out);
        }
    }

    #[inline(always)]
    fn add_all(&self, out: &mut Vec<u8>) {
        let now = blitz_reactor::now();
        if self.until.get().is_none_or(|until| until <= now) {
            self.until.set(Some(next_second()));
            let mut lines = self.lines.borrow_mut();
            lines.clear();
            self.add_missing(|_| false, &mut lines);
        }
        out.extend_from_slice(&self.lines.borrow());
    }

    #[cold]
    fn add_missing(&self, has: impl Fn(Name) -> bool, out: &mut Vec<u8>) {
        if self.has_date && !has(Name::Date) {
            out.extend_from_slice(b"Date: ");
            out.extend_from_slice(&http_date());
            out.extend_from_slice(EMPTY_LINE);
        }
        if !has(Name::Server) {
            out.extend_from_slice(&self.server);
        }
        if !has(Name::AltSvc) {
            out.extend_from_slice(&self.alt_svc);
        }
        out.extend_from_slice(EMPTY_LINE);
    }
}

const EMPTY_LINE: &[u8] = b"\r\n";
