//! Dates as pages write them.

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
/// Years that a page on the web can be of.
const YEARS: std::ops::RangeInclusive<u32> = 1990..=2100;

/// The first date of a text as `YYYY-MM-DD`: as in ISO 8601, or with the month's English name.
pub(super) fn find(text: &str) -> Option<String> {
    let text: String = text.chars().take(100).collect();
    let words: Vec<&str> = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    (0..words.len()).find_map(|at| {
        let word = |offset: usize| words.get(at + offset).copied().unwrap_or_default();
        iso(word(0), word(1), word(2))
            .or_else(|| compact(word(0)))
            .or_else(|| date(number(word(2))?, month(word(1))?, number(word(0))?))
            .or_else(|| date(number(word(2))?, month(word(0))?, number(word(1))?))
    })
}

/// `2024-05-06T…`: what follows the day does not matter.
fn iso(year: &str, month: &str, day: &str) -> Option<String> {
    let day: String = day.chars().take_while(char::is_ascii_digit).collect();
    if year.len() != 4 || month.len() > 2 || day.len() > 2 {
        return None;
    }
    date(number(year)?, number(month)?, number(&day)?)
}

/// `20240506`.
fn compact(word: &str) -> Option<String> {
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

fn month(word: &str) -> Option<u32> {
    let word = word.to_lowercase();
    let at = MONTHS.iter().position(|name| word.starts_with(name))?;
    u32::try_from(at + 1).ok()
}

fn date(year: u32, month: u32, day: u32) -> Option<String> {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => 31,
    };
    let is_date = YEARS.contains(&year) && (1..=12).contains(&month) && (1..=days).contains(&day);
    is_date.then(|| format!("{year:04}-{month:02}-{day:02}"))
}
