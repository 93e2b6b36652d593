//! Memory for each object besides the common index.

use humboldt_store::Key;
use humboldt_store::index::IndexKey;

use crate::rock::slots::{Run, Slots, Tag};

/// The index has 43 bytes at most (`cargo run --release -p humboldt-store --example index_memory`);
/// together that is below 48.
#[test]
fn objects_of_one_slot_need_five_bytes_besides_the_index() {
    for objects in [100_000_u32, 230_000, 458_000, 460_000] {
        // Used to the high water mark, and everything else holds an evicted object.
        let total = objects + objects / 19;
        let mut slots = Slots::taken(total);
        for slot in objects..total {
            slots.give_back(&[Run { start: slot, len: 1 }]);
            slots.give_back_stale(
                slot,
                Tag::from(IndexKey::from(&Key::primary(&slot.to_le_bytes()))),
            );
        }
        let bytes = slots.memory_bytes() as f64 / f64::from(objects);
        assert!((4.3..5.2).contains(&bytes), "{bytes} bytes for each of {objects}");
    }
}
