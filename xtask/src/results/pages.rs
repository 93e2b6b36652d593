//! The pages of docs/results as HTML, for readers who have no other view of Markdown.

use crate::workspace::File;
use crate::{Outcome, workspace};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd, html};
use std::fs;
use std::path::Path;

const STYLE: &str = "body { font: 16px/1.5 system-ui, sans-serif; margin: 1.5rem auto; max-width: 76rem; } \
     td, th { padding: .25rem .75rem .25rem 0; } img { max-width: 60rem; width: 100%; }";

/// Writes a page for each Markdown file below `from`, with its drawings and data beside it, and
/// returns the number of pages.
pub(super) fn write(from: &Path, to: &Path) -> Outcome<usize> {
    let mut pages = 0;
    for file in workspace::files(from, &[".md", ".svg", ".csv", ".json"])? {
        let place = to.join(&file.path);
        fs::create_dir_all(place.parent().unwrap_or(to))?;
        if file.path.ends_with(".md") {
            fs::write(place.with_extension("html"), page(&file, from))?;
            pages += 1;
        } else {
            fs::write(place, file.text)?;
        }
    }
    Ok(pages)
}

fn page(file: &File, root: &Path) -> String {
    let path = root.join(&file.path);
    let folder = path.parent().unwrap_or(root);
    let mut events: Vec<Event<'_>> = Parser::new_ext(&file.text, Options::ENABLE_TABLES).collect();
    let mut rest = events.as_mut_slice();
    while let Some((event, after)) = rest.split_first_mut() {
        match event {
            Event::Start(Tag::Heading { id, .. }) => *id = Some(anchor(after).into()),
            Event::Start(Tag::Link { dest_url, .. }) => {
                *dest_url = link(dest_url, folder, root).into();
            }
            _ => {}
        }
        rest = after;
    }
    let title = file.text.lines().next().unwrap_or_default().trim_start_matches("# ");
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    let mut page = format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<style>{STYLE}</style>\n"
    );
    html::push_html(&mut page, events.into_iter());
    page
}

/// The name by which links find a heading, made of its text as forges do it.
fn anchor(after: &[Event<'_>]) -> String {
    let heading = after.iter().take_while(|event| !matches!(event, Event::End(TagEnd::Heading(_))));
    let texts = heading.filter_map(|event| match event {
        Event::Text(text) | Event::Code(text) => Some(text.to_lowercase()),
        _ => None,
    });
    let text: String = texts.collect();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Links between pages lead to the HTML, and those out of `root` to where they led before.
fn link(url: &str, folder: &Path, root: &Path) -> String {
    if url.contains("://") || url.starts_with('#') {
        return url.to_owned();
    }
    let path = url.split('#').next().unwrap_or_default();
    match (folder.join(path).canonicalize(), root.canonicalize()) {
        (Ok(target), Ok(root)) if !target.starts_with(&root) => {
            format!("{}{}", target.display(), &url[path.len()..])
        }
        _ => url.replacen(".md", ".html", 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_link_to_pages_and_show_their_drawings() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("results"), folder.path().join("pages"));
        fs::create_dir_all(from.join("one")).unwrap();
        fs::write(folder.path().join("lab.md"), "# Lab\n").unwrap();
        let text = "# A < B\n\n## Part one\n\n[p](#part-one) [o](one/index.md#x) [l](../lab.md#y) \
                    [w](https://example.org/a.md)\n\nn | m\n--- | ---\n1 | 2\n";
        fs::write(from.join("README.md"), text).unwrap();
        fs::write(from.join("one/index.md"), "# One\n\n![Plot](index-1.svg)\n").unwrap();
        fs::write(from.join("one/index-1.svg"), "<svg></svg>\n").unwrap();
        assert_eq!(write(&from, &to).unwrap(), 2);
        let page = fs::read_to_string(to.join("README.html")).unwrap();
        let lab = folder.path().canonicalize().unwrap().join("lab.md");
        let lab = format!("href=\"{}#y\"", lab.display());
        for part in [
            "<title>A &lt; B</title>",
            "<h2 id=\"part-one\">",
            "href=\"#part-one\"",
            "href=\"one/index.html#x\"",
            &lab,
            "href=\"https://example.org/a.md\"",
            "<td>1</td>",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        let one = fs::read_to_string(to.join("one/index.html")).unwrap();
        assert!(one.contains("<img src=\"index-1.svg\" alt=\"Plot\""), "{one}");
        assert!(to.join("one/index-1.svg").exists());
    }
}
