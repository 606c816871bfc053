//! No number of a page becomes another one: digits that a browser shows apart are never written as one number.

use proptest::prelude::*;

use super::*;

/// A piece of a page, with numbers at its leaves.
#[derive(Debug, Clone)]
enum Piece {
    Number,
    /// An inline element, whose numbers a browser shows as one with their neighbours.
    Inline(&'static str, Vec<Self>),
    /// Two parts between pieces of markup.
    Apart(&'static str, Vec<Self>, Vec<Self>),
}

const INLINE: [&str; 20] = [
    "span",
    "b",
    "i",
    "em",
    "strong",
    "u",
    "small",
    "mark",
    "abbr",
    "cite",
    "font",
    "time",
    "label",
    "ins",
    "code",
    "kbd",
    "x-part",
    "bdi",
    "a href='/x'",
    "span style='color:red;display:inline'",
];
/// Parts that a browser shows apart: what stands before, between and after them.
const APART: [&str; 52] = [
    "<div>|</div><div>|</div>",
    "<p>|</p><p>|</p>",
    "<h2>|</h2><h3>|</h3>",
    "<section>|</section><article>|</article>",
    "<main>|</main><header>|</header>",
    "<footer>x</footer>|<aside>x</aside>|<nav>x</nav>",
    "<address>|</address><center>|</center>",
    "<figure>|<figcaption>|</figcaption></figure>",
    "<details open><summary>|</summary>|</details>",
    "<fieldset><legend>|</legend>|</fieldset>",
    "<form>|</form><hgroup>|</hgroup>",
    "<blockquote>|</blockquote><search>|</search>",
    "<ul><li>|</li><li>|</li></ul>",
    "<ol><li>|</li><li>|</li></ol>",
    "<ol>|<li>|</li></ol>",
    "<menu><li>|</li><li>|</li></menu>",
    "<li>|</li><li>|</li>",
    "<dl><dt>|</dt><dd>|</dd></dl>",
    "<dt>|</dt><dd>|</dd>",
    "<table><tr><td>|</td><td>|</td></tr></table>",
    "<table><caption>|</caption><tr><td>|</td></tr><tr><td>x</td></tr></table>",
    "<table><tr><th>a</th><th>|</th></tr><tr><td colspan=2>|</td></tr></table>",
    "<table><tr><td rowspan=2>|</td><td>x</td></tr><tr><td>|</td></tr></table>",
    "<table role=presentation><tr><td>|</td><td>|</td></tr></table>",
    "<br>|<br>|<br>",
    "<hr>|<hr>|<hr>",
    "<sup>|</sup><sub>|</sub>",
    "<sub>|</sub><sup>|</sup>",
    "<sup>|</sup>/<sub>|</sub>",
    "<del>|</del><ins>x</ins><s>|</s>",
    "<q>|</q><q>|</q>",
    "<ruby>字<rp>(</rp><rt>|</rt><rp></rp></ruby><ruby>字<rp></rp><rt>|</rt></ruby>",
    "<ruby>字<rt>|</rt>字<rt>|</rt></ruby>",
    "<math><mfrac><mn>|</mn><mn>|</mn></mfrac></math>",
    "<math><msup><mn>|</mn><mn>|</mn></msup></math>",
    "<math><msub><mn>|</mn><mn>|</mn></msub><mo>&InvisibleTimes;</mo></math>",
    "<math><mroot><mn>|</mn><mn>|</mn></mroot></math>",
    "<math><mtable><mtr><mtd>|</mtd><mtd>|</mtd></mtr></mtable></math>",
    "<math><mn>|</mn><mo>&#x2062;</mo><mn>|</mn></math>",
    "<math><mn>|</mn><mspace></mspace><mn>|</mn></math>",
    "<img src=a alt='|'><img src=b alt='|'>",
    "<svg><text>x</text></svg>|<input value=x>|<button>x</button>",
    "<select><option>x</select>|<canvas></canvas>|<video></video>",
    "<span aria-hidden=true>·</span>|<img src=a>|<iframe></iframe>",
    "<span style='display:block'>|</span><span style='display: block'>|</span>",
    "<b style='display:block'>|</b><i style='display:table-cell'>|</i>",
    "<span style='float:left'>|</span><span style='position:absolute'>|</span>",
    "<div style='display:flex'><span>|</span><span>|</span></div>",
    "<span style='display:inline-grid'><b>|</b><b>|</b></span>",
    "<a href='/y'><div>|</div><figcaption>|</figcaption></a>",
    "<pre>|</pre><pre>|</pre>",
    "<code><div>|</div><div>|</div></code>",
];

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let piece = Just(Piece::Number).prop_recursive(4, 24, 4, |inner| {
        let some = prop::collection::vec(inner, 0..4);
        prop_oneof![
            1 => Just(Piece::Number),
            2 => (prop::sample::select(&INLINE[..]), some.clone())
                .prop_map(|(name, below)| Piece::Inline(name, below)),
            3 => (prop::sample::select(&APART[..]), some.clone(), some)
                .prop_map(|(marks, first, second)| Piece::Apart(marks, first, second)),
        ]
    });
    prop::collection::vec(piece, 1..5)
}

/// A page under construction: its HTML, and the numbers, of which those in one group may be written as one.
#[derive(Default)]
struct Built {
    html: String,
    groups: Vec<Vec<String>>,
    count: usize,
}

impl Built {
    fn add(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            match piece {
                Piece::Number => {
                    self.count += 1;
                    // Distinct, of one length, and longer than the numbers of list items.
                    let number = (1000 + self.count * 7).to_string();
                    self.html.push_str(&number);
                    match self.groups.last_mut() {
                        Some(group) => group.push(number),
                        None => self.groups.push(vec![number]),
                    }
                }
                Piece::Inline(tag, below) => {
                    let name = tag.split(' ').next().unwrap_or_default();
                    self.html.push_str(&format!("<{tag}>"));
                    self.add(below);
                    self.html.push_str(&format!("</{name}>"));
                }
                Piece::Apart(marks, first, second) => {
                    // Only text fits into attributes and formulas, some elements end at their like, and an empty part
                    // of a line takes no place.
                    let ending = ["<li>", "<dt>", "<h2>", "<form>", "<a "];
                    let is_text = marks.contains("<math")
                        || marks.contains("alt=")
                        || ending.iter().any(|start| marks.starts_with(start));
                    let is_part = marks.contains("<su");
                    let parts =
                        [first, second].map(|below| match is_text || is_part && below.is_empty() {
                            true => &[Piece::Number][..],
                            false => &below[..],
                        });
                    for (mark, below) in marks.split('|').zip(parts.into_iter().chain([&[][..]])) {
                        self.html.push_str(mark);
                        self.groups.push(Vec::new());
                        self.add(below);
                    }
                }
            }
        }
    }

