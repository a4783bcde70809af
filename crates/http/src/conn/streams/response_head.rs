//! Fields that are added to response heads, and removed from them, where each exchange has a stream.

use blitz_proto::{Name, ResponseHead, Status};

use crate::date::http_date;
use crate::options::ServeOptions;

/// `Date`, `Server` and `Alt-Svc`, where they are missing.
pub(in crate::conn) fn add_default_headers(
    head: &mut ResponseHead,
    options: &ServeOptions,
    alt_svc: Option<&str>,
) {
    let fields = &mut head.fields;
    if options.date && !fields.contains(Name::Date) {
        fields.append(Name::Date, http_date());
    }
    if let Some(server) = &options.server
        && !fields.contains(Name::Server)
    {
        fields.append(Name::Server, server);
    }
    if let Some(alt_svc) = alt_svc
        && !fields.contains(Name::AltSvc)
    {
        fields.append(Name::AltSvc, alt_svc);
    }
}

/// The encoders leave out the fields of HTTP/1.1 connections (RFC 9113, section 8.2.2; RFC 9114, section 4.2);
/// this removes those that would be wrong in a response that opens a tunnel on a stream.
pub(in crate::conn) fn adapt_tunnel_head(head: &mut ResponseHead) {
    if head.status == Status::SWITCHING_PROTOCOLS {
        // RFC 8441, section 5.1: 200 replaces the 101 of HTTP/1.1.
        head.status = Status::OK;
    }
    for name in [Name::Upgrade, Name::Connection] {
        head.fields.remove(name);
    }
    head.fields.remove("sec-websocket-accept");
}
