//! The file with the hashes of keys: one line each, `NAME:sha256:HASH`, and behind it `:EXPIRY` if the key expires.

use std::collections::HashMap;

use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use time::{Date, Month, PrimitiveDateTime, Time};

/// The most keys of a file.
const KEYS_MAX: usize = 100_000;

/// The most bytes of a name.
const NAME_BYTES_MAX: usize = 128;

/// A key, without the key itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// Its name.
    pub name: String,
    /// Its SHA-256.
    pub hash: [u8; 32],
    /// The second of Unix time from which it is refused.
    pub expires: Option<u64>,
}

/// The keys of a file.
///
/// # Errors
/// The file has none, or a wrong line: the problem, with the number of the line, and the remedy.
pub fn api_keys(content: &[u8]) -> Result<Vec<ApiKey>, (String, String)> {
    let remedy = "write NAME:sha256:HASH, as `blitz api-key NAME` prints it";
    let mut keys = Vec::new();
    let mut lines = HashMap::new();
    for (number, line) in (1..).zip(content.split(|byte| *byte == b'\n')) {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let of_line = |(problem, remedy): (&str, &str)| {
            (format!("line {number} {problem}"), remedy.to_owned())
        };
        let key = key_of(line).map_err(of_line)?;
        if let Some(first) = lines.insert(key.hash, number) {
            let problem = format!("line {number} has the key of line {first}");
            return Err((problem, "keep one of the lines".to_owned()));
        }
        keys.push(key);
        if keys.len() > KEYS_MAX {
            let problem = format!("the file has more than {KEYS_MAX} keys");
            return Err((problem, "remove those that nobody uses".to_owned()));
        }
    }
    match keys.is_empty() {
        true => Err(("the file has no keys".to_owned(), remedy.to_owned())),
        false => Ok(keys),
    }
}

fn key_of(line: &[u8]) -> Result<ApiKey, (&'static str, &'static str)> {
    let form = "write NAME:sha256:HASH, as `blitz api-key NAME` prints it";
    let no_key = ("has not the form of a key", form);
    let line = str::from_utf8(line).map_err(|_| no_key)?;
    let mut parts = line.splitn(4, ':');
    let (Some(name), Some(function), Some(hash)) = (parts.next(), parts.next(), parts.next())
    else {
        return Err(no_key);
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.@+".contains(c);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_plain) {
        return Err((
            "has a name that is none",
            "names have letters, digits and - _ . @ +, at most 128 of them",
        ));
    }
    if function != "sha256" {
        return Err(("has a hash that is not SHA-256", form));
    }
    let hash = hash_of(hash).ok_or((
        "has a hash of another length, or with other characters",
        "SHA-256 has 64 hexadecimal digits, or 43 characters of base64",
    ))?;
    let expires = match parts.next() {
        None => None,
        Some(time) => Some(seconds_of(time).ok_or((
            "has an expiry that is no time",
            "write a day such as 2027-12-31, which is the last one, or 2027-12-31T18:00:00Z",
        ))?),
    };
    Ok(ApiKey {
        name: name.to_owned(),
        hash,
        expires,
    })
}

/// From hexadecimal digits or base64 of either alphabet.
fn hash_of(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    if text.len() == 2 * hash.len() {
        for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digit = |at: usize| char::from(digits[at]).to_digit(16);
            *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
        }
        return Some(hash);
    }
    let padding = DecodePaddingMode::Indifferent;
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(padding);
    let decode = |alphabet| GeneralPurpose::new(alphabet, config).decode(text);
    let bytes = decode(&STANDARD).or_else(|_| decode(&URL_SAFE)).ok()?;
    bytes.try_into().ok()
}

