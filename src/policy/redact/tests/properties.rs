//! Any text, any secrets and any pieces.

use proptest::prelude::*;
use proptest::sample::Index;

use super::tokens::{BASE64, URL};
use super::*;

/// Pieces of texts in which much begins and little is a secret.
fn fragments() -> impl Strategy<Value = String> {
    let begins = SHAPES.iter().map(|shape| shape.begins.to_owned());
    let whole = tokens()
        .into_iter()
        .map(|(shown, secret)| format!("{shown}{secret}"));
    let keys = ["\n", "\\n", "\\r\\n"].map(|line_end| private_key("RSA PRIVATE KEY", line_end));
    let rows = [HEX, ALNUM, BASE32, URL, BASE64]
        .into_iter()
        .flat_map(|of| [1, 7, 20, 36, 64].map(|n| row(of, n)));
    let others = [
        "\"",
        "\\",
        "\\n",
        "\\u0022",
        "%3D",
        "\x1b[1m",
        "=",
        ".",
        "-",
        "_",
        "/",
        ":",
        " ",
        "\n",
        "é",
        "🦀",
        "12345678",
        "EXAMPLE",
        "PRIVATE KEY",
        "-----",
        "[hidden]",
        "hidden",
        "]",
        "[",
    ];
    let others = others.map(str::to_owned);
    let all: Vec<String> = begins
        .chain(whole)
        .chain(keys)
        .chain(rows)
        .chain(others)
        .collect();
    let cut = (prop::sample::select(all.clone()), any::<Index>());
    prop_oneof![
        3 => prop::sample::select(all),
        1 => cut.prop_map(|(text, at)| text.chars().take(at.index(text.len())).collect::<String>()),
        2 => "[abé\"/]{1,9}",
    ]
}

/// Secrets that overlap, and a text with parts of them.
fn cases() -> impl Strategy<Value = (Vec<String>, String)> {
    let secrets = prop::collection::vec("[abé\"/]{6,14}|ghp_[a-c]{4,8}|a[.] [a-c]{8}", 0..5);
    secrets.prop_flat_map(|secrets| {
        let redactor = Redactor::new(secrets.iter().map(String::as_str));
        let forms = redactor.own.forms().to_vec();
        let of_secret = move |(which, from, to): (Index, Index, Index)| {
            let Some(form) = forms.get(which.index(forms.len().max(1))) else {
                return String::new();
            };
            let count = form.chars().count();
            let (from, to) = (from.index(count + 1), to.index(count + 1));
            form.chars()
                .skip(from.min(to) / 2)
                .take(from.max(to))
                .collect()
        };
        let part = any::<(Index, Index, Index)>().prop_map(of_secret);
        let parts = prop::collection::vec(prop_oneof![fragments(), part], 0..14);
        (Just(secrets), parts.prop_map(|parts| parts.concat()))
    })
}

fn cut_at(text: &str, cuts: &[Index]) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(chars.len() + 1)).collect();
    places.extend([0, chars.len()]);
    places.sort_unstable();
    places
        .windows(2)
        .map(|pair| chars[pair[0]..pair[1]].iter().collect())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_split_gives_the_same_as_the_whole(
        (secrets, text) in cases(),
        cuts in prop::collection::vec(any::<Index>(), 0..40),
    ) {
        let redactor = Redactor::new(secrets.iter().map(String::as_str));
        let whole = redactor.redact(&text);
        let pieces = cut_at(&text, &cuts);
        let shown = in_pieces(&redactor, pieces.iter().map(String::as_str));
        prop_assert_eq!(shown.concat(), &*whole);
        let chars: Vec<String> = text.chars().map(String::from).collect();
        let shown = in_pieces(&redactor, chars.iter().map(String::as_str));
        prop_assert_eq!(shown.concat(), &*whole);
    }

    #[test]
    fn no_own_secret_comes_out((secrets, text) in cases(), cuts in prop::collection::vec(any::<Index>(), 0..9)) {
        let redactor = Redactor::new(secrets.iter().map(String::as_str));
        let pieces = cut_at(&text, &cuts);
        let shown = in_pieces(&redactor, pieces.iter().map(String::as_str)).concat();
        for form in redactor.own.forms() {
            prop_assert!(!shown.contains(form), "{} in {}", form, shown);
        }
    }

    #[test]
    fn a_second_time_changes_nothing((secrets, text) in cases()) {
        let redactor = Redactor::new(secrets.iter().map(String::as_str));
        let once = redactor.redact(&text);
        let twice = redactor.redact(&once);
        prop_assert_eq!(&twice, &once);
        prop_assert!(matches!(twice, Cow::Borrowed(_)));
    }

    #[test]
    fn nothing_else_is_changed(text in "[ -~\n]{0,200}|\\PC{0,60}", before in "\\PC{0,20}", after in "[^c]{0,20}") {
        let redactor = Redactor::new(["own-secret-é"]);
        let shown = redactor.redact(&text);
        prop_assert!(matches!(shown, Cow::Borrowed(_)));
        prop_assert_eq!(&shown, &text);
        let around = format!("{before}own-secret-é{after}");
        prop_assert_eq!(redactor.redact(&around), format!("{before}[hidden]{after}"));
    }
}
