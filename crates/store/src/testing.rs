//! Helpers of several tests of this crate.

mod scheme;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use humboldt_base::limits::PAGE_BYTES;
use humboldt_freshness::{Times, TimesFlags};
use humboldt_http::{FieldName, ResponseHead, Version};
use humboldt_sys::pages::{Page, PagePool};

use crate::body::Body;
use crate::events::NoEvents;
use crate::flow::{Fate, FlowInfo};
use crate::head::StoredHead;
use crate::key::Key;
use crate::mem::MemTier;
use crate::object::Object;

/// Fresh for a minute from second 1000.
pub(crate) fn some_times() -> Times {
    Times {
        response_time: 1000,
        date: 1000,
        last_modified: Times::UNKNOWN,
        initial_age_s: 0,
        lifetime_s: 60,
        swr_s: 0,
        sie_s: 0,
        flags: TimesFlags::default(),
        purge_number: 0,
        serial: 0,
    }
}

/// A head with a status and a media type.
pub(crate) fn some_head() -> StoredHead {
    let mut head = ResponseHead::default();
    head.set_line(Version::Http11, 200, b"OK");
    head.fields.push(FieldName::ContentType, b"text/plain");
    StoredHead::from_response(&head, |_, _| false)
}

/// Bytes that tell their offset, so that a part at the wrong place is noticed.
pub(crate) fn pattern(from: usize, to: usize) -> Vec<u8> {
    (from..to).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// A body in pages of this pool.
pub(crate) fn body_of(pool: &PagePool, content: &[u8]) -> Body {
    let pages: Vec<Page> = content
        .chunks(PAGE_BYTES)
        .map(|part| {
            let mut page = pool.alloc().expect("below the limit");
            page.append(part);
            page.share()
        })
        .collect();
    Body::from_pages(pages.iter())
}

/// An object with this body.
pub(crate) fn object_of(key: Key, body: Body) -> Arc<Object> {
    let head = Arc::new(some_head());
    Arc::new(Object::new(key, b"http://a.example/".as_slice().into(), head, some_times(), body))
}

/// What a flow says about an answer that goes to memory up to this many bytes; 0 for one that is
/// only read again.
pub(crate) fn info(key: Key, keep_bytes_max: u64) -> FlowInfo {
    let fate = match keep_bytes_max {
        0 => Fate::Shared,
        body_bytes_max => Fate::Memory { body_bytes_max },
    };
    FlowInfo { key, body_bytes: None, fate, times: Some(some_times()), vary: None }
}

pub(crate) fn tier(cache_mem_bytes: u64) -> Arc<MemTier> {
    Arc::new(MemTier::new(cache_mem_bytes, 2, humboldt_policy::Policy::Lru, Arc::new(NoEvents)))
}

pub(crate) use scheme::{TestScheme, borrowed};

/// Key number `n`.
pub(crate) fn key(n: u64) -> Key {
    Key::primary(&n.to_le_bytes())
}

/// Counts wake-ups, for tests that poll by hand.
#[derive(Default)]
pub(crate) struct Wakes(AtomicUsize);

impl Wakes {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Wake-ups since the last call.
    pub(crate) fn take(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }

    /// Polls once with this waker.
    pub(crate) fn poll<T>(
        self: &Arc<Self>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        poll(&mut Context::from_waker(&Waker::from(self.clone())))
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}
