//! How much work a pattern can be.

/// Positions that a regular expression has when its counted repeats are written out; each may be live at every byte of
/// a text. Never too low for what the engine compiles; what is not understood counts as one position a character.
pub(super) fn positions(pattern: &str) -> u64 {
    /// What one group has come to.
    #[derive(Default, Clone, Copy)]
    struct Group {
        total: u64,
        last: u64,
    }
    impl Group {
        fn atom(&mut self, positions: u64) {
            self.total = self.total.saturating_add(positions);
            self.last = positions;
        }
    }
    let mut outer = Vec::new();
    let mut group = Group::default();
    let mut chars = pattern.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\\' => {
                chars.next();
                group.atom(1);
            }
            '(' => outer.push(std::mem::take(&mut group)),
            ')' => {
                let inner = group.total;
                group = outer.pop().unwrap_or_default();
                group.atom(inner);
            }
            '{' => {
                let mut counts = [0_u64; 2];
                let mut at = 0;
                while let Some(char) = chars.next_if(|char| char.is_ascii_digit() || *char == ',') {
                    match (char.to_digit(10), counts.get_mut(at)) {
                        (Some(digit), Some(count)) => {
                            *count = count.saturating_mul(10).saturating_add(digit.into());
                        }
                        _ => at += 1,
                    }
                }
                chars.next_if_eq(&'}');
                let times = counts.iter().copied().max().unwrap_or_default().max(1);
                let repeated = group.last.saturating_mul(times);
                group.total = group.total.saturating_add(repeated - group.last);
                group.last = repeated;
            }
            _ => group.atom(1),
        }
    }
    outer
        .iter()
        .fold(group.total, |sum, group| sum.saturating_add(group.total))
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_repeats_are_written_out() {
        for (pattern, expected) in [
            ("", 1),
            ("abc", 3),
            (r"\d{3}", 3),
            ("a{2,5}b", 6),
            ("(ab){10}", 20),
            ("((a{9}){9}){5}", 405),
            ("x{,}y", 2),
            ("(((a", 1),
        ] {
            assert_eq!(positions(pattern), expected, "{pattern}");
        }
        assert!(positions("[a-z]{64}") >= 64);
        assert_eq!(positions(&"(a{999999999}".repeat(9)), 9 * 999_999_999);
        assert_eq!(
            positions(&format!("{}a{}", "(".repeat(9), "){99999}".repeat(9))),
            u64::MAX
        );
    }
}
