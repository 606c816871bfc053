//! Collects the results of a cell, within limits.

use std::time::Duration;

use super::settings::InterpreterLimits;
use super::worker_protocol::WorkerMessage;
use super::{CellEnd, CellError, CellOutcome, Image, Value};

/// Most bytes of the displayed texts of one cell, one more for each; a notice counts the texts beyond.
/// Tried by `collect::texts_and_notices_are_bounded`.
const MAX_TEXT_BYTES: usize = 128 * 1024;
/// Most frames of animations of one cell; a notice counts the others.
const MAX_FRAMES: usize = 32;
/// Most bytes of the images and frames of one cell; a notice counts those beyond.
/// Tried by `collect::images_are_bounded_in_number_and_size`.
const MAX_IMAGE_BYTES: usize = 16 * 1024 * 1024;
/// Most notices of one cell; others are left out.
/// Tried by `collect::texts_and_notices_are_bounded`.
const MAX_NOTICES: usize = 20;

/// The collected results.
#[derive(Debug)]
pub(super) struct CellOutput {
    value: Option<Value>,
    error: Option<CellError>,
    texts: Vec<String>,
    images: Vec<Image>,
    frames: Vec<Image>,
    notices: Vec<String>,
    text_bytes: usize,
    image_bytes: usize,
    max_images: usize,
    max_image: usize,
    left_out: usize,
}

impl CellOutput {
    pub(super) fn new(limits: &InterpreterLimits) -> Self {
        Self {
            value: None,
            error: None,
            texts: Vec::new(),
            images: Vec::new(),
            frames: Vec::new(),
            notices: Vec::new(),
            text_bytes: 0,
            image_bytes: 0,
            max_images: limits.images,
            max_image: limits.image_bytes,
            left_out: 0,
        }
    }

    /// Takes a message of the call; returns whether it belongs to the call.
    pub(super) fn take(&mut self, frame: WorkerMessage, call: u32) -> bool {
        let id = match frame {
            WorkerMessage::Image { id, frame, image } if id == call => {
                self.image(frame, image);
                id
            }
            WorkerMessage::BadImage { id, why } if id == call => {
                self.note(format!("an image was left out: it {why}"));
                id
            }
            WorkerMessage::Text { id, text } if id == call => {
                self.text(text);
                id
            }
            WorkerMessage::Value { id, value } if id == call => {
                self.value = Some(value);
                id
            }
            WorkerMessage::Error { id, error } if id == call => {
                // Only the first counts: a later one arises from displaying the cell's results.
                self.error.get_or_insert(error);
                id
            }
            WorkerMessage::Notice { id, text } if id == call => {
                self.note(text);
                id
            }
            _ => return false,
        };
        id == call
    }

    /// Adds a notice for the model.
    pub(super) fn note(&mut self, text: impl Into<String>) {
        if self.notices.len() < MAX_NOTICES {
            self.notices.push(text.into());
        }
    }

    fn text(&mut self, text: String) {
        self.text_bytes += text.len() + 1;
        if self.text_bytes <= MAX_TEXT_BYTES {
            self.texts.push(text);
        } else {
            self.left_out += 1;
        }
    }

    fn image(&mut self, frame: bool, image: Image) {
        let (list, most) = match frame {
            true => (&mut self.frames, MAX_FRAMES),
            false => (&mut self.images, self.max_images),
        };
        let total = self.image_bytes + image.bytes.len();
        let fits =
            list.len() < most && image.bytes.len() <= self.max_image && total <= MAX_IMAGE_BYTES;
        if fits {
            self.image_bytes = total;
            list.push(image);
        } else {
            self.left_out += 1;
        }
    }

    /// The outcome without output and files.
    pub(super) fn into_outcome(
        mut self,
        end: CellEnd,
        elapsed: Duration,
        working_directory: String,
    ) -> CellOutcome {
        if self.left_out > 0 {
            let left_out = self.left_out;
            self.notices.push(format!(
                "{left_out} displayed objects were left out: too many or too large"
            ));
        }
        CellOutcome {
            stdout: String::new(),
            stderr: String::new(),
            value: self.value,
            texts: self.texts,
            error: self.error,
            images: self.images,
            frames: self.frames,
            files: Vec::new(),
            notices: self.notices,
            end,
            elapsed,
            working_directory,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(bytes: usize) -> Image {
        Image {
            mime_type: "image/png",
            bytes: vec![0; bytes].into(),
        }
    }

    fn outcome(collected: CellOutput) -> CellOutcome {
        collected.into_outcome(CellEnd::Completed, Duration::ZERO, String::new())
    }

    #[test]
    fn frames_of_another_call_are_not_taken() {
        let mut collected = CellOutput::new(&InterpreterLimits::default());
        let text = |id| WorkerMessage::Text {
            id,
            text: "t".to_owned(),
        };
        assert!(collected.take(text(7), 7));
        assert!(!collected.take(text(6), 7));
        assert!(!collected.take(WorkerMessage::Done { id: 7 }, 7));
        assert_eq!(outcome(collected).texts, ["t"]);
    }

    #[test]
    fn images_are_bounded_in_number_and_size() {
        let limits = InterpreterLimits {
            images: 2,
            image_bytes: 100,
            ..InterpreterLimits::default()
        };
        let mut collected = CellOutput::new(&limits);
        for bytes in [101, 100, 1, 1] {
            let frame = WorkerMessage::Image {
                id: 1,
                frame: false,
                image: image(bytes),
            };
            assert!(collected.take(frame, 1));
        }
        let outcome = outcome(collected);
        let sizes: Vec<usize> = outcome
            .images
            .iter()
            .map(|image| image.bytes.len())
            .collect();
        assert_eq!(sizes, [100, 1]);
        assert!(
            outcome.notices[0].starts_with("2 displayed objects"),
            "{:?}",
            outcome.notices
        );
    }

    #[test]
    fn texts_and_notices_are_bounded() {
        let mut collected = CellOutput::new(&InterpreterLimits::default());
        for _ in 0..1000 {
            let text = WorkerMessage::Text {
                id: 1,
                text: "x".repeat(1024),
            };
            assert!(collected.take(text, 1));
            collected.note("n");
        }
        let outcome = outcome(collected);
        assert_eq!(outcome.texts.len(), MAX_TEXT_BYTES / 1025);
        assert_eq!(outcome.notices.len(), MAX_NOTICES + 1);
    }

    #[test]
    fn the_first_exception_counts() {
        let mut collected = CellOutput::new(&InterpreterLimits::default());
        for name in ["First", "Second"] {
            let error = CellError {
                name: name.to_owned(),
                message: String::new(),
                traceback: String::new(),
            };
            assert!(collected.take(WorkerMessage::Error { id: 1, error }, 1));
        }
        assert_eq!(outcome(collected).error.unwrap().name, "First");
    }
}
