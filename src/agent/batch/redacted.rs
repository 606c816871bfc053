//! Hides secrets in the output of calls: in live output, and in the texts of results before they are shortened, stored
//! or shown.

use std::borrow::Cow;

use super::super::event::AgentEvent;
use super::Batch;
use super::report::calling_without_arguments;
use net::polling::{LONG_BYTES, block_in_place_if};
use policy::redact::{LiveRedactor, Redactor};
use protocol::openai::citation::CitedSource;
use tools::{CodeDetail, ToolDetail, ToolOutput, ToolProgress, WebDetail};

/// Hides secrets in the output of the calls of a batch.
#[derive(Debug)]
pub(super) struct BatchRedaction {
    /// `None` hides nothing.
    redactor: Option<Redactor>,
    /// The live output of the calls that have not ended.
    live: Vec<LiveStream>,
}

/// The live output of a call on one stream.
#[derive(Debug)]
struct LiveStream {
    index: usize,
    stream: &'static str,
    text: LiveRedactor,
}

impl Batch {
    /// Hides secrets in a result. The conversation then cites its sources as they are shown.
    pub(super) fn hide_secrets(&self, output: &mut ToolOutput) {
        if self.redaction.hide(output) {
            self.context.call.sources.replace(&output.sources);
        }
    }

    /// The event of live output of a call; `None` while all of it may be the beginning of a secret.
    pub(super) fn live_output(
        &mut self,
        index: usize,
        progress: ToolProgress,
    ) -> Option<AgentEvent> {
        let shown = self.redaction.live(index, progress)?;
        self.output_event(index, shown)
    }

    /// Reports the live output of a call that was held back, because the call ends.
    pub(super) fn end_live_output(&mut self, index: usize) {
        for rest in self.redaction.end(index) {
            let event = self.output_event(index, rest);
            self.ready.extend(event);
        }
    }

    fn output_event(
        &self,
        index: usize,
        ToolProgress { text, stream }: ToolProgress,
    ) -> Option<AgentEvent> {
        let call = self.open.calls.get(index)?;
        let of = Box::new(calling_without_arguments(&self.context, call));
        let stream = stream.into();
        Some(AgentEvent::ToolOutput { of, text, stream })
    }
}

impl BatchRedaction {
    pub(super) fn new(redactor: Option<Redactor>) -> Self {
        Self {
            redactor,
            live: Vec::new(),
        }
    }

    /// Hides secrets in the texts of a result. Returns whether a source of it has changed.
    fn hide(&self, output: &mut ToolOutput) -> bool {
        let Some(redactor) = &self.redactor else {
            return false;
        };
        let (texts, sources) = texts(output);
        let bytes: usize = texts.iter().map(|text| text.len()).sum();
        block_in_place_if(bytes > LONG_BYTES, || {
            for text in texts {
                hide_in(redactor, text);
            }
            let hidden = sources.into_iter().map(|text| hide_in(redactor, text));
            hidden.fold(false, |any, one| any | one)
        })
    }

    /// The part of the next piece of live output that can be shown now.
    fn live(&mut self, index: usize, progress: ToolProgress) -> Option<ToolProgress> {
        let Some(redactor) = &self.redactor else {
            return Some(progress);
        };
        let ToolProgress { text, stream } = progress;
        let is_same = |live: &LiveStream| (live.index, live.stream) == (index, stream);
        let known = self.live.iter().position(is_same);
        let at = known.unwrap_or(self.live.len());
        if known.is_none() {
            self.live.push(LiveStream {
                index,
                stream,
                text: redactor.live(),
            });
        }
        let live = self.live.get_mut(at)?;
        let text = block_in_place_if(text.len() > LONG_BYTES, || live.text.push(&text));
        (!text.is_empty()).then_some(ToolProgress { text, stream })
    }

    /// Ends the live output of a call, and returns the part that was held back.
    fn end(&mut self, index: usize) -> Vec<ToolProgress> {
        let ended = self.live.extract_if(.., |live| live.index == index);
        let rests = ended.map(|mut live| ToolProgress {
            text: live.text.finish(),
            stream: live.stream,
        });
        rests.filter(|rest| !rest.text.is_empty()).collect()
    }
}

