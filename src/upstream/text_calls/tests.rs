use super::*;

const OFFERED: [&str; 2] = ["search", "get_time"];

/// The text and the calls that come of an answer in pieces.
fn read(pieces: &[&str]) -> (String, Vec<(String, String)>, FinishReason) {
    let offered: Vec<String> = OFFERED.map(str::to_owned).into();
    let mut calls = TextCalls::new(offered.into());
    let mut events = Vec::new();
    for piece in pieces {
        let from = events.len();
        events.push(ModelEvent::Text((*piece).to_owned()));
        calls.apply(&mut events, from);
    }
    let from = events.len();
    events.push(ModelEvent::Finish(FinishReason::Stop));
    calls.apply(&mut events, from);
    let (mut text, mut found, mut finish) = (String::new(), Vec::new(), FinishReason::Stop);
    for event in events {
        match event {
            ModelEvent::Text(piece) => text.push_str(&piece),
            ModelEvent::ToolCall(call) => {
                assert_eq!(call.index, u32::try_from(found.len()).ok());
                assert!(call.whole && call.text_form.is_some());
                found.push((call.name.unwrap(), call.arguments.unwrap()));
            }
            ModelEvent::Finish(reason) => finish = reason,
            other => panic!("{other:?}"),
        }
    }
    (text, found, finish)
}

/// Reads an answer whole and cut at every place, which must not matter.
fn read_all_ways(answer: &str) -> (String, Vec<(String, String)>) {
    let (text, found, finish) = read(&[answer]);
    let expected = match found.is_empty() {
        true => FinishReason::Stop,
        false => FinishReason::ToolCalls,
    };
    assert_eq!(finish, expected, "{answer}");
    for (cut, _) in answer.char_indices() {
        let (first, second) = answer.split_at(cut);
        let cut = read(&[first, second]);
        assert_eq!((&cut.0, &cut.1), (&text, &found), "{first:?} {second:?}");
    }
    let letters: Vec<String> = answer.chars().map(String::from).collect();
    let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
    let single = read(&letters);
    assert_eq!((&single.0, &single.1), (&text, &found), "{answer}");
    (text, found)
}

#[test]
fn every_form_is_a_call() {
    let arguments = r#"{"q":"a } <b> \" c"}"#;
    for answer in [
        format!("<tool_call>\n{{\"name\": \"search\", \"arguments\": {arguments}}}\n</tool_call>"),
        format!("<tool_call>{{\"arguments\":{arguments},\"name\":\"search\"}}</tool_call>\n"),
        format!("<function=search>{arguments}</function>"),
        format!("[TOOL_CALLS][{{\"name\":\"search\",\"arguments\":{arguments}}}]"),
        format!("[TOOL_CALLS] search[ARGS]{arguments}"),
        format!("[TOOL_CALLS]search[CALL_ID]abc123456[ARGS]{arguments}"),
        format!("[TOOL_CALLS]search{arguments}"),
        format!("<|python_tag|>{{\"name\":\"search\",\"parameters\":{arguments}}}<|eom_id|>"),
        format!(
            "<|python_tag|>{{\"type\":\"function\",\"name\":\"search\",\"parameters\":{arguments}}}"
        ),
        format!("{{\"name\": \"search\", \"arguments\": {arguments}}}"),
        format!("\n {{\"name\": \"search\", \"parameters\": {arguments}}} \n"),
        format!("[{{\"name\":\"search\",\"arguments\":{arguments}}}]"),
        format!(
            "{{\"type\": \"function\", \"function\": {{\"name\":\"search\",\"arguments\":{arguments}}}}}"
        ),
    ] {
        let (text, found) = read_all_ways(&answer);
        assert_eq!(text.trim(), "", "{answer}");
        assert_eq!(
            found,
            [("search".to_owned(), arguments.to_owned())],
            "{answer}"
        );
    }
}

