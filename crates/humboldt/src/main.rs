//! The `humboldt` program.
fn main() {}
