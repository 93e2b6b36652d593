//! Measures reads of 13 KiB through the ways that block files have, beside each other:
//!
//! ```text
//! cargo run --release -p humboldt-schemes --example block_io -- /path/to/a/scratch/directory
//! ```
//!
//! CPU time is that of the whole process, threads included; work that the kernel does in threads of
//! its own is not in it. The rows are repeated in turns, and the medians printed, so that a
//! disturbance does not hit one row alone.

#![allow(clippy::print_stdout, reason = "the table is what it is for")]

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use humboldt_schemes::Io;
use humboldt_schemes::block_example::Subject;
use humboldt_sys::aligned::{Buffer, POOLED_BYTES_MAX};
use rustix::fs::{Advice, fadvise};
use tokio::runtime::Runtime;
use tokio::task::{LocalSet, spawn_local};

/// Size of the file that is read.
const FILE_BYTES: u64 = 2 << 30;
/// Bytes of one read: an object of 13 KiB with its header, in sectors.
const READ_BYTES: usize = 13 * 1024 + 512;
/// Reads start at multiples of this.
const STEP_BYTES: u64 = 16 * 1024;
/// Reads in one sample.
const READS: u64 = 8000;
/// Samples of each row.
const ROUNDS: usize = 5;

/// One row of the table.
struct Way {
    name: &'static str,
    io: Io,
    direct: bool,
    warm: bool,
    /// Buffers that are not registered with the kernel.
    unregistered: bool,
    now: bool,
}

const WAY: Way =
    Way { name: "", io: Io::Uring, direct: true, warm: false, unregistered: false, now: false };

const WAYS: &[Way] = &[
    Way { name: "uring, direct, registered buffers", ..WAY },
    Way { name: "uring, direct, other buffers", unregistered: true, ..WAY },
    Way { name: "threads, direct", io: Io::Threads, ..WAY },
    Way { name: "uring, page cache cold", direct: false, ..WAY },
    Way { name: "threads, page cache cold", io: Io::Threads, direct: false, ..WAY },
    Way { name: "uring, page cache warm", direct: false, warm: true, ..WAY },
    Way { name: "threads, page cache warm", io: Io::Threads, direct: false, warm: true, ..WAY },
    Way { name: "read_now, page cache warm", direct: false, warm: true, now: true, ..WAY },
];

/// CPU time and wall time of one read.
type Sample = (Duration, Duration);

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args().nth(1).ok_or("say in which directory the scratch file may be")?;
    let path = Path::new(&dir).join("block_io.scratch");
    write_file(&path)?;
    let measured = measure(&path);
    fs::remove_file(&path)?;
    for (depth, rows) in measured? {
        println!(
            "\nreads of {READ_BYTES} bytes, {depth} at a time | CPU µs/read | reads/s\n--- | --- | ---"
        );
        for (way, mut samples) in WAYS.iter().zip(rows) {
            samples.sort_unstable();
            let (cpu, wall) = samples[samples.len() / 2];
            println!(
                "{} | {:.1} | {:.0}",
                way.name,
                cpu.as_secs_f64() * 1e6,
                1.0 / wall.as_secs_f64()
            );
        }
    }
    Ok(())
}

fn write_file(path: &Path) -> io::Result<()> {
    let mut file = File::create(path)?;
    let block: Vec<u8> = (0..1 << 20).map(|at: u32| (at / 512) as u8).collect();
    for _ in 0..FILE_BYTES >> 20 {
        file.write_all(&block)?;
    }
    file.sync_all()
}

type Table = Vec<(usize, Vec<Vec<Sample>>)>;

fn measure(path: &Path) -> Result<Table, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut table = Vec::new();
    for depth in [1, 32] {
        let mut rows = vec![Vec::new(); WAYS.len()];
        for round in 0..ROUNDS {
            for (way, row) in WAYS.iter().zip(&mut rows) {
                row.push(sample(&runtime, path, way, depth, round as u64)?);
            }
        }
        table.push((depth, rows));
    }
    Ok(table)
}

fn sample(
    runtime: &Runtime,
    path: &Path,
    way: &Way,
    depth: usize,
    seed: u64,
) -> Result<Sample, Box<dyn Error>> {
    let subject = Rc::new(Subject::open(path, way.io, way.direct)?);
    // What is warm is a part that fits into memory with ease.
    let span = if way.warm { 64 << 20 } else { FILE_BYTES };
    let file = File::open(path)?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    fadvise(&file, 0, None, Advice::Random)?;
    if way.warm {
        let mut sink = io::sink();
        io::copy(&mut io::Read::take(&file, span), &mut sink)?;
    }
    // The first block of an arena is the part that is registered.
    let registered = way.unregistered.then(|| Buffer::new(POOLED_BYTES_MAX));
    let tasks = LocalSet::new();
    // The first operations make the ring and the threads.
    tasks.block_on(runtime, reads(&subject, way, depth, span, seed, 200))?;
    let (cpu, start) = (cpu_time(), Instant::now());
    tasks.block_on(runtime, reads(&subject, way, depth, span, seed + 1000, READS))?;
    let (cpu, wall) = (cpu_time().saturating_sub(cpu), start.elapsed());
    drop(registered);
    Ok((cpu / READS as u32, wall / READS as u32))
}

/// `depth` readers that share `count` reads.
async fn reads(
    subject: &Rc<Subject>,
    way: &Way,
    depth: usize,
    span: u64,
    seed: u64,
    count: u64,
) -> io::Result<()> {
    let share = count / depth as u64;
    let readers: Vec<_> = (0..depth as u64)
        .map(|reader| {
            spawn_local(read_some(Rc::clone(subject), way.now, span, seed * 1000 + reader, share))
        })
        .collect();
    for reader in readers {
        reader.await??;
    }
    Ok(())
}

/// One reader: reads at random places, one after the other, and looks whether they are the right
/// ones.
async fn read_some(
    subject: Rc<Subject>,
    now: bool,
    span: u64,
    mut random: u64,
    count: u64,
) -> io::Result<()> {
    for _ in 0..count {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let offset = (random >> 20) % (span / STEP_BYTES - 1) * STEP_BYTES;
        let mut buffer = Buffer::new(READ_BYTES);
        let at_once = if now { subject.read_now(offset, &mut buffer) } else { None };
        let read = match at_once {
            Some(read) => read?,
            None => {
                let (back, result) = subject.read(offset, buffer).await;
                buffer = back;
                result?
            }
        };
        let expected = (offset % (1 << 20) / 512 + 1) as u8;
        assert_eq!((read, buffer[512]), (READ_BYTES, expected), "a wrong byte");
    }
    Ok(())
}

/// CPU time of this process so far.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}
