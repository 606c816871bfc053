//! The families of models by how they mark calls in their text.

use super::FoundCall;
use super::elements;
use super::forms::{self, JsonEnd, TextVerdict};
use super::offered::Offered;
use protocol::openai::event::TextForm;

/// Longest white space and marks before the first call of a list, and longest text between a mark and the arguments, in
/// bytes. A text with more is no call.
/// Tried by `text_calls::a_long_begin_without_a_call_is_text`.
const MAX_HEADER: usize = 512;
/// The fences around arguments.
const FENCES: (&str, &str) = ("```json", "```");
/// Precedes the name in the older of the two forms of DeepSeek.
const DEEPSEEK_SEPARATOR: &str = "<｜tool▁sep｜>";

/// How calls with a mark are written.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) form: TextForm,
    /// Marks that may stand before a call: the begin of a list of calls.
    lists: &'static [&'static str],
    /// Marks that begin a call.
    calls: &'static [&'static str],
    grammar: Grammar,
    /// Marks that may follow a call. They are dropped.
    pub(super) ends: &'static [&'static str],
}

/// What follows the mark of a call.
#[derive(Debug)]
enum Grammar {
    /// A call that ends with this mark. The function parses the text up to the mark.
    Until(&'static str, fn(&str, &Offered) -> Option<Vec<FoundCall>>),
    /// The name, one of these marks, and the arguments as a JSON object.
    NamedJson(&'static [&'static str]),
    /// The function reads the text from the mark of the call on.
    Own(fn(&str, &mut JsonEnd) -> TextVerdict),
}

pub(super) static FAMILIES: [Family; 10] = [
    // Hermes, Qwen, GLM; around the next one Qwen Coder.
    Family {
        form: TextForm::ToolCallTag,
        lists: &[],
        calls: &["<tool_call>"],
        grammar: Grammar::Until("</tool_call>", |inside, offered| {
            let inside = inside.trim();
            match inside.strip_prefix("<function=") {
                Some(function) => elements::function(function, offered),
                None if inside.starts_with(['{', '[']) => forms::calls_of(inside),
                None => elements::glm(inside, offered),
            }
        }),
        ends: &["</tool_call>", "<|observation|>"],
    },
    // Llama, Qwen Coder, Seed-OSS.
    Family {
        form: TextForm::FunctionTag,
        lists: &["<seed:tool_call>"],
        calls: &["<function="],
        grammar: Grammar::Until("</function>", elements::function),
        ends: &["</seed:tool_call>"],
    },
    // Mistral.
    Family {
        form: TextForm::ToolCallsToken,
        lists: &[],
        calls: &["[TOOL_CALLS]"],
        grammar: Grammar::Own(forms::tool_calls_token),
        ends: &[],
    },
    // Llama.
    Family {
        form: TextForm::PythonTag,
        lists: &[],
        calls: &["<|python_tag|>"],
        grammar: Grammar::Own(forms::python_tag),
        ends: &[],
    },
    // MiniMax.
    Family {
        form: TextForm::InvokeTag,
        lists: &["<minimax:tool_call>", "<function_calls>", "<tool_calls>"],
        calls: &["<invoke name="],
        grammar: Grammar::Until("</invoke>", elements::invoke),
        ends: &["</minimax:tool_call>", "</function_calls>", "</tool_calls>"],
    },
    // DeepSeek since V3.2, and the same with the other form of its mark.
    Family {
        form: TextForm::DsmlTag,
        lists: &["<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"],
        calls: &["<｜DSML｜invoke name="],
        grammar: Grammar::Until("</｜DSML｜invoke>", |inside, offered| {
            elements::invoke(&inside.replace("｜DSML｜", ""), offered)
        }),
        ends: &["</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"],
    },
    Family {
        form: TextForm::DsmlTag,
        lists: &["<｜｜DSML｜｜function_calls>", "<｜｜DSML｜｜tool_calls>"],
        calls: &["<｜｜DSML｜｜invoke name="],
        grammar: Grammar::Until("</｜｜DSML｜｜invoke>", |inside, offered| {
            elements::invoke(&inside.replace("｜｜DSML｜｜", ""), offered)
        }),
        ends: &["</｜｜DSML｜｜function_calls>", "</｜｜DSML｜｜tool_calls>"],
    },
    // DeepSeek before V3.2.
    Family {
        form: TextForm::DeepSeekTokens,
        lists: &["<｜tool▁calls▁begin｜>"],
        calls: &["<｜tool▁call▁begin｜>"],
        grammar: Grammar::NamedJson(&[FENCES.0, DEEPSEEK_SEPARATOR]),
        ends: &[
            "<｜tool▁call▁end｜>",
            "<｜tool▁calls▁end｜>",
            "<｜end▁of▁sentence｜>",
        ],
    },
    // Kimi.
    Family {
        form: TextForm::KimiTokens,
        lists: &["<|tool_calls_section_begin|>"],
        calls: &["<|tool_call_begin|>"],
        grammar: Grammar::NamedJson(&["<|tool_call_argument_begin|>"]),
        ends: &["<|tool_call_end|>", "<|tool_calls_section_end|>"],
    },
    // gpt-oss. The name stands before or after the channel.
    Family {
        form: TextForm::HarmonyChannel,
        lists: &["<|start|>assistant"],
        calls: &[
            "<|channel|>commentary to=functions.",
            "<|start|>assistant to=functions.",
        ],
        grammar: Grammar::NamedJson(&["<|message|>"]),
        ends: &["<|call|>"],
    },
];

