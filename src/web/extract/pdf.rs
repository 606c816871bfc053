//! The text of a PDF.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pdf_extract::{Document as Pdf, OutputError, PlainTextOutput};

use super::super::{Document, DocumentKind};
use super::{MAX_TEXT, Refusal};

/// Reads the pages of a PDF up to the limit of text.
pub(super) fn read(bytes: &[u8]) -> Result<Document, Refusal> {
    // The parser panics on some broken files.
    let read = catch_unwind(AssertUnwindSafe(|| text(bytes)));
    let Read { title, text, cut } = read
        .unwrap_or_else(|_| Err("it is damaged".to_owned()))
        .map_err(broken)?;
    if text.trim().is_empty() {
        return Err(Refusal::NoText(
            "PDF".to_owned(),
            "its pages may be pictures, and these cannot be read".to_owned(),
        ));
    }
    Ok(Document {
        title,
        date: None,
        canonical: None,
        kind: DocumentKind::Pdf,
        markdown: text,
        hidden: false,
        cut,
    })
}

fn broken(problem: String) -> Refusal {
    Refusal::Broken("PDF".to_owned(), problem)
}

struct Read {
    title: String,
    text: String,
    cut: bool,
}

fn text(bytes: &[u8]) -> Result<Read, String> {
    let damaged = |_| "it is damaged".to_owned();
    let mut pdf = Pdf::load_mem(bytes).map_err(damaged)?;
    if pdf.is_encrypted() && pdf.decrypt("").is_err() {
        return Err("it is locked with a password".to_owned());
    }
    let mut text = String::new();
    let mut failed = 0;
    let pages = pdf.get_pages();
    let mut cut = false;
    for &number in pages.keys() {
        if text.len() > MAX_TEXT {
            cut = true;
            break;
        }
        // A broken page does not affect the others.
        match page(&pdf, number) {
            Some(page) => {
                text.push_str(page.trim());
                text.push_str("\n\n");
            }
            None => failed += 1,
        }
    }
    if failed > 0 {
        if failed == pages.len() {
            return Err("it is damaged".to_owned());
        }
        cut = true;
    }
    Ok(Read {
        title: title(&pdf).unwrap_or_default(),
        text,
        cut,
    })
}

fn page(pdf: &Pdf, number: u32) -> Option<String> {
    catch_unwind(AssertUnwindSafe(|| {
        let mut text = String::new();
        let mut output = PlainTextOutput::new(&mut text);
        pdf_extract::output_doc_page(pdf, &mut output, number)?;
        Ok::<_, OutputError>(text)
    }))
    .ok()?
    .ok()
}

fn title(pdf: &Pdf) -> Option<String> {
    let facts = pdf.trailer.get(b"Info").ok()?;
    let facts = match facts.as_reference() {
        Ok(reference) => pdf.get_object(reference).ok()?,
        Err(_) => facts,
    };
    let title = facts.as_dict().ok()?.get(b"Title").ok()?.as_str().ok()?;
    let (text, _) = match title.strip_prefix(b"\xfe\xff") {
        Some(wide) => encoding_rs::UTF_16BE.decode_without_bom_handling(wide),
        None => encoding_rs::WINDOWS_1252.decode_without_bom_handling(title),
    };
    Some(text.into_owned())
}
