//! `Date` and `Server`: the lines that every answer of a listener ends its head with.

use std::cell::{Cell, RefCell};
use std::time::Instant;

use blitz_proto::{Fields, Name};

use crate::date::{http_date, next_second};

/// The lines of one listener, ready to be copied; written anew once a second.
pub(crate) struct DefaultHeaders {
    /// `Server: …` with its line end; empty if there is none.
    server: Vec<u8>,
    has_date: bool,
    /// When `lines` will be out of date.
    until: Cell<Option<Instant>>,
    /// All lines and the empty one after them.
    lines: RefCell<Vec<u8>>,
}

impl DefaultHeaders {
    pub(crate) fn new(has_date: bool, server: Option<&str>) -> DefaultHeaders {
        DefaultHeaders {
            server: server.map_or_else(Vec::new, |name| format!("Server: {name}\r\n").into()),
            has_date,
            until: Cell::new(None),
            lines: RefCell::default(),
        }
    }

    /// Adds the lines that `fields` do not have to the head at the end of `out`.
    #[inline]
    pub(crate) fn add(&self, fields: &Fields, out: &mut Vec<u8>) {
        assert!(out.ends_with(EMPTY_LINE), "a head ends with an empty line");
        out.truncate(out.len() - EMPTY_LINE.len());
        let is_ours = |name| matches!(name, Name::Date | Name::Server);
        if fields.names().any(is_ours) {
            self.add_missing(
                fields.contains(Name::Date),
                fields.contains(Name::Server),
                out,
            );
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
            self.add_missing(false, false, &mut lines);
        }
        out.extend_from_slice(&self.lines.borrow());
    }

    #[cold]
    fn add_missing(&self, has_date: bool, has_server: bool, out: &mut Vec<u8>) {
        if self.has_date && !has_date {
            out.extend_from_slice(b"Date: ");
            out.extend_from_slice(&http_date());
            out.extend_from_slice(EMPTY_LINE);
        }
        if !has_server {
            out.extend_from_slice(&self.server);
        }
        out.extend_from_slice(EMPTY_LINE);
    }
}

const EMPTY_LINE: &[u8] = b"\r\n";
