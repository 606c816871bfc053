//! The shapes of the tokens of vendors, as one table.
//!
//! They are taken from the vendors' documents, from GitHub's list of supported secret-scanning patterns and from the
//! rules of gitleaks (MIT). A shape that occurs in ordinary text is left out. So are public identifiers.

use TokenBytes::{Alnum, Base32, Base64, Dotted, Hex, Path, Url};

/// Most backslashes before the letter of an escape between the lines of a private key: JSON in JSON in JSON has four.
/// More end the key.
/// Tried by `redact::a_private_key_is_hidden_to_its_end`.
const MOST_ESCAPES: usize = 4;
/// Number that stands for the length of a run that ends where its bytes end.
pub(super) const OPEN: usize = usize::MAX;
/// Shortest line of a private key that is hidden without a further one, in bytes. Shorter ones are prose or omissions.
/// Tried by `redact::a_private_key_is_hidden_to_its_end`.
pub(super) const SHORTEST_KEY_LINE: usize = 40;
/// Longest name in the first line of a private key, in bytes. Others are no private keys.
/// Tried by `redact::a_private_key_is_hidden_to_its_end`.
pub(super) const LONGEST_KEY_LABEL: usize = 40;
/// Longest white space before a private key, in bytes. What stands behind more is not taken for a key.
/// Tried by `redact::a_private_key_is_hidden_to_its_end`.
pub(super) const LONGEST_KEY_GAP: usize = 64;

/// A kind of bytes that a token is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenBytes {
    /// Hexadecimal digits.
    Hex,
    /// Letters and digits.
    Alnum,
    /// Base32 in upper case.
    Base32,
    /// Letters, digits, `-` and `_`.
    Url,
    /// Letters, digits, `-`, `_` and `.`.
    Dotted,
    /// The characters of both forms of base64.
    Base64,
    /// Letters, digits, `-`, `_` and `/`.
    Path,
    /// The characters of base64 with `+` and `/`.
    Key,
    /// Capital letters, digits and spaces.
    Label,
}

impl TokenBytes {
    /// Whether a byte is of this kind.
    pub(super) fn hold(self, byte: u8) -> bool {
        let is_url = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        match self {
            Self::Hex => byte.is_ascii_hexdigit(),
            Self::Alnum => byte.is_ascii_alphanumeric(),
            Self::Base32 => matches!(byte, b'A'..=b'Z' | b'2'..=b'7'),
            Self::Url => is_url,
            Self::Dotted => is_url || byte == b'.',
            Self::Base64 => is_url || matches!(byte, b'+' | b'/' | b'='),
            Self::Path => is_url || byte == b'/',
            Self::Key => byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='),
            Self::Label => matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b' '),
        }
    }

    /// Whether a byte is of a word.
    pub(super) fn is_word(byte: u8) -> bool {
        byte.is_ascii_alphanumeric() || byte == b'_'
    }
}

/// What stands between the lines of a private key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineGap {
    /// A gap of this number of bytes.
    Of(usize),
    /// Further text decides.
    Undecided,
    Nothing,
}

/// Whether white space stands at a place, also as an escape. Another escape is left whole.
pub(super) fn line_gap(text: &[u8], at: usize) -> LineGap {
    let text = text.get(at..).unwrap_or_default();
    let escapes = text.iter().take(MOST_ESCAPES);
    let escapes = escapes.take_while(|byte| **byte == b'\\').count();
    match text.get(escapes) {
        Some(b'n' | b'r' | b't') if escapes > 0 => LineGap::Of(escapes + 1),
        Some(byte) if escapes == 0 && byte.is_ascii_whitespace() => LineGap::Of(1),
        Some(_) => LineGap::Nothing,
        None => LineGap::Undecided,
    }
}

/// What stands before a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    Anything,
    /// No letter, digit or `_`, except for the end of an escape.
    NoWord,
    /// Nor a `-`.
    NoWordOrDash,
    /// A number.
    Digits,
}

