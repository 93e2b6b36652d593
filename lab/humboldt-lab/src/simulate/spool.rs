//! Requests in a temporary file without a name, for uses that need the whole trace first: shares of
//! its bytes, and the optimum.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

use super::trace::Request;

/// Requests that are written or read at once.
pub(super) const BATCH: usize = 1 << 16;

/// Most requests that are kept.
const REQUESTS_MAX: u64 = u32::MAX as u64 - 1;

/// Most different objects: about 40 bytes of memory each.
const OBJECTS_MAX: usize = 100_000_000;

/// No next request.
pub(super) const NEVER: u32 = u32::MAX;

/// Bytes of a record: object and size.
const RECORD_BYTES: usize = 8;

/// Bytes of a record of the second file: the number of the next request for the object.
const NEXT_BYTES: usize = 4;

/// Why requests could not be kept.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpoolError {
    #[error(
        "temporary file in {dir}: {source} (TMPDIR chooses another place; --no-optimum needs none)"
    )]
    File { dir: String, source: io::Error },
    #[error("the trace has more than {0} requests: use --requests-max")]
    Requests(u64),
    #[error("the trace has more than {0} different objects: use --requests-max")]
    Objects(usize),
}

/// One request with its number in the trace implied.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Objects are numbered as they come.
    pub(super) object: u32,
    pub(super) bytes: u32,
    /// The number of the next request for it, or [`NEVER`].
    pub(super) next: u32,
}

/// The facts about a trace.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) requests: u64,
    pub(super) objects: u64,
    /// Of all requests.
    pub(super) bytes: u64,
    /// Of all different objects, with the size that each has first.
    pub(super) distinct_bytes: u64,
    pub(super) same_sizes: bool,
}

/// A trace while it is written down.
pub(super) struct Spool {
    file: File,
    numbers: HashMap<u64, u32>,
    facts: Facts,
    first_bytes: Option<u32>,
    buffer: Vec<u8>,
}

/// A trace that is written down.
pub(super) struct Kept {
    file: File,
    nexts: File,
    pub(super) facts: Facts,
}

impl Spool {
    pub(super) fn new() -> Result<Self, SpoolError> {
        Ok(Self {
            file: nameless_file()?,
            numbers: HashMap::new(),
            facts: Facts { same_sizes: true, ..Facts::default() },
            first_bytes: None,
            buffer: Vec::with_capacity(BATCH * RECORD_BYTES),
        })
    }

    pub(super) fn push(&mut self, request: Request) -> Result<(), SpoolError> {
        if self.facts.requests == REQUESTS_MAX {
            return Err(SpoolError::Requests(REQUESTS_MAX));
        }
        let next_number = self.numbers.len();
        let object = *self.numbers.entry(request.id).or_insert(next_number as u32);
        self.facts.requests += 1;
        self.facts.bytes += u64::from(request.bytes);
        self.facts.same_sizes &= *self.first_bytes.get_or_insert(request.bytes) == request.bytes;
        if object as usize == next_number {
            if next_number == OBJECTS_MAX {
                return Err(SpoolError::Objects(OBJECTS_MAX));
            }
            self.facts.distinct_bytes += u64::from(request.bytes);
        }
        self.buffer.extend(object.to_le_bytes());
        self.buffer.extend(request.bytes.to_le_bytes());
        if self.buffer.len() == BATCH * RECORD_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), SpoolError> {
        let end = self.facts.requests * RECORD_BYTES as u64;
        let result = self.file.write_all_at(&self.buffer, end - self.buffer.len() as u64);
        self.buffer.clear();
        result.map_err(of_file)
    }

