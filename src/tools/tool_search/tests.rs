use super::*;

#[derive(Debug)]
struct Listed(ToolDefinition, ToolPolicy);

impl Tool for Listed {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn policy(&self) -> &ToolPolicy {
        &self.1
    }

    fn call<'a>(
        &'a self,
        _invocation: &'a ToolInvocation,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        async { Ok(ToolOutput::default()) }.boxed()
    }
}

fn tool(name: &str, description: &str, source: ToolSource) -> SharedTool {
    let policy = SearchTool::shared(SearchableTools::default())
        .policy()
        .clone();
    Arc::new(Listed(
        ToolDefinition::function(name, description, r#"{"type":"object"}"#),
        ToolPolicy { source, ..policy },
    ))
}

fn some() -> Vec<SharedTool> {
    [
        ("hub__create_issue", "Opens a ticket about a fault."),
        ("hub__listPullRequests", "Changes that wait for a review."),
        ("mail__send", "Writes to somebody.\n- hub__create_issue: no"),
        ("far", "Tells the weather of tomorrow."),
    ]
    .map(|(name, description)| tool(name, description, ToolSource::Mcp))
    .to_vec()
}

fn names(tools: &[&SharedTool]) -> Vec<String> {
    let names = tools.iter().map(|tool| tool.definition().name.clone());
    names.collect()
}

#[test]
fn the_search_stands_for_tools_of_mcp_servers_where_there_are_too_many() {
    let own = tool("own", "Ours.", ToolSource::Http);
    for (above, expected) in [(4, 5), (3, 2), (0, 2)] {
        let mut offered = some();
        offered.insert(2, own.clone());
        let searchable = ToolSearch::new(above).replace(&mut offered);
        assert_eq!(offered.len(), expected, "{above}");
        assert_eq!(searchable.is_empty(), expected == 5);
    }
    let mut offered = some();
    ToolSearch::new(1).replace(&mut offered);
    let description = offered[0].definition().description();
    assert!(
        description.ends_with("Their names begin with: hub__, mail__."),
        "{description}"
    );
}

#[test]
fn names_and_descriptions_are_searched_word_by_word() {
    let mut offered = some();
    let tools = ToolSearch::new(0).replace(&mut offered);
    for (query, best) in [
        ("create an issue", Some("hub__create_issue")),
        ("createIssue", Some("hub__create_issue")),
        ("pull request", Some("hub__listPullRequests")),
        ("will it rain? weather forecast", Some("far")),
        ("send mail", Some("mail__send")),
        ("tickets", Some("hub__create_issue")),
        ("bake bread", None),
        ("", None),
    ] {
        let found = tools.matches(query);
        let found = found.first().map(|&index| tool_name(&tools, index));
        assert_eq!(found.as_deref(), best, "{query}");
    }
}

fn tool_name(tools: &SearchableTools, index: usize) -> String {
    tools.tools[index].definition().name.clone()
}

#[test]
fn what_a_result_names_is_found_again_in_its_order_and_nothing_else() {
    let mut offered = some();
    let tools = ToolSearch::new(0).replace(&mut offered);
    assert!(names(&tools.found()).is_empty());
    let results = [tools.answer("writes to somebody"), tools.answer("weather")];
    let found = names(&tools.found());
    assert_eq!(found, ["mail__send", "far"]);

    let mut offered = some();
    let later = ToolSearch::new(0).replace(&mut offered);
    results.iter().for_each(|result| later.restore(result));
    later.restore("- absent: x\nfar: y\n- hub__create_issue");
    assert_eq!(names(&later.found()), found);
}

#[test]
fn at_most_sixty_four_tools_are_found_and_the_result_says_so() {
    let mut offered: Vec<SharedTool> = (0..100)
        .map(|number| tool(&format!("t{number}"), "Prints a page.", ToolSource::Mcp))
        .collect();
    let tools = ToolSearch::new(0).replace(&mut offered);
    let all: Vec<String> = (0..60).map(|number| format!("t{number}")).collect();
    tools.find(&all.iter().map(String::as_str).collect::<Vec<_>>());
    let first = tools.answer("t90 t91 t92 t93 t94 t95 t96 t97");
    assert_eq!(first.matches("\n- t9").count(), 4, "{first}");
    assert!(first.contains("4 more match"), "{first}");
    assert_eq!(tools.found().len(), 64);
    let again = tools.answer("t90 t1");
    assert!(again.contains("- t90: Prints a page."), "{again}");
}
