//! Shell lines, with spellings that are meant to get past the patterns.

use crate::rules::shell::{self, ShellWord};

use super::both;

const MATCHES: (bool, bool) = (true, true);
const DIFFERS: (bool, bool) = (false, false);
/// What an `allow` rule does not match, and a `deny` rule does.
const DOUBTFUL: (bool, bool) = (false, true);

/// The commands, sorted, with `?` for a word that is not known.
fn split(line: &str) -> Option<Vec<String>> {
    let words = |words: Vec<ShellWord>| -> Vec<String> {
        let text = |word| match word {
            ShellWord::Literal(text) => text,
            ShellWord::Unknown => "?".into(),
        };
        words.into_iter().map(text).collect()
    };
    let line = shell::split(line)?;
    let mut commands: Vec<_> = (line.commands.into_iter())
        .map(|command| words(command).join(" "))
        .collect();
    commands.sort();
    Some(commands)
}

#[test]
fn the_first_words_are_compared() {
    for (pattern, line, expected) in [
        ("git push", "git push", MATCHES),
        ("git push", "git push origin main", MATCHES),
        ("git push", "git pull", DIFFERS),
        ("git push", "git", DIFFERS),
        ("git push", "git pushx", DIFFERS),
        ("rm", "r\\m x", MATCHES),
        ("rm", "'rm' x", MATCHES),
        ("rm", "\"rm\" x", MATCHES),
        ("rm", "r''m x", MATCHES),
        ("rm", "\\rm x", MATCHES),
        ("rm", "r\"\"m x", MATCHES),
        ("rm", "X=1 Y='2 3' rm x", MATCHES),
        ("rm", "time rm x", MATCHES),
        ("rm", "time -p -- rm x", MATCHES),
        ("rm", "! rm x", MATCHES),
        ("rm", "coproc rm x", MATCHES),
        ("rm", "  rm x  # why", MATCHES),
        ("rm", "rm \\\n x", MATCHES),
        ("git 'a b'", "git \"a b\" c", MATCHES),
        ("git 'a b'", "git a b", DIFFERS),
        ("rm", "/bin/rm x", DIFFERS),
        ("rm", "./rm x", DIFFERS),
        ("rm", "command rm x", DIFFERS),
        ("rm", "sudo rm x", DIFFERS),
        ("rm", "env X=1 rm x", DIFFERS),
        ("rm", "xargs rm", DIFFERS),
        ("rm", "bash -c 'rm x'", DIFFERS),
        ("rm", "echo rm", DIFFERS),
        ("rm", "echo 'rm x; rm y'", DIFFERS),
        ("rm", "echo '$(rm x)'", DIFFERS),
        ("rm", "echo \"\\$(rm x)\"", DIFFERS),
        ("rm", "echo x # ; rm y", DIFFERS),
        ("'['", "[ -f x ]", MATCHES),
        ("export", "export A=b", MATCHES),
    ] {
        assert_eq!(
            both("command", &[pattern], line),
            expected,
            "{pattern} {line}"
        );
    }
}

#[test]
fn every_command_of_a_line_counts() {
    for line in [
        "ls; rm x",
        "ls\nrm x",
        "ls & rm x",
        "ls && rm x",
        "ls || rm x",
        "ls | rm x",
        "ls |& rm x",
        "(rm x)",
        "( (rm x) )",
        "{ rm x; }",
        "ls $(rm x)",
        "ls `rm x`",
        "ls \"$(rm x)\"",
        "ls \"a `rm x` b\"",
        "ls \"$(ls \"$(rm x)\")\"",
        "ls <(rm x)",
        "ls >(rm x)",
        "A=$(rm x)",
        "A=$(rm x) ls",
        "A=($(rm x))",
        "A[$(rm x)]=1",
        "export A=$(rm x)",
        "ls > $(rm x)",
        "ls < \"$(rm x)\"",
        "ls ${A:-$(rm x)}",
        "ls \"${A:-\"$(rm x)\"}\"",
        "ls $(( $(rm x) + 1 ))",
        "cat <<E\n$(rm x)\nE",
        "cat <<-E\n\ta $(rm x)\n\tE\n",
        "cat <<E | rm x\ntext\nE",
        "cat <<E\ntext\nE\nrm x",
        "cat <<< $(rm x)",
        "if rm x; then ls; fi",
        "if ls; then rm x; fi",
        "if ls; then ls; elif rm x; then ls; else ls; fi",
        "if ls; then ls; else rm x; fi",
        "while rm x; do ls; done",
        "until ls; do rm x; done",
        "for i in a b; do rm x; done",
        "for i in $(rm x); do ls; done",
        "for ((i=0;i<1;i++)); do rm x; done",
        "case a in a) rm x;; esac",
        "case $(rm x) in a) ls;; esac",
        "ls() { rm x; }; ls",
        "function ls { rm x; }",
        "[[ -n $(rm x) ]]",
        "[ -n \"$(rm x)\" ]",
        "ls; \\\nrm x",
        "ls \"\\\"\" ; rm x",
        "ls 2>&1 | rm x",
    ] {
        let (_, denied) = both("command", &["rm"], line);
        let (allowed, _) = both("command", &["ls", "cat", "export", "'['"], line);
        assert!(denied && !allowed, "{line}");
        assert!(split(line).is_some(), "{line}");
    }
    let several = ["ls", "cat", "head"];
    for line in [
        "ls | head",
        "cat x && ls; head y",
        "cat $(ls)",
        "if ls; then cat x; fi",
    ] {
        assert_eq!(both("command", &several, line), MATCHES, "{line}");
    }
}

