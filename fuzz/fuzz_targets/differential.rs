//! The codec and hyper's read the same, or differ for a known reason. The first byte chooses what
//! the others are and in which pieces they come; all else is the code of
//! `crates/http/tests/differential.rs`.
#![no_main]

#[path = "../../crates/http/tests/differential/check.rs"]
mod check;
#[path = "../../crates/http/tests/differential/known.rs"]
mod known;
#[path = "../../crates/http/tests/differential/ours.rs"]
mod ours;
#[path = "../../crates/http/tests/differential/reading.rs"]
mod reading;
#[path = "../../crates/http/tests/differential/theirs.rs"]
mod theirs;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&selector, bytes)) = input.split_first() else { return };
    let verdict = check::check(selector, bytes);
    assert!(known::is_known(&verdict), "{verdict:?}");
});
