//! Codes of countries, and of their regions and languages in search engines.

use crate::Location;

/// Country, region code of DuckDuckGo (`kl`), main language.
#[rustfmt::skip]
const REGIONS: &[(&str, &str, &str)] = &[
    ("AR", "ar-es", "es"), ("AT", "at-de", "de"), ("AU", "au-en", "en"), ("BE", "be-nl", "nl"), ("BG", "bg-bg", "bg"),
    ("BR", "br-pt", "pt"), ("CA", "ca-en", "en"), ("CH", "ch-de", "de"), ("CL", "cl-es", "es"), ("CN", "cn-zh", "zh"),
    ("CO", "co-es", "es"), ("CZ", "cz-cs", "cs"), ("DE", "de-de", "de"), ("DK", "dk-da", "da"), ("EE", "ee-et", "et"),
    ("ES", "es-es", "es"), ("FI", "fi-fi", "fi"), ("FR", "fr-fr", "fr"), ("GB", "uk-en", "en"), ("GR", "gr-el", "el"),
    ("HK", "hk-tzh", "zh"), ("HR", "hr-hr", "hr"), ("HU", "hu-hu", "hu"), ("ID", "id-id", "id"),
    ("IE", "ie-en", "en"), ("IL", "il-he", "he"), ("IN", "in-en", "en"), ("IT", "it-it", "it"), ("JP", "jp-jp", "ja"),
    ("KR", "kr-kr", "ko"), ("LT", "lt-lt", "lt"), ("LV", "lv-lv", "lv"), ("MX", "mx-es", "es"), ("MY", "my-en", "en"),
    ("NL", "nl-nl", "nl"), ("NO", "no-no", "nb"), ("NZ", "nz-en", "en"), ("PE", "pe-es", "es"), ("PH", "ph-en", "en"),
    ("PL", "pl-pl", "pl"), ("PT", "pt-pt", "pt"), ("RO", "ro-ro", "ro"), ("RU", "ru-ru", "ru"), ("SE", "se-sv", "sv"),
    ("SG", "sg-en", "en"), ("SI", "sl-sl", "sl"), ("SK", "sk-sk", "sk"), ("TH", "th-en", "th"), ("TR", "tr-tr", "tr"),
    ("TW", "tw-tzh", "zh"), ("UA", "ua-uk", "uk"), ("US", "us-en", "en"), ("VE", "ve-es", "es"),
    ("VN", "vn-en", "vi"), ("ZA", "za-en", "en"),
];

/// The country code of a location, in upper case; none if it is not two letters.
pub(super) fn country(location: Option<&Location>) -> Option<String> {
    let country = location?.country.as_deref()?.trim();
    let is_code = country.len() == 2 && country.bytes().all(|byte| byte.is_ascii_alphabetic());
    is_code.then(|| country.to_ascii_uppercase())
}

/// The region for DuckDuckGo.
pub(super) fn duckduckgo(country: &str) -> Option<&'static str> {
    region(country).map(|(_, code, _)| *code)
}

/// The language and region for SearXNG, which has no parameter for a country alone.
pub(super) fn searxng(country: &str) -> Option<String> {
    region(country).map(|(code, _, language)| format!("{language}-{code}"))
}

fn region(country: &str) -> Option<&'static (&'static str, &'static str, &'static str)> {
    let found = REGIONS
        .binary_search_by_key(&country, |(code, _, _)| code)
        .ok()?;
    REGIONS.get(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn countries_have_the_codes_of_each_search_engine() {
        assert_eq!(duckduckgo("GB"), Some("uk-en"));
        assert_eq!(searxng("CH").as_deref(), Some("de-CH"));
        assert!(REGIONS.is_sorted());
    }

    #[test]
    fn a_country_is_two_letters() {
        let of = |country: &str| {
            country_of(&Location {
                country: Some(country.to_owned()),
                ..Location::default()
            })
        };
        assert_eq!(of("de").as_deref(), Some("DE"));
        assert_eq!(of("Germany"), None);
        assert_eq!(of("é"), None);
        assert_eq!(country(None), None);
    }

    fn country_of(location: &Location) -> Option<String> {
        country(Some(location))
    }
}