    /// Whether digits are numbers that a browser shows one behind the other without a gap.
    fn allows(&self, digits: &str) -> bool {
        // The number of an item in a list.
        digits.len() < 4
            || self.groups.iter().any(|group| {
                let numbers = digits.len() / 4;
                group
                    .windows(numbers)
                    .any(|joined| joined.concat() == digits)
            })
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]
    #[test]
    fn no_number_becomes_another(pieces in pieces()) {
        let mut built = Built::default();
        built.add(&pieces);
        let text = extract(&page(Some("text/html"), built.html.clone())).map(|read| read.markdown);
        let text = text.unwrap_or_default();
        for digits in text.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty()) {
            prop_assert!(built.allows(digits), "{digits} is no number of {}\n{text}", built.html);
        }
    }
}

#[test]
fn values_stay_apart_from_their_neighbours() {
    for (html, expected) in [
        (
            "<p>2<sup>3</sup>4, 10<sub>2</sub>1, H<sub>2</sub>O</p>",
            "2^3 4, 10_2 1, H_2O",
        ),
        (
            "<p><sup>3</sup>/<sub>4</sub>5, <sup>a</sup>/<sub>b</sub>c</p>",
            "3/4 5, a/bc",
        ),
        (
            "<p><math><mn>2</mn><mo>&InvisibleTimes;</mo><mn>3</mn><msub><mi>x</mi><mn>1</mn></msub></math>4</p>",
            "2 3x_1 4",
        ),
        (
            "<p>4<img src=a alt=5>6 and x<img src=a>y, 7<svg></svg>8</p>",
            "4 5 6 and x y, 7 8",
        ),
        (
            "<p>4<span aria-hidden=true>·</span>5 and 6<span hidden>x</span>7</p>",
            "4 5 and 67",
        ),
        (
            "<p><span style='float:left'>4</span>5 <b>6</b>7 8<wbr>9</p>",
            "4\n\n5 **6**7 89",
        ),
        (
            "<a href=/a><h3>Tern</h3><p>4 berths</p>12 EUR<br>a day</a>",
            "[Tern 4 berths 12 EUR a day](http://example.test/a)",
        ),
        (
            "<div style='display:flex'><span>4</span><span>5</span></div><address>6</address>7",
            "4 5\n\n6 7",
        ),
        ("<ol>4<li>5</li>6</ol>", "4\n\n1. 5\n\n6"),
    ] {
        assert_eq!(markdown(html), expected, "{html}");
    }
}

#[test]
fn fields_of_feeds_keep_their_numbers() {
    for (html, expected) in [
        ("10<sup>6</sup> barnacles", "10^6 barnacles"),
        ("<del>99</del><ins>79</ins>", "~~99~~79"),
        ("<ul><li>4</li><li>5</li></ul>", "4\n5"),
        ("4<img alt=5>6<figure>7</figure>8", "4 5 6 7 8"),
    ] {
        assert_eq!(html::words(html).trim(), expected, "{html}");
    }
}
