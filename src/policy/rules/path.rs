//! Paths in the form in which they are compared, and patterns over them.

use super::patterns::excerpt;

/// The path as an absolute one, without `.`, `..` and repeated slashes. A relative path begins at the root. Nothing is
/// looked up.
pub(super) fn normal(value: &str) -> String {
    let mut components: Vec<&str> = Vec::new();
    for component in value.split('/') {
        match component {
            "" | "." => {}
            ".." => {
                components.pop();
            }
            name => components.push(name),
        }
    }
    joined(&components)
}

/// The glob of a pattern in the same form.
pub(super) fn pattern(text: &str) -> Result<String, String> {
    let mut components: Vec<&str> = Vec::new();
    for component in split(text) {
        match component {
            "" | "." => {}
            ".." => match components.last() {
                // The component may match any number of names.
                Some(&last) if last == "**" || last.contains(['{', '/']) => {
                    return Err(format!(
                        "{} holds a `..` that cannot be resolved, and would match nothing; write the path without it",
                        excerpt(text)
                    ));
                }
                _ => {
                    components.pop();
                }
            },
            name if name.contains("..") && hides_parent(name) => {
                return Err(format!(
                    "{} holds a `..` within braces, and would match nothing; write the path without it",
                    excerpt(text)
                ));
            }
            name => components.push(name),
        }
    }
    Ok(joined(&components))
}

/// The directory itself, for a pattern that matches everything below it.
pub(super) fn base(pattern: &str) -> Option<String> {
    let base = pattern.strip_suffix("/**")?;
    (!base.is_empty()).then(|| base.to_owned())
}

fn joined(components: &[&str]) -> String {
    format!("/{}", components.join("/"))
}

/// Whether `..` is a component within the braces of a component.
fn hides_parent(component: &str) -> bool {
    component
        .split(['{', '}', ',', '/'])
        .any(|piece| piece == "..")
}

/// The components of a glob. Slashes within braces and brackets, and after a backslash, divide nothing.
fn split(text: &str) -> Vec<&str> {
    let (mut braces, mut class, mut escaped) = (0_usize, false, false);
    text.split(|character: char| {
        if escaped {
            escaped = false;
            return false;
        }
        match character {
            '\\' => escaped = true,
            '[' => class = true,
            ']' => class = false,
            '{' if !class => braces += 1,
            '}' if !class => braces = braces.saturating_sub(1),
            '/' => return braces == 0 && !class,
            _ => {}
        }
        false
    })
    .collect()
}
