//! Checkpoints, whole and damaged.

use std::io;

use humboldt_base::xxh3::xxh3_64;

use super::*;

const STAMP: u64 = 0xABCD;
const OBJECTS_MAX: u64 = 100_000;

/// Enough that some shards have grown and others have not.
const SOME: usize = 14_500;

/// Enough that all shards have grown.
const MANY: usize = 25_000;

fn filled(objects: usize) -> (RingIndex, Vec<Hash64>) {
    let index = RingIndex::new(100, OBJECTS_MAX);
    let random = &mut Random(8);
    let hashes: Vec<Hash64> = (0..objects).map(|_| random.hash()).collect();
    for (i, hash) in hashes.iter().enumerate() {
        index.insert(*hash, entry(i as u64));
    }
    (index, hashes)
}

fn images(index: &RingIndex) -> Vec<Vec<u8>> {
    (0..index.shards())
        .map(|shard| {
            let mut image = Vec::new();
            index.write_shard(shard, STAMP, &mut image);
            image
        })
        .collect()
}

fn load(images: &[Vec<u8>]) -> Result<RingIndex, MalformedIndex> {
    let mut images = images.iter();
    RingIndex::from_shards(STAMP, OBJECTS_MAX, || Ok(images.next().cloned()))
}

/// Loads `images` with another one in the place of `shard`; returns the refusal.
fn refused(images: &[Vec<u8>], shard: usize, image: Vec<u8>) -> Option<String> {
    let mut images = images.to_vec();
    images[shard] = image;
    load(&images).err().map(|error| error.to_string())
}

#[test]
fn an_index_is_read_as_it_was_written_and_lives_on() {
    let (index, hashes) = filled(SOME);
    let doublings: Vec<u8> = index.shards.iter().map(|shard| shard.0.read().doublings).collect();
    assert!(doublings.iter().min() < doublings.iter().max(), "{doublings:?}");
    let written = images(&index);
    assert!(
        written
            .iter()
            .all(|image| image_bytes(&image[..IMAGE_PREFIX_BYTES]) == Some(image.len() as u64))
    );
    let read = load(&written).expect("an index");
    assert_eq!(
        (read.len(), read.occupancy(), read.shards()),
        (index.len(), index.occupancy(), index.shards())
    );
    assert_eq!(read.shard_slots_wanted, index.shard_slots_wanted);
    assert!(
        hashes.iter().all(|hash| read.get(*hash) == index.get(*hash) && read.get(*hash).is_some())
    );
    assert_eq!(images(&read), written);
    let random = &mut Random(9);
    for i in 0..30_000 {
        let (hash, entry) = (random.hash(), entry(i));
        assert_eq!(read.insert(hash, entry), index.insert(hash, entry));
    }
    assert_eq!(images(&read), images(&index));
}

#[test]
fn an_empty_index_takes_a_few_bytes_a_shard() {
    let index = RingIndex::new(1_000_000, 1_000_000);
    let written = images(&index);
    assert!(written.iter().all(|image| image.len() == 72));
    let read = load(&written).expect("an index");
    assert_eq!((read.len(), read.memory_bytes() < 64 * 100), (0, true));
    assert_eq!(read.insert(Hash64(5), entry(6)), nothing());
    assert_eq!(read.get(Hash64(5)), Some(entry(6)));
    // Emptied is as good as new.
    read.remove(Hash64(5));
    assert_eq!(images(&read), written);
}

#[test]
fn images_are_appended_and_only_of_shards_that_exist() {
    let (index, _) = filled(SOME);
    let all = images(&index);
    let mut out = b"before".to_vec();
    index.write_shard(3, STAMP, &mut out);
    index.write_shard(index.shards(), STAMP, &mut out);
    assert_eq!(out, [&b"before"[..], &all[3]].concat());
}

#[test]
fn every_flipped_bit_and_every_cut_is_refused() {
    let (index, _) = filled(SOME);
    let images = images(&index);
    assert_eq!(refused(&images, 1, images[1].clone()), None);
    for bit in 0..images[0].len() * 8 {
        let mut damaged = images[0].clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(
            refused(&images[..1], 0, damaged).is_some_and(|why| why.starts_with("shard 0")),
            "bit {bit}"
        );
    }
    for len in 0..images[0].len() {
        assert!(
            refused(&images[..1], 0, images[0][..len].to_vec())
                .is_some_and(|e| e.starts_with("shard 0"))
        );
    }
    assert!(refused(&images, 0, [&images[0][..], &[0]].concat()).is_some());
}