/// What follows the beginning of a token.
#[derive(Debug, Clone, Copy)]
pub(super) enum TokenRest {
    /// Runs of bytes with a dot between them, each with its least and its most length. The word ends after the last
    /// run. If the last run is open, its bytes include the bytes of words.
    Runs(TokenBytes, &'static [(usize, usize)]),
    /// The lines of a private key.
    PrivateKey,
}

/// The shape of the tokens of one vendor.
#[derive(Debug, Clone, Copy)]
pub(super) struct VendorShape {
    pub(super) begins: &'static str,
    pub(super) before: Before,
    pub(super) rest: TokenRest,
    /// Whether the rest has digits, or letters in both cases.
    pub(super) is_mixed: bool,
    /// Whether only the rest is hidden.
    pub(super) begin_is_shown: bool,
}

/// A shape with a rest of these bytes.
const fn shape(
    begins: &'static str,
    bytes: TokenBytes,
    runs: &'static [(usize, usize)],
) -> VendorShape {
    VendorShape {
        begins,
        before: Before::NoWord,
        rest: TokenRest::Runs(bytes, runs),
        is_mixed: true,
        begin_is_shown: false,
    }
}

impl VendorShape {
    const fn after(mut self, before: Before) -> Self {
        self.before = before;
        self
    }

