//! Checks of here-documents: that Bash sees the same beginning and end, and which expansions there are.

use tree_sitter::Node;

use super::leaf::holds_any;

/// Whether Bash reads the same here-document. `children` are the children of the redirect.
pub(super) fn is_sound(source: &str, children: &[Node<'_>]) -> Option<bool> {
    let child = |kind: &str| children.iter().find(|child| child.kind() == kind);
    let tabs = child("<<-").is_some();
    let (start, end) = (child("heredoc_start")?, child("heredoc_end")?);
    let body = child("heredoc_body")?;
    let written = source.get(start.byte_range())?;
    let (word, quoted) = delimiter(written)?;
    let (line, blank) = source
        .get(start.end_byte()..body.start_byte())?
        .split_once('\n')?;
    let text = source.get(body.start_byte()..end.start_byte())?;
    let before = source.get(..end.start_byte())?;
    let after = source.get(end.end_byte()..)?;
    let stripped = if tabs {
        before.trim_end_matches('\t')
    } else {
        before
    };
    let is_end = |line: &str| {
        let line = if tabs {
            line.trim_start_matches('\t')
        } else {
            line
        };
        line == word
    };
    let body_start = start.end_byte() + line.len() + 1;
    let whole = source.get(body_start..end.start_byte())?;
    Some(
        !line.contains("<<")
            && !line.ends_with('\\')
            && blank.trim_matches([' ', '\t', '\n']).is_empty()
            && source.get(end.byte_range())? == word
            && stripped.ends_with('\n')
            && (after.is_empty() || after.starts_with('\n'))
            && !whole.lines().any(is_end)
            && (quoted || !text.contains("\\\n"))
            && (!quoted || body.child_count() == 0)
            && (quoted || body.child_count() > 0 || is_plain(text)),
    )
}

/// Whether the text of a here-document with expansions holds none.
pub(super) fn is_plain(text: &str) -> bool {
    !holds_any(text, &['`', '$'])
}

/// The word that ends the here-document, and whether its text is taken as it is.
fn delimiter(written: &str) -> Option<(&str, bool)> {
    let inner = ['\'', '"']
        .into_iter()
        .find_map(|quote| written.strip_prefix(quote)?.strip_suffix(quote));
    let word = inner.unwrap_or(written);
    let plain = |character: char| character.is_ascii_alphanumeric() || "_-.".contains(character);
    (!word.is_empty() && word.chars().all(plain)).then_some((word, inner.is_some()))
}
