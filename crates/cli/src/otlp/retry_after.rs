//! When a collector wants to be tried again.

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use blitz_http::Fields;

use super::protobuf::{message_of, messages_of, number_of};

/// The end of the type of the message with the delay, and its fields and those that lead to it.
const RETRY_INFO: &[u8] = b"/google.rpc.RetryInfo";
const DETAILS: u64 = 3;
const TYPE_URL: u64 = 1;
const VALUE: u64 = 2;
const RETRY_DELAY: u64 = 1;
const SECONDS: u64 = 1;
const NANOS: u64 = 2;

/// The value of `Retry-After`: seconds or a date ([RFC 9110, section
/// 10.2.3](https://www.rfc-editor.org/rfc/rfc9110.html#section-10.2.3)).
pub(super) fn of_http(value: &str, now: SystemTime) -> Option<Duration> {
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    if is_number {
        // It has no limit there.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    // A date in the past is no delay.
    Some(date.duration_since(now).unwrap_or_default())
}

/// The delay of a `RetryInfo` among the details of a status of gRPC, if it has one.
pub(super) fn of_grpc(fields: &Fields) -> Option<Duration> {
    let details = fields.get("grpc-status-details-bin")?;
    let padding = details.iter().rev().take_while(|byte| **byte == b'=');
    let end = details.len() - padding.count();
    let status = STANDARD_NO_PAD.decode(&details[..end]).ok()?;
    let is_info = |detail: &&[u8]| {
        message_of(detail, TYPE_URL).is_some_and(|name| name.ends_with(RETRY_INFO))
    };
    let info = messages_of(&status, DETAILS).find(is_info)?;
    let delay = message_of(info, VALUE).and_then(|info| message_of(info, RETRY_DELAY));
    let part = |wanted| {
        let number = delay.and_then(|delay| number_of(delay, wanted));
        // Negative numbers are beyond those of signed ones.
        u64::try_from(number.unwrap_or(0).cast_signed()).unwrap_or(0)
    };
    let nanos = Duration::from_nanos(part(NANOS));
    Some(Duration::from_secs(part(SECONDS)).saturating_add(nanos))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::super::protobuf::Message;
    use super::*;

    #[test]
    fn seconds_and_dates_are_read() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (value, seconds) in [
            ("0", Some(0)),
            ("120", Some(120)),
            ("18446744073709551615", Some(u64::MAX)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("Sun, 06 Nov 1994 08:49:57 GMT", Some(20)),
            ("Sunday, 06-Nov-94 08:49:57 GMT", Some(20)),
            ("Sun Nov  6 08:49:57 1994", Some(20)),
            ("Sun, 06 Nov 1994 08:49:07 GMT", Some(0)),
            ("-1", None),
            ("+1", None),
            ("1.5", None),
            ("", None),
            ("soon", None),
        ] {
            let expected = seconds.map(Duration::from_secs);
            assert_eq!(of_http(value, now), expected, "{value}");
        }
    }

    /// A status with a detail of another type before the delay.
    fn details(seconds: u64, nanos: u64) -> Vec<u8> {
        let mut status = Message::default();
        status.number(1, 14);
        for name in ["Help", "RetryInfo"] {
            status.message(3, |any| {
                any.bytes(
                    1,
                    format!("type.googleapis.com/google.rpc.{name}").as_bytes(),
                );
                any.message(2, |info| {
                    info.message(1, |delay| {
                        delay.number(1, if name == "Help" { 1 } else { seconds });
                        delay.number(2, nanos);
                    });
                });
            });
        }
        status.into_bytes()
    }

    fn read(details: &str) -> Option<Duration> {
        let mut fields = Fields::default();
        fields.append("grpc-status-details-bin", details);
        of_grpc(&fields)
    }

    #[test]
    fn the_delay_of_a_status_of_grpc_is_read() {
        for (seconds, nanos, expected) in [
            (20, 5, Duration::new(20, 5)),
            (0, 0, Duration::ZERO),
            ((-5_i64).cast_unsigned(), 0, Duration::ZERO),
            (
                i64::MAX as u64,
                999_999_999,
                Duration::new(i64::MAX as u64, 999_999_999),
            ),
        ] {
            let details = STANDARD_NO_PAD.encode(details(seconds, nanos));
            for padding in ["", "=", "=="] {
                assert_eq!(read(&format!("{details}{padding}")), Some(expected));
            }
        }
    }

    #[test]
    fn other_details_have_no_delay() {
        let whole = details(20, 0);
        for details in ["", "====", "!", "CAg"] {
            assert_eq!(read(details), None, "{details}");
        }
        for end in 0..whole.len() {
            // It may only be shorter.
            let found = read(&STANDARD_NO_PAD.encode(&whole[..end]));
            assert!(found.is_none_or(|delay| delay <= Duration::from_secs(20)));
        }
    }
}
