use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use humboldt_sys::aligned::Buffer;

use super::*;
use crate::block::{ReadFuture, WriteDone};

/// A file whose writes end when the test decides.
#[derive(Default)]
struct Held {
    held: Mutex<Vec<WriteDone>>,
    /// They end at once, with an error.
    refuses: bool,
}

impl Held {
    fn end(&self, outcome: io::Result<()>) {
        let done = self.held.lock().pop().expect("a write under way");
        done(outcome);
    }
}

impl BlockFile for Held {
    fn read(&self, _: u64, buffer: Buffer) -> ReadFuture {
        Box::pin(std::future::ready((buffer, Ok(0))))
    }
    fn read_now(&self, _: u64, _: &mut [u8]) -> Option<io::Result<usize>> {
        None
    }
    fn write(&self, _: u64, _: Arc<AppendBuffer>, _: Range<usize>, done: WriteDone) {
        if self.refuses {
            return done(Err(ErrorKind::WouldBlock.into()));
        }
        self.held.lock().push(done);
    }
    fn read_blocking(&self, _: u64, _: &mut [u8]) -> io::Result<usize> {
        Ok(0)
    }
    fn write_blocking(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
    fn sync_blocking(&self) -> io::Result<()> {
        Ok(())
    }
    fn len(&self) -> io::Result<u64> {
        Ok(0)
    }
    fn set_len(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn alignment_bytes(&self) -> usize {
        1
    }
    fn in_flight(&self) -> usize {
        self.held.lock().len()
    }
    fn wait_idle(&self, _: Duration) -> bool {
        true
    }
}

#[test]
fn a_removal_lasts_only_if_all_its_blocks_do_whatever_became_of_later_ones() {
    let file = Arc::new(Held::default());
    let purges = Arc::new(
        Purges::new(1, [Arc::clone(&file) as _, Arc::clone(&file) as _], 0, Arc::default())
            .expect("a log"),
    );
    let many: Vec<_> =
        (0..REMOVALS_PER_BLOCK as u64 + 1).map(|hash| Removal::Key { hash, sequence: 1 }).collect();
    let mut context = Context::from_waker(Waker::noop());
    for (outcomes, wanted) in [
        ([true, true, true], [Ok(()), Ok(())]),
        ([false, true, true], [Err(Unlogged::Failed(ErrorKind::Other)), Ok(())]),
        // It cannot be told any more whether the first lasts, when it asks so late.
        ([true, false, true], [Err(Unlogged::Failed(ErrorKind::Other)); 2]),
        ([false, true, false], [Err(Unlogged::Failed(ErrorKind::Other)); 2]),
    ] {
        let (mut one, mut two) = (pin!(purges.log(&many[..1])), pin!(purges.log(&many)));
        assert!(
            one.as_mut().poll(&mut context).is_pending()
                && two.as_mut().poll(&mut context).is_pending()
        );
        // The first alone, and the others in two blocks behind it.
        for (block, is_fine) in outcomes.into_iter().enumerate() {
            file.end(if is_fine { Ok(()) } else { Err(io::ErrorKind::Other.into()) });
            assert!(block == 2 || two.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(one.as_mut().poll(&mut context), Poll::Ready(wanted[0]));
        assert_eq!(two.as_mut().poll(&mut context), Poll::Ready(wanted[1]));
    }
}

/// The caller may have gone when the block fails, and the next one does not find the key any more.
#[test]
fn what_could_not_be_logged_is_a_doubt_before_anybody_asks() {
    let file = Arc::new(Held::default());
    let doubts = Arc::new(Doubts::default());
    let files = [Arc::clone(&file) as _, Arc::clone(&file) as _];
    let purges = Arc::new(Purges::new(1, files, 0, Arc::clone(&doubts)).expect("a log"));
    let mut context = Context::from_waker(Waker::noop());
    let removal = [Removal::Key { hash: 1, sequence: 1 }];
    {
        let mut asked = pin!(purges.log(&removal));
        assert!(asked.as_mut().poll(&mut context).is_pending() && !doubts.are_any());
        assert!(!purges.turn().waiting().is_empty(), "the next one waits for it");
    }
    file.end(Err(io::ErrorKind::Other.into()));
    assert!(purges.turn().waiting().is_empty() && doubts.are_any());
    // So is a removal for which there is no room.
    let doubt = doubts.counted();
    let too_many = vec![removal[0]; WAITING_MAX + 1];
    assert_eq!(purges.turn().log(&too_many), Err(Unlogged::Full));
    assert_eq!(doubts.counted(), doubt + 1);
}

#[test]
fn it_is_idle_when_no_block_is_on_its_way() {
    let file = Arc::new(Held::default());
    let purges =
        Purges::new(1, [Arc::clone(&file) as _, Arc::clone(&file) as _], 0, Arc::default())
            .expect("a log");
    let purges = Arc::new(purges);
    let mut context = Context::from_waker(Waker::noop());
    let removals = [Removal::Key { hash: 1, sequence: 1 }];
    let (mut one, mut two) = (pin!(purges.log(&removals)), pin!(purges.log(&removals)));
    assert!(
        one.as_mut().poll(&mut context).is_pending()
            && two.as_mut().poll(&mut context).is_pending()
    );
    for is_idle in [false, false, true] {
        assert_eq!(purges.wait_idle(Duration::ZERO), is_idle);
        if !is_idle {
            file.end(Ok(()));
        }
    }
}

#[test]
fn a_block_counts_whole_or_not_at_all() {
    let mut removals: Vec<Removal> =
        (1..REMOVALS_PER_BLOCK as u64).map(|i| Removal::Key { hash: i * 7, sequence: i }).collect();
    removals.push(Removal::Segment { generation: 5 });
    let mut block = [0; BLOCK_BYTES];
    encode(9, 4, &removals, &mut block);
    assert_eq!(decode(9, &block), Some(Decoded { turn: Some(4), removals }));
    assert_eq!(decode(8, &block), None, "of another store");
    for at in (0..BLOCK_BYTES).step_by(37) {
        let mut torn = block;
        torn[at..].fill(0);
        assert_eq!(decode(9, &torn), None, "{at}");
    }
    assert_eq!(decode(9, &[0; BLOCK_BYTES]), None);
}

/// Real files, as short or long as they are to be.
fn files(dir: &tempfile::TempDir, lengths: [u64; 2]) -> [Arc<dyn BlockFile>; 2] {
    std::array::from_fn(|at| {
        let path = dir.path().join(at.to_string());
        let file = crate::block::open(&crate::block::OpenBlock {
            path: &path,
            io: crate::Io::Threads,
            direct: false,
            lasting: true,
            threads: 1,
            create: true,
            read_only: false,
        });
        let file = file.expect("a file");
        if file.len().expect("its length") < lengths[at] {
            file.set_len(lengths[at]).expect("room");
        }
        file
    })
}

fn keys(hashes: Range<u64>) -> Vec<Removal> {
    hashes.map(|hash| Removal::Key { hash, sequence: 1 }).collect()
}

#[tokio::test]
async fn what_was_logged_before_an_interrupted_checkpoint_counts_until_one_is_completed() {
    let dir = tempfile::tempdir().expect("a directory");
    let start = |number| {
        Arc::new(Purges::new(1, files(&dir, [0; 2]), number, Arc::default()).expect("a log"))
    };
    let many = 70 * REMOVALS_PER_BLOCK as u64;
    let first = start(4);
    assert_eq!(first.log(&keys(0..10)).await, Ok(()));
    first.prepare(5).expect("prepared");
    first.switch(5);
    assert_eq!(first.log(&keys(10..many)).await, Ok(()), "longer than what is kept");
    // The head of checkpoint 5 is never written, and again.
    for from in [many, many + 10] {
        let again = start(4);
        assert_eq!(again.read(4).expect("read").removals.len() as u64, from);
        again.prepare(5).expect("prepared");
        again.switch(5);
        assert_eq!(again.log(&keys(from..from + 10)).await, Ok(()));
    }
    let done = start(4);
    (4..7).for_each(|number| {
        done.prepare(number).expect("prepared");
        done.switch(number);
    });
    assert_eq!(done.read(6).expect("read"), Logged { removals: Vec::new(), newest: 6 });
    assert_eq!(
        done.read(5).expect("read").removals.len() as u64,
        many + 10,
        "those of the turn before"
    );
    assert_eq!(done.log(&keys(0..3)).await, Ok(()));
    assert_eq!(start(6).read(6).expect("read").removals, keys(0..3));
}

/// A file that refuses each write at once.
#[test]
fn a_queue_that_refuses_all_blocks_needs_no_deep_stack() {
    let file = Arc::new(Held { refuses: true, ..Held::default() });
    let purges = Arc::new(
        Purges::new(1, [Arc::clone(&file) as _, Arc::clone(&file) as _], 0, Arc::default())
            .expect("a log"),
    );
    let small = std::thread::Builder::new().stack_size(64 * 1024);
    let all = keys(0..WAITING_MAX as u64);
    let refused = small.spawn(move || {
        let log = pin!(purges.log(&all));
        log.poll(&mut Context::from_waker(Waker::noop()))
    });
    let refused = refused.expect("a thread").join().expect("no overflow");
    assert_eq!(refused, Poll::Ready(Err(Unlogged::Failed(ErrorKind::WouldBlock))));
}

#[tokio::test]
async fn what_the_longest_file_cannot_hold_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let files = files(&dir, [FILE_BYTES_MAX - 2 * BLOCK_BYTES as u64, 0]);
    let purges = Arc::new(Purges::new(1, files, 0, Arc::default()).expect("a log"));
    let all = keys(0..2 * REMOVALS_PER_BLOCK as u64 + 1);
    assert_eq!(purges.log(&all).await, Err(Unlogged::Full));
    let (one, most) = tokio::join!(purges.log(&all[..1]), purges.log(&all[1..]));
    assert_eq!((one, most), (Ok(()), Err(Unlogged::Full)), "the first takes a block");
    assert_eq!(purges.log(&all[..2]).await, Ok(()));
    assert_eq!(purges.log(&all[..1]).await, Err(Unlogged::Full));
    assert_eq!(purges.read(0).expect("read").removals.len(), 3);
}
