//! Names of tools: as the request declares them, and as the model is offered them.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

/// Between a namespace and the name of a function in it.
const SEPARATOR: &str = "__";

/// The tools whose name or form differs between the request and the model.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ToolNames {
    /// Names of custom tools, as the model is offered them.
    custom: HashSet<String>,
    /// Namespace and name, by the name that the model is offered.
    namespaced: HashMap<String, (String, String)>,
}

impl ToolNames {
    /// The name that the model is offered.
    pub(super) fn add(&mut self, namespace: Option<&str>, name: &str, is_custom: bool) -> String {
        let offered = offered(namespace, name);
        if is_custom {
            self.custom.insert(offered.clone());
        }
        if let Some(namespace) = namespace {
            let pair = (namespace.to_owned(), name.to_owned());
            self.namespaced.insert(offered.clone(), pair);
        }
        offered
    }

    /// Whether the request declares a custom tool that the model is offered under this name.
    pub(in crate::dialects::responses) fn is_custom(&self, offered: &str) -> bool {
        self.custom.contains(offered)
    }

    /// The namespace, if there is one, and the name of a tool that the model is offered under this name.
    pub(in crate::dialects::responses) fn split<'a>(
        &'a self,
        offered: &'a str,
    ) -> (Option<&'a str>, &'a str) {
        match self.namespaced.get(offered) {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, offered),
        }
    }
}

/// The name that the model is offered.
pub(super) fn offered(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{namespace}{SEPARATOR}{name}"),
        None => name.to_owned(),
    }
}

/// The text of a call of a custom tool, which the model gives as the one argument of a function.
pub(in crate::dialects::responses) fn custom_input(arguments: &str) -> String {
    #[derive(Deserialize)]
    struct Arguments {
        input: String,
    }
    match serde_json::from_str::<Arguments>(arguments) {
        Ok(arguments) => arguments.input,
        Err(_) => arguments.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_back_to_its_namespace() {
        let mut names = ToolNames::default();
        assert_eq!(names.add(Some("crm"), "find", false), "crm__find");
        assert_eq!(names.add(None, "patch", true), "patch");
        assert_eq!(names.split("crm__find"), (Some("crm"), "find"));
        assert_eq!(names.split("a__b"), (None, "a__b"));
        assert!(names.is_custom("patch") && !names.is_custom("crm__find"));
    }

    #[test]
    fn the_text_of_a_custom_call_is_its_argument() {
        assert_eq!(custom_input(r#"{"input":"a\nb"}"#), "a\nb");
        assert_eq!(custom_input("plain"), "plain");
    }
}