/// The second of Unix time from which a key is refused: that time, or the end of that day in UTC.
fn seconds_of(text: &str) -> Option<u64> {
    let number = |text: &str| {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<u16>().ok()).flatten()
    };
    let (day, time) = match text.split_once('T') {
        None => (text, None),
        Some((day, time)) => (day, Some(time.strip_suffix('Z')?)),
    };
    let part = |text: &str, digits: usize| (text.len() == digits).then(|| number(text)).flatten();
    let [year, month, day] = *day.split('-').collect::<Vec<_>>() else {
        return None;
    };
    let month = Month::try_from(u8::try_from(part(month, 2)?).ok()?).ok()?;
    let day = u8::try_from(part(day, 2)?).ok()?;
    let date = Date::from_calendar_date(i32::from(part(year, 4)?), month, day).ok()?;
    let moment = match time {
        None => PrimitiveDateTime::new(date.next_day()?, Time::MIDNIGHT),
        Some(time) => {
            let [hour, minute, second] = *time.split(':').collect::<Vec<_>>() else {
                return None;
            };
            let part = |text| u8::try_from(part(text, 2)?).ok();
            let time = Time::from_hms(part(hour)?, part(minute)?, part(second)?).ok()?;
            PrimitiveDateTime::new(date, time)
        }
    };
    u64::try_from(moment.assume_utc().unix_timestamp()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SHA-256 of `abc`.
    const HEX: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    const BASE64: &str = "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=";

    #[test]
    fn keys_are_read_in_all_their_forms() {
        for hash in [
            HEX,
            &HEX.to_uppercase(),
            BASE64,
            BASE64.trim_end_matches('='),
            &BASE64.replace('+', "-").replace('/', "_"),
        ] {
            let text = format!("# keys\r\n\r\nbilling:sha256:{hash}\r\n");
            let keys = api_keys(text.as_bytes()).expect(hash);
            assert_eq!(keys.len(), 1);
            assert_eq!((keys[0].name.as_str(), keys[0].expires), ("billing", None));
            assert_eq!(
                keys[0].hash,
                aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, b"abc").as_ref()
            );
        }
    }

    #[test]
    fn keys_expire_at_the_end_of_a_day_or_at_a_time() {
        for (expiry, seconds) in [
            ("2027-12-31", 1_830_297_600),
            ("2027-12-31T23:59:59Z", 1_830_297_599),
            ("2028-02-29", 1_835_481_600),
        ] {
            let text = format!("a:sha256:{HEX}:{expiry}");
            let keys = api_keys(text.as_bytes()).expect(expiry);
            assert_eq!(keys[0].expires, Some(seconds), "{expiry}");
        }
    }

    #[test]
    fn wrong_lines_have_their_number_and_never_their_text() {
        let twice = format!("a:sha256:{HEX}\nb:sha256:{BASE64}");
        for (text, expected) in [
            ("", "the file has no keys"),
            ("# only a comment", "the file has no keys"),
            ("\nhunter2", "line 2 has not the form of a key"),
            ("a:md5:hunter2", "line 1 has a hash that is not SHA-256"),
            ("a:sha256:hunter2", "line 1 has a hash of another length"),
            (&format!(":sha256:{HEX}"), "line 1 has a name that is none"),
            (
                &format!("hunter2 x:sha256:{HEX}"),
                "line 1 has a name that is none",
            ),
            (&twice, "line 2 has the key of line 1"),
            (
                &format!("a:sha256:{HEX}:hunter2"),
                "line 1 has an expiry that is no time",
            ),
            (
                &format!("a:sha256:{HEX}:2027-02-29"),
                "line 1 has an expiry that is no time",
            ),
            (
                &format!("a:sha256:{HEX}:2027-2-9"),
                "line 1 has an expiry that is no time",
            ),
        ] {
            let (problem, remedy) = api_keys(text.as_bytes()).expect_err(text);
            assert!(problem.starts_with(expected), "{text}: {problem}");
            assert!(!problem.contains("hunter2") && !remedy.contains("hunter2"));
        }
        assert!(api_keys(b"a:sha256:\xff").is_err());
    }
}
