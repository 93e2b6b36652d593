//! The reference of metrics in `docs/` is made from the tables and must agree with them.

#[test]
fn the_page_in_docs_is_up_to_date() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let path = format!("{docs}/metrics.md");
    let page = humboldt_admin::docs_markdown();
    if std::env::var_os("HUMBOLDT_BLESS").is_some() {
        std::fs::create_dir_all(docs).expect("directory");
        std::fs::write(&path, &page).expect("written");
    }
    let on_disk = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(on_disk == page, "docs/metrics.md is out of date: run with HUMBOLDT_BLESS=1");
}