impl Family {
    /// The marks with which the text of the calls can begin.
    pub(super) fn begins(&self) -> impl Iterator<Item = &'static str> {
        self.lists.iter().chain(self.calls).copied()
    }

    /// What a text is that begins with a mark of this family.
    pub(super) fn read(&self, text: &str, end: &mut JsonEnd, offered: &Offered) -> TextVerdict {
        let mut rest = text;
        let call = loop {
            rest = rest.trim_start();
            if let Some(call) = self.calls.iter().find(|call| rest.starts_with(**call)) {
                break call;
            }
            if self.begins().any(|mark| mark.starts_with(rest)) {
                return short_or_text(text);
            }
            match self.lists.iter().find_map(|list| rest.strip_prefix(list)) {
                Some(inside) => rest = inside,
                None => return TextVerdict::Text,
            }
        };
        let start = text.len() - rest.len() + call.len();
        if start > MAX_HEADER {
            return TextVerdict::Text;
        }
        match &self.grammar {
            Grammar::Until(mark, read) => {
                let Some(length) = end.find_mark(text, mark) else {
                    return TextVerdict::Open;
                };
                let inside = text.get(start..length - mark.len());
                forms::verdict(inside.and_then(|inside| read(inside, offered)), length)
            }
            Grammar::NamedJson(marks) => named_json(text, start, marks, end),
            Grammar::Own(read) => read(text, end),
        }
    }
}

/// A call whose name stands at `start`, and its arguments after one of the marks.
fn named_json(text: &str, start: usize, marks: &[&str], end: &mut JsonEnd) -> TextVerdict {
    let body = text.get(start..).unwrap_or_default();
    let Some((header, _)) = body.split_once('{') else {
        return short_or_text(body);
    };
    let (header, arguments) = (header.trim_end(), start + header.len());
    let name = marks.iter().find_map(|mark| header.strip_suffix(mark));
    let Some(name) = name.filter(|_| arguments - start <= MAX_HEADER) else {
        return TextVerdict::Text;
    };
    let Some(json_end) = end.find(text, arguments) else {
        return TextVerdict::Open;
    };
    let mut length = json_end;
    if header.ends_with(FENCES.0) {
        let rest = text.get(json_end..).unwrap_or_default().trim_start();
        match rest.strip_prefix(FENCES.1) {
            Some(after) => length = text.len() - after.len(),
            None if FENCES.1.starts_with(rest) => return TextVerdict::Open,
            None => return TextVerdict::Text,
        }
    }
    let arguments = text.get(arguments..json_end).unwrap_or_default();
    let call = forms::call(name_of(name).to_owned(), arguments);
    forms::verdict(call.map(|call| vec![call]), length)
}

/// The name in the text before the mark of the arguments: `get`, `functions.get:0`, `function<｜tool▁sep｜>get`, or `get`
/// with the type of the arguments.
fn name_of(header: &str) -> &str {
    let name = header.rsplit(DEEPSEEK_SEPARATOR).next().unwrap_or(header);
    let name = name.trim().split([' ', '<']).next().unwrap_or_default();
    let name = name.strip_prefix("functions.").unwrap_or(name);
    match name.rsplit_once(':') {
        Some((name, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => name,
    }
}

/// More text is needed, unless there is too much already.
fn short_or_text(text: &str) -> TextVerdict {
    match text.len() <= MAX_HEADER {
        true => TextVerdict::Open,
        false => TextVerdict::Text,
    }
}
