//! Dates as providers write them.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

const SECONDS_A_DAY: u64 = 86_400;
const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];

/// A day, counted from 1 January 1970 in UTC. Shown as `YYYY-MM-DD`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Day(u64);

impl Day {
    /// Today.
    pub(super) fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self(since.map_or(0, |since| since.as_secs() / SECONDS_A_DAY))
    }

    /// The day so many days before.
    pub(super) fn before(self, days: u64) -> Self {
        Self(self.0.saturating_sub(days))
    }
}

impl fmt::Display for Day {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Years are counted from March here, so that the leap day is the last one (Hinnant, "chrono-compatible
        // low-level date algorithms").
        let days = self.0 + 719_468;
        let (era, of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 {
            from_march + 3
        } else {
            from_march - 9
        };
        let year = era * 400 + year_of_era + u64::from(month <= 2);
        write!(formatter, "{year:04}-{month:02}-{day:02}")
    }
}

/// A date as `YYYY-MM-DD`: from ISO 8601, from a day, a month's English name and a year in any order, or from "3 days
/// ago". Nothing where it is only a month or a guess.
pub(super) fn read(text: &str, today: Day) -> Option<String> {
    let text = text.trim();
    iso(text)
        .or_else(|| named(text))
        .or_else(|| ago(text, today))
}

fn iso(text: &str) -> Option<String> {
    let date: String = text.chars().take(10).collect();
    if text
        .chars()
        .nth(10)
        .is_some_and(|next| next.is_ascii_digit())
    {
        return None;
    }
    let mut parts = date.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || year.len() != 4 || month.len() != 2 || day.len() != 2 {
        return None;
    }
    written(number(year)?, number(month)?, number(day)?)
}

fn named(text: &str) -> Option<String> {
    let (mut year, mut month, mut day) = (None, None, None);
    for word in text.split(|character: char| !character.is_alphanumeric()) {
        match (word.len(), number(word)) {
            (1 | 2, Some(value)) if day.is_none() => day = Some(value),
            (4, Some(value)) if year.is_none() => year = Some(value),
            (3.., None) if month.is_none() => month = month_of(word),
            _ => {}
        }
    }
    written(year?, month?, day?)
}

fn ago(text: &str, today: Day) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let mut words = lower.split_whitespace();
    let (count, unit, ago) = (words.next()?, words.next()?, words.next()?);
    if ago != "ago" {
        return None;
    }
    let days = match unit.trim_end_matches('s') {
        "day" => number(count)?,
        "hour" | "hr" | "minute" | "min" | "second" | "sec" => number(count).map(|_| 0)?,
        _ => return None,
    };
    Some(today.before(days).to_string())
}

fn number(digits: &str) -> Option<u64> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

fn month_of(word: &str) -> Option<u64> {
    let beginning: String = word
        .chars()
        .take(3)
        .collect::<String>()
        .to_ascii_lowercase();
    let index = MONTHS.iter().position(|month| *month == beginning)?;
    u64::try_from(index + 1).ok()
}

fn written(year: u64, month: u64, day: u64) -> Option<String> {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    ((1..=days).contains(&day) && year >= 1900).then(|| format!("{year:04}-{month:02}-{day:02}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_shown_as_dates() {
        for (day, shown) in [
            (0, "1970-01-01"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_453, "2025-12-31"),
            (20_454, "2026-01-01"),
        ] {
            assert_eq!(Day(day).to_string(), shown);
        }
        assert_eq!(Day(20_454).before(365).to_string(), "2025-01-01");
        assert!(Day::now() > Day(20_000));
    }

    #[test]
    fn dates_are_read_in_the_forms_of_the_providers() {
        for (text, read_as) in [
            ("2025-02-11", Some("2025-02-11")),
            ("2023-11-16T01:36:32.547Z", Some("2023-11-16")),
            ("2024-02-29 10:00:00+0000", Some("2024-02-29")),
            ("Feb 11, 2025", Some("2025-02-11")),
            ("11 February 2025", Some("2025-02-11")),
            ("Tue, 11 Feb 2025 01:30:35 GMT", Some("2025-02-11")),
            ("3 days ago", Some("2025-12-29")),
            ("1 day ago", Some("2025-12-31")),
            ("5 hours ago", Some("2026-01-01")),
            ("2 weeks ago", None),
            ("2025-02-30", None),
            ("2025-13-01", None),
            ("2025-02-111", None),
            ("Feb 2025", None),
            ("0001-01-01T00:00:00", None),
            ("yesterday", None),
            ("", None),
            ("99999999999999999999 days ago", None),
        ] {
            assert_eq!(read(text, Day(20_454)).as_deref(), read_as, "{text}");
        }
    }
}
