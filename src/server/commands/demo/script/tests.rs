use serde_json::json;

use super::super::tour::Tour;
use super::*;

const TOOLS: [&str; 8] = [
    "get_weather",
    "get_ticket",
    "list_comments",
    "execute_python",
    "web_search",
    "read_page",
    "harbour__get_tides",
    "send_refund",
];

fn script() -> Script {
    Script::load("http://a.test/").unwrap()
}

fn request(messages: &[Value]) -> Value {
    let tools = TOOLS.map(|name| json!({"type": "function", "function": {"name": name}}));
    json!({"messages": messages, "tools": tools})
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// What the model calls for a prompt: tools and arguments.
fn calls(prompt: &str) -> Vec<(String, Value)> {
    made(&script().reply(&request(&[user(prompt)])))
}

fn made(reply: &ScriptedReply) -> Vec<(String, Value)> {
    let calls = reply.calls.iter();
    calls
        .map(|call| (call.tool.clone(), json!(call.arguments)))
        .collect()
}

/// Lets the model make its calls, answers each of them, and so on until there is an answer.
fn answer(prompt: &str, result: impl Fn(&RecordedCall) -> String) -> String {
    let mut messages = vec![user(prompt)];
    for round in 0..4 {
        let reply = script().reply(&request(&messages));
        if reply.calls.is_empty() {
            return reply.text;
        }
        assert!(!reply.text.is_empty(), "{prompt}");
        let ids = (0..reply.calls.len()).map(|index| format!("call_{round}_{index}"));
        let calls: Vec<Value> = ids.clone().map(|id| json!({"id": id})).collect();
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": calls}));
        // The order of the answers is not the order of the calls.
        for (id, call) in ids.zip(&reply.calls).rev() {
            messages.push(json!({"role": "tool", "tool_call_id": id, "content": result(call)}));
        }
    }
    panic!("{prompt} comes to no end");
}

/// The bodies after `-d '` in a text, for the model of the demo.
fn curl_bodies(text: &str) -> Vec<Value> {
    let bodies = text.split("-d '").skip(1);
    let bodies = bodies.filter_map(|rest| serde_json::from_str(rest.split_once('\'')?.0).ok());
    bodies
        .filter(|body: &Value| body["model"] == "loopwright-demo")
        .collect()
}

fn prompt(body: &Value) -> String {
    content(&body["messages"][0])
}

#[test]
fn what_the_farewell_the_readme_and_the_model_itself_propose_is_answered_with_a_call() {
    let tour = Tour::load().unwrap();
    let farewell = tour.proposals.iter();
    let farewell: Vec<Value> = farewell
        .map(|proposal| serde_json::from_str(proposal.request.get()).unwrap())
        .collect();
    assert!(farewell.len() > 2);
    let readme = curl_bodies(include_str!("../../../../../README.md"));
    assert!(!readme.is_empty());
    let mut prompts: Vec<String> = farewell.iter().chain(&readme).map(prompt).collect();
    let fallback = answer("Hello", |_| String::new());
    let proposed = fallback.lines().filter_map(|line| line.strip_prefix("- "));
    prompts.extend(proposed.map(ToOwned::to_owned));
    prompts.push("Who built the lighthouse of Velmouth?".to_owned());
    assert!(prompts.len() > 7, "{prompts:?}");
    for prompt in prompts {
        assert!(!calls(&prompt).is_empty(), "{prompt}");
    }
}

#[test]
fn the_words_of_a_prompt_decide_whatever_their_case_and_punctuation() {
    let weather = |city: &str| ("get_weather".to_owned(), json!({"city": city}));
    let ticket = |id: &str| ("get_ticket".to_owned(), json!({"id": id}));
    let cases = [
        (
            "  what is the WEATHER in oslo,lisbon ?",
            vec![weather("Oslo"), weather("Lisbon")],
        ),
        (
            "Forecast for new york, and the state of ticket #4711",
            vec![weather("New York"), ticket("4711")],
        ),
        ("Where is order 4712?", vec![ticket("4712")]),
        ("What is the weather?", vec![]),
        ("Which tickets are open?", vec![]),
        ("Is Lisbon nice?", vec![]),
    ];
    for (prompt, expected) in cases {
        assert_eq!(calls(prompt), expected, "{prompt}");
    }
}

#[test]
fn results_are_reported_in_words_and_others_as_they_are() {
    let said = answer(
        "The weather in Oslo and Rome, and ticket 4711",
        |call| match call.arguments.values().next().unwrap().as_str() {
            "Oslo" => r#"{"city":"Oslo","temperature_c":-3,"sky":"snow"}"#.to_owned(),
            "Rome" => "the tool answered with status 500".to_owned(),
            _ if call.tool == "list_comments" => {
                r#"{"comments":["Ben: On its way.","Ada: Fine."]}"#.to_owned()
            }
            _ => r#"{"id":"4711","title":"Parcel","status":"open"}"#.to_owned(),
        },
    );
    let expected = "Here is what I found:\n- Oslo: -3 °C, snow\n- get_weather: the tool answered with status 500\n\
        - Ticket 4711 “Parcel” is open.\n- Its comments:\n- Ben: On its way.\n- Ada: Fine.\n\n(scripted demo model)";
    assert_eq!(said, expected);
    let none = answer("ticket 1001", |_| {
        r#"{"ticket_id":"1001","comments":[]}"#.to_owned()
    });
    assert!(none.contains("- Ticket 1001 has no comments."), "{none}");
}

#[test]
fn code_is_filled_with_the_results_that_are_objects() {
    let weather = r#"{"city":"Oslo","temperature_c":9}"#;
    let said = answer(
        "Plot the temperatures of Oslo and Atlantis",
        |call| match &call.arguments {
            city if city.get("city").is_some_and(|city| city == "Oslo") => weather.to_owned(),
            code if code.contains_key("code") => {
                let code = &code["code"];
                assert!(
                    code.starts_with(&format!("rows = [\n    {weather}\n]\n")),
                    "{code}"
                );
                assert!(code.ends_with(include_str!("../plot.py")), "{code}");
                "stdout:\nOslo\n\nfiles:\nhanded to the user:\n- temperatures.png (image/png)"
                    .to_owned()
            }
            _ => "get_weather knows no `atlantis`".to_owned(),
        },
    );
    assert!(
        said.contains("drawn:\n  - temperatures.png (image/png)\n\n("),
        "{said}"
    );
    let average = answer("What is the average of them?", |call| {
        assert!(
            call.arguments["code"].contains("for row in []}"),
            "{call:?}"
        );
        "stdout:\n3 values\n\nresult:\n18.3".to_owned()
    });
    assert!(average.contains("- The result is 18.3\n"), "{average}");
    let broken = answer("average?", |_| "exception:\nNameError".to_owned());
    assert!(
        broken.contains("- execute_python: exception:\nNameError"),
        "{broken}"
    );
}

#[test]
fn what_a_source_says_is_cited_with_its_number() {
    const FOUND: &str = "2 source(s) for \"…\".\n\n[1] A walk (2022-06-19)\nhttp://a.test/walk\n> It is white.\n\n\
        [4] The lighthouse\nhttp://a.test/light\n> The lighthouse of Velmouth was built between 1871 and 1874 by the \
        engineer Ines Halloran. It is old.";
    let page = "[4] The lighthouse\nhttp://a.test/light\n> The tower is 38 metres tall and stands 61 metres above the sea \
        at high water.";
    let said = answer("Who built the lighthouse?", |call| {
        match call.tool.as_str() {
            "web_search" => FOUND.to_owned(),
            _ => {
                assert_eq!(call.arguments["url"], "http://a.test/town/lighthouse");
                page.to_owned()
            }
        }
    });
    for part in [
        "by the engineer Ines Halloran [4].\n",
        "above the sea at high water [4].",
    ] {
        assert!(said.contains(part), "{said}");
    }
    let failed = answer("Who built the lighthouse?", |_| {
        "the search failed".to_owned()
    });
    assert!(
        failed.contains("- web_search: the search failed"),
        "{failed}"
    );
}

#[test]
fn nothing_is_called_that_is_not_offered() {
    let mut forbidden = request(&[user("weather in Oslo, plot")]);
    forbidden["tool_choice"] = json!("none");
    for body in [forbidden, json!({"messages": [user("weather in Oslo")]})] {
        let reply = script().reply(&body);
        assert_eq!(reply.calls, []);
        assert!(
            reply.text.contains("`get_weather` is not offered"),
            "{reply:?}"
        );
    }
    let mut without_code = request(&[user("What is the average?")]);
    without_code["tools"].as_array_mut().unwrap().remove(3);
    let reply = script().reply(&without_code);
    assert!(
        reply.text.contains("if this host can isolate it"),
        "{reply:?}"
    );
}

#[test]
fn a_name_is_remembered_within_the_conversation_only() {
    let question = user("So, what's my name?");
    let told = [
        user("Hello! My name is Ada."),
        json!({"role": "assistant", "content": "Say: my name is …"}),
        json!({"role": "user", "content": [{"type": "text", "text": "fine"}]}),
        question.clone(),
    ];
    let cases: [(&[Value], &str); 3] = [
        (&told, "“Hello! My name is Ada.”"),
        (&[question], "not told me"),
        (&[user("My name is Zoë!")], "Nice to meet you"),
    ];
    for (messages, expected) in cases {
        let reply = script().reply(&request(messages));
        assert!(reply.text.contains(expected), "{}", reply.text);
        assert!(
            reply.text.ends_with("(scripted demo model)"),
            "{}",
            reply.text
        );
    }
}

#[test]
fn odd_requests_get_an_explanation() {
    for body in [
        json!({}),
        json!({"messages": []}),
        json!({"messages": [{"role": "user"}]}),
    ] {
        let reply = script().reply(&body);
        assert!(
            reply.text.contains("stands in for a language model"),
            "{body}"
        );
    }
}

#[test]
fn every_recorded_call_is_of_a_known_tool_and_every_sample_answer_can_be_asked_for() {
    let script = script();
    let steps = script.turns.iter().flat_map(|turn| &turn.steps).flatten();
    let tools: Vec<&str> = steps.map(|call| call.tool.as_str()).collect();
    for tool in &tools {
        assert!(
            TOOLS.contains(tool) && script.tools.contains_key(*tool),
            "{tool}"
        );
    }
    for sample in super::super::tool::load().unwrap().iter() {
        assert!(tools.contains(&sample.name.as_str()), "{}", sample.name);
    }
}

#[test]
fn the_quotes_of_a_search_stand_on_the_pages() {
    let pages = super::super::corpus::PAGES.map(|(_, html)| html).concat();
    for turn in script().turns {
        for quote in turn.steps.iter().flatten().flat_map(|call| &call.quotes) {
            assert!(pages.contains(quote), "{quote}");
        }
    }
}
