//! The protocol between the server and a confined process. A request is the length of a JSON header, the header and the
//! bytes of the page; the answer is JSON.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::super::extract::{self, Refusal};
use super::super::{Document, ExtractError, RawPage};
use sandbox::compute::{self, ComputeError, Computer, ProbeResult};

/// A request to a confined process.
#[derive(Debug)]
pub(super) enum ParserRequest {
    /// Parse a page.
    Page(RawPage),
    /// Try what the confinement forbids.
    Attempts,
}

/// A request without the bytes of the page.
#[derive(Debug, Serialize, Deserialize)]
enum Header {
    Page {
        url: String,
        content_type: Option<String>,
        cut: bool,
    },
    Attempts,
}

/// Sends a request and returns the answer.
pub(super) async fn ask(
    computer: &mut Computer,
    request: &ParserRequest,
) -> Result<Vec<u8>, ComputeError> {
    let (header, body) = match request {
        ParserRequest::Page(page) => {
            let header = Header::Page {
                url: page.url.clone(),
                content_type: page.content_type.clone(),
                cut: page.cut,
            };
            (header, page.body.as_ref())
        }
        ParserRequest::Attempts => (Header::Attempts, [].as_slice()),
    };
    let header = serde_json::to_vec(&header).unwrap_or_default();
    let length = u32::try_from(header.len()).unwrap_or(u32::MAX);
    computer.ask(&[&length.to_le_bytes(), &header, body]).await
}

/// The answer of the confined process.
pub(super) fn answer(request: &[u8]) -> Vec<u8> {
    let answer = match read(request) {
        Some((Header::Attempts, _)) => serde_json::to_vec(&compute::attempts()),
        Some((
            Header::Page {
                url,
                content_type,
                cut,
            },
            body,
        )) => {
            let page = RawPage {
                url,
                content_type,
                body: Bytes::copy_from_slice(body),
                cut,
            };
            // A panic of a parser means a broken page.
            let read = catch_unwind(AssertUnwindSafe(|| extract::read(&page)));
            let read = read.unwrap_or_else(|_| {
                Err(Refusal::Broken(
                    "page".to_owned(),
                    "it is damaged".to_owned(),
                ))
            });
            serde_json::to_vec(&read)
        }
        None => Ok(Vec::new()),
    };
    answer.unwrap_or_default()
}

fn read(request: &[u8]) -> Option<(Header, &[u8])> {
    let (length, rest) = request.split_first_chunk::<4>()?;
    let (header, body) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((serde_json::from_slice(header).ok()?, body))
}

/// Reads the answer to a page.
pub(super) fn document(answer: &[u8]) -> Result<Document, ExtractError> {
    // The page may have taken over the process that parsed it, so the answer is checked.
    let answer: Result<Document, Refusal> =
        serde_json::from_slice(answer).map_err(|_| ExtractError::TooMuch)?;
    answer.map(extract::tidy).map_err(ExtractError::Refused)
}

/// Reads the answer to attempts.
pub(super) fn attempts(answer: &[u8]) -> Result<Vec<ProbeResult>, ExtractError> {
    serde_json::from_slice(answer).map_err(|_| ExtractError::TooMuch)
}
