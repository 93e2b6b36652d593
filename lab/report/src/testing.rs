//! Helpers of tests: a synthetic run, hostile text, and the rules for every page.

use crate::synthetic::run;
use humboldt_lab_record::Run;

/// So large that no synthetic run of a test fills it before it has all its samples.
pub(crate) const CACHE_BYTES: u64 = 128 << 20;

/// A run that never took place.
pub(crate) fn synthetic(subject: &str, capacity_per_s: f64, samples: u32) -> Run {
    run(subject, "", capacity_per_s, CACHE_BYTES, samples, 1)
}

/// Text that does harm wherever it is not escaped.
pub(crate) fn hostile() -> String {
    "</pre></title></script><script>alert(\"1\")</script><img src=x onerror='alert(2)'>&amp;\u{202e}\u{0}|`\""
        .to_owned()
}

/// Elements without an end tag.
const VOID: [&str; 2] = ["meta", "!doctype"];

/// Every element is closed in order, nothing hostile came through, nothing is loaded from
/// elsewhere, and no number is not one.
pub(crate) fn assert_page(html: &str) {
    assert_balanced(html);
    assert_eq!(html.matches("<script>").count(), 1, "only the page's own script");
    for forbidden in
        ["<img", "<link", "<iframe", "alert(\"", "NaN", "url(", "@import", "\u{202e}", "\u{0}"]
    {
        let allowed_in_script = html.find("<script>").unwrap_or(html.len());
        assert!(!html[..allowed_in_script].contains(forbidden), "{forbidden}");
    }
    for (position, _) in html.match_indices("://") {
        let before = &html[..position];
        let attribute = before.rfind(['"', '\'', '>', '(']).map_or("", |from| &before[..from]);
        let loads = ["src=", "href=", "url"].iter().any(|word| attribute.ends_with(word));
        assert!(
            !loads,
            "something is loaded: {}",
            &html[position.saturating_sub(80)..position + 20]
        );
    }
}

fn assert_balanced(html: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = html;
    while let Some(start) = rest.find('<') {
        rest = &rest[start + 1..];
        let end = rest.find('>').expect("a tag that does not end");
        let tag = &rest[..end];
        rest = &rest[end + 1..];
        let name = tag
            .trim_start_matches('/')
            .split([' ', '\n'])
            .next()
            .unwrap_or_default()
            .trim_end_matches('/');
        if tag.starts_with('/') {
            assert_eq!(
                open.pop(),
                Some(name),
                "in {open:?} before {}",
                &rest[..rest.len().min(80)]
            );
        } else if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
        if name == "script" || name == "style" {
            let close = format!("</{name}>");
            rest = rest.split_once(close.as_str()).expect("a script or style that does not end").1;
            open.pop();
        }
    }
    assert!(open.is_empty(), "never closed: {open:?}");
}
