//! Tests of reading pages: formats, charsets, cleaning.

use bytes::Bytes;

use super::*;

mod digits;
mod unfinished;

fn page(content_type: Option<&str>, body: impl Into<Bytes>) -> RawPage {
    RawPage {
        url: "http://example.test/dir/page".to_owned(),
        content_type: content_type.map(str::to_owned),
        body: body.into(),
        cut: false,
    }
}

fn kind(content_type: &str, body: &[u8]) -> Result<DocumentKind, String> {
    let announced = (!content_type.is_empty()).then_some(content_type);
    kind::of(announced, body).map_err(|refusal| refusal.to_string())
}

fn markdown(html: &str) -> String {
    extract(&page(Some("text/html"), html.to_owned()))
        .unwrap()
        .markdown
}

#[test]
fn the_format_is_the_announced_one_if_the_bytes_allow_it() {
    let html = b"<!DOCTYPE html><p>x".as_slice();
    let rss = b"<?xml version='1.0'?>\n<!-- c --><rss version='2.0'></rss>".as_slice();
    for (content_type, body, expected) in [
        ("text/html; charset=utf-8", html, DocumentKind::Html),
        ("", html, DocumentKind::Html),
        ("application/octet-stream", html, DocumentKind::Html),
        ("text/plain", html, DocumentKind::Text),
        ("text/html", b"%PDF-1.7\n%\xe2\xe3", DocumentKind::Pdf),
        ("application/pdf", b"junk\n%PDF-1.4", DocumentKind::Pdf),
        ("text/html", b"just words", DocumentKind::Html),
        ("text/html", rss, DocumentKind::Feed),
        ("application/xml", rss, DocumentKind::Feed),
        ("text/plain", rss, DocumentKind::Text),
        ("text/xml", b"<a xmlns='x'/>", DocumentKind::Xml),
        (
            "application/xhtml+xml",
            b"<?xml version='1.0'?><html/>",
            DocumentKind::Html,
        ),
        ("application/json", b" {\"a\": 1}", DocumentKind::Json),
        ("text/html", b"[1, 2]", DocumentKind::Json),
        ("application/json", b"{oops", DocumentKind::Text),
        ("text/markdown", b"# x", DocumentKind::Text),
        ("application/javascript", b"let a = 1;", DocumentKind::Text),
        ("text/plain", b"BM is how bitmaps begin", DocumentKind::Text),
        ("text/plain", b"\xff\xfeh\0i\0", DocumentKind::Text),
    ] {
        assert_eq!(
            kind(content_type, body),
            Ok(expected),
            "{content_type} {body:?}"
        );
    }
}

#[test]
fn what_cannot_be_read_is_refused_by_name() {
    let only = "only web pages, text, JSON, XML, feeds and PDF can be read";
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".as_slice();
    for (content_type, body, expected) in [
        ("image/png", png, "this is an image (image/png)"),
        ("text/html", png, "this is an image (image/png)"),
        (
            "image/svg+xml",
            b"<svg/>",
            "this is an image (image/svg+xml)",
        ),
        ("video/mp4", b"text", "this is a video (video/mp4)"),
        (
            "",
            b"PK\x03\x04\x14\0\0\0",
            "this is an archive (application/zip)",
        ),
        (
            "application/octet-stream",
            b"\0\x01\x02",
            "this is binary data",
        ),
        (
            "text/plain",
            b"a\0b",
            "this is binary data, though it is announced as text/plain",
        ),
    ] {
        assert_eq!(kind(content_type, body), Err(format!("{expected}; {only}")));
    }
    let error = extract(&page(Some("text/html"), "<script>go()</script>")).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("there is no text in this web page"),
        "{error}"
    );
}

#[test]
fn the_charset_is_found_in_mark_header_page_or_bytes() {
    let (greek, _, _) = encoding_rs::ISO_8859_7.encode("<p>Καλημέρα κόσμε, τι κάνεις σήμερα;");
    let meta = [b"<meta charset=iso-8859-7>".as_slice(), &greek].concat();
    let wide: Vec<u8> = "\u{feff}<p>Καλημέρα κόσμε, τι κάνεις σήμερα;"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    for (content_type, body) in [
        ("text/html; charset=\"ISO-8859-7\"", greek.to_vec()),
        ("text/html", meta.clone()),
        ("text/html", greek.to_vec()),
        // The header is wrong and the page is right.
        ("text/html; charset=utf-8", meta),
        ("text/html; charset=iso-8859-1", wide),
    ] {
        let document = extract(&page(Some(content_type), body)).unwrap();
        assert_eq!(
            document.markdown, "Καλημέρα κόσμε, τι κάνεις σήμερα;",
            "{content_type}"
        );
    }
}

