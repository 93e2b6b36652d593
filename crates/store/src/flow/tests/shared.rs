//! Clients of different speed share a fetch: the writer waits, and no client loses a byte.

use super::*;

/// A flow that is not kept whole, with a slow and a fast client that have read nothing.
fn slow_and_fast(table: &Arc<InFlight>, info: FlowInfo) -> (FlowWriter, FlowReader, FlowReader) {
    let mut writer = lead(table, 1);
    let slow = writer.subscribe(ReaderKind::Client).expect("at the start");
    let fast = join(table, 1);
    writer.publish_head(Arc::new(some_head()), info);
    (writer, slow, fast)
}

/// Appends from where the flow is, and lets `fast` read all of it, until the writer waits or all of
/// `data` is there.
fn run_ahead(
    writer: &mut FlowWriter,
    fast: &mut FlowReader,
    wakes: &Arc<Wakes>,
    data: &[u8],
) -> u64 {
    while let Some(rest) = data.get(writer.written() as usize..).filter(|rest| !rest.is_empty()) {
        if wakes.poll(|cx| writer.poll_append(cx, rest)).is_pending() {
            break;
        }
        let from = fast.position() as usize;
        let got = take(fast, u64::MAX);
        assert!(got == data[from..from + got.len()]);
    }
    writer.written()
}

#[test]
fn the_writer_waits_for_a_slow_client_and_nobody_loses_a_byte() {
    let (tier, table) = table(64 * MIB);
    let (mut writer, mut slow, mut fast) = slow_and_fast(&table, info(key(1), 0));
    let wakes = Wakes::new();
    let data = pattern(0, LAG_BYTES_MAX as usize + 300_000);
    assert!(!slow.holds_up());
    assert_eq!(
        run_ahead(&mut writer, &mut fast, &wakes, &data),
        LAG_BYTES_MAX,
        "as far as it may be behind"
    );
    assert!(tier.used_bytes() <= LAG_BYTES_MAX);
    assert_eq!((slow.holds_up(), fast.holds_up()), (true, false));
    // It reads a little: the others go on by as much, and it is still the one that they wait for.
    let mut got = take(&mut slow, WINDOW_BYTES_MIN / 2);
    assert_eq!(wakes.take(), 1, "the writer goes on");
    assert_eq!(
        run_ahead(&mut writer, &mut fast, &wakes, &data),
        LAG_BYTES_MAX + WINDOW_BYTES_MIN / 2
    );
    assert!(slow.holds_up());
    while got.len() < data.len() {
        got.extend(take(&mut slow, 50_000));
        run_ahead(&mut writer, &mut fast, &wakes, &data);
    }
    assert!(got == data && fast.position() == data.len() as u64);
    writer.finish(None);
    assert_eq!((block_on(slow.data()), block_on(fast.data())), (Progress::End, Progress::End));
    assert!(!slow.holds_up());
}

/// The writer waits for the slower of two clients, until `leave` is done with that one.
fn others_go_on(
    cache_mem_bytes: u64,
    leave: impl FnOnce(FlowReader) -> Option<FlowReader>,
) -> Option<FlowReader> {
    let (_, table) = table(cache_mem_bytes);
    let (mut writer, slow, mut fast) = slow_and_fast(&table, info(key(1), 0));
    let wakes = Wakes::new();
    let data = pattern(0, LAG_BYTES_MAX as usize + 300_000);
    assert!(run_ahead(&mut writer, &mut fast, &wakes, &data) < data.len() as u64);
    wakes.take();
    let left = leave(slow);
    assert_eq!(wakes.take(), 1);
    assert_eq!(run_ahead(&mut writer, &mut fast, &wakes, &data), data.len() as u64);
    left
}

#[test]
fn a_slow_client_that_leaves_lets_the_others_go_on_at_once() {
    for cache_mem_bytes in [64 * MIB, 0] {
        others_go_on(cache_mem_bytes, |slow| {
            drop(slow);
            None
        });
    }
}

