//! Tokens of all vendors, put together at run time, so that no scanner takes them for real ones.

pub(super) const HEX: &str = "0a1b2c3d4e5f60718293";
pub(super) const ALNUM: &str = "a1B2c3D4e5F6g7H8i9J0kLmN";
pub(super) const BASE32: &str = "Q2W3E4R5T6Y7UIOP";
pub(super) const URL: &str = "a1-B2_c3D4e5F6g7";
pub(super) const BASE64: &str = "a1+B2/c3D4e5F6g7";

/// The first characters of a row without end.
pub(super) fn row(of: &str, count: usize) -> String {
    of.chars().cycle().take(count).collect()
}

/// Tokens of one run.
fn plain() -> Vec<(&'static str, String)> {
    [
        ("ghp_", ALNUM, 36),
        ("gho_", ALNUM, 36),
        ("ghu_", ALNUM, 36),
        ("ghs_", ALNUM, 36),
        ("ghr_", ALNUM, 76),
        ("github_pat_", "11ABCDEFG0abcdefghijkl_x5", 82),
        ("glpat-", URL, 20),
        ("gldt-", URL, 20),
        ("glrt-", URL, 20),
        ("glptt-", HEX, 40),
        ("glcbt-", URL, 25),
        ("gloas-", HEX, 64),
        ("sk-", ALNUM, 48),
        ("sk-", HEX, 32),
        ("sk-proj-", URL, 156),
        ("sk-svcacct-", URL, 156),
        ("sk-admin-", URL, 156),
        ("sk-ant-", "api03-a1B2_c3D4", 101),
        ("sk-or-v1-", HEX, 64),
        ("gsk_", ALNUM, 52),
        ("xai-", ALNUM, 80),
        ("pplx-", ALNUM, 48),
        ("r8_", ALNUM, 37),
        ("hf_", "aBcDeFgHiJ", 34),
        ("AKIA", BASE32, 16),
        ("AKIA", "QWERTYUIOPASDFGH", 16),
        ("ASIA", BASE32, 16),
        ("AIza", "SyA1-b2_C3", 35),
        ("ya29.", "a0AfH6-b2_C3", 120),
        ("xoxa-", "2-1a2B3c", 40),
        ("xoxb-", "123456789012-a1B", 50),
        ("xoxe-", "1-My0xLTEt", 140),
        ("xoxe.xoxb-", "1-My0xLTEt", 160),
        ("xoxe.xoxp-", "1-My0xLTEt", 160),
        ("xoxo-", "523423-234243-234233-e0", 40),
        ("xoxp-", "1234567890-a1B", 70),
        ("xoxr-", "1a2B3c4D", 30),
        ("xoxs-", "416843729158-132049654-56", 50),
        ("xapp-", "1-A0123BC-456-d7", 60),
        ("sk_live_", ALNUM, 24),
        ("sk_test_", ALNUM, 99),
        ("rk_live_", ALNUM, 24),
        ("rk_test_", ALNUM, 24),
        ("whsec_", BASE64, 44),
        ("npm_", ALNUM, 36),
        ("pypi-AgEIcHlwaS5vcmc", URL, 150),
        ("pypi-AgENdGVzdC5weXBpLm9yZw", URL, 150),
        ("key-", HEX, 32),
        ("dop_v1_", HEX, 64),
        ("doo_v1_", HEX, 64),
        ("dor_v1_", HEX, 64),
        ("shpat_", HEX, 32),
        ("shpca_", HEX, 32),
        ("shppa_", HEX, 32),
        ("shpss_", HEX, 32),
        ("dapi", HEX, 32),
        ("lin_api_", ALNUM, 40),
        ("ntn_", ALNUM, 46),
        ("secret_", ALNUM, 43),
        ("phx_", ALNUM, 43),
        ("sntrys_", "eyJpYXQiOjE2+/_", 180),
        ("sntryu_", HEX, 64),
        ("glc_", "eyJvIjoiMTIzNDU2", 120),
        ("glsa_", "a1B2c3D4_", 41),
        ("hvs.", URL, 95),
        ("hvb.", URL, 150),
        ("hvr.", URL, 95),
        ("tskey-", "auth-k1A2b3CNTRL-", 50),
    ]
    .map(|(begin, rest, count)| ("", format!("{begin}{}", row(rest, count))))
    .into()
}

/// Tokens: the part that is shown, if any, and the part that is hidden.
pub(super) fn tokens() -> Vec<(&'static str, String)> {
    let mut tokens = plain();
    let sendgrid = format!("SG.{}.{}", row(URL, 22), row(URL, 43));
    let jwt = format!(
        "ghs_123_{}.{}.{}",
        row(ALNUM, 40),
        row(URL, 90),
        row(URL, 60)
    );
    tokens.extend([("", sendgrid), ("", jwt)]);
    for first in ["MT", "Mj", "Mz", "ND", "NT", "Nj", "Nz", "OD", "OT"] {
        let bot = format!("{first}{}.{}.{}", row(ALNUM, 22), row(URL, 6), row(URL, 38));
        tokens.push(("", bot));
    }
    let shown = [
        ("AccountKey=", BASE64, 88),
        ("SharedAccessKey=", BASE64, 44),
        ("hooks.slack.com/services/", "T0123ABCD/B0123/a", 44),
        ("hooks.slack.com/workflows/", "T0123ABCD/A0123/a", 60),
        ("hooks.slack.com/triggers/", "E0123ABCD/0123/a", 50),
        ("discord.com/api/webhooks/", "012345678901234567/aB-_", 88),
        ("discordapp.com/api/webhooks/", "012345678901234567/aB", 88),
        ("bot123456789:AA", "F1-b2_Cd", 33),
        ("123456:AA", "F1-b2_Cd", 33),
    ];
    tokens.extend(shown.map(|(shown, rest, count)| (shown, row(rest, count))));
    tokens
}

pub(super) fn private_key(name: &str, line_end: &str) -> String {
    let lines = [
        row(BASE64, 64),
        row(ALNUM, 64),
        format!("{}==", row(ALNUM, 14)),
    ];
    let dashes = "-----";
    format!(
        "{dashes}BEGIN {name}{dashes}{line_end}{}{line_end}{dashes}END {name}{dashes}",
        lines.join(line_end)
    )
}
