//! The limits of heads and trailers of `blitz run`: the flags, and the options that they set.

use blitz_gateway::Options;
use clap::Args;

use crate::heading;
use crate::size::parse_size;

/// The largest section: heads are held in memory, and those of a core have 16 MiB.
const BYTES_MAX: u64 = 1 << 20;

/// The most fields, or lines of a cookie, of a section.
const FIELDS_MAX: usize = 10_000;

#[derive(Debug, Clone, Args)]
pub(crate) struct MessageLimitArguments {
    /// The most bytes of a request's fields; 431 beyond
    ///
    /// Write bytes, 64k or 1m, the most. Over HTTP/2 and HTTP/3 it is announced to clients, together with
    /// --request-line-max.
    #[arg(long, value_name = "SIZE", value_parser = bytes, default_value = "32k", allow_hyphen_values = true, help_heading = heading::LIMITS)]
    head_max: usize,

    /// The most fields of a request; 431 beyond
    ///
    /// At most 10000. The lines of a cookie over HTTP/2 and HTTP/3 are one field.
    #[arg(long, value_name = "N", value_parser = fields, default_value = "100", allow_negative_numbers = true, help_heading = heading::LIMITS)]
    fields_max: usize,

    /// The most lines of a request's cookie over HTTP/2 and HTTP/3, where each may have one; 431 beyond
    ///
    /// At most 10000.
    #[arg(long, value_name = "N", value_parser = fields, default_value = "1000", allow_negative_numbers = true, help_heading = heading::LIMITS)]
    cookies_max: usize,

    /// The most bytes of a request line, or of a target over HTTP/2 and HTTP/3; 414 beyond
    ///
    /// Write bytes, 16k or 1m, the most.
    #[arg(long, value_name = "SIZE", value_parser = bytes, default_value = "8k", allow_hyphen_values = true, help_heading = heading::LIMITS)]
    request_line_max: usize,

    /// The most bytes of a request's trailers; 431 beyond
    ///
    /// Write bytes, 64k or 1m, the most.
    #[arg(long, value_name = "SIZE", value_parser = bytes, default_value = "8k", allow_hyphen_values = true, help_heading = heading::LIMITS)]
    trailers_max: usize,

    /// The most fields of a request's trailers; 431 beyond
    ///
    /// At most 10000.
    #[arg(long, value_name = "N", value_parser = fields, default_value = "32", allow_negative_numbers = true, help_heading = heading::LIMITS)]
    trailer_fields_max: usize,

    /// The most bytes of the fields of an upstream's response, and of its trailers; 502 beyond
    ///
    /// Write bytes, 64k or 1m, the most. Over HTTP/2 it is announced to upstreams.
    #[arg(long, value_name = "SIZE", value_parser = bytes, default_value = "32k", allow_hyphen_values = true, help_heading = heading::LIMITS)]
    upstream_head_max: usize,

    /// The most fields of an upstream's response, and of its trailers; 502 beyond
    ///
    /// At most 10000.
    #[arg(long, value_name = "N", value_parser = fields, default_value = "200", allow_negative_numbers = true, help_heading = heading::LIMITS)]
    upstream_fields_max: usize,
}

impl MessageLimitArguments {
    pub(crate) fn apply(&self, options: &mut Options) {
        let limits = &mut options.limits;
        limits.head_bytes_max = self.head_max;
        limits.fields_max = self.fields_max;
        limits.cookie_crumbs_max = self.cookies_max;
        limits.request_line_bytes_max = self.request_line_max;
        limits.trailer_bytes_max = self.trailers_max;
        limits.trailer_fields_max = self.trailer_fields_max;
        limits.fit_header_blocks();
        let limits = &mut options.client.limits;
        limits.head_bytes_max = self.upstream_head_max;
        limits.response_fields_max = self.upstream_fields_max;
        limits.fit_header_blocks();
    }
}

fn bytes(value: &str) -> Result<usize, String> {
    let remedy = "write bytes, or 64k (KiB), and at most 1m";
    match parse_size(value) {
        Some(bytes @ 1..=BYTES_MAX) => Ok(bytes as usize),
        Some(0) => Err(format!("0 would refuse every message\n  {remedy}")),
        Some(_) => Err(format!(
            "this is more than a core can hold for each request\n  {remedy}"
        )),
        None => Err(format!("this is not a size\n  {remedy}")),
    }
}

fn fields(value: &str) -> Result<usize, String> {
    match value.parse() {
        Ok(fields @ 1..=FIELDS_MAX) => Ok(fields),
        _ => Err(format!(
            "this is not a number of fields\n  write one from 1 to {FIELDS_MAX}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use blitz_http::Limits;
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        limits: MessageLimitArguments,
    }

    fn options(flags: &[&str]) -> Options {
        let mut options = Options::default();
        let all = [&["blitz"], flags].concat();
        Arguments::parse_from(all).limits.apply(&mut options);
        options
    }

    #[test]
    fn the_defaults_of_the_flags_are_those_of_the_limits() {
        let options = options(&[]);
        assert_eq!(options.limits, Limits::default());
        assert_eq!(options.client.limits, Options::default().client.limits);
    }

    #[test]
    fn each_flag_raises_its_limit() {
        let flags = "--head-max=1m --fields-max=1000 --cookies-max=2000 --request-line-max=64k --trailers-max=128k \
                     --trailer-fields-max=300 --upstream-head-max=512k --upstream-fields-max=900";
        let options = options(&flags.split(' ').collect::<Vec<_>>());
        let limits = options.limits;
        assert_eq!((limits.head_bytes_max, limits.fields_max), (1 << 20, 1_000));
        assert_eq!(
            (limits.cookie_crumbs_max, limits.request_line_bytes_max),
            (2_000, 64 << 10)
        );
        assert_eq!(
            (limits.trailer_bytes_max, limits.trailer_fields_max),
            (128 << 10, 300)
        );
        let limits = options.client.limits;
        assert_eq!(
            (limits.head_bytes_max, limits.response_fields_max),
            (512 << 10, 900)
        );
    }

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
