//! Countries as providers name them.

use crate::web::Location;

/// The countries that Brave knows (`country` of its web search parameters).
const BRAVE: &str = "AR AU AT BE BR CA CL DK FI FR DE HK IN ID IT JP KR MY MX NL NZ NO CN PL PT PH RU SA ZA ES SE CH TW TR GB US";

/// Country, region code of DuckDuckGo (`kl`), most spoken language among those that search engines know the country by.
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

/// Country and its name as Tavily knows it.
#[rustfmt::skip]
const NAMES: &[(&str, &str)] = &[
    ("AD", "andorra"), ("AE", "united arab emirates"), ("AF", "afghanistan"), ("AL", "albania"), ("AM", "armenia"),
    ("AO", "angola"), ("AR", "argentina"), ("AT", "austria"), ("AU", "australia"), ("AZ", "azerbaijan"),
    ("BA", "bosnia and herzegovina"), ("BB", "barbados"), ("BD", "bangladesh"), ("BE", "belgium"),
    ("BF", "burkina faso"), ("BG", "bulgaria"), ("BH", "bahrain"), ("BI", "burundi"), ("BJ", "benin"),
    ("BN", "brunei"), ("BO", "bolivia"), ("BR", "brazil"), ("BS", "bahamas"), ("BT", "bhutan"), ("BW", "botswana"),
    ("BY", "belarus"), ("BZ", "belize"), ("CA", "canada"), ("CF", "central african republic"), ("CG", "congo"),
    ("CH", "switzerland"), ("CL", "chile"), ("CM", "cameroon"), ("CN", "china"), ("CO", "colombia"),
    ("CR", "costa rica"), ("CU", "cuba"), ("CV", "cape verde"), ("CY", "cyprus"), ("CZ", "czech republic"),
    ("DE", "germany"), ("DJ", "djibouti"), ("DK", "denmark"), ("DO", "dominican republic"), ("DZ", "algeria"),
    ("EC", "ecuador"), ("EE", "estonia"), ("EG", "egypt"), ("ER", "eritrea"), ("ES", "spain"), ("ET", "ethiopia"),
    ("FI", "finland"), ("FJ", "fiji"), ("FR", "france"), ("GA", "gabon"), ("GB", "united kingdom"), ("GE", "georgia"),
    ("GH", "ghana"), ("GM", "gambia"), ("GN", "guinea"), ("GQ", "equatorial guinea"), ("GR", "greece"),
    ("GT", "guatemala"), ("HN", "honduras"), ("HR", "croatia"), ("HT", "haiti"), ("HU", "hungary"),
    ("ID", "indonesia"), ("IE", "ireland"), ("IL", "israel"), ("IN", "india"), ("IQ", "iraq"), ("IR", "iran"),
    ("IS", "iceland"), ("IT", "italy"), ("JM", "jamaica"), ("JO", "jordan"), ("JP", "japan"), ("KE", "kenya"),
    ("KG", "kyrgyzstan"), ("KH", "cambodia"), ("KM", "comoros"), ("KP", "north korea"), ("KR", "south korea"),
    ("KW", "kuwait"), ("KZ", "kazakhstan"), ("LB", "lebanon"), ("LI", "liechtenstein"), ("LK", "sri lanka"),
    ("LR", "liberia"), ("LS", "lesotho"), ("LT", "lithuania"), ("LU", "luxembourg"), ("LV", "latvia"),
    ("LY", "libya"), ("MA", "morocco"), ("MC", "monaco"), ("MD", "moldova"), ("ME", "montenegro"),
    ("MG", "madagascar"), ("MK", "north macedonia"), ("ML", "mali"), ("MM", "myanmar"), ("MN", "mongolia"),
    ("MR", "mauritania"), ("MT", "malta"), ("MU", "mauritius"), ("MV", "maldives"), ("MW", "malawi"),
    ("MX", "mexico"), ("MY", "malaysia"), ("MZ", "mozambique"), ("NA", "namibia"), ("NE", "niger"), ("NG", "nigeria"),
    ("NI", "nicaragua"), ("NL", "netherlands"), ("NO", "norway"), ("NP", "nepal"), ("NZ", "new zealand"),
    ("OM", "oman"), ("PA", "panama"), ("PE", "peru"), ("PG", "papua new guinea"), ("PH", "philippines"),
    ("PK", "pakistan"), ("PL", "poland"), ("PT", "portugal"), ("PY", "paraguay"), ("QA", "qatar"), ("RO", "romania"),
    ("RS", "serbia"), ("RU", "russia"), ("RW", "rwanda"), ("SA", "saudi arabia"), ("SD", "sudan"), ("SE", "sweden"),
    ("SG", "singapore"), ("SI", "slovenia"), ("SK", "slovakia"), ("SN", "senegal"), ("SO", "somalia"),
    ("SS", "south sudan"), ("SV", "el salvador"), ("SY", "syria"), ("TD", "chad"), ("TG", "togo"), ("TH", "thailand"),
    ("TJ", "tajikistan"), ("TM", "turkmenistan"), ("TN", "tunisia"), ("TR", "turkey"), ("TT", "trinidad and tobago"),
    ("TW", "taiwan"), ("TZ", "tanzania"), ("UA", "ukraine"), ("UG", "uganda"), ("US", "united states"),
    ("UY", "uruguay"), ("UZ", "uzbekistan"), ("VE", "venezuela"), ("VN", "vietnam"), ("YE", "yemen"),
    ("ZA", "south africa"), ("ZM", "zambia"), ("ZW", "zimbabwe"),
];

/// The country of a location, if it is a code: two letters, upper case.
pub(super) fn country(location: Option<&Location>) -> Option<String> {
    let country = location?.country.as_deref()?.trim();
    let is_code = country.len() == 2 && country.bytes().all(|byte| byte.is_ascii_alphabetic());
    is_code.then(|| country.to_ascii_uppercase())
}

/// The country for Brave: all of them for one that it does not know, since its default is the United States.
pub(super) fn brave(country: &str) -> &str {
    let known = BRAVE.split(' ').any(|code| code == country);
    if known { country } else { "ALL" }
}

/// The country's name for Tavily.
pub(super) fn tavily(country: &str) -> Option<&'static str> {
    let found = NAMES
        .binary_search_by_key(&country, |(code, _)| code)
        .ok()?;
    NAMES.get(found).map(|(_, name)| *name)
}

/// The region for DuckDuckGo.
pub(super) fn duckduckgo(country: &str) -> Option<&'static str> {
    region(country).map(|(_, code, _)| *code)
}

/// The language and region for SearXNG, which has no word for a country alone.
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
    fn countries_are_named_as_each_provider_wants_it() {
        assert_eq!(brave("DE"), "DE");
        assert_eq!(brave("IS"), "ALL");
        assert_eq!(tavily("US"), Some("united states"));
        assert_eq!(tavily("XX"), None);
        assert_eq!(duckduckgo("GB"), Some("uk-en"));
        assert_eq!(searxng("CH").as_deref(), Some("de-CH"));
        assert!(REGIONS.is_sorted() && NAMES.is_sorted());
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