#[test]
fn files_are_not_written_without_asking() {
    for line in [
        "ls > f",
        "ls >> f",
        "ls >| f",
        "ls &> f",
        "ls &>> f",
        "ls >& f",
        "ls 2> f",
        "ls >& 2f",
        "ls > /dev/null",
        "> f",
        "{ ls; } > f",
        "(ls) > f",
        "while ls; do ls; done > f",
        "ls \"$(ls > f)\"",
        "f() { ls; } > f",
        "ls <<E > f\nE\n",
    ] {
        let (allowed, _) = both("command", &["ls"], line);
        assert!(!allowed, "{line}");
    }
    for line in ["ls 2>&1", "ls < f", "ls 2>&-", "ls >&2", "ls <&3"] {
        assert_eq!(both("command", &["ls"], line), MATCHES, "{line}");
    }
    assert_eq!(both("command", &["ls"], "ls <> f"), DOUBTFUL);
}

#[test]
fn words_that_are_not_known_match_the_strict_only() {
    for line in [
        "$X",
        "$X push",
        "${X} push",
        "\"$X\" push",
        "g$X push",
        "$(ls) push",
        "`ls` push",
        "git $X",
        "git \"$X\"",
        "gi? push",
        "gi[t] push",
        "git pus*",
        "~/git push",
        "{git,push}",
        "g{it,x} push",
        "$'gi\\x74' push",
        "$'git' push",
        "git {push,x}",
        "git {1..3}",
        "\"${X:-git}\" push",
        "$((1)) push",
    ] {
        assert_eq!(both("command", &["git push"], line), DOUBTFUL, "{line}");
    }
    assert_eq!(both("command", &["git push"], "ls $X *.c"), DIFFERS);
    assert_eq!(both("command", &["ls"], "ls $X *.c ~"), MATCHES);
}

#[test]
fn values_that_bash_evaluates_are_not_allowed() {
    for line in [
        "ls $((x))",
        "((x)); ls",
        "ls ${x@P}",
        "ls ${!x}",
        "ls ${x:y}",
        "ls ${x[y]}",
        "[[ $x -eq 1 ]] && ls",
        "x[y]=1 ls",
        "for ((;x;)); do ls; done",
    ] {
        let (allowed, _) = both("command", &["ls"], line);
        assert!(!allowed, "{line}");
    }
}

#[test]
fn lines_that_cannot_be_split_match_the_strict_only() {
    for line in [
        "ls 'a",
        "ls \"a",
        "ls $(ls",
        "ls `ls",
        "ls ;; ls",
        "ls )",
        "(ls",
        "{ ls",
        "{ls; }",
        "if ls; then ls",
        "ls | | ls",
        "ls &&",
        "ls <<E",
        "ls <<E\ntext",
        "ls\r\nls",
        "ls\u{0}",
        "ls\u{b}x",
        "ls\u{a0}x |",
        "ls > a b",
        "> a b c",
        "ls `ls \\`ls\\``",
        "ls `# \\` `",
        "ls <<-E\n\t$(rm x)\n\tE\n",
        "r\\\nm x",
        "cat <<A <<B\nA\nB\n",
        "cat <<E \\\n x\nE\n",
        "cat <<E\n`ls`\nE\n",
        "cat <<E\nfoo\\\nE\nls '$(ls)'\nE\n",
        "[ a > b ]",
        "[ a && ls ]",
        "[ a\nls ]",
        "[a] b",
        "then ls",
        "1a=b ls",
        "ls $\"a\"",
        "ls $'a\\\\' ; rm '$x'",
        "x=$ bb",
        "ls ${ ls; }",
        "ls ${| ls; }",
        "!ls",
        "if ls; then ls; fi2",
    ] {
        let (allowed, _) = both("command", &["ls"], line);
        assert!(!allowed, "{line}");
        if split(line).is_none() {
            assert_eq!(both("command", &["zz"], line), DOUBTFUL, "{line}");
        }
    }
}

#[test]
fn commands_are_found_with_their_words() {
    let commands = |commands: &[&str]| Some(commands.iter().map(|&text| text.into()).collect());
    for (line, expected) in [
        ("", commands(&[])),
        (" \n ", commands(&[])),
        ("# nothing", commands(&[])),
        ("A=1", commands(&[])),
        ("a 'b c' \"d\" e\\ f", commands(&["a b c d e f"])),
        ("a $b \"$c\" d$e", commands(&["a ? ? ?"])),
        ("a \"b\nc\"", commands(&["a b\nc"])),
        ("a | time b", commands(&["a", "time b"])),
        ("time a | b", commands(&["a", "b"])),
        (
            "find . -exec rm {} \\;",
            commands(&["find . -exec rm {} ;"]),
        ),
        ("cat <<'E'\n$(a) `b` 'c\nE\n", commands(&["cat"])),
        ("diff <(a) <(b)", commands(&["a", "b", "diff ? ?"])),
    ] {
        assert_eq!(split(line), expected, "{line}");
    }
}
