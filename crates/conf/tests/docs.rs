//! The reference of directives in `docs/` is made from the table and must agree with it.

use humboldt_conf::{directives, docs_markdown};

#[test]
fn the_page_in_docs_is_up_to_date() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let path = format!("{docs}/squid.conf.md");
    let page = docs_markdown();
    if std::env::var_os("HUMBOLDT_BLESS").is_some() {
        std::fs::create_dir_all(docs).expect("directory");
        std::fs::write(&path, &page).expect("written");
    }
    let on_disk = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(on_disk == page, "docs/squid.conf.md is out of date: run with HUMBOLDT_BLESS=1");
}

#[test]
fn every_directive_is_on_the_page() {
    let page = docs_markdown();
    for directive in directives() {
        let heading = format!("\n### {}\n", directive.name);
        let row = format!("`{}`", directive.name);
        assert!(page.contains(&heading) || page.contains(&row), "{}", directive.name);
    }
}
