use proptest::prelude::*;

use super::*;

const TOOLS: &str = r#"[
    {"type":"function","function":{"name":"search","parameters":{"type":"object","properties":{
        "q":{"type":"string"},
        "days":{"type":"integer"},
        "tags":{"type":["array","null"]},
        "note":{"anyOf":[{"type":"string"},{"type":"null"}]},
        "unit":{"enum":["1","2"]},
        "any":{}
    }}}},
    {"type":"function","function":{"name":"get_time"}}
]"#;

fn text_calls() -> TextCalls {
    TextCalls::new(TOOLS.into())
}

/// The text and the calls that come of an answer in pieces.
fn read(pieces: &[&str]) -> (String, Vec<(String, String)>, FinishReason) {
    let mut calls = text_calls();
    let mut events = Vec::new();
    for piece in pieces {
        let from = events.len();
        events.push(ModelEvent::Text((*piece).to_owned()));
        calls.apply(&mut events, from);
    }
    let from = events.len();
    events.push(ModelEvent::Finish(AnswerEnd::Reason(FinishReason::Stop)));
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
            ModelEvent::Finish(AnswerEnd::Reason(reason)) => finish = reason,
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
        "<tool_call>search\n<arg_key>q</arg_key>\n<arg_value>a } <b> \" c</arg_value>\n</tool_call>".to_owned(),
        format!("<seed:tool_call>\n<function=search>{arguments}</function>\n</seed:tool_call>"),
        format!("<function=search>{arguments}</function>\n</tool_call>"),
        "<minimax:tool_call>\n<invoke name=\"search\">\n<parameter name=\"q\">a } <b> \" c</parameter>\n</invoke>\n\
         </minimax:tool_call>"
            .to_owned(),
        format!("<invoke name=\"search\">{arguments}</invoke>"),
        "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"search\">\n\
         <｜DSML｜parameter name=\"q\" string=\"true\">a } <b> \" c</｜DSML｜parameter>\n</｜DSML｜invoke>\n\
         </｜DSML｜function_calls>"
            .to_owned(),
        "<｜｜DSML｜｜tool_calls><｜｜DSML｜｜invoke name=\"search\"><｜｜DSML｜｜parameter name=\"q\" string=\"true\">a } <b> \" c\
         </｜｜DSML｜｜parameter></｜｜DSML｜｜invoke></｜｜DSML｜｜tool_calls>"
            .to_owned(),
        format!(
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n```json\n{arguments}\n```<｜tool▁call▁end｜>\
             <｜tool▁calls▁end｜>"
        ),
        format!("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>"),
        format!(
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>{arguments}\
             <|tool_call_end|><|tool_calls_section_end|>"
        ),
        format!("<|tool_call_begin|>search:12 <|tool_call_argument_begin|> {arguments}<|tool_call_end|>"),
        format!("<|channel|>commentary to=functions.search <|constrain|>json<|message|>{arguments}<|call|>"),
        format!("<|start|>assistant<|channel|>commentary to=functions.search<|message|>{arguments}"),
        format!("<|start|>assistant to=functions.search<|channel|>commentary json<|message|>{arguments}<|call|>"),
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
fn values_have_the_types_of_the_schema() {
    let glm = |key: &str, value: &str| {
        format!(
            "<tool_call>search<arg_key>{key}</arg_key><arg_value>{value}</arg_value></tool_call>"
        )
    };
    let invoke = |key: &str, value: &str| {
        format!("<invoke name=\"search\"><parameter name=\"{key}\">{value}</parameter></invoke>")
    };
    for (key, value, as_glm, as_invoke) in [
        ("q", "007", r#""007""#, r#""007""#),
        ("q", " true\n", r#"" true\n""#, r#"" true""#),
        ("days", "3", "3", "3"),
        ("days", " 3 ", "3", "3"),
        ("days", "three", r#""three""#, r#""three""#),
        ("tags", r#"["a", 1]"#, r#"["a", 1]"#, r#"["a", 1]"#),
        ("note", "null", "null", "null"),
        ("note", "12", r#""12""#, r#""12""#),
        ("unit", "1", r#""1""#, r#""1""#),
        // Where the schema is silent, it is as usual for the models.
        ("any", "1", "1", r#""1""#),
        ("other", "{}", "{}", r#""{}""#),
        ("other", "a{", r#""a{""#, r#""a{""#),
    ] {
        for (answer, expected) in [(glm(key, value), as_glm), (invoke(key, value), as_invoke)] {
            let (_, found) = read_all_ways(&answer);
            let arguments = format!("{{\"{key}\":{expected}}}");
            assert_eq!(found, [("search".to_owned(), arguments)], "{answer}");
        }
    }
    let said = "<｜DSML｜invoke name=\"search\"><｜DSML｜parameter name=\"any\" string=\"false\">[1]</｜DSML｜parameter>\n\
                <｜DSML｜parameter name=\"other\" string=\"true\">[1]</｜DSML｜parameter></｜DSML｜invoke>";
    let (_, found) = read_all_ways(said);
    assert_eq!(found[0].1, r#"{"any":[1],"other":"[1]"}"#);
}

#[test]
fn what_models_of_glm_leave_out_or_add_does_not_matter() {
    for (answer, arguments) in [
        (
            "<tool_call>search\n<arg_key>q</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>days</arg_key>\n\
             <arg_value>3</arg_value>\n</tool_call>",
            r#"{"q":"Oslo","days":3}"#,
        ),
        (
            "<tool_call>search<arg_key>q</arg_key>Oslo</arg_value><arg_key>days</arg_key><arg_value>3</arg_value></tool_call>",
            r#"{"q":"Oslo","days":3}"#,
        ),
        (
            "<tool_call>search<arg_key>q</arg_key></arg_key><arg_value>a\n</arg_value></tool_call>",
            r#"{"q":"a\n"}"#,
        ),
        ("<tool_call>search</tool_call>", "{}"),
        ("<tool_call>search</arg_value></tool_call>", "{}"),
        (
            "<tool_call>search\n{\"q\": \"a\"}</tool_call><|observation|>",
            r#"{"q": "a"}"#,
        ),
    ] {
        let (text, found) = read_all_ways(answer);
        let expected = [("search".to_owned(), arguments.to_owned())];
        assert_eq!(
            (text.as_str(), found.as_slice()),
            ("", &expected[..]),
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
        (
            "I look.<tool_call>search<arg_key>q</arg_key><arg_value>a</arg_value></tool_call>\n\
             <tool_call>get_time</tool_call>",
            "I look.",
            &["search", "get_time"],
        ),
        (
            "Now:\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n```json\n{}\n```<｜tool▁call▁end｜>\n\
             <｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            "Now:\n",
            &["search", "get_time"],
        ),
        (
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>{}<|tool_call_end|>\
             <|tool_call_begin|>functions.get_time:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
            "",
            &["search", "get_time"],
        ),
        (
            "<minimax:tool_call><invoke name=\"search\"></invoke>\n<invoke name=\"get_time\"></invoke></minimax:tool_call>",
            "",
            &["search", "get_time"],
        ),
        (
            "<|channel|>commentary to=functions.search<|message|>{}<|call|><|start|>assistant<|channel|>commentary \
             to=functions.get_time<|message|>{}<|call|>",
            "",
            &["search", "get_time"],
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
        "<tool_call>searching</tool_call>",
        // Cut calls are not run.
        "<tool_call>search<arg_key>q</arg_key><arg_value>Os",
        "<tool_call>search<arg_key>q</arg_key><arg_value>Oslo</arg_value>",
        "<tool_call>search<arg_key>q</arg_key><arg_value>of </tool_call> and more",
        "<minimax:tool_call><invoke name=\"search\"><parameter name=\"q\">Os",
        "<minimax:tool_call> is a mark",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search<｜tool▁sep｜>{\"q\":\"Os",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n```json\n{}\n",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n```json\n{} and\n```<｜tool▁call▁end｜>",
        "<|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>{\"q\":",
        "<|tool_call_begin|>functions.search:0 {}",
        "<|start|>assistant<|channel|>final<|message|>Hi {x}",
        "<|channel|>commentary<|message|>Hi",
        "<｜DSML｜invoke name=\"search\"><｜DSML｜parameter name=\"q\" string=\"true\">Os",
    ] {
        let (text, found) = read_all_ways(answer);
        assert_eq!((text.as_str(), found.len()), (answer, 0));
    }
}

#[test]
fn text_that_cannot_be_a_call_is_not_held() {
    let mut calls = text_calls();
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
    let mut calls = text_calls();
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
    let mut calls = text_calls();
    let own = ToolCallDelta {
        name: Some("search".into()),
        ..ToolCallDelta::default()
    };
    let text = "<tool_call>{\"name\":\"search\"}</tool_call>";
    let mut events = vec![
        ModelEvent::ToolCall(own.clone()),
        ModelEvent::Text(text.into()),
        ModelEvent::Finish(AnswerEnd::Reason(FinishReason::ToolCalls)),
    ];
    let expected = events.clone();
    calls.apply(&mut events, 0);
    assert_eq!(events, expected);
}

#[test]
fn a_long_begin_without_a_call_is_text() {
    for begin in ["<minimax:tool_call>", "<|tool_call_begin|>"] {
        let mut calls = text_calls();
        let mut events = vec![ModelEvent::Text(format!("{begin}{}", " ".repeat(600)))];
        calls.apply(&mut events, 0);
        assert!(calls.held.is_empty(), "{begin}");
    }
}

#[test]
fn text_that_was_reasoning_is_released_before_it_is_said_so() {
    let mut calls = text_calls();
    let was = || ModelEvent::TextWasReasoning { field: "reasoning" };
    let text = || ModelEvent::Text("<tool_call>hm".into());
    let mut events = vec![text(), was()];
    calls.apply(&mut events, 0);
    assert_eq!(events, [text(), was()]);
}

proptest! {
    #[test]
    fn any_split_gives_the_same_as_the_whole(
        tokens in prop::collection::vec(
            prop::sample::select(vec![
                "<tool_call>", "</tool_call>", "search", "<arg_key>", "q", "</arg_key>", "<arg_value>", "</arg_value>", "1",
                "<function=search>", "<parameter=q>", "</parameter>", "</function>", "<minimax:tool_call>",
                "<invoke name=\"search\">", "<parameter name=\"q\">", "</invoke>", "</minimax:tool_call>",
                "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "```json", "```", "<｜tool▁call▁end｜>",
                "<|tool_calls_section_begin|>", "<|tool_call_begin|>", "functions.search:0", "<|tool_call_argument_begin|>",
                "<|tool_call_end|>", "<|start|>assistant", "<|channel|>commentary to=functions.", "<|message|>", "<|call|>",
                "{\"q\":1}", "{", "}", "\"", "<", " ", "\n", "ä",
            ]),
            0..14,
        ),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let answer = tokens.concat();
        let chars: Vec<char> = answer.chars().collect();
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(chars.len() + 1)).collect();
        places.extend([0, chars.len()]);
        places.sort_unstable();
        let pieces: Vec<String> =
            places.windows(2).map(|pair| chars[pair[0]..pair[1]].iter().collect()).collect();
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        prop_assert_eq!(read(&pieces), read(&[&answer]));
    }
}