#[test]
fn a_client_that_steps_aside_is_left_behind_only_as_far_as_others_are_held_up() {
    let far = LAG_BYTES_MAX as usize + 300_000;
    // With 32 pages the memory is short before the distance is too long.
    for (cache_mem_bytes, near) in [(64 * MIB, LAG_BYTES_MAX as usize), (MIB / 2, 15 * PAGE_BYTES)]
    {
        for bytes in [near, far] {
            let (_, table) = table(cache_mem_bytes);
            let (mut writer, mut slow, mut fast) = slow_and_fast(&table, info(key(1), 0));
            let (wakes, data) = (Wakes::new(), pattern(0, bytes));
            slow.step_aside();
            assert_eq!(run_ahead(&mut writer, &mut fast, &wakes, &data), bytes as u64);
            let is_near = bytes == near;
            assert_eq!(writer.readers(), 1 + usize::from(is_near), "{cache_mem_bytes} {bytes}");
            if !is_near {
                drop(fast);
                assert_eq!(writer.readers(), 0, "nobody wants the rest");
            }
            assert_eq!(slow.step_back(), is_near, "{cache_mem_bytes} {bytes}");
            if bytes == near {
                assert!(take(&mut slow, u64::MAX) == data);
            }
        }
    }
}

#[test]
fn a_client_that_steps_aside_while_the_writer_waits_for_it_lets_it_go_on_at_once() {
    for cache_mem_bytes in [64 * MIB, MIB / 2, 0] {
        let aside = others_go_on(cache_mem_bytes, |slow| {
            slow.step_aside();
            Some(slow)
        });
        assert!(!aside.expect("still there").step_back());
    }
}

#[test]
fn a_client_that_steps_aside_alone_is_waited_for_until_another_joins() {
    for cache_mem_bytes in [64 * MIB, 0] {
        let (_, table) = table(cache_mem_bytes);
        let mut writer = lead(&table, 1);
        let alone = writer.subscribe(ReaderKind::Client).expect("at the start");
        writer.publish_head(Arc::new(some_head()), info(key(1), 0));
        alone.step_aside();
        let (wakes, data) = (Wakes::new(), pattern(0, LAG_BYTES_MAX as usize + 300_000));
        while wakes.poll(|cx| writer.poll_append(cx, &data)).is_ready() {}
        let written = writer.written();
        assert!(written <= WINDOW_BYTES_MIN && writer.readers() == 1);
        let mut other = join(&table, 1);
        assert!(take(&mut other, u64::MAX) == data[..written as usize]);
        assert_eq!(wakes.take(), 1, "it has room again");
        assert_eq!(run_ahead(&mut writer, &mut other, &wakes, &data), data.len() as u64);
        assert!(!alone.step_back());
        drop((alone, other));
        assert_eq!(writer.readers(), 0);
    }
}

#[test]
fn short_memory_ends_keeping_and_makes_the_writer_wait_but_takes_nothing_from_a_client() {
    let (tier, table) = table(32 * PAGE_BYTES as u64);
    let (mut writer, mut slow, mut fast) = slow_and_fast(&table, info(key(1), u64::MAX));
    let wakes = Wakes::new();
    let data = pattern(0, 30 * PAGE_BYTES);
    let written = run_ahead(&mut writer, &mut fast, &wakes, &data);
    assert_eq!(written, 16 * PAGE_BYTES as u64, "all that may be in flight, then it waits");
    assert_eq!((slow.holds_up(), fast.holds_up()), (true, false));
    assert_eq!(take(&mut slow, 3 * PAGE_BYTES as u64), data[..3 * PAGE_BYTES]);
    assert_eq!(wakes.take(), 1, "three pages have come back");
    assert_eq!(run_ahead(&mut writer, &mut fast, &wakes, &data), 19 * PAGE_BYTES as u64);
    assert!(tier.used_bytes() <= 16 * PAGE_BYTES as u64);
    assert_eq!(take(&mut slow, u64::MAX), data[3 * PAGE_BYTES..19 * PAGE_BYTES]);
    assert_eq!(run_ahead(&mut writer, &mut fast, &wakes, &data), data.len() as u64);
    assert_eq!(take(&mut slow, u64::MAX), data[19 * PAGE_BYTES..]);
    writer.finish(None);
    assert!(writer.object(b"http://a/").is_none(), "it was not kept whole");
}

