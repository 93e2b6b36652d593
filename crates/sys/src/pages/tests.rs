//! Pages with one writer, many readers and many threads.

use super::*;

#[test]
fn a_writer_publishes_a_growing_prefix() {
    let pool = PagePool::new(4);
    let mut writer = pool.alloc().expect("a page");
    let reader = writer.share();
    assert!(writer.is_empty() && reader.is_empty());
    assert_eq!(writer.append(b"hello "), 6);
    let early = reader.bytes();
    assert_eq!(writer.append(b"world"), 5);
    assert_eq!((early, reader.bytes()), (&b"hello "[..], &b"hello world"[..]));
    assert_eq!(writer.append(&[7; 2 * PAGE_BYTES]), PAGE_BYTES - 11);
    assert_eq!((writer.room(), writer.append(b"x"), reader.len()), (0, 0, PAGE_BYTES));
    drop(writer);
    assert_eq!((pool.in_use(), &reader[..5]), (1, &b"hello"[..]));
    drop(reader);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn the_limit_holds_and_the_last_freed_page_comes_back_first() {
    let pool = PagePool::new(3);
    let mut pages: Vec<_> = (0..3).map(|_| pool.alloc().expect("below the limit")).collect();
    assert!(pool.alloc().is_none());
    let last = pages.pop().expect("three pages");
    let address = last.share().bytes().as_ptr();
    drop(last);
    let again = pool.alloc().expect("one is free");
    assert_eq!((again.share().bytes().as_ptr(), again.len()), (address, 0));
    pool.set_limit(4);
    assert!(pool.alloc().is_some());
    assert_eq!(pool.limit(), 4);
}

#[test]
fn pages_outlive_the_pool_handle() {
    let pool = PagePool::new(8);
    let other = pool.clone();
    let mut page = pool.alloc().expect("a page");
    page.append(b"still here");
    drop((pool, other));
    let reader = page.share();
    drop(page);
    assert_eq!(reader.bytes(), b"still here");
}

#[test]
fn released_pages_can_be_used_again() {
    let pool = PagePool::new(2000);
    let pages: Vec<_> = (0..600).map(|_| pool.alloc().expect("below the limit")).collect();
    assert_eq!(pool.in_use(), 600);
    let kept = pages.into_iter().next().map(|mut page| {
        page.append(b"kept");
        page
    });
    assert!(pool.release_free() >= 599 * PAGE_BYTES as u64);
    assert_eq!(kept.as_ref().map(|page| page.share().to_vec()), Some(b"kept".to_vec()));
    let again: Vec<_> = (0..600).map(|_| pool.alloc().expect("below the limit")).collect();
    assert!(again.iter().all(PageMut::is_empty));
}

#[test]
fn readers_on_other_threads_see_only_what_was_written() {
    let rounds = if cfg!(miri) { 2 } else { 50 };
    let pool = PagePool::new(64);
    for round in 0..rounds {
        let mut writer = pool.alloc().expect("a page");
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let page = writer.share();
                std::thread::spawn(move || {
                    loop {
                        let bytes = page.bytes();
                        assert!(bytes.iter().enumerate().all(|(i, b)| *b == (i + round) as u8));
                        if bytes.len() == PAGE_BYTES {
                            return;
                        }
                        std::thread::yield_now();
                    }
                })
            })
            .collect();
        let step = if cfg!(miri) { 1024 } else { 61 };
        while writer.room() > 0 {
            let start = writer.len();
            let piece: Vec<u8> = (start..start + step).map(|i| (i + round) as u8).collect();
            writer.append(&piece);
        }
        readers
            .into_iter()
            .for_each(|reader| reader.join().expect("the reader saw the right bytes"));
    }
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn threads_that_only_free_hand_pages_back_to_threads_that_only_take() {
    let pool = PagePool::new(600);
    let (send, receive) = std::sync::mpsc::channel::<PageMut>();
    let freeing = std::thread::spawn(move || receive.into_iter().map(drop).count());
    let total = if cfg!(miri) { 300 } else { 20_000 };
    let mut taken = 0;
    while taken < total {
        match pool.alloc() {
            Some(page) => {
                send.send(page).expect("the other thread runs");
                taken += 1;
            }
            None => std::thread::yield_now(),
        }
    }
    drop(send);
    assert_eq!(freeing.join().expect("no panic"), total);
    assert_eq!(pool.in_use(), 0);
    assert!(
        pool.inner().free.common().lock().slabs.len() <= 3,
        "pages are reused, not mapped anew"
    );
}

#[test]
fn memory_is_given_back_while_threads_take_and_free_pages() {
    let rounds = if cfg!(miri) { 3 } else { 2000 };
    let pool = PagePool::new(2000);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // More than a magazine holds, so that the common list takes part both ways.
                    let pages: Vec<_> =
                        (0..200).map(|_| pool.alloc().expect("below the limit")).collect();
                    drop(pages);
                }
            });
        }
        (0..rounds).for_each(|_| _ = pool.release_free());
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(pool.in_use(), 0);
}

/// Mappings of this process whose addresses lie in one of these ranges.
#[cfg(not(miri))]
fn mappings_of(ranges: &[std::ops::Range<usize>]) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux");
    let bounds = maps.lines().filter_map(|line| line.split(' ').next()?.split_once('-'));
    let hex = |text: &str| usize::from_str_radix(text, 16).expect("an address");
    bounds
        .filter(|(from, to)| {
            ranges.iter().any(|range| hex(from) < range.end && range.start < hex(to))
        })
        .count()
}

/// The system has a bound for the number of mappings (65,530 unless it is changed), and a cache of
/// hundreds of gigabytes has more slabs.
#[cfg(not(miri))]
#[test]
fn slabs_lie_side_by_side_as_few_mappings() {
    const SLABS: usize = 40;
    let pool = PagePool::new((SLABS * SLAB_PAGES) as u64);
    let pages: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
    assert_eq!(pages.len(), SLABS * SLAB_PAGES);
    let ranges: Vec<_> = pool.inner().free.gather(|common: &mut Common| {
        let start = |slab: &Slab| slab.base.as_ptr().addr();
        common.slabs.iter().map(|slab| start(slab)..start(slab) + SLAB_PAGES * PAGE_BYTES).collect()
    });
    // Other tests make mappings meanwhile, which may lie between.
    let mappings = mappings_of(&ranges);
    assert!(mappings <= SLABS / 4, "{mappings} mappings of {SLABS} slabs");
}