#[test]
fn a_page_that_is_the_utf_8_it_declares_is_read_so() {
    for (header, html, expected) in [
        ("iso-8859-1", "<meta charset=utf-8><p>Größe", "Größe"),
        ("windows-1251", "<meta charset=utf-8><p>日本", "日本"),
        (
            "koi8-r",
            "<?xml version='1.0' encoding='UTF-8'?><p>Größe",
            "Größe",
        ),
    ] {
        let header = format!("text/html; charset={header}");
        let document = extract(&page(Some(&header), html.to_owned())).unwrap();
        assert_eq!(document.markdown, expected, "{header}");
    }
    // The header stands where the page is not what it declares.
    let (body, _, _) = encoding_rs::WINDOWS_1252.encode("<meta charset=utf-8><p>Größe");
    let header = "text/html; charset=iso-8859-1";
    let document = extract(&page(Some(header), body.into_owned())).unwrap();
    assert_eq!(document.markdown, "Größe");
}

#[test]
fn the_meaning_of_shown_elements_is_kept() {
    for (html, expected) in [
        ("10<sup>6</sup> barnacles", "10^6 barnacles"),
        ("x<sup>n + 1</sup>, 10<sup>-3</sup>", "x^(n + 1), 10^-3"),
        ("the 1<sup>st</sup> Acme<sup>®</sup>", "the 1st Acme®"),
        ("CO<sub>2</sub>, 10<sub>2</sub>", "CO_2, 10_2"),
        ("1<sup>1</sup>⁄<sub>2</sub> cups", "1 1/2 cups"),
        (
            "<math><mfrac><mn>1</mn><mn>2</mn></mfrac></math> cup",
            "1/2 cup",
        ),
        (
            "<math><msup><mi>x</mi><mn>2</mn></msup><mo>+</mo><msqrt><mi>y</mi></msqrt></math>",
            "x^2+√y",
        ),
        ("<del>99 EUR</del> <ins>79 EUR</ins>", "~~99 EUR~~ 79 EUR"),
        ("<s>99</s> 79, <strike>5</strike> 4", "~~99~~ 79, ~~5~~ 4"),
        (
            "<ruby>汽車<rp>（</rp><rt>きしゃ</rt><rp>）</rp></ruby>",
            "汽車（きしゃ）",
        ),
        ("<ruby>汽車<rt>きしゃ</rt></ruby>", "汽車（きしゃ）"),
        (
            "<span class=katex><span class=katex-mathml><math><semantics><mrow><mi>E</mi></mrow>\
             <annotation encoding='application/x-tex'>E=mc^2</annotation></semantics></math></span>\
             <span class=katex-html aria-hidden=true>E</span></span> holds",
            "`E=mc^2` holds",
        ),
        ("She said <q>no</q>.", "She said “no”."),
    ] {
        assert_eq!(markdown(&format!("<p>{html}</p>")), expected, "{html}");
    }
    for (html, expected) in [
        (
            "<figure><img alt='A lamp'><figcaption>Brass lamp</figcaption></figure>",
            "A lamp\n\nBrass lamp",
        ),
        (
            "<ol reversed><li>c</li><li>b</li><li>a</li></ol>",
            "3. c\n2. b\n1. a",
        ),
        (
            "<ol reversed start=9><li>x</li><li value=5>y</li><li>z</li></ol>",
            "9. x\n5. y\n4. z",
        ),
        (
            "<h3><button>May I?</button></h3><p>Yes.</p><button>Buy</button>",
            "### May I?\n\nYes.",
        ),
        (
            "<details><summary>May I?</summary>Yes.</details>",
            "May I?\n\nYes.",
        ),
    ] {
        assert_eq!(markdown(html), expected, "{html}");
    }
}

