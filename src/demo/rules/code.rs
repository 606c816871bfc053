//! What the scripted model does with Python: charts and averages of temperatures.
//!
//! A language model would write such code itself; here it stands ready, and only the data is put in.

use std::fmt::Write;

use serde_json::{Value, json};

use super::super::tool::GET_WEATHER;
use super::{Done, Scene};
use crate::tools::python::EXECUTE_PYTHON;

/// The file that the chart is written to.
pub(in crate::demo) const CHART: &str = "temperatures.png";

/// What is drawn where nobody names a city.
const WEEK: &str = r#"{"Mon": 14, "Tue": 17, "Wed": 21, "Thu": 19, "Fri": 12}"#;

/// Draws with matplotlib; where that is not installed, the standard library is enough for a few bars.
const DRAW: &str = r#"for place, degrees in temperatures.items():
    print(f"{place:>9} {degrees:3} °C")
try:
    import matplotlib.pyplot as plt

    plt.bar(list(temperatures), list(temperatures.values()))
    plt.ylabel("°C")
    plt.savefig("temperatures.png")
except ImportError:
    import struct, zlib

    width = 10 * max(40, *temperatures.values())
    pixels = b""
    for degrees in temperatures.values():
        filled = 10 * max(degrees, 0)
        bar = bytes([0]) + bytes([47, 111, 176]) * filled + bytes([255]) * 3 * (width - filled)
        pixels += bar * 24 + (bytes([0]) + bytes([255]) * 3 * width) * 8

    def part(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    class Chart:
        def _repr_png_(self):
            size = struct.pack(">2I5B", width, 32 * len(temperatures), 8, 2, 0, 0, 0)
            parts = part(b"IHDR", size) + part(b"IDAT", zlib.compress(pixels)) + part(b"IEND", b"")
            return b"\x89PNG\r\n\x1a\n" + parts

    display(Chart())
    open("temperatures.png", "wb").write(Chart()._repr_png_())
"#;

/// Works on what an earlier cell has defined.
const AVERAGE: &str = r#"print(f"{len(temperatures)} values, the highest of {max(temperatures, key=temperatures.get)}")
round(sum(temperatures.values()) / len(temperatures), 1)
"#;

/// What code can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Chart,
    Average,
}

impl Scene<'_> {
    /// The code for a chart or an average, unless it has run.
    pub(super) fn code_call(&self) -> Option<(String, Value)> {
        let wish = self.wish()?;
        let mut ran = self.results(EXECUTE_PYTHON);
        let code = match (ran.next(), ran.next()) {
            (None, _) => self.code(wish, self.data().is_some() || !self.has_drawn()),
            // The interpreter of the first cell is gone, and its variables with it.
            (Some(first), None) if first.result.contains("NameError") => self.code(wish, true),
            (Some(_), _) => return None,
        };
        self.may_call(EXECUTE_PYTHON)
            .then(|| (EXECUTE_PYTHON.to_owned(), json!({"code": code})))
    }

    /// What is said where code would help and may not run.
    pub(super) fn no_code(&self) -> Option<String> {
        let missing = self.wish().is_some() && !self.may_call(EXECUTE_PYTHON);
        missing.then(|| {
            format!(
                "I would write Python for that, but `{EXECUTE_PYTHON}` is not offered to me; send \
                 \"enable_code_execution\": true to a server that has it switched on."
            )
        })
    }

    fn wish(&self) -> Option<Wish> {
        if self.asks_for(&["plot", "chart", "draw", "graph"]) {
            Some(Wish::Chart)
        } else {
            self.asks_for(&["average", "mean temperature"])
                .then_some(Wish::Average)
        }
    }

    /// Whether an earlier question was for a chart, whose data the interpreter still has.
    fn has_drawn(&self) -> bool {
        let words = ["plot", "chart", "draw", "graph"];
        let asked = |text: &String| words.iter().any(|word| text.to_lowercase().contains(word));
        self.earlier.iter().any(asked)
    }

    fn code(&self, wish: Wish, with_data: bool) -> String {
        let mut code = String::new();
        if with_data {
            let data = self.data().unwrap_or_else(|| WEEK.to_owned());
            code = format!("temperatures = {data}\n");
        }
        code.push_str(match wish {
            Wish::Chart => DRAW,
            Wish::Average => AVERAGE,
        });
        code
    }

    /// The temperatures that were looked up for this question, as a Python dictionary.
    fn data(&self) -> Option<String> {
        let mut data = String::new();
        for looked_up in self.results(GET_WEATHER) {
            let weather: Value = serde_json::from_str(&looked_up.result).unwrap_or_default();
            let (city, degrees) = (&weather["city"], &weather["temperature_c"]);
            if city.is_string() && degrees.is_i64() {
                let comma = if data.is_empty() { "" } else { ", " };
                // A JSON text is a Python text too.
                let _no_string_fails = write!(data, "{comma}{city}: {degrees}");
            }
        }
        (!data.is_empty()).then(|| format!("{{{data}}}"))
    }
}

