//! How long a server asks to wait, in the forms in which servers write it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use http::header::RETRY_AFTER;

/// Threshold from which on seconds are a time since 1970 and no wait.
const FIRST_EPOCH_SECONDS: f64 = 1e9;
/// Threshold from which on it is that time in milliseconds.
const FIRST_EPOCH_MILLIS: f64 = 1e11;

/// The wait of a `retry-after` header.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    wait(headers.get(RETRY_AFTER)?.to_str().ok()?)
}

/// A wait in seconds, as a duration with units, or as the time of its end: a date or the time since 1970. A time in the past
/// is no wait, and a number that is too large for a duration is the longest one.
pub fn wait(text: &str) -> Option<Duration> {
    let text = text.trim();
    if let Ok(number) = text.parse::<f64>() {
        let wait = || match number {
            _ if number < FIRST_EPOCH_SECONDS => seconds(number),
            _ if number < FIRST_EPOCH_MILLIS => until(seconds(number)),
            _ => until(seconds(number / 1e3)),
        };
        return (number >= 0.0).then(wait);
    }
    match leading_duration(text) {
        Some((duration, "")) => Some(duration),
        _ => {
            let time = httpdate::parse_http_date(text).ok();
            let time = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            time.or_else(|| internet_time(text)).map(until)
        }
    }
}

/// The duration at the start of a text, such as `1m2.5s`, `800ms` or `20 seconds`, and the text after it.
pub fn leading_duration(text: &str) -> Option<(Duration, &str)> {
    let (mut total, mut rest) = (None, text);
    loop {
        let (number, after) = split_after(rest, |one| one.is_ascii_digit() || one == '.');
        let (unit, after) = split_after(after.trim_start(), |one| one.is_ascii_alphabetic());
        let (Ok(number), Some(length)) = (number.parse::<f64>(), unit_seconds(unit)) else {
            return total.map(|total| (seconds(total), rest));
        };
        total = Some(total.unwrap_or(0.0) + number * length);
        rest = after.trim_start();
    }
}

/// The characters at the start of a text that are of a kind, and the rest.
fn split_after(text: &str, of_kind: impl Fn(char) -> bool) -> (&str, &str) {
    let end = text.find(|one| !of_kind(one)).unwrap_or(text.len());
    text.split_at(end)
}

fn unit_seconds(unit: &str) -> Option<f64> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "ms" | "millisecond" | "milliseconds" => 1e-3,
        "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
        "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3_600.0,
        "d" | "day" | "days" => 86_400.0,
        _ => return None,
    })
}

fn seconds(count: f64) -> Duration {
    Duration::try_from_secs_f64(count).unwrap_or(Duration::MAX)
}

/// The wait until a time since 1970.
fn until(time: Duration) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    time.saturating_sub(now.unwrap_or_default())
}

/// The time since 1970 of a date as RFC 3339 has it, such as `2026-02-03T04:05:06.5Z` or with `+01:00`.
fn internet_time(text: &str) -> Option<Duration> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let (_fraction, zone) = split_after(text.get(19..)?, |one| one.is_ascii_digit() || one == '.');
    let offset = match zone.split_at_checked(1)? {
        ("Z" | "z", "") => 0,
        (sign @ ("+" | "-"), zone) => {
            let (hours, minutes) = zone.split_once(':')?;
            let offset = hours.parse::<i64>().ok()? * 60 + minutes.parse::<i64>().ok()?;
            if sign == "-" { -offset } else { offset }
        }
        _ => return None,
    };
    // Years are counted from March, so that a leap day is the last one.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days =
        365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469;
    let minutes = (days * 24 + hour) * 60 + minute - offset;
    u64::try_from(minutes * 60 + second)
        .ok()
        .map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_read_in_every_form() {
        for (text, expected) in [
            ("7", Some(7.0)),
            (" 1.5 ", Some(1.5)),
            ("0", Some(0.0)),
            ("-1", None),
            ("NaN", None),
            ("soon", None),
            ("", None),
            ("0.8s", Some(0.8)),
            ("800ms", Some(0.8)),
            ("1m30s", Some(90.0)),
            ("1m 2.5s", Some(62.5)),
            ("2m59.56s", Some(179.56)),
            ("6m0s", Some(360.0)),
            ("1h2m3s", Some(3_723.0)),
            ("1d", Some(86_400.0)),
            ("20 Seconds", Some(20.0)),
            ("20 seconds or more", None),
            ("5x", None),
            ("s", None),
            ("1.2.3s", None),
            ("1m30", None),
            ("Wed, 21 Oct 2015 07:28:00 GMT", Some(0.0)),
            ("2015-10-21T07:28:00Z", Some(0.0)),
            ("2015-10-21T07:28:00", None),
            ("1445412480", Some(0.0)),
            ("1445412480000", Some(0.0)),
        ] {
            let found = wait(text).map(|wait| wait.as_secs_f64());
            let near = match (found, expected) {
                (Some(found), Some(expected)) => (found - expected).abs() < 1e-6,
                (None, None) => true,
                _ => false,
            };
            assert!(near, "{text}: {found:?}");
        }
        assert!(wait("1e300").unwrap().as_secs_f64() > 1e18);
        assert!(wait("99999999999d").unwrap() > Duration::from_secs(1 << 40));
    }

    #[test]
    fn a_wait_is_read_from_the_time_of_its_end() {
        let end = SystemTime::now() + Duration::from_secs(40);
        let epoch = end.duration_since(UNIX_EPOCH).unwrap();
        for text in [
            httpdate::fmt_http_date(end),
            epoch.as_secs().to_string(),
            epoch.as_millis().to_string(),
        ] {
            let wait = wait(&text).unwrap().as_secs_f64();
            assert!((38.0..=40.0).contains(&wait), "{text}: {wait}");
        }
    }

    #[test]
    fn dates_are_counted_with_leap_days_and_zones() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2000-02-29T23:59:59Z", Some(951_868_799)),
            ("2000-03-01T00:00:00.25Z", Some(951_868_800)),
            ("2026-01-01T01:30:00+01:30", Some(1_767_225_600)),
            ("2025-12-31T19:00:00-05:00", Some(1_767_225_600)),
            ("2026-01-01", None),
            ("2026-01-01T00:00:00+", None),
            ("1960-01-01T00:00:00Z", None),
        ] {
            let time = internet_time(text).map(|time| time.as_secs());
            assert_eq!(time, expected, "{text}");
        }
    }

    #[test]
    fn a_duration_in_a_sentence_ends_where_its_units_end() {
        let found = leading_duration("1m2.5s. Visit 3 pages").unwrap();
        assert_eq!(found, (Duration::from_millis(62_500), ". Visit 3 pages"));
        assert_eq!(leading_duration("5 pages"), None);
    }
}