#[test]
fn shards_that_do_not_belong_together_are_refused() {
    let (index, _) = filled(SOME);
    let images = images(&index);
    let last = images.len() - 1;
    assert!(refused(&images, 4, images[5].clone()).is_some());
    assert!(load(&[]).is_err() && load(&images[..last]).is_err() && load(&images[1..]).is_err());
    assert!(load(&[&images[..], &images[last..]].concat()).is_err());
    let mut other_stamp = Vec::new();
    index.write_shard(7, STAMP + 1, &mut other_stamp);
    assert!(refused(&images, 7, other_stamp).is_some());
    let (mut other_size, mut more_shards) = (Vec::new(), Vec::new());
    RingIndex::new(500_000, OBJECTS_MAX).write_shard(7, STAMP, &mut other_size);
    RingIndex::new(100_000_000, OBJECTS_MAX).write_shard(7, STAMP, &mut more_shards);
    assert!(
        refused(&images, 7, other_size).is_some() && refused(&images, 7, more_shards).is_some()
    );
    let mut calls = 0;
    let failing = RingIndex::from_shards(STAMP, OBJECTS_MAX, || {
        calls += 1;
        if calls < 3 {
            Ok(Some(images[calls - 1].clone()))
        } else {
            Err(io::Error::other("a bad sector"))
        }
    });
    let message = failing.err().map(|error| error.to_string());
    assert_eq!(message.as_deref(), Some("shard 2 of the index cannot be read: a bad sector"));
}

/// Changes the image of shard 0, and makes length and checksum right for it.
fn forged(image: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut image = image[..image.len() - 8].to_vec();
    change(&mut image);
    let len = image.len() as u64 + 8;
    image[8..16].copy_from_slice(&len.to_le_bytes());
    let checksum = xxh3_64(&image);
    image.extend(checksum.to_le_bytes());
    image
}

#[test]
fn numbers_that_contradict_each_other_are_refused_even_with_a_checksum() {
    let (index, _) = filled(MANY);
    let images = images(&index);
    let image = &images[0];
    assert_eq!(refused(&images, 0, forged(image, |_| ())), None);
    let objects = u64::from_le_bytes(*image[40..].first_chunk().expect("eight bytes"));
    let set = |at: usize, bytes: Vec<u8>| {
        refused(
            &images,
            0,
            forged(image, move |image| image[at..at + bytes.len()].copy_from_slice(&bytes)),
        )
    };
    let word = |word: u32| word.to_le_bytes().to_vec();
    let cases = [
        ("format", set(16, word(2))),
        ("number", set(20, word(64))),
        ("shards", set(24, word(96))),
        ("shards", set(24, word(32))),
        ("shards", set(24, word(8192))),
        ("base", set(28, word(0))),
        ("base", set(28, word(1 << 31))),
        ("buckets", set(32, word(0))),
        ("buckets", set(32, word(u32::MAX))),
        ("doublings", set(36, vec![0])),
        ("doublings", set(36, vec![7])),
        ("doublings", set(36, vec![200])),
        ("objects", set(40, (objects - 1).to_le_bytes().to_vec())),
        ("objects", set(40, u64::MAX.to_le_bytes().to_vec())),
        ("objects", set(40, (1_u64 << 61 | objects).to_le_bytes().to_vec())),
        ("mask", set(64, vec![image[64] ^ 1])),
        ("masks", set(64, vec![0; image.len() - 72])),
        ("short", refused(&images, 0, forged(image, |image| image.truncate(image.len() - 8)))),
        ("shorter than a header", refused(&images, 0, forged(image, |image| image.truncate(50)))),
        ("long", refused(&images, 0, forged(image, |image| image.push(0)))),
        ("empty slot", set(65, vec![0; 8])),
        ("tag of another bucket", set(65 + 6, vec![image[65 + 6] ^ 8])),
    ];
    for (what, refused) in cases {
        assert!(
            refused.as_deref().is_some_and(|why| why.starts_with("shard 0")),
            "{what}: {refused:?}"
        );
    }
    assert_eq!(image_bytes(&image[..15]), None);
    assert_eq!(image_bytes(&[&image[..8], &u64::MAX.to_le_bytes()].concat()), None);
    assert_eq!(image_bytes(&[&image[..8], &71_u64.to_le_bytes()].concat()), None);
}
