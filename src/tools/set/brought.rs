//! Tools that calls add to MCP servers while a request runs.

use std::collections::HashSet;
use std::sync::Arc;

use super::super::SharedTool;
use super::super::source::SourceList;
use super::{Lookup, ToolSet, appended};

impl ToolSet {
    /// Adds the tools that the MCP servers of the set have got since. All other tools stay. At most as many are added
    /// as a request may have without searching.
    pub fn follow(&mut self, now: &SourceList) {
        let Some(filter) = &self.filter else {
            return;
        };
        let offered: Vec<&SharedTool> = self.by_name.values().filter_map(Lookup::server).collect();
        let known = offered.into_iter().chain(self.searchable.all());
        let servers: HashSet<String> = known
            .filter_map(|tool| Some(tool.on_server()?.server))
            .collect();
        if servers.is_empty() || self.allowed.is_some() {
            return;
        }
        let is_new = |tool: &SharedTool| {
            let name = &tool.definition().name;
            !self.by_name.contains_key(name)
                && self.searchable.get(name).is_none()
                && filter.offers(name)
                && filter.denial(&**tool).is_none()
        };
        let brought = now.tools_of_servers(&servers);
        let brought: Vec<SharedTool> = brought.filter(|tool| is_new(tool)).cloned().collect();
        let Some(most) = now.most_without_search() else {
            return self.add(brought);
        };
        let count = self.by_name.values().filter_map(Lookup::server);
        let count = count.filter(|tool| tool.on_server().is_some()).count();
        let room = most.saturating_sub(count);
        self.add(brought.into_iter().take(room).collect());
    }

    fn add(&mut self, tools: Vec<SharedTool>) {
        if tools.is_empty() {
            return;
        }
        let entries = tools.iter().map(|tool| &*tool.definition().json);
        self.json = appended(self.json.as_ref(), entries);
        let names = tools.iter().map(|tool| tool.definition().name.clone());
        self.names = self.names.iter().cloned().chain(names).collect();
        let by_name = Arc::make_mut(&mut self.by_name);
        for tool in tools {
            by_name.insert(tool.definition().name.clone(), Lookup::Server(tool));
        }
    }
}
