//! Which names a tool can have.

/// Longest name of a tool that model servers accept, in characters; a longer one is refused.
/// Tried by `set::names_are_checked_where_the_server_takes_part`.
pub(super) const MAX_NAME_CHARS: usize = 64;

/// Whether a request may declare this name. Upstreams differ in whether they accept dots, so dots are allowed here.
pub(super) fn is_declarable(name: &str) -> bool {
    is_name(name, |byte| matches!(byte, b'_' | b'-' | b'.'))
}

/// Whether a name is of a length that model servers accept, and of letters, digits and these marks.
pub(super) fn is_name(name: &str, is_mark: impl Fn(u8) -> bool) -> bool {
    (1..=MAX_NAME_CHARS).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || is_mark(byte))
}
