//! Calls whose arguments are elements, one for each argument.

use super::FoundCall;
use super::forms::call;
use super::offered::{Offered, Parameters};
use protocol::openai::raw::push_entry;

/// How the elements of the arguments are written.
struct Elements {
    /// Begins an element; the key follows.
    begin: &'static str,
    key_end: &'static str,
    /// Begins the value, if anything does. Models may leave it out.
    value: Option<&'static str>,
    end: &'static str,
}

/// `<parameter=key>value</parameter>`
const FUNCTION: Elements = Elements {
    begin: "<parameter=",
    key_end: ">",
    value: None,
    end: "</parameter>",
};
/// `<parameter name="key">value</parameter>`
const INVOKE: Elements = Elements {
    begin: "<parameter name=",
    ..FUNCTION
};
/// `<arg_key>key</arg_key><arg_value>value</arg_value>`
const GLM: Elements = Elements {
    begin: "<arg_key>",
    key_end: "</arg_key>",
    value: Some("<arg_value>"),
    end: "</arg_value>",
};

/// `name>` and the arguments: a JSON object or elements.
pub(super) fn function(text: &str, offered: &Offered) -> Option<Vec<FoundCall>> {
    tag(text, "</function>", &FUNCTION, offered)
}

/// `"name">` and the arguments, in the same way.
pub(super) fn invoke(text: &str, offered: &Offered) -> Option<Vec<FoundCall>> {
    tag(text, "</invoke>", &INVOKE, offered)
}

fn tag(text: &str, end: &str, elements: &Elements, offered: &Offered) -> Option<Vec<FoundCall>> {
    let (name, body) = text.split_once('>')?;
    let body = body.trim();
    let body = body.strip_suffix(end).unwrap_or(body).trim();
    with_arguments(name.trim().trim_matches('"'), body, elements, offered)
}

/// The name and the elements. A name without elements must be the name of a tool, because text may stand between the
/// same marks.
pub(super) fn glm(text: &str, offered: &Offered) -> Option<Vec<FoundCall>> {
    let place = text.find(['<', '{']).unwrap_or(text.len());
    let (name, body) = text.split_at_checked(place)?;
    let (name, body) = (name.trim(), body.trim());
    // Some calls without arguments have the end of one.
    let body = body.strip_prefix(GLM.end).unwrap_or(body).trim_start();
    if body.is_empty() && !offered.names().iter().any(|known| known == name) {
        return None;
    }
    with_arguments(name, body, &GLM, offered)
}

/// The call of a name and its arguments, which are a JSON object or elements.
fn with_arguments(
    name: &str,
    body: &str,
    elements: &Elements,
    offered: &Offered,
) -> Option<Vec<FoundCall>> {
    let arguments = match body.is_empty() || body.starts_with('{') {
        true => body.to_owned(),
        false => arguments(body, elements, &offered.parameters(name))?,
    };
    Some(vec![call(name.to_owned(), &arguments)?])
}

fn arguments(mut rest: &str, elements: &Elements, parameters: &Parameters) -> Option<String> {
    let mut arguments = String::from("{");
    while !rest.is_empty() {
        let element = rest.strip_prefix(elements.begin)?;
        let (key, after) = element.split_once(elements.key_end)?;
        let (value, after) = match elements.value {
            Some(begin) => {
                let after = after.trim_start_matches(elements.key_end).trim_start();
                let after = after.strip_prefix(begin).unwrap_or(after);
                after.split_once(elements.end)?
            }
            None => {
                // The last element may lack its end. The value may stand on lines of its own.
                let (value, after) = after.split_once(elements.end).unwrap_or((after, ""));
                let value = value.strip_prefix('\n').unwrap_or(value);
                (value.strip_suffix('\n').unwrap_or(value), after)
            }
        };
        // Attributes may follow the key; one of them is the type of the value.
        let mut words = key.trim().trim_start_matches('"').split('"');
        let key = words.next().unwrap_or_default();
        let is_string = match elements.value {
            Some(_) => false,
            None => !words.any(|word| word == "false"),
        };
        push_entry(
            &mut arguments,
            key,
            &parameters.value(key, value, is_string),
        );
        rest = after.trim_start();
    }
    arguments.push('}');
    Some(arguments)
}