#[test]
fn code_keeps_its_lines() {
    let code = "def f(x):\n    if x:\n\n\n        return 1";
    for html in [
        format!("<pre>{code}</pre>"),
        "<pre><code><span class=token-line>def f(x):<br></span><span class=token-line>    if x:<br></span>\
         <br><br><span class=token-line>        return 1<br></span></code></pre>"
            .to_owned(),
        format!("<pre>{}</pre>", code.replace('\n', "<br/>")),
        "<pre><div>def f(x):</div><div>    if x:</div><div><br></div><div><br></div><div>        return 1</div></pre>"
            .to_owned(),
        "<pre><span style='display: block'>def f(x):</span><span style='display:block'>    if x:</span>\
         <span style='display:block'>\n</span><span style='display:block'>\n</span><span style='display:block'>        return 1</span></pre>"
            .to_owned(),
        "<table><tr><td class=blob-num>1</td><td class=blob-code>def f(x):</td></tr>\n\
         <tr><td class=blob-num>2</td><td class=blob-code>    if x:</td></tr>\n\
         <tr><td class=blob-num>3</td><td class=blob-code>\n</td></tr>\n<tr><td class=blob-num>4</td><td class=blob-code>\n</td></tr>\n\
         <tr><td class=blob-num>5</td><td class=blob-code>        return 1</td></tr></table>"
            .to_owned(),
        format!("<pre><ol><li>{}</li></ol></pre>", code.replace('\n', "</li><li>"))
            .replace("<li></li>", "<li><br></li>"),
        format!("<pre><code><p class=cm-line>{}</p></code></pre>", code.replace('\n', "</p><p class=cm-line>"))
            .replace("cm-line></p>", "cm-line><br></p>"),
        code.split('\n').fold("<pre>".to_owned(), |html, line| {
            html + "<span style='display:flex'><span style='user-select:none'>7</span><span>" + line + "\n</span></span>"
        }),
        format!(
            "<div><table><tr><td class=linenos><pre>1\n2</pre></td><td class=code><pre>{code}</pre></td></tr></table></div>"
        ),
    ] {
        assert_eq!(markdown(&html), format!("```\n{code}\n```"), "{html}");
    }
    for html in [
        "<pre><code class='hljs language-rust'>x</code></pre>",
        "<div class='language-rust'><pre>x</pre></div>",
        "<div class='highlight-source-rust'><pre>x</pre></div>",
        "<pre data-language=rust>x</pre>",
        "<div class='highlight-rust notranslate'><div><pre>x</pre></div></div>",
        "<div class='mw-highlight mw-highlight-lang-rust'><pre>x</pre></div>",
        "<div class='language-rust'><span class=lang>rust</span><pre>x</pre></div>",
    ] {
        assert_eq!(markdown(html), "```rust\nx\n```", "{html}");
    }
}

#[test]
fn invisible_characters_are_stripped_and_joined_scripts_stay_whole() {
    let (text, cut) = clean::text(
        "a\u{200b}b\u{202e}c\u{ad}d\u{e0041}\u{fe0f}\u{feff}\u{7}e\r\n\n\n \u{a0}\n\nمی\u{200c}خواهم x\u{200c}y\n\n",
        MAX_TEXT,
    );
    assert_eq!(text, "abcde\n\nمی\u{200c}خواهم xy");
    assert!(!cut);
    assert_eq!(
        clean::text("one\ntwo\nthree", 9),
        ("one\ntwo".to_owned(), true)
    );
    assert_eq!(clean::text("ääää", 5), ("ää".to_owned(), true));
    assert_eq!(clean::line(" a\n b\u{200f} ccc ", 5), "a b…");
}

#[test]
fn links_are_absolute_and_lead_to_the_web_only() {
    let html = "<base href=/b/><p>See <a href='x y?q=1'>one</a>, <a href='//other.test/'>two</a>, \
        <a href='javascript:alert(1)'>three</a>, <a href='#top'>four</a>, <a href='data:,x'>five</a>.</p>";
    assert_eq!(
        markdown(html),
        "See [one](http://example.test/b/x%20y?q=1), [two](http://other.test/), three, four, five."
    );
}

