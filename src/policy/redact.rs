//! Hides secrets in the results of tools: loopwright's own, and the tokens of well-known vendors.
//!
//! Owns what is hidden and what replaces it. It does not depend on where secrets come from, nor on the kind of text.
//! Both kinds of secrets are hidden in one way: [`own`] finds the own secrets and [`vendors`] finds tokens by the table
//! in [`shapes`]. Each returns how far a text that may continue is settled, so that a text in pieces is treated as the
//! whole text would be.
//!
//! An own secret may begin with the end of `[hidden]` or end with its beginning, as `word[` does. Such a secret can
//! come about anew where another one is hidden; it was not in the text. Of no other secret does that hold.

mod own;
mod pass;
mod shapes;
mod vendors;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, LazyLock};

use own::OwnSecrets;
use pass::Pass;
use vendors::VendorTokens;

/// Stands in place of a secret.
const HIDDEN: &str = "[hidden]";

/// The same for all.
static VENDORS: LazyLock<VendorTokens> = LazyLock::new(VendorTokens::new);

/// Hides secrets. A clone shares everything.
#[derive(Clone)]
pub struct Redactor {
    own: Arc<OwnSecrets>,
}

impl Redactor {
    /// Hides these secrets, and the tokens of vendors. Secrets of fewer than 8 bytes are not hidden.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            own: Arc::new(OwnSecrets::new(secrets)),
        }
    }

    /// The text without secrets; borrowed if there are none.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match pass::whole(&*self.own, text) {
            Cow::Borrowed(text) => pass::whole(&*VENDORS, text),
            Cow::Owned(text) => {
                let shorter = match pass::whole(&*VENDORS, &text) {
                    Cow::Owned(shorter) => Some(shorter),
                    Cow::Borrowed(_) => None,
                };
                Cow::Owned(shorter.unwrap_or(text))
            }
        }
    }

    /// For one text that comes in pieces.
    pub fn live(&self) -> LiveRedactor {
        LiveRedactor {
            secrets: self.own.clone(),
            own: Pass::default(),
            vendors: Pass::default(),
        }
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").finish_non_exhaustive()
    }
}

/// Hides secrets in a text that comes in pieces, also secrets that are split over several pieces.
///
/// The pieces that [`push`](Self::push) and [`finish`](Self::finish) return make up the text that [`Redactor::redact`]
/// returns for the whole. Only the end of a piece is held back, and only if a secret may begin there: up to the length
/// of the longest own secret, or about a hundred bytes of a token.
pub struct LiveRedactor {
    secrets: Arc<OwnSecrets>,
    own: Pass,
    vendors: Pass,
}

impl LiveRedactor {
    /// Adds the next piece, and returns the settled text.
    pub fn push(&mut self, piece: &str) -> String {
        let text = self.own.push(&*self.secrets, piece);
        self.vendors.push(&*VENDORS, &text)
    }

    /// Ends the text, and returns the part that was held back. The next piece begins another text.
    pub fn finish(&mut self) -> String {
        let text = self.own.finish(&*self.secrets);
        let mut shown = self.vendors.push(&*VENDORS, &text);
        shown.push_str(&self.vendors.finish(&*VENDORS));
        shown
    }
}

impl fmt::Debug for LiveRedactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveRedactor").finish_non_exhaustive()
    }
}