#[test]
fn elements_and_quoted_arguments_become_an_object() {
    for (answer, arguments) in [
        (
            "<tool_call>\n<function=search>\n<parameter=q>\nx \"y\"\nz\n</parameter>\n<parameter=n>\n3\n</parameter>\n\
             </function>\n</tool_call>",
            r#"{"q":"x \"y\"\nz","n":"3"}"#,
        ),
        ("<function=search></function>", "{}"),
        (r#"{"name":"search","arguments":"{\"q\":1}"}"#, r#"{"q":1}"#),
        (r#"<tool_call>{"name":"search"}</tool_call>"#, "{}"),
    ] {
        let (_, found) = read_all_ways(answer);
        assert_eq!(
            found,
            [("search".to_owned(), arguments.to_owned())],
            "{answer}"
        );
    }
}

#[test]
fn text_around_calls_stays() {
    for (answer, text, names) in [
        (
            "I look.\n<tool_call>{\"name\":\"search\"}</tool_call>\n<tool_call>{\"name\":\"get_time\"}</tool_call>\n",
            "I look.\n",
            &["search", "get_time"][..],
        ),
        (
            "First.\n{\"name\":\"search\",\"arguments\":{}}; {\"name\":\"get_time\",\"arguments\":{}}",
            "First.\n",
            &["search", "get_time"],
        ),
        (
            "<|python_tag|>{\"name\":\"search\",\"parameters\":{}}; {\"name\":\"get_time\",\"parameters\":{}}<|eom_id|>",
            "",
            &["search", "get_time"],
        ),
        (
            "<function=search>{}</function> and then",
            "and then",
            &["search"],
        ),
        // A tool that is not offered may be called by mistake; the model is told so.
        (
            "<tool_call>{\"name\":\"other\",\"arguments\":{}}</tool_call>",
            "",
            &["other"],
        ),
    ] {
        let (read, found) = read_all_ways(answer);
        let found: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((read.as_str(), found.as_slice()), (text, names), "{answer}");
    }
}

#[test]
fn what_is_no_call_is_text() {
    for answer in [
        "plain < text [TOOL and {\"name\" in it",
        "{\"answer\": 42, \"name\": \"search\"}",
        "{\"name\": \"other\", \"arguments\": {}}",
        "{\"name\": \"searching\"}",
        "See {\"name\": \"search\", \"arguments\": {}}",
        "{\"name\": \"search\", \"arguments\": {}} is how a call looks.",
        "```json\n{\"name\": \"search\", \"arguments\": {}}\n```",
        "<tool_call>nothing of it</tool_call>",
        "<tool_call>{\"name\": \"search\", \"argum",
        "<function=search>{\"q\"",
        "<function=se arch>{}</function>",
        "[TOOL_CALLS] is a token\nof Mistral",
        "<|python_tag|>print(1)",
        "{\"name\": \"search\", \"arguments\": ",
        "[1, 2]\n[{\"name\":1}]",
        "a {\n\n\n",
        "ä<tool_cäll>",
    ] {
        let (text, found) = read_all_ways(answer);
        assert_eq!((text.as_str(), found.len()), (answer, 0));
    }
}

#[test]
fn text_that_cannot_be_a_call_is_not_held() {
    let mut calls = TextCalls::new(Arc::new(["search".to_owned()]));
    for (piece, passed) in [
        ("Hello", "Hello"),
        (" <", " "),
        ("b>", "<b>"),
        ("\n{\"na", "\n"),
        ("mes\": ", "{\"names\": "),
        ("<tool", ""),
        ("s>", "<tools>"),
    ] {
        let mut events = vec![ModelEvent::Text(piece.to_owned())];
        calls.apply(&mut events, 0);
        let text: String = events
            .iter()
            .map(|event| match event {
                ModelEvent::Text(text) => text.as_str(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(text, passed, "{piece}");
    }
}

#[test]
fn held_text_is_bounded() {
    let mut calls = TextCalls::new(Arc::new(["search".to_owned()]));
    let mut events = Vec::new();
    let mut pushed = 0;
    for piece in std::iter::once("<tool_call>{\"a\":\"")
        .chain(std::iter::repeat_n("0123456789abcdef", 80_000))
    {
        pushed += piece.len();
        let from = events.len();
        events.push(ModelEvent::Text(piece.to_owned()));
        calls.apply(&mut events, from);
    }
    calls.release(&mut events);
    let passed: usize = events
        .iter()
        .map(|event| match event {
            ModelEvent::Text(text) => text.len(),
            other => panic!("{other:?}"),
        })
        .sum();
    assert_eq!(passed, pushed);
    assert!(events.len() > 10, "{}", events.len());
    // White space without end begins no call.
    let mut events = vec![ModelEvent::Text(format!(
        "\n{{{}",
        " ".repeat(MAX_BEGIN * 2)
    ))];
    calls.apply(&mut events, 0);
    assert!(calls.held.is_empty());
}

#[test]
fn calls_in_the_servers_own_form_end_the_search() {
    let mut calls = TextCalls::new(Arc::new(["search".to_owned()]));
    let own = ToolCallDelta {
        name: Some("search".into()),
        ..ToolCallDelta::default()
    };
    let text = "<tool_call>{\"name\":\"search\"}</tool_call>";
    let mut events = vec![
        ModelEvent::ToolCall(own.clone()),
        ModelEvent::Text(text.into()),
        ModelEvent::Finish(FinishReason::ToolCalls),
    ];
    let expected = events.clone();
    calls.apply(&mut events, 0);
    assert_eq!(events, expected);
}
