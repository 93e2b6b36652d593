//! Answers that are put together: a range cut out of an answer that is fetched whole, several
//! ranges in one answer, or ranges from several stored parts. A task feeds the sources one after
//! the other into a new flow, which the client follows like any other.

use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use humboldt_freshness::Times;
use humboldt_http::range::{ByteRange, ContentRange};
use humboldt_http::{FieldName, ResponseHead, Version};
use humboldt_runtime::turns;
use humboldt_store::disk::DiskHit;
use humboldt_store::{
    AbortReason, FlowHead, FlowInfo, FlowReader, FlowWriter, Key, Object, ReaderKind, StoredHead,
};

use crate::core::Core;
use crate::lookup::selection::{several_ranges, wanted_ranges};
use crate::reply::leave::Leave;
use crate::request::Request;
use crate::rules::access;
use crate::storing::deliver::while_wanted;

/// Bytes that are read from disk, or passed on, in one step.
const STEP_BYTES: usize = 64 * 1024;

/// The source of some bytes of an answer.
pub(crate) enum Source {
    /// Bytes that the proxy made.
    Made(Vec<u8>),
    /// A range of an object in memory.
    Memory(Arc<Object>, Range<u64>),
    /// A range of one of [`Assembly::disk`].
    Disk(usize, Range<u64>),
    /// A range of a body in flight. Its reader stands at the first byte of the range. The client
    /// may leave the fetch if a `Leave` is given.
    Flow(FlowReader, Range<u64>, Option<Box<Leave>>),
}

/// An answer that is to be put together.
pub(crate) struct Assembly {
    /// Its head, without the fields that are added for each client.
    pub head: StoredHead,
    /// Its freshness, if known.
    pub times: Option<Times>,
    /// Key of the answer that this is a part of.
    pub key: Key,
    /// Objects on disk that are read.
    pub disk: Vec<DiskHit>,
    /// The body, in order.
    pub sources: Vec<Source>,
}

impl Source {
    fn body_bytes(&self) -> u64 {
        match self {
            Self::Made(bytes) => bytes.len() as u64,
            Self::Memory(_, range) | Self::Disk(_, range) | Self::Flow(_, range, _) => {
                range.end - range.start
            }
        }
    }
}

impl Assembly {
    /// Starts the task that puts the answer together; the returned reader is for the client.
    pub(crate) fn start(mut self, core: &Rc<Core>, request: &Request) -> Option<FlowReader> {
        for hit in &mut self.disk {
            hit.count_memory(&core.shared.cache);
        }
        let writer = core.shared.cache.private(request.key, self.key);
        let reader = writer.subscribe(ReaderKind::Client);
        let flow = Arc::clone(writer.flow());
        turns::spawn_local(while_wanted(Some(flow), Box::pin(self.feed(writer))));
        reader
    }

    async fn feed(self, writer: FlowWriter) {
        let body_bytes = self.sources.iter().map(Source::body_bytes).sum();
        let info = FlowInfo::of_one_client(self.key, body_bytes, self.times);
        let mut feeder =
            Feeder { writer, head: Some((Arc::new(self.head), info)), disk: self.disk };
        for source in self.sources {
            if let Err(reason) = feeder.feed(source).await {
                return feeder.writer.abort(reason);
            }
        }
        feeder.publish();
        feeder.writer.finish(None);
    }
}

struct Feeder {
    writer: FlowWriter,
    /// The head, until it goes out with the first bytes. While nothing was sent, the request can
    /// still be answered in another way.
    head: Option<(Arc<StoredHead>, FlowInfo)>,
    disk: Vec<DiskHit>,
}

impl Feeder {
    fn publish(&mut self) {
        if let Some((head, info)) = self.head.take() {
            self.writer.publish_head(head, info);
        }
    }

    async fn append(&mut self, bytes: &[u8]) -> Result<(), AbortReason> {
        self.publish();
        if self.writer.readers() == 0 {
            return Err(AbortReason::Cancelled);
        }
        self.writer.append(bytes).await
    }