#[test]
fn tables_are_squared_and_layout_tables_are_not_shown() {
    let html = "<table><tr><td><table><tr><td rowspan=2>a<td colspan=2>b<tr><td>c<td>d|e<tr><td>f</table></table>";
    let lines: Vec<String> = markdown(html)
        .lines()
        .map(|line| line.replace(' ', ""))
        .collect();
    assert_eq!(lines, ["|a|b||", "|-|-|-|", "|a|c|d\\|e|", "|f|||"]);
}

#[test]
fn feeds_become_lists_of_their_entries() {
    let atom = r#"<feed xmlns="http://www.w3.org/2005/Atom"><title>News</title><updated>2024-05-06T00:00:00Z</updated><id>x</id>
        <entry><title>A &amp; B</title><id>1</id><link href="/a"/><updated>2024-05-05T10:00:00Z</updated>
        <summary type="html">&lt;p&gt;More &lt;b&gt;here&lt;/b&gt;&lt;/p&gt;&lt;script&gt;x()&lt;/script&gt;</summary></entry></feed>"#;
    let json = r#"{"version": "https://jsonfeed.org/version/1.1", "title": "News", "items": [{"id": "1",
        "url": "http://example.test/a", "title": "A & B", "content_text": "More here", "date_published": "2024-05-05T10:00:00Z"}]}"#;
    for (content_type, body) in [
        ("application/atom+xml", atom),
        ("application/feed+json", json),
    ] {
        let document = extract(&page(Some(content_type), body)).unwrap();
        assert_eq!(document.kind, DocumentKind::Feed);
        assert_eq!(document.title, "News");
        assert_eq!(
            document.markdown,
            "- 2024-05-05 [A & B](http://example.test/a): More here"
        );
    }
}

#[test]
fn json_is_indented_without_a_change_of_its_values() {
    let text = r#"{"b":1.000000000000000000001,"a":["x\"{,:",{}, [ ],null]}"#;
    let expected = "{\n  \"b\": 1.000000000000000000001,\n  \"a\": [\n    \"x\\\"{,:\",\n    {},\n    [],\n    null\n  ]\n}";
    assert_eq!(json::indent(text.to_owned()), expected);
}

#[cfg(not(feature = "pdf"))]
#[test]
fn a_build_without_pdf_says_so() {
    let error = extract(&page(Some("application/pdf"), "%PDF-1.4\n".to_owned())).unwrap_err();
    let expected = "this PDF cannot be read: this server was built without support for PDF";
    assert_eq!(error.to_string(), expected);
}

#[cfg(feature = "pdf")]
#[test]
fn the_text_of_a_pdf_is_read() {
    let stream = "BT /F1 24 Tf 72 700 Td (Tide tables of the harbour) Tj ET";
    let objects = [
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>".to_owned(),
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>".to_owned(),
        format!("<< /Length {} >>\nstream\n{stream}\nendstream", stream.len()),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>".to_owned(),
        "<< /Title (Tides) >>".to_owned(),
    ];
    let mut pdf = "%PDF-1.4\n".to_owned();
    let mut places = Vec::new();
    for (number, object) in (1..).zip(&objects) {
        places.push(pdf.len());
        pdf.push_str(&format!("{number} 0 obj\n{object}\nendobj\n"));
    }
    let start = pdf.len();
    pdf.push_str("xref\n0 7\n0000000000 65535 f \n");
    for place in places {
        pdf.push_str(&format!("{place:010} 00000 n \n"));
    }
    pdf.push_str(&format!(
        "trailer\n<< /Size 7 /Root 1 0 R /Info 6 0 R >>\nstartxref\n{start}\n%%EOF"
    ));
    let document = extract(&page(Some("text/html"), pdf)).unwrap();
    assert_eq!(document.kind, DocumentKind::Pdf);
    assert_eq!(document.title, "Tides");
    assert_eq!(document.markdown, "Tide tables of the harbour");
}

#[test]
fn a_long_text_is_cut_and_says_so() {
    let document = extract(&page(Some("text/plain"), "word and word\n".repeat(200_000))).unwrap();
    assert!(document.cut);
    assert!(document.markdown.len() <= MAX_TEXT && document.markdown.len() > MAX_TEXT - 100);
}
