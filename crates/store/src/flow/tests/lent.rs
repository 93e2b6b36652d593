//! Bodies that readers read where they were stored.

use super::*;
use crate::testing::borrowed;

/// A flow whose body is lent, and its readers.
fn lent(tier: &Arc<MemTier>, table: &Arc<InFlight>, content: &[u8]) -> (FlowWriter, FlowReader) {
    let mut writer = lead(table, 1);
    let reader = writer.subscribe(ReaderKind::Client).expect("at the start");
    writer.publish_head(Arc::new(some_head()), info(key(1), MIB));
    assert!(writer.may_borrow());
    writer.finish_borrowed(borrowed(content));
    assert_eq!((tier.used_bytes(), table.len()), (0, 0), "no copy, and nobody joins");
    (writer, reader)
}

#[test]
fn a_lent_body_is_read_where_it_is_and_becomes_no_object() {
    let (tier, table) = table(64 * MIB);
    let content = pattern(0, 13_312);
    let (writer, mut reader) = lent(&tier, &table, &content);
    assert_eq!(
        (writer.written(), block_on(reader.data())),
        (13_312, Progress::Data { available: 13_312 })
    );
    let mut got = take(&mut reader, 5000);
    let mut slices = Vec::new();
    assert_eq!(
        (reader.slices(&mut slices, u64::MAX), slices.len()),
        (13_312 - 5000, 1),
        "it lies together"
    );
    got.extend_from_slice(&slices[0]);
    reader.advance(13_312 - 5000);
    assert!(got == content);
    assert_eq!((block_on(reader.data()), reader.slices(&mut slices, 9)), (Progress::End, 0));
    assert!(writer.object(b"http://a/").is_none());
    assert_eq!(tier.used_bytes(), 0);
}

#[test]
fn a_client_that_has_to_wait_reads_a_lent_body_from_counted_pages() {
    for sent in [0, 1, 4095, 4096, 4097, 13_311] {
        let (tier, table) = table(64 * MIB);
        let content = pattern(7, 7 + 13_312);
        let (writer, mut reader) = lent(&tier, &table, &content);
        take(&mut reader, sent);
        let mut slices = Vec::new();
        let bytes = reader.slices(&mut slices, 6000);
        let before: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
        reader.settle(&mut slices).expect("memory is there");
        assert!(
            before == slices.iter().flat_map(|slice| slice.to_vec()).collect::<Vec<_>>(),
            "{sent}"
        );
        assert_eq!(tier.used_bytes(), 4 * PAGE_BYTES as u64);
        reader.settle(&mut slices).expect("nothing to do");
        reader.advance(bytes);
        drop(writer);
        let (rest, end) = block_on(follow(reader, Rng::new(sent), 3000));
        assert!(
            rest[(sent + bytes) as usize..] == content[(sent + bytes) as usize..]
                && end == Progress::End
        );
        drop(slices);
        assert_eq!(tier.used_bytes(), 0);
    }
}

#[test]
fn a_lent_body_that_memory_has_no_page_for_ends_the_transfer() {
    let (tier, table) = table(64 * MIB);
    let (_writer, mut reader) = lent(&tier, &table, &pattern(0, 13_312));
    let mut slices = Vec::new();
    reader.slices(&mut slices, u64::MAX);
    let hog: Vec<_> = std::iter::from_fn(|| tier.alloc_page(0).ok()).collect();
    assert_eq!(reader.settle(&mut slices), Err(AbortReason::NoMemory));
    drop(hog);
    assert_eq!(reader.settle(&mut slices), Ok(()));
}

#[test]
fn only_a_body_with_one_reader_who_waits_for_nothing_else_is_lent() {
    let (_, table) = table(64 * MIB);
    let mut joined = lead(&table, 1);
    let first = joined.subscribe(ReaderKind::Client).expect("at the start");
    let second = join(&table, 1);
    assert!(!joined.may_borrow());
    // A request that joins after this check reads from pages at once.
    joined.publish_head(Arc::new(some_head()), info(key(1), MIB));
    joined.finish_borrowed(borrowed(&pattern(0, 9000)));
    for mut reader in [first, second] {
        let mut slices = Vec::new();
        assert_eq!((reader.slices(&mut slices, u64::MAX), slices.len()), (9000, 3));
        assert!(
            slices.iter().flat_map(|slice| slice.to_vec()).collect::<Vec<_>>() == pattern(0, 9000)
        );
        reader.advance(9000);
        assert_eq!(block_on(reader.data()), Progress::End);
    }
    let mut told = lead(&table, 2);
    told.interim(Arc::new(some_head()));
    assert!(!told.may_borrow(), "a client may be slow to take the interim answer");
    let mut begun = lead(&table, 3);
    block_on(begun.append(b"x")).expect("memory is there");
    assert!(!begun.may_borrow());
}
