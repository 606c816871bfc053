use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::*;
use crate::globs::Globs;
use crate::{Tool, ToolError, ToolInvocation, ToolOutput, ToolPolicy, ToolSource};

/// A tool that answers with its own name.
#[derive(Debug)]
struct Named {
    definition: ToolDefinition,
    policy: ToolPolicy,
}

impl Tool for Named {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn policy(&self) -> &ToolPolicy {
        &self.policy
    }

    fn call<'a>(
        &'a self,
        _invocation: &'a ToolInvocation,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        let content = self.definition.name.clone();
        async move {
            Ok(ToolOutput {
                content,
                ..ToolOutput::default()
            })
        }
        .boxed()
    }
}

fn tools(names: &[&str]) -> Arc<[SharedTool]> {
    let tool = |name: &&str| -> SharedTool {
        Arc::new(Named {
            definition: ToolDefinition::function(name, "d", r#"{"type":"object"}"#),
            policy: ToolPolicy {
                idempotent: true,
                read_only: true,
                ..ToolPolicy::new(ToolSource::Http, Duration::from_secs(1))
            },
        })
    };
    names.iter().map(tool).collect()
}

fn fake(names: &[&str], health: Health) -> Source {
    let tools = tools(names);
    Source::Fixed(FixedTools { tools, health })
}

fn offered(list: &SourceList) -> Vec<String> {
    let none = || Globs::new(&[]).unwrap();
    let filter = ToolFilter::new(None, none(), none(), true);
    let set = list
        .tool_set(Vec::new(), &RequestedTools::default(), &filter)
        .unwrap();
    set.names().map(str::to_owned).collect()
}

#[test]
fn a_change_of_the_list_reaches_new_requests_and_no_running_one() {
    let sources = Sources::new(vec![fake(&["a"], Health::Ready)]).unwrap();
    let before = sources.snapshot();
    let add = |list: &mut Vec<Source>| list.push(fake(&["b"], Health::Ready));
    sources.update(add).unwrap();
    assert_eq!(offered(&sources.snapshot()), ["a", "b"]);
    assert_eq!(offered(&before), ["a"]);
    sources.update(|list| list.truncate(1)).unwrap();
    assert_eq!(offered(&sources.snapshot()), ["a"]);
    assert!(!sources.snapshot().has("b"));
}

#[test]
fn a_change_that_would_give_two_tools_one_name_changes_nothing() {
    let sources = Sources::new(vec![fake(&["a"], Health::Ready)]).unwrap();
    let twice = |list: &mut Vec<Source>| list.push(fake(&["b", "a"], Health::Ready));
    let refused = sources.update(twice);
    assert_eq!(refused, Err(SourceError::Duplicate("a".into())));
    assert_eq!(offered(&sources.snapshot()), ["a"]);
}

#[test]
fn the_tools_of_a_source_that_is_down_are_listed_and_not_offered() {
    let list = vec![fake(&["a"], Health::Down), fake(&["b"], Health::Ready)];
    let list = Sources::new(list).unwrap().snapshot();
    assert_eq!(offered(&list), ["b"]);
    assert!(list.has("a"));
    let states: Vec<_> = list.iter().map(|source| source.health().as_str()).collect();
    assert_eq!(states, ["down", "ready"]);
}

#[test]
fn without_a_source_for_it_a_capability_has_no_tool() {
    let list = Sources::new(vec![fake(&["a"], Health::Ready)])
        .unwrap()
        .snapshot();
    assert_eq!(list.tool_for(Capability::Code), None);
    assert_eq!(list.tool_for(Capability::Web), None);
    assert!(list.offers_by_default());
    assert!(!SourceList::default().offers_by_default());
}

#[test]
fn keys_that_may_use_the_same_servers_share_a_list() {
    let server = |name: &str, keys: &[&str]| {
        let keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
        Source::Mcp(McpOffer {
            server: name.into(),
            tools: tools(&[name]),
            health: Health::Ready,
            reason: None,
            restarts: 0,
            keys: Some(Globs::of_names(&keys)),
        })
    };
    let list = vec![server("x", &["a", "b", "all"]), server("y", &["c", "all"])];
    let sources = Sources::new(list).unwrap();
    let [a, b, c, all] = ["a", "b", "c", "all"].map(|key| sources.snapshot_for(&Owner::key(key)));
    assert!(Arc::ptr_eq(&a, &b));
    assert!(Arc::ptr_eq(&all, &sources.snapshot()));
    let names = [&a, &c, &all].map(|list| offered(list));
    assert_eq!(names, [vec!["x"], vec!["y"], vec!["x", "y"]]);
    assert!(a.has("x") && !a.has("y") && c.has("y") && !c.has("x"));
    // A change reaches all of them.
    sources.update(|list| list.truncate(1)).unwrap();
    assert!(offered(&sources.snapshot_for(&Owner::key("c"))).is_empty());
}