    async fn feed(&mut self, source: Source) -> Result<(), AbortReason> {
        match source {
            Source::Made(bytes) => self.append(&bytes).await,
            Source::Memory(object, range) => self.feed_memory(&object, range).await,
            Source::Disk(at, range) => self.feed_disk(at, range).await,
            Source::Flow(reader, range, leave) => self.feed_flow(reader, range, leave).await,
        }
    }

    async fn feed_memory(
        &mut self,
        object: &Object,
        mut range: Range<u64>,
    ) -> Result<(), AbortReason> {
        while !range.is_empty() {
            let mut part = [std::io::IoSlice::new(&[])];
            object.slices(range.start, range.end, &mut part);
            let [part] = part;
            if part.is_empty() {
                return Err(AbortReason::Truncated);
            }
            self.append(&part).await?;
            range.start += part.len() as u64;
        }
        Ok(())
    }

    async fn feed_disk(&mut self, at: usize, mut range: Range<u64>) -> Result<(), AbortReason> {
        let mut buffer = vec![0; STEP_BYTES];
        while !range.is_empty() {
            let wanted =
                usize::try_from(range.end - range.start).unwrap_or(STEP_BYTES).min(STEP_BYTES);
            let (Some(hit), Some(space)) = (self.disk.get_mut(at), buffer.get_mut(..wanted)) else {
                return Err(AbortReason::DiskFailed);
            };
            let got = hit.read(range.start, space).await.ok().filter(|&got| got > 0);
            let got = got.ok_or(AbortReason::DiskFailed)?;
            self.append(buffer.get(..got).unwrap_or_default()).await?;
            range.start += got as u64;
        }
        Ok(())
    }

    async fn feed_flow(
        &mut self,
        mut reader: FlowReader,
        mut range: Range<u64>,
        mut leave: Option<Box<Leave>>,
    ) -> Result<(), AbortReason> {
        let mut slices = Vec::new();
        while !range.is_empty() {
            reader.more().await?;
            let bytes =
                reader.slices(&mut slices, (range.end - range.start).min(STEP_BYTES as u64));
            if let Some(leave) = &mut leave {
                leave.take(&slices);
            }
            let mut has_left = false;
            for slice in slices.drain(..) {
                has_left |= self.append_or_leave(&slice, &mut reader, &mut leave).await?;
            }
            // A reader that has left the fetch already stands behind these bytes.
            if !has_left {
                reader.advance(bytes);
            }
            range.start += bytes;
        }
        Ok(())
    }

    /// Appends bytes of a fetch that may be shared. Returns whether the client left it meanwhile.
    async fn append_or_leave(
        &mut self,
        mut bytes: &[u8],
        reader: &mut FlowReader,
        leave: &mut Option<Box<Leave>>,
    ) -> Result<bool, AbortReason> {
        self.publish();
        let mut has_left = false;
        while !bytes.is_empty() {
            if self.writer.readers() == 0 {
                return Err(AbortReason::Cancelled);
            }
            let took = poll_fn(|cx| {
                let took = self.writer.poll_append(cx, bytes);
                if let (Poll::Pending, Some(leave)) = (&took, &mut *leave) {
                    leave.begin_wait();
                    has_left |= leave.poll(cx, reader, None).is_ready();
                }
                took
            });
            bytes = bytes.get(took.await?..).unwrap_or_default();
            if let Some(leave) = leave {
                leave.end_wait(reader);
            }
        }
        Ok(has_left)
    }
}

/// The head of a whole answer, or of the part that `content_range` names. It is made from `head`,
/// which may describe the other one.
pub(crate) fn head_of(mut head: ResponseHead, content_range: Option<ContentRange>) -> StoredHead {
    head.fields.remove(FieldName::ContentRange);
    match content_range {
        Some(part) => {
            head.set_line(Version::Http11, 206, b"Partial Content");
            let mut value = Vec::with_capacity(32);
            part.write(&mut value);
            head.fields.push(FieldName::ContentRange, &value);
        }
        None => head.set_line(Version::Http11, 200, b"OK"),
    }
    StoredHead::from_response(&head, |_, _| false)
}

