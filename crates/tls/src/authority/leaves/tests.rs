use std::sync::atomic::AtomicUsize;

use rustls::server::ResolvesServerCertUsingSni;

use super::*;
use crate::authority::LeafChanges;

fn side() -> ServerSide {
    let config = ServerConfig::builder_with_provider(Arc::new(
        rustls::crypto::aws_lc_rs::default_provider(),
    ));
    let config = config.with_safe_default_protocol_versions().expect("versions");
    let resolver = Arc::new(ResolvesServerCertUsingSni::new());
    ServerSide::of(config.with_no_client_auth().with_cert_resolver(resolver))
}

fn key(n: u8) -> Key {
    Key([n; 32])
}

/// Whether a certificate of these bytes was made for a key.
fn was_made(leaves: &Leaves, n: u8, bytes: usize) -> bool {
    leaves.get_or_make(key(n), || Ok((side(), bytes))).expect("a certificate").1
}

#[test]
fn certificates_nobody_asks_for_give_way_to_new_ones() {
    let one_bytes = 1000 + LEAF_BYTES;
    let leaves = Leaves::new(3 * one_bytes);
    for n in 0..3 {
        assert!(was_made(&leaves, n, 1000));
    }
    assert!(!was_made(&leaves, 0, 1000), "there is room for all");
    assert!(was_made(&leaves, 3, 1000));
    assert!(!was_made(&leaves, 0, 1000), "it was asked for");
    assert!(was_made(&leaves, 1, 1000), "it was not");
    // However many come, they stay within the bound, and none is forgotten in between.
    for n in 4..250 {
        was_made(&leaves, n, 1000 + usize::from(n) * 10);
        let table = leaves.table.lock();
        assert!(table.bytes <= 3 * one_bytes);
        assert_eq!(table.places.len(), table.order.len());
        assert_eq!(table.order.iter().map(|(_, bytes)| bytes).sum::<usize>(), table.bytes);
    }
    // One that is larger than everything is not kept, and takes no others' place for long.
    assert!(was_made(&leaves, 254, 4 * one_bytes) && was_made(&leaves, 254, 4 * one_bytes));
    assert!(leaves.table.lock().bytes <= 3 * one_bytes);
}

#[test]
fn without_memory_each_certificate_is_made_again() {
    let leaves = Leaves::new(0);
    assert!(was_made(&leaves, 0, 1000) && was_made(&leaves, 0, 1000));
    assert!(leaves.table.lock().places.is_empty());
}

#[test]
fn cores_that_want_the_same_one_make_it_once() {
    let (leaves, made) = (Leaves::new(1 << 20), AtomicUsize::new(0));
    let start = std::sync::Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..50 {
                    start.wait();
                    let make = || {
                        made.fetch_add(1, Relaxed);
                        Ok((side(), 1000))
                    };
                    leaves.get_or_make(key(n), make).expect("a certificate");
                }
            });
        }
    });
    assert_eq!(made.load(Relaxed), 50);
}

#[test]
fn one_that_cannot_be_made_leaves_nothing_behind() {
    let leaves = Leaves::new(1 << 20);
    let fault = leaves.get_or_make(key(0), || Err(LeafFault::Unreadable)).map(drop);
    assert_eq!(fault, Err(LeafFault::Unreadable));
    assert!(leaves.table.lock().places.is_empty());
    assert!(was_made(&leaves, 0, 1000));
}

#[test]
fn everything_that_makes_a_certificate_differ_is_in_its_key() {
    let names = ["a.test", "b.test"];
    let plain = LeafWish { names: &names, ..LeafWish::default() };
    let common_name = Some("c.test");
    let changes = LeafChanges { common_name, ..LeafChanges::default() };
    let wishes = [
        plain,
        LeafWish { names: &["a.test"], ..plain },
        LeafWish { names: &["a.testb.test"], ..plain },
        LeafWish { names: &["b.test", "a.test"], ..plain },
        LeafWish { sign: SignAs::Untrusted, ..plain },
        LeafWish { sign: SignAs::SelfSigned, ..plain },
        LeafWish { mimic: Some(b"der"), ..plain },
        LeafWish { mimic: Some(b"other"), ..plain },
        LeafWish { changes, ..plain },
        LeafWish {
            changes: LeafChanges { common_name: Some(""), ..LeafChanges::default() },
            ..plain
        },
        LeafWish {
            changes: LeafChanges { ends_with_authority: true, ..LeafChanges::default() },
            ..plain
        },
        LeafWish {
            changes: LeafChanges { begins_with_authority: true, ..LeafChanges::default() },
            ..plain
        },
    ];
    let keys: std::collections::HashSet<Key> = wishes.iter().map(|wish| Key::of(wish, 0)).collect();
    assert_eq!(keys.len(), wishes.len());
    assert_eq!(Key::of(&plain, 0), Key::of(&plain, 29 * 86_400));
    assert_ne!(Key::of(&plain, 0), Key::of(&plain, 30 * 86_400));
    // One that is made after a server's has that one's time.
    let mimic = LeafWish { mimic: Some(b"der"), ..plain };
    assert_eq!(Key::of(&mimic, 0), Key::of(&mimic, 300 * 86_400));
}