/// All texts of a result that reach the model, the client or the history, and separately the texts of its sources. The
/// code of a call is one of its arguments; images and files are not changed.
fn texts(output: &mut ToolOutput) -> (Vec<&mut String>, Vec<&mut String>) {
    let ToolOutput {
        content,
        is_bounded: _,
        status: _,
        terminate: _,
        images: _,
        frames: _,
        files: _,
        detail,
        sources,
        notices,
    } = output;
    let mut texts = vec![content];
    match detail.as_deref_mut() {
        Some(ToolDetail::Code(CodeDetail {
            code: _,
            stdout,
            stderr,
            result,
            exception,
            working_directory,
            execution_time_ms: _,
        })) => {
            texts.extend([stdout, stderr, working_directory]);
            texts.extend(result.iter_mut().chain(exception));
        }
        Some(ToolDetail::Web(WebDetail {
            results_count: _,
            sources,
            results,
        })) => {
            texts.extend(sources);
            texts.extend(results.iter_mut().flat_map(texts_of_source));
        }
        None => {}
    }
    texts.extend(notices.iter_mut().map(|notice| &mut notice.message));
    (
        texts,
        sources.iter_mut().flat_map(texts_of_source).collect(),
    )
}

fn texts_of_source(
    CitedSource {
        number: _,
        url,
        title,
    }: &mut CitedSource,
) -> [&mut String; 2] {
    [url, title]
}

/// Hides secrets in a text. Returns whether it had some.
fn hide_in(redactor: &Redactor, text: &mut String) -> bool {
    let shown = match redactor.redact(text) {
        Cow::Owned(shown) => shown,
        Cow::Borrowed(_) => return false,
    };
    *text = shown;
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use tools::{ToolFile, ToolNotice};

    const SECRET: &str = "a-secret-of-the-server";

    fn redaction() -> BatchRedaction {
        BatchRedaction::new(Some(Redactor::new([SECRET])))
    }

    fn source(text: &str) -> CitedSource {
        CitedSource {
            number: 1,
            url: format!("https://h/?q={text}"),
            title: text.to_owned(),
        }
    }

    /// A result whose every text is this one.
    fn output(text: &str) -> ToolOutput {
        let detail = WebDetail {
            sources: vec![text.to_owned()],
            results: vec![source(text)],
            ..WebDetail::default()
        };
        ToolOutput {
            content: format!("It is {text}."),
            detail: Some(Box::new(ToolDetail::Web(detail))),
            sources: vec![source(text)],
            notices: vec![ToolNotice {
                kind: "k",
                message: text.to_owned(),
            }],
            ..ToolOutput::default()
        }
    }

    #[tokio::test]
    async fn every_text_of_a_result_is_without_secrets() {
        let mut found = output(SECRET);
        assert!(redaction().hide(&mut found));
        assert_eq!(found, output("[hidden]"));
        assert!(!redaction().hide(&mut found), "there is nothing left");
        assert_eq!(found, output("[hidden]"));
        let mut found = output(SECRET);
        assert!(!BatchRedaction::new(None).hide(&mut found));
        assert_eq!(found, output(SECRET));
    }

    #[tokio::test]
    async fn code_and_files_stay_as_they_are() {
        let of = |code: &str, text: &str| {
            let detail = CodeDetail {
                code: code.to_owned(),
                stdout: text.to_owned(),
                stderr: text.to_owned(),
                result: Some(text.to_owned()),
                exception: Some(text.to_owned()),
                working_directory: text.to_owned(),
                execution_time_ms: 1,
            };
            ToolOutput {
                detail: Some(Box::new(ToolDetail::Code(detail))),
                files: vec![ToolFile {
                    name: "f".to_owned(),
                    path: "f".to_owned(),
                    mime_type: "text/plain".to_owned(),
                    content: SECRET.into(),
                }],
                ..ToolOutput::default()
            }
        };
        let mut found = of(SECRET, SECRET);
        assert!(!redaction().hide(&mut found));
        assert_eq!(found, of(SECRET, "[hidden]"));
    }

    #[tokio::test]
    async fn live_output_is_redacted_over_its_pieces_for_each_call_and_stream() {
        let mut redaction = redaction();
        let piece = |text: &str, stream: &'static str| ToolProgress {
            text: text.to_owned(),
            stream,
        };
        let (first, second) = SECRET.split_at(9);
        assert_eq!(redaction.live(0, piece(first, "stdout")), None);
        let rest: String = second.chars().skip(1).collect();
        // Neither another stream nor another call completes it.
        let other = piece(&rest, "stderr");
        assert_eq!(redaction.live(0, other.clone()), Some(other));
        let other = piece(&rest, "stdout");
        assert_eq!(redaction.live(1, other.clone()), Some(other));
        let shown = redaction.live(0, piece(&format!("{second}, and a-sec"), "stdout"));
        assert_eq!(shown, Some(piece("[hidden], and ", "stdout")));
        assert_eq!(redaction.end(0), [piece("a-sec", "stdout")]);
        assert_eq!(redaction.end(0), []);
        assert_eq!(redaction.end(1), []);
        assert!(redaction.live.is_empty());
        let mut off = BatchRedaction::new(None);
        let shown = off.live(0, piece(SECRET, "stdout"));
        assert_eq!(shown, Some(piece(SECRET, "stdout")));
    }
}