#[test]
fn many_clients_of_every_speed_get_every_byte_with_any_memory() {
    for (cache_mem_bytes, clients) in
        [(0, 6), (8 * PAGE_BYTES as u64, 60), (MIB, 60), (64 * MIB, 6)]
    {
        let (tier, table) = table(cache_mem_bytes);
        let mut writer = lead(&table, 1);
        writer.publish_head(Arc::new(some_head()), info(key(1), 100_000));
        let readers: Vec<_> = (0..clients).map(|_| join(&table, 1)).collect();
        let content = pattern(0, 400_000);
        std::thread::scope(|scope| {
            for (number, reader) in readers.into_iter().enumerate() {
                let content = &content;
                scope.spawn(move || {
                    let piece = 1 << (9 + number % 10);
                    let (got, end) = block_on(follow(reader, Rng::new(number as u64), piece));
                    assert!(end == Progress::End && got == *content, "reader {number}");
                });
            }
            content
                .chunks(30_001)
                .for_each(|part| block_on(writer.append(part)).expect("memory is there"));
            writer.finish(None);
        });
        drop(writer);
        assert_eq!(tier.used_bytes(), 0);
    }
}

#[test]
fn a_window_above_all_other_bounds_loses_no_wake_up() {
    let tier = tier(64 * MIB);
    let table = InFlight::new(tier, 64 * MIB, Arc::default());
    let mut writer = table.private(key(1), key(1));
    let mut client = writer.subscribe(ReaderKind::Client).expect("at the start");
    let mut disk = writer.subscribe(ReaderKind::Disk).expect("at the start");
    writer.publish_head(
        Arc::new(some_head()),
        FlowInfo { fate: Fate::AsItComes(Keep::Unread), ..info(key(1), 0) },
    );
    let (wakes, data) = (Wakes::new(), pattern(0, 1 << 20));
    while wakes.poll(|cx| writer.poll_append(cx, &data)).is_ready() {
        take(&mut client, u64::MAX);
    }
    disk.advance(writer.written());
    assert_eq!(wakes.take(), 1, "the disk has taken all that there is");
}

#[test]
fn a_request_can_wait_for_the_copy_on_disk_and_holds_no_pages() {
    let (tier, table) = table(64 * MIB);
    let mut writer = lead(&table, 1);
    let mut disk = writer.subscribe(ReaderKind::Disk).expect("at the start");
    writer.publish_head(
        Arc::new(some_head()),
        FlowInfo { fate: Fate::AsItComes(Keep::Unread), ..info(key(1), 0) },
    );
    let content = pattern(0, 5 * MIB as usize);
    let wakes = Wakes::new();
    assert_eq!(run_ahead(&mut writer, &mut disk, &wakes, &content), content.len() as u64);
    let flow = Arc::clone(writer.flow());
    assert!(flow.waiter().is_none(), "not complete");
    writer.finish(None);
    let mut waiter = flow.waiter().expect("complete, and being written");
    assert!(tier.used_bytes() <= 2 * PAGE_BYTES as u64, "nothing is kept for it");
    assert!(wakes.poll(|cx| waiter.poll_data(cx)).is_pending(), "not visible yet");
    wakes.take();
    drop(disk);
    assert_eq!(wakes.take(), 1, "the directory is done");
    let progress = wakes.poll(|cx| waiter.poll_data(cx));
    assert!(matches!(progress, Poll::Ready(Progress::Lagged { .. })), "{progress:?}");
    assert!(flow.waiter().is_none(), "nobody writes it");
}
