//! Dates in the texts of pages and search providers, as `YYYY-MM-DD`.

use std::ops::RangeInclusive;

use chrono::{Datelike, Days, Month, NaiveDate, Utc};

/// Numbers of the years that a page on the web can be of.
const YEARS: RangeInclusive<i32> = 1990..=2100;
/// Most characters of a text in which a date is searched; the rest is left out.
const MAX_CHARS: usize = 100;

/// The date this number of days before today, in UTC.
pub(super) fn days_ago(days: u64) -> Option<NaiveDate> {
    Utc::now().date_naive().checked_sub_days(Days::new(days))
}

/// The first date of a text: in ISO 8601, or with the month's English name.
pub(super) fn find(text: &str) -> Option<String> {
    let text: String = text.chars().take(MAX_CHARS).collect();
    let words: Vec<&str> = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    let found = (0..words.len()).find_map(|at| {
        let word = |offset: usize| words.get(at + offset).copied().unwrap_or_default();
        iso(word(0), word(1), word(2))
            .or_else(|| compact(word(0)))
            .or_else(|| date(number(word(2))?, month(word(1))?, number(word(0))?))
            .or_else(|| date(number(word(2))?, month(word(0))?, number(word(1))?))
    });
    found.map(|date| date.to_string())
}

/// The same, also for an age in days or less: "3 days ago", "5 hours ago".
pub(super) fn find_or_age(text: &str) -> Option<String> {
    find(text).or_else(|| {
        let date = days_ago(age_in_days(text)?)?;
        YEARS.contains(&date.year()).then(|| date.to_string())
    })
}

fn age_in_days(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let mut words = lower.split_whitespace();
    let (count, unit, ago) = (words.next()?, words.next()?, words.next()?);
    let count: u64 = count.parse().ok()?;
    match (unit.trim_end_matches('s'), ago) {
        ("day", "ago") => Some(count),
        ("hour" | "hr" | "minute" | "min" | "second" | "sec", "ago") => Some(0),
        _ => None,
    }
}

/// `2024-05-06T…`: what follows the day does not matter.
fn iso(year: &str, month: &str, day: &str) -> Option<NaiveDate> {
    let day: String = day.chars().take_while(char::is_ascii_digit).collect();
    if year.len() != 4 || month.len() > 2 || day.len() > 2 {
        return None;
    }
    date(number(year)?, number(month)?, number(&day)?)
}

/// `20240506`.
fn compact(word: &str) -> Option<NaiveDate> {
    let digits: String = word.chars().take_while(char::is_ascii_digit).collect();
    if digits.len() != 8 {
        return None;
    }
    let part = |from, to| digits.get(from..to).and_then(number);
    date(part(0, 4)?, part(4, 6)?, part(6, 8)?)
}

fn number(word: &str) -> Option<u32> {
    // `3rd` is a number too.
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    digits.parse().ok()
}

/// The number of a month by the first three letters of its English name.
fn month(word: &str) -> Option<u32> {
    let month: Month = word.get(..3)?.parse().ok()?;
    Some(month.number_from_month())
}

fn date(year: u32, month: u32, day: u32) -> Option<NaiveDate> {
    let year = i32::try_from(year)
        .ok()
        .filter(|year| YEARS.contains(year))?;
    NaiveDate::from_ymd_opt(year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_found_in_the_forms_of_pages_and_providers() {
        for (text, expected) in [
            ("2025-02-11", Some("2025-02-11")),
            ("2023-11-16T01:36:32.547Z", Some("2023-11-16")),
            ("2024-02-29 10:00:00+0000", Some("2024-02-29")),
            ("2025-06-03T08:15:00+02:00", Some("2025-06-03")),
            ("2025/6/3", Some("2025-06-03")),
            ("20250603", Some("2025-06-03")),
            ("Feb 11, 2025", Some("2025-02-11")),
            ("11 February 2025", Some("2025-02-11")),
            ("Tue, 11 Feb 2025 01:30:35 GMT", Some("2025-02-11")),
            ("Published on June 3rd, 2025", Some("2025-06-03")),
            ("2025-02-30", None),
            ("2025-13-01", None),
            ("2025-02-111", None),
            ("1825-02-03", None),
            ("0001-01-01T00:00:00", None),
            ("03/04/2025", None),
            ("Feb 2025", None),
            ("3 days ago", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(find(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn ages_in_days_or_less_are_dates() {
        for (text, expected) in [
            ("3 days ago", Some(3)),
            ("1 day ago", Some(1)),
            ("5 hours ago", Some(0)),
            ("2 weeks ago", None),
            ("3 days", None),
            ("yesterday", None),
            ("99999999999999999999 days ago", None),
        ] {
            assert_eq!(age_in_days(text), expected, "{text}");
        }
        let before = days_ago(400).unwrap();
        let found = find_or_age("400 days ago").unwrap();
        assert!(found == before.to_string() || found == days_ago(400).unwrap().to_string());
        assert_eq!(find_or_age("400000 days ago"), None);
        assert_eq!(find_or_age("18446744073709551615 days ago"), None);
    }
}
