//! How the tour shows code: the code itself, its live output, images, and files, which it downloads.

use std::io::Write;

use anyhow::{Context, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::Client;
use reqwest::header::CONTENT_TYPE;
use serde_json::Value;

/// What every PNG file begins with.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Prints the code of a call that begins; false for a tool that runs none.
pub(super) fn print_calling(chunk: &Value, out: &mut impl Write) -> anyhow::Result<bool> {
    let Some(code) = chunk["data"]["code"].as_str() else {
        return Ok(false);
    };
    let name = chunk["tool_name"].as_str().unwrap_or_default();
    writeln!(out, "    round {}    -> {name}", chunk["round"])?;
    print_lines("code", code, out)?;
    Ok(true)
}

/// Prints what running code writes, as it comes.
pub(super) fn print_output(chunk: &Value, out: &mut impl Write) -> anyhow::Result<()> {
    let stream = chunk["stream"].as_str().unwrap_or_default();
    print_lines(stream, chunk["text"].as_str().unwrap_or_default(), out)
}

/// Prints what code came to; false for a tool that runs none.
pub(super) fn print_complete(chunk: &Value, out: &mut impl Write) -> anyhow::Result<bool> {
    let data = &chunk["data"];
    if data["tool_type"] != "code_execution" {
        return Ok(false);
    }
    let status = chunk["status"].as_str().unwrap_or_default();
    let (round, took) = (&chunk["round"], &chunk["duration_ms"]);
    write!(out, "    round {round}    <- {status} in {took} ms")?;
    if let Some(result) = data["result"].as_str() {
        write!(out, ", result {result}")?;
    }
    writeln!(out)?;
    if let Some(exception) = data["exception"].as_str() {
        print_lines("exception", exception, out)?;
    }
    let images = data["images_base64"].as_array();
    for (number, image) in (1..).zip(images.into_iter().flatten()) {
        let bytes = STANDARD.decode(image.as_str().unwrap_or_default())?;
        ensure!(is_png(&bytes), "image {number} of the code is no PNG");
        writeln!(out, "    image {number}    PNG, {} bytes", bytes.len())?;
    }
    Ok(true)
}

/// Prints where a produced file is, and sees that it can be had from there.
pub(super) async fn show_file(
    client: &Client,
    base: &str,
    file: &Value,
    out: &mut (impl Write + Send),
) -> anyhow::Result<()> {
    let text = |key: &str| file[key].as_str().unwrap_or_default();
    let url = format!("{base}/v1/files/{}/content", text("id"));
    let name = text("filename");
    let response = client.get(&url).send().await?.error_for_status()?;
    let media_type = response.headers().get(CONTENT_TYPE).cloned();
    let media_type = media_type.context("a downloaded file has no media type")?;
    let bytes = response.bytes().await?;
    ensure!(
        media_type == "image/png" && is_png(&bytes),
        "the downloaded file {name} is no PNG"
    );
    let size = bytes.len();
    writeln!(out, "    file       {name} at {url}")?;
    writeln!(out, "               downloaded: PNG, {size} bytes")?;
    Ok(())
}

fn print_lines(label: &str, text: &str, out: &mut impl Write) -> anyhow::Result<()> {
    for line in text.lines() {
        writeln!(out, "    {label:<10} | {line}")?;
    }
    Ok(())
}

fn is_png(bytes: &[u8]) -> bool {
    bytes.starts_with(PNG)
}
