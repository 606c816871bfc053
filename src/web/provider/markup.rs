//! HTML as a sequence of tokens. No tree is built, so nesting is unlimited.

use std::cell::RefCell;

use html5ever::Attribute;
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{
    BufferQueue, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};

/// A token, with entities decoded.
#[derive(Debug)]
pub(super) enum Piece<'t> {
    /// Text between tags.
    Text(&'t str),
    /// A start tag.
    Open {
        /// The name, in lower case.
        name: &'t str,
        /// The attributes, in document order.
        attributes: &'t [Attribute],
    },
    /// An end tag.
    Close(&'t str),
}

/// Reads a page. The content of scripts is text, even if it resembles tags.
pub(super) fn page(html: &str, see: impl FnMut(Piece<'_>)) {
    walk(html, Scripts::Raw, see);
}

/// Reads a text that may hold markup. The content of scripts is read as markup too.
pub(super) fn fragment(html: &str, see: impl FnMut(Piece<'_>)) {
    walk(html, Scripts::Markup, see);
}

/// The value of an attribute.
pub(super) fn attribute<'a>(attributes: &'a [Attribute], name: &str) -> Option<&'a str> {
    attributes
        .iter()
        .find(|attribute| &*attribute.name.local == name)
        .map(|attribute| attribute.value.as_ref())
}

/// Whether an element has a class.
pub(super) fn has_class(attributes: &[Attribute], class: &str) -> bool {
    attribute(attributes, "class")
        .is_some_and(|classes| classes.split_ascii_whitespace().any(|own| own == class))
}

/// How the content of scripts and styles is read.
#[derive(Clone, Copy)]
enum Scripts {
    Raw,
    Markup,
}

struct Sink<F> {
    see: RefCell<F>,
    scripts: Scripts,
}

fn walk(html: &str, scripts: Scripts, see: impl FnMut(Piece<'_>)) {
    let sink = Sink {
        see: RefCell::new(see),
        scripts,
    };
    let tokenizer = Tokenizer::new(sink, TokenizerOpts::default());
    let input = BufferQueue::default();
    input.push_back(StrTendril::from_slice(html));
    // The tokenizer stops after each script so that a browser can run it.
    while !input.is_empty() {
        let _ = tokenizer.feed(&input);
    }
    tokenizer.end();
}

impl<F: FnMut(Piece<'_>)> TokenSink for Sink<F> {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        let mut see = self.see.borrow_mut();
        match token {
            Token::CharacterTokens(text) => see(Piece::Text(&text)),
            Token::TagToken(tag) => match tag.kind {
                TagKind::StartTag => {
                    see(Piece::Open {
                        name: &tag.name,
                        attributes: &tag.attrs,
                    });
                    return match (self.scripts, tag.name.as_ref()) {
                        (Scripts::Raw, "script") => TokenSinkResult::RawData(RawKind::ScriptData),
                        (Scripts::Raw, "style" | "noscript" | "iframe") => {
                            TokenSinkResult::RawData(RawKind::Rawtext)
                        }
                        _ => TokenSinkResult::Continue,
                    };
                }
                TagKind::EndTag => see(Piece::Close(&tag.name)),
            },
            Token::DoctypeToken(_)
            | Token::CommentToken(_)
            | Token::NullCharacterToken
            | Token::EOFToken
            | Token::ParseError(_) => {}
        }
        TokenSinkResult::Continue
    }
}
