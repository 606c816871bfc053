//! The names of files that are placed into a working directory.

/// Longest name of a placed file before a number is added, in bytes; a longer one is cut.
/// Tried by `files::confinement::names_of_placed_files_are_tame`.
pub(super) const MAX_PLACED_NAME: usize = 200;
/// Most numbers that are tried for the name of a placed file. After them placing it fails.
pub(super) const MAX_NUMBER: u32 = 1000;

/// A safe name: one component that is neither hidden nor looks like a command-line option.
pub(super) fn placeable(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or(name);
    let visible: String = last.chars().filter(|c| !c.is_control()).collect();
    let visible = visible.trim().trim_start_matches(['.', '-']);
    let (stem, extension) = split_extension(visible);
    let room = MAX_PLACED_NAME.saturating_sub(extension.len());
    let (stem, _) = stem.split_at(stem.floor_char_boundary(room));
    match format!("{stem}{extension}") {
        empty if empty.is_empty() => "file".to_owned(),
        name => name,
    }
}

/// The name with a number before its extension, from the second one on.
pub(super) fn numbered(name: &str, number: u32) -> String {
    if number == 1 {
        return name.to_owned();
    }
    let (stem, extension) = split_extension(name);
    format!("{stem}-{number}{extension}")
}

/// Splits off the extension with its dot; an unusually long one counts as part of the name.
fn split_extension(name: &str) -> (&str, &str) {
    match name.rfind('.') {
        Some(at) if at > 0 && name.len() - at <= 16 => name.split_at(at),
        _ => (name, ""),
    }
}
