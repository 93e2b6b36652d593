//! Both ways to the device, through one set of tests.

use super::*;
use crate::battery::run;

fn scratch(io: IoChoice, direct: bool) -> (tempfile::TempDir, Arc<dyn BlockFile>) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("file");
    let options = OpenBlock { path: &path, io, direct, threads: 4, create: true, read_only: false };
    (dir, open(&options).expect("opened"))
}

#[test]
fn data_comes_back() {
    for direct in [false, true] {
        let (_dir, file) = scratch(IoChoice::Threads, direct);
        let mut data = Buffer::new(16384);
        data.fill(7);
        let (_, result) = run(file.write_owned(4096, data));
        result.expect("written");
        let (data, result) = run(file.read(0, Buffer::new(32768)));
        assert_eq!(result.expect("read"), 20480);
        assert!(data[..4096].iter().all(|b| *b == 0) && data[4096..20480].iter().all(|b| *b == 7));
        assert!(file.wait_idle(Duration::from_secs(5)));
    }
}