    const fn shown(mut self) -> Self {
        self.begin_is_shown = true;
        self
    }
}

/// What follows the first two letters.
const DISCORD_BOT: &[(usize, usize)] = &[(21, 26), (6, 6), (27, OPEN)];

/// All shapes.
pub(super) const SHAPES: &[VendorShape] = &[
    // GitHub; tokens of installations may be JSON web tokens.
    shape("ghp_", Url, &[(36, OPEN)]),
    shape("gho_", Url, &[(36, OPEN)]),
    shape("ghu_", Url, &[(36, OPEN)]),
    shape("ghs_", Dotted, &[(36, OPEN)]),
    shape("ghr_", Url, &[(36, OPEN)]),
    shape("github_pat_", Url, &[(36, OPEN)]),
    // GitLab: of users, deployments, runners, pipelines, jobs and applications.
    shape("glpat-", Url, &[(20, OPEN)]),
    shape("gldt-", Url, &[(20, OPEN)]),
    shape("glrt-", Url, &[(20, OPEN)]),
    shape("glptt-", Hex, &[(40, 40)]),
    shape("glcbt-", Url, &[(20, OPEN)]),
    shape("gloas-", Url, &[(64, OPEN)]),
    // Model servers: OpenAI and those with the same shape, Anthropic, OpenRouter, Groq, xAI, Perplexity, Replicate,
    // Hugging Face.
    shape("sk-", Alnum, &[(32, 64)]),
    shape("sk-proj-", Url, &[(40, OPEN)]),
    shape("sk-svcacct-", Url, &[(40, OPEN)]),
    shape("sk-admin-", Url, &[(40, OPEN)]),
    shape("sk-ant-", Url, &[(40, OPEN)]),
    shape("sk-or-v1-", Hex, &[(64, 64)]),
    shape("gsk_", Alnum, &[(52, 52)]),
    shape("xai-", Alnum, &[(80, 80)]),
    shape("pplx-", Alnum, &[(48, 56)]),
    shape("r8_", Alnum, &[(37, 37)]),
    shape("hf_", Alnum, &[(34, 40)]),
    // AWS. The identifiers of lasting keys may have no digit; names in capitals begin with `ASIA`.
    VendorShape {
        is_mixed: false,
        ..shape("AKIA", Base32, &[(16, 16)])
    },
    shape("ASIA", Base32, &[(16, 16)]),
    // Google.
    shape("AIza", Url, &[(35, OPEN)]),
    shape("ya29.", Url, &[(30, OPEN)]),
    // Azure: storage and messaging.
    shape("AccountKey=", Base64, &[(43, OPEN)]).shown(),
    shape("SharedAccessKey=", Base64, &[(43, OPEN)]).shown(),
    // Slack.
    shape("xoxa-", Url, &[(20, OPEN)]),
    shape("xoxb-", Url, &[(20, OPEN)]),
    shape("xoxe-", Url, &[(20, OPEN)]),
    shape("xoxe.xoxb-", Url, &[(20, OPEN)]),
    shape("xoxe.xoxp-", Url, &[(20, OPEN)]),
    shape("xoxo-", Url, &[(20, OPEN)]),
    shape("xoxp-", Url, &[(20, OPEN)]),
    shape("xoxr-", Url, &[(20, OPEN)]),
    shape("xoxs-", Url, &[(20, OPEN)]),
    shape("xapp-", Url, &[(20, OPEN)]),
    shape("hooks.slack.com/services/", Path, &[(30, OPEN)]).shown(),
    shape("hooks.slack.com/workflows/", Path, &[(30, OPEN)]).shown(),
    shape("hooks.slack.com/triggers/", Path, &[(30, OPEN)]).shown(),
    // Stripe, and webhooks of others.
    shape("sk_live_", Alnum, &[(16, 252)]),
    shape("sk_test_", Alnum, &[(16, 252)]),
    shape("rk_live_", Alnum, &[(16, 252)]),
    shape("rk_test_", Alnum, &[(16, 252)]),
    shape("whsec_", Base64, &[(24, OPEN)]),
    // Registries of packages: npm, PyPI and its test.
    shape("npm_", Alnum, &[(36, 36)]),
    shape("pypi-AgEIcHlwaS5vcmc", Url, &[(50, OPEN)]),
    shape("pypi-AgENdGVzdC5weXBpLm9yZw", Url, &[(50, OPEN)]),
    // Mail: SendGrid, Mailgun.
    shape("SG.", Url, &[(22, 22), (43, OPEN)]),
    shape("key-", Hex, &[(32, 32)]).after(Before::NoWordOrDash),
    // DigitalOcean, Shopify.
    shape("dop_v1_", Hex, &[(64, 64)]),
    shape("doo_v1_", Hex, &[(64, 64)]),
    shape("dor_v1_", Hex, &[(64, 64)]),
    shape("shpat_", Hex, &[(32, 32)]),
    shape("shpca_", Hex, &[(32, 32)]),
    shape("shppa_", Hex, &[(32, 32)]),
    shape("shpss_", Hex, &[(32, 32)]),
    // Bots of Discord, by the base64 of their number.
    shape("MT", Url, DISCORD_BOT),
    shape("Mj", Url, DISCORD_BOT),
    shape("Mz", Url, DISCORD_BOT),
    shape("ND", Url, DISCORD_BOT),
    shape("NT", Url, DISCORD_BOT),
    shape("Nj", Url, DISCORD_BOT),
    shape("Nz", Url, DISCORD_BOT),
    shape("OD", Url, DISCORD_BOT),
    shape("OT", Url, DISCORD_BOT),
    // Telegram, whose number of the bot is public; webhooks of Discord.
    shape(":AA", Url, &[(33, OPEN)])
        .after(Before::Digits)
        .shown(),
    shape("discord.com/api/webhooks/", Path, &[(80, OPEN)]).shown(),
    shape("discordapp.com/api/webhooks/", Path, &[(80, OPEN)]).shown(),
    // Databricks, Linear, Notion, PostHog, Sentry, Grafana.
    shape("dapi", Hex, &[(32, 32)]),
    shape("lin_api_", Alnum, &[(40, 40)]),
    shape("ntn_", Alnum, &[(40, 50)]),
    shape("secret_", Alnum, &[(43, 43)]),
    shape("phx_", Alnum, &[(40, 60)]),
    shape("sntrys_", Base64, &[(60, OPEN)]),
    shape("sntryu_", Hex, &[(64, 64)]),
    shape("glc_eyJ", Base64, &[(32, OPEN)]),
    shape("glsa_", Url, &[(41, OPEN)]),
    // Vault, of services, batches and recovery; Tailscale.
    shape("hvs.", Url, &[(24, OPEN)]),
    shape("hvb.", Url, &[(90, OPEN)]),
    shape("hvr.", Url, &[(24, OPEN)]),
    shape("tskey-", Url, &[(20, OPEN)]),
    VendorShape {
        before: Before::Anything,
        rest: TokenRest::PrivateKey,
        ..shape("-----BEGIN ", Alnum, &[])
    }
    .shown(),
];
