//! How the tour shows the web: what is searched and read, how much was found where, and the links of an answer.

use std::io::Write;

use anyhow::ensure;
use serde_json::Value;

/// Prints what a call that begins looks for; false for a tool that has nothing to do with the web.
pub(super) fn print_calling(chunk: &Value, out: &mut impl Write) -> anyhow::Result<bool> {
    let data = &chunk["data"];
    if data["tool_type"] != "web_search" {
        return Ok(false);
    }
    let name = chunk["tool_name"].as_str().unwrap_or_default();
    let query = data["query"].as_str();
    let asked = query.or_else(|| data["url"].as_str()).unwrap_or_default();
    writeln!(out, "    round {}    -> {name} {asked}", chunk["round"])?;
    Ok(true)
}

/// Prints what was found; false for a tool that has nothing to do with the web.
pub(super) fn print_complete(chunk: &Value, out: &mut impl Write) -> anyhow::Result<bool> {
    let data = &chunk["data"];
    if data["tool_type"] != "web_search" {
        return Ok(false);
    }
    let status = chunk["status"].as_str().unwrap_or_default();
    let (round, took) = (&chunk["round"], &chunk["duration_ms"]);
    let hosts = data["sources"].as_array().into_iter().flatten();
    let hosts: Vec<&str> = hosts.filter_map(Value::as_str).collect();
    let count = data["results_count"].as_u64().unwrap_or_default();
    let sources = if count == 1 { "source" } else { "sources" };
    write!(
        out,
        "    round {round}    <- {status} in {took} ms: {count} {sources}"
    )?;
    if !hosts.is_empty() {
        write!(out, " at {}", hosts.join(", "))?;
    }
    writeln!(out)?;
    Ok(true)
}

/// Prints the links of a whole answer, each once, under the mark that stands for it in the text.
pub(super) fn print_links(
    said: &str,
    annotations: &[Value],
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let mut shown: Vec<String> = Vec::new();
    for annotation in annotations {
        let citation = &annotation["url_citation"];
        let text = |key: &str| citation[key].as_str().unwrap_or_default();
        let place = |key: &str| {
            let number = citation[key].as_u64().unwrap_or_default();
            usize::try_from(number).unwrap_or(usize::MAX)
        };
        let (start, end) = (place("start_index"), place("end_index"));
        let mark = said.chars().skip(start).take(end.saturating_sub(start));
        let mark: String = mark.collect();
        ensure!(
            mark.starts_with('[') && mark.ends_with(']'),
            "a citation is said to stand at the characters {start} to {end}, where {mark:?} is"
        );
        let line = format!("{mark} {}", text("title"));
        if !shown.contains(&line) {
            writeln!(out, "    cited      {line}")?;
            writeln!(out, "               {}", text("url"))?;
            shown.push(line);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn citation(start: usize, end: usize, title: &str) -> Value {
        let citation = json!({"start_index": start, "end_index": end, "title": title, "url": "http://a.test/"});
        json!({"type": "url_citation", "url_citation": citation})
    }

    #[test]
    fn links_are_shown_once_and_only_where_their_marks_are() {
        let said = "Zürich – so [1], and [1].";
        let mut out = Vec::new();
        let links = [citation(12, 15, "Zürich"), citation(21, 24, "Zürich")];
        print_links(said, &links, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "    cited      [1] Zürich\n               http://a.test/\n"
        );
        let wrong = print_links(said, &[citation(13, 16, "Zürich")], &mut Vec::new());
        assert!(wrong.unwrap_err().to_string().contains("13 to 16"));
    }
}
