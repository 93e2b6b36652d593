//! Parts of pages that commands write, between two marks that no reader sees.

/// The page with `text` between `<!-- begin LABEL -->` and `<!-- end LABEL -->`; `None` if it has
/// no such marks.
pub(crate) fn replaced(page: &str, label: &str, text: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- begin {label} -->\n"), format!("<!-- end {label} -->"));
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{}\n\n{end}{after}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_between_the_marks_changes() {
        let page = "a\n<!-- begin bench x -->\nold\n<!-- end bench x -->\nb\n";
        let once = replaced(page, "bench x", "new\n").unwrap();
        assert_eq!(once, "a\n<!-- begin bench x -->\n\nnew\n\n<!-- end bench x -->\nb\n");
        assert_eq!(replaced(&once, "bench x", "new").unwrap(), once);
        assert_eq!(replaced(page, "bench y", "new"), None);
    }
}