/// What came of code, in words.
pub(super) fn sentence(done: &Done<'_>) -> String {
    let of_section = |label: &str| {
        let (_, rest) = done.result.split_once(label)?;
        rest.lines().next()
    };
    if let Some(value) = of_section("result:\n") {
        return format!("- The average is {value} °C.");
    }
    if done.result.contains(CHART) && !done.result.contains("exception:\n") {
        return format!("- The chart is drawn; its file is {CHART}.");
    }
    format!("- {}: {}", done.name, done.result)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{calling, request, result, user};
    use super::super::{LABEL, Turn, decide};
    use super::*;

    fn turn(messages: &[Value]) -> Turn {
        let mut request = request(messages);
        let tool = json!({"type": "function", "function": {"name": EXECUTE_PYTHON}});
        request["tools"].as_array_mut().unwrap().push(tool);
        decide(&request)
    }

    /// The code of a turn that calls nothing else.
    fn code(turn: &Turn) -> &str {
        let [(name, arguments)] = turn.calls.as_slice() else {
            panic!("{turn:?}");
        };
        assert_eq!(name, EXECUTE_PYTHON);
        arguments["code"].as_str().unwrap()
    }

    fn looked_up(city: &str, result_text: &str) -> [Value; 2] {
        let arguments = json!({"city": city});
        [
            calling(&[(GET_WEATHER, arguments.clone())]),
            result(GET_WEATHER, &arguments, result_text),
        ]
    }

    fn ran(code: &str, result_text: &str) -> [Value; 2] {
        let arguments = json!({"code": code});
        [
            calling(&[(EXECUTE_PYTHON, arguments.clone())]),
            result(EXECUTE_PYTHON, &arguments, result_text),
        ]
    }

    #[test]
    fn a_chart_is_drawn_of_what_was_looked_up() {
        let mut messages = vec![user("Plot the temperatures of Oslo and Rome")];
        let first = turn(&messages);
        assert_eq!(
            first.calls,
            [(GET_WEATHER.to_owned(), json!({"city": "Oslo"}))]
        );
        messages.extend(looked_up("Oslo", r#"{"city":"Oslo","temperature_c":9}"#));
        messages.extend(looked_up("Rome", "no weather for `Rome`"));
        let second = turn(&messages);
        let drawn = code(&second).to_owned();
        assert!(
            drawn.starts_with("temperatures = {\"Oslo\": 9}\n"),
            "{drawn}"
        );
        assert!(drawn.ends_with(DRAW), "{drawn}");
        let told =
            "stdout:\nOslo\n\nimages:\n1 image captured\n\nfiles:\n- temperatures.png (image/png)";
        messages.extend(ran(&drawn, told));
        let last = turn(&messages);
        assert_eq!(last.calls, []);
        assert!(last.text.contains("The chart is drawn"), "{}", last.text);
        assert!(last.text.ends_with(LABEL), "{}", last.text);
    }

    #[test]
    fn the_average_uses_the_variable_of_an_earlier_chart() {
        let mut messages = vec![
            user("Draw a chart"),
            json!({"role": "assistant", "content": "…"}),
            user("And the average?"),
        ];
        assert_eq!(code(&turn(&messages)), AVERAGE);
        messages.extend(ran(AVERAGE, "stdout:\n5 values\n\nresult:\n16.6"));
        let last = turn(&messages);
        assert_eq!(last.calls, []);
        assert!(last.text.contains("The average is 16.6 °C."), "{last:?}");
        // Without an earlier chart there is no such variable.
        let alone = turn(&[user("What is the average?")]);
        assert_eq!(
            code(&alone),
            format!("temperatures = {WEEK}\n{AVERAGE}").as_str()
        );
    }

    #[test]
    fn variables_that_are_lost_are_set_once_more() {
        let mut messages = vec![user("Draw a chart"), user("And the average?")];
        messages.extend(ran(AVERAGE, "exception:\nNameError: temperatures"));
        let again = turn(&messages);
        let again = code(&again).to_owned();
        assert!(again.starts_with("temperatures = {"), "{again}");
        messages.extend(ran(&again, "exception:\nNameError: sum"));
        let last = turn(&messages);
        assert_eq!(last.calls, []);
        assert!(last.text.contains("NameError: sum"), "{}", last.text);
    }

    #[test]
    fn without_the_tool_the_answer_says_how_to_get_it() {
        let turn = decide(&request(&[user("Plot something")]));
        assert_eq!(turn.calls, []);
        assert!(turn.text.contains("enable_code_execution"), "{}", turn.text);
    }
}
