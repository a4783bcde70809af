//! The limits of heads and trailers of `blitz run`: the flags.

use blitz_config::{Bytes, FIELDS_MAX, HEAD_MAX, MessageLimits};
use clap::Args;

use crate::heading;
use crate::process_flags::given;
use crate::size::parse_size;

#[derive(Debug, Clone, Args)]
pub(crate) struct MessageLimitArguments {
    /// The most bytes of a request's fields; 431 beyond [default: 32k]
    ///
    /// Write bytes, 64k or 1m, the most. Over HTTP/2 and HTTP/3 it is announced to clients, together with
    /// --request-line-max.
    #[arg(long, value_name = "SIZE", value_parser = bytes, allow_hyphen_values = true, help_heading = heading::LIMITS)]
    head_max: Option<u64>,

    /// The most fields of a request; 431 beyond [default: 100]
    ///
    /// At most 10000. The lines of a cookie over HTTP/2 and HTTP/3 are one field.
    #[arg(long, value_name = "N", value_parser = fields, allow_negative_numbers = true, help_heading = heading::LIMITS)]
    fields_max: Option<u64>,

    /// The most lines of a request's cookie over HTTP/2 and HTTP/3, where each may have one; 431 beyond [default: 1000]
    ///
    /// At most 10000.
    #[arg(long, value_name = "N", value_parser = fields, allow_negative_numbers = true, help_heading = heading::LIMITS)]
    cookies_max: Option<u64>,

    /// The most bytes of a request line, or of a target over HTTP/2 and HTTP/3; 414 beyond [default: 8k]
    ///
    /// Write bytes, 16k or 1m, the most.
    #[arg(long, value_name = "SIZE", value_parser = bytes, allow_hyphen_values = true, help_heading = heading::LIMITS)]
    request_line_max: Option<u64>,

    /// The most bytes of a request's trailers; 431 beyond [default: 8k]
    ///
    /// Write bytes, 64k or 1m, the most.
    #[arg(long, value_name = "SIZE", value_parser = bytes, allow_hyphen_values = true, help_heading = heading::LIMITS)]
    trailers_max: Option<u64>,

    /// The most fields of a request's trailers; 431 beyond [default: 32]
    ///
    /// At most 10000.
    #[arg(long, value_name = "N", value_parser = fields, allow_negative_numbers = true, help_heading = heading::LIMITS)]
    trailer_fields_max: Option<u64>,

    /// The most bytes of the fields of an upstream's response, and of its trailers; 502 beyond [default: 32k]
    ///
    /// Write bytes, 64k or 1m, the most. Over HTTP/2 it is announced to upstreams.
    #[arg(long, value_name = "SIZE", value_parser = bytes, allow_hyphen_values = true, help_heading = heading::LIMITS)]
    upstream_head_max: Option<u64>,

    /// The most fields of an upstream's response, and of its trailers; 502 beyond [default: 200]
    ///
    /// At most 10000.
    #[arg(long, value_name = "N", value_parser = fields, allow_negative_numbers = true, help_heading = heading::LIMITS)]
    upstream_fields_max: Option<u64>,
}

impl MessageLimitArguments {
    pub(crate) fn settings(&self) -> MessageLimits {
        let bytes = |bytes: Option<u64>| given(bytes.map(Bytes));
        MessageLimits {
            head_max: bytes(self.head_max),
            fields_max: given(self.fields_max),
            cookies_max: given(self.cookies_max),
            request_line_max: bytes(self.request_line_max),
            trailers_max: bytes(self.trailers_max),
            trailer_fields_max: given(self.trailer_fields_max),
            upstream_head_max: bytes(self.upstream_head_max),
            upstream_fields_max: given(self.upstream_fields_max),
        }
    }
}

fn bytes(value: &str) -> Result<u64, String> {
    let remedy = "write bytes, or 64k (KiB), and at most 1m";
    match parse_size(value) {
        Some(bytes @ 1..=HEAD_MAX) => Ok(bytes),
        Some(0) => Err(format!("0 would refuse every message\n  {remedy}")),
        Some(_) => Err(format!(
            "this is more than a core can hold for each request\n  {remedy}"
        )),
        None => Err(format!("this is not a size\n  {remedy}")),
    }
}

fn fields(value: &str) -> Result<u64, String> {
    match value.parse() {
        Ok(fields @ 1..=FIELDS_MAX) => Ok(fields),
        _ => Err(format!(
            "this is not a number of fields\n  write one from 1 to {FIELDS_MAX}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_beyond_the_maximum_are_errors_with_a_remedy() {
        for value in [
            "",
            "0",
            "-1",
            "1048577",
            "2m",
            "1g",
            "64kb",
            "99999999999999999999",
        ] {
            assert!(
                bytes(value).is_err_and(|error| error.contains("\n  ")),
                "{value}"
            );
        }
        for value in ["", "0", "-1", "10001", "1k", "99999999999999999999"] {
            assert!(
                fields(value).is_err_and(|error| error.contains("\n  ")),
                "{value}"
            );
        }
        assert_eq!((bytes("1m"), fields("10000")), (Ok(1 << 20), Ok(10_000)));
    }
}