/// The range that the client wants of an answer that arrives whole and is stored. Only such an
/// answer is cut: if it is not stored, the client's next range may come from a different answer, so
/// it gets the answer as the server sent it.
pub(crate) fn cut(
    core: &Rc<Core>,
    request: &Rc<Request>,
    head: &FlowHead,
    mut reader: FlowReader,
) -> Result<Assembly, FlowReader> {
    let wanted = head.info.body_bytes.filter(|_| reader.position() == 0).and_then(|body_bytes| {
        let ranges = wanted_ranges(request, &head.head, head.info.times?.date, body_bytes)?;
        match ranges.as_slice() {
            [one] => Some((*one, body_bytes)),
            _ => None,
        }
    });
    let Some((one, body_bytes)) = wanted else { return Err(reader) };
    let part = ContentRange { range: Some(one), complete_bytes: Some(body_bytes) };
    reader.advance(one.first);
    let leave = Leave::new(core, request, head, &reader);
    Ok(Assembly {
        head: head_of(head.head.to_response_head(), Some(part)),
        times: head.info.times,
        key: head.info.key,
        disk: Vec::new(),
        sources: vec![Source::Flow(reader, one.first..one.last + 1, leave)],
    })
}

/// Several ranges of one answer as `multipart/byteranges` (RFC 9110 14.6). `sources_of` returns the
/// sources of one range; it is called for each range in order.
pub(crate) fn multipart(
    mut head: ResponseHead,
    ranges: &[ByteRange],
    complete_bytes: u64,
    mut sources_of: impl FnMut(Range<u64>) -> Vec<Source>,
) -> (StoredHead, Vec<Source>) {
    let boundary = format!("{:016x}{:016x}", access::random(), access::random());
    let content_type = head.fields.get(FieldName::ContentType).map(<[u8]>::to_vec);
    let mut sources = Vec::with_capacity(2 * ranges.len() + 1);
    for one in ranges {
        // The fields of a part are those of MIME (RFC 2046 5.1), whatever the version of HTTP.
        let mut front = format!("\r\n--{boundary}\r\n").into_bytes();
        if let Some(value) = &content_type {
            front.extend_from_slice(&[b"Content-Type: ", value.as_slice(), b"\r\n"].concat());
        }
        front.extend_from_slice(b"Content-Range: ");
        ContentRange { range: Some(*one), complete_bytes: Some(complete_bytes) }.write(&mut front);
        front.extend_from_slice(b"\r\n\r\n");
        sources.push(Source::Made(front));
        sources.extend(sources_of(one.first..one.last + 1));
    }
    sources.push(Source::Made(format!("\r\n--{boundary}--\r\n").into_bytes()));
    head.set_line(Version::Http11, 206, b"Partial Content");
    head.fields.remove(FieldName::ContentType);
    head.fields.remove(FieldName::ContentRange);
    let media_type = format!("multipart/byteranges; boundary={boundary}");
    head.fields.push(FieldName::ContentType, media_type.as_bytes());
    (StoredHead::from_response(&head, |_, _| false), sources)
}

/// The answer to a request for several ranges of an object in memory; `None` for all other
/// requests.
pub(crate) fn of_object(request: &Request, object: &Arc<Object>) -> Option<Assembly> {
    let complete_bytes = object.body_bytes();
    let ranges = several_ranges(request, &object.head, object.times.date, complete_bytes)?;
    let sources_of = |range| vec![Source::Memory(Arc::clone(object), range)];
    let (head, sources) =
        multipart(object.head.to_response_head(), &ranges, complete_bytes, sources_of);
    Some(Assembly { head, times: Some(object.times), key: object.key, disk: Vec::new(), sources })
}

/// The answer with these ranges of an object on disk.
pub(crate) fn of_disk(hit: DiskHit, ranges: &[ByteRange]) -> Assembly {
    let complete_bytes = hit.body_bytes().unwrap_or(0);
    let received = hit.head.to_response_head();
    let (head, sources) =
        multipart(received, ranges, complete_bytes, |range| vec![Source::Disk(0, range)]);
    Assembly { head, times: Some(hit.times), key: hit.key, disk: vec![hit], sources }
}