    /// Looks ahead: through the file from its end to its beginning.
    pub(super) fn finish(mut self) -> Result<Kept, SpoolError> {
        self.flush()?;
        let facts = Facts { objects: self.numbers.len() as u64, ..self.facts };
        self.numbers = HashMap::new();
        let nexts = nameless_file()?;
        let mut upcoming = vec![NEVER; facts.objects as usize];
        let (mut records, mut found) = (Vec::new(), Vec::new());
        for batch in (0..facts.requests.div_ceil(BATCH as u64)).rev() {
            let start = batch * BATCH as u64;
            let count = (facts.requests - start).min(BATCH as u64) as usize;
            records.resize(count * RECORD_BYTES, 0);
            self.file.read_exact_at(&mut records, start * RECORD_BYTES as u64).map_err(of_file)?;
            found.clear();
            found.resize(count * NEXT_BYTES, 0);
            for (index, (record, next)) in records
                .chunks_exact(RECORD_BYTES)
                .zip(found.chunks_exact_mut(NEXT_BYTES))
                .enumerate()
                .rev()
            {
                let Some(upcoming) = upcoming.get_mut(word(record, 0) as usize) else { continue };
                next.copy_from_slice(&upcoming.to_le_bytes());
                *upcoming = (start + index as u64) as u32;
            }
            nexts.write_all_at(&found, start * NEXT_BYTES as u64).map_err(of_file)?;
        }
        Ok(Kept { file: self.file, nexts, facts })
    }
}

impl Kept {
    /// Calls `see` with all requests, in batches, and the number of the first of each, until it
    /// asks to stop.
    pub(super) fn for_each(
        &self,
        mut see: impl FnMut(u64, &[Step]) -> bool,
    ) -> Result<(), SpoolError> {
        let (mut records, mut nexts, mut steps) =
            (Vec::new(), Vec::new(), Vec::with_capacity(BATCH));
        for start in (0..self.facts.requests).step_by(BATCH) {
            let count = (self.facts.requests - start).min(BATCH as u64) as usize;
            records.resize(count * RECORD_BYTES, 0);
            nexts.resize(count * NEXT_BYTES, 0);
            self.file.read_exact_at(&mut records, start * RECORD_BYTES as u64).map_err(of_file)?;
            self.nexts.read_exact_at(&mut nexts, start * NEXT_BYTES as u64).map_err(of_file)?;
            steps.clear();
            let pairs = records.chunks_exact(RECORD_BYTES).zip(nexts.chunks_exact(NEXT_BYTES));
            steps.extend(pairs.map(|(record, next)| Step {
                object: word(record, 0),
                bytes: word(record, 4),
                next: word(next, 0),
            }));
            if !see(start, &steps) {
                break;
            }
        }
        Ok(())
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.iter_mut().zip(bytes.iter().skip(at)).for_each(|(to, from)| *to = *from);
    u32::from_le_bytes(word)
}

fn of_file(source: io::Error) -> SpoolError {
    SpoolError::File { dir: std::env::temp_dir().display().to_string(), source }
}

/// It is gone when the program ends, however it ends.
fn nameless_file() -> Result<File, SpoolError> {
    let dir = std::env::temp_dir();
    for attempt in 0..100 {
        let moment = humboldt_lab_wire::unix_us();
        let path = dir.join(format!("humboldt-lab-{}-{moment}-{attempt}", std::process::id()));
        match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
            Ok(file) => return std::fs::remove_file(&path).map(|()| file).map_err(of_file),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(of_file(error)),
        }
    }
    Err(of_file(io::ErrorKind::AlreadyExists.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_knows_the_next_one_for_its_object() {
        let mut spool = Spool::new().expect("a temporary file");
        let total = 3 * BATCH as u64 + 17;
        let ids = |number: u64| (number * number + 7) % 1000;
        for number in 0..total {
            spool.push(Request { id: ids(number), bytes: 1 + ids(number) as u32 }).expect("room");
        }
        let kept = spool.finish().expect("readable");
        assert_eq!(kept.facts.requests, total);
        assert!(!kept.facts.same_sizes);
        let mut expected: HashMap<u32, u64> = HashMap::new();
        let mut seen = 0;
        kept.for_each(|start, steps| {
            assert_eq!(start, seen);
            for step in steps {
                let due = expected.insert(step.object, u64::from(step.next));
                assert!(due.is_none_or(|due| due == seen), "request {seen}");
                assert_eq!(u64::from(step.bytes), 1 + ids(seen));
                seen += 1;
            }
            true
        })
        .expect("readable");
        assert_eq!((seen, expected.len() as u64), (total, kept.facts.objects));
        assert!(expected.values().all(|next| *next == u64::from(NEVER)));
    }

    #[test]
    fn an_empty_trace_is_no_trouble() {
        let kept = Spool::new().and_then(Spool::finish).expect("possible");
        assert_eq!(kept.facts.objects, 0);
        kept.for_each(|_, _| panic!("nothing to see")).expect("nothing to read");
    }
}
