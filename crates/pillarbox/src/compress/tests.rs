use std::io::Write;

use proptest::prelude::{any, prop};
use proptest::{prop_assert, prop_assert_eq, proptest};
use serde_json::json;

use super::{DecompressError, THRESHOLD, ZSTD, compress, decompress, decompressed_size, is_compressed};
use crate::event::Event;
use crate::payload::Payload;

const MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();

fn bytes(content: Vec<u8>) -> Event {
    Event::new("shop", "orders").bytes(content, "application/x-shop")
}

fn repeated(len: usize) -> Vec<u8> {
    b"all work and no play "
        .iter()
        .copied()
        .cycle()
        .take(len)
        .collect()
}

/// A frame that says nothing of its size, as a producer that streams writes it.
fn streamed(content: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).expect("memory for an encoder");
    encoder.write_all(content).expect("a vector takes everything");
    encoder.finish().expect("a vector takes everything")
}

/// A frame of blocks that each say "128 KiB of zeros" in four bytes.
fn zeros(header: &[u8], blocks: usize) -> Vec<u8> {
    let mut frame = [&MAGIC[..], header].concat();
    for block in 1..=blocks {
        let is_last = u32::from(block == blocks);
        let block_header = (128 * 1024) << 3 | 1 << 1 | is_last;
        frame.extend_from_slice(&block_header.to_le_bytes()[..3]);
        frame.push(0);
    }
    frame
}

/// No size, a window of 128 KiB.
const UNSIZED: [u8; 2] = [0, 7 << 3];

#[test]
fn only_what_is_longer_than_the_threshold_is_compressed() {
    assert_eq!(compress(&bytes(repeated(1000)), 1000), None);
    let event = bytes(repeated(1001));
    let smaller = compress(&event, 1000).unwrap();
    assert!(is_compressed(&smaller) && !is_compressed(&event));
    assert_eq!(smaller.content_encoding.as_deref(), Some(ZSTD));
    assert_eq!(smaller.media_type(), "application/x-shop");
    assert_eq!(decompressed_size(smaller.payload.as_bytes()), Some(1001));
}

#[test]
fn what_is_encoded_already_or_does_not_shrink_stays_as_it_is() {
    let mut encoded = bytes(repeated(5000));
    encoded.content_encoding = Some("gzip".to_owned());
    assert_eq!(compress(&encoded, 0), None);

    let mut random = fastrand::Rng::with_seed(7);
    let noise: Vec<u8> = (0..5000).map(|_| random.u8(..)).collect();
    assert_eq!(compress(&bytes(noise), 0), None);
}

#[test]
fn json_stays_known_as_json_and_equal() {
    let value = json!({"lines": vec!["a line of an order"; 100_000]});
    let event = Event::new("shop", "orders").json(&value).unwrap();
    let smaller = compress(&event, THRESHOLD).unwrap();
    assert!(matches!(smaller.payload, Payload::Bytes(_)));
    assert_eq!(smaller.media_type(), "application/json");
    let content = decompress(smaller.payload.as_bytes(), usize::MAX).unwrap();
    assert_eq!(&content, event.payload.as_bytes());
}

#[test]
fn what_others_compressed_is_read_with_or_without_a_size_and_in_several_frames() {
    let content = repeated(300_000);
    let frame = streamed(&content);
    assert_eq!(decompressed_size(&frame), None);
    assert_eq!(decompress(&frame, 300_000).unwrap(), content);
    let twice = [&zstd::bulk::compress(&content, 1).unwrap()[..], &frame].concat();
    assert_eq!(decompress(&twice, 600_000).unwrap(), content.repeat(2));
    assert_eq!(
        decompressed_size(&twice),
        None,
        "the first speaks for itself only"
    );
}

#[test]
fn more_than_the_limit_is_refused() {
    let content = repeated(300_000);
    let refused = Err(DecompressError::TooLarge { limit: 299_999 });
    assert_eq!(
        decompress(&zstd::bulk::compress(&content, 3).unwrap(), 299_999),
        refused
    );
    assert_eq!(decompress(&streamed(&content), 299_999), refused);
}

#[test]
fn what_is_no_zstd_is_corrupt() {
    for body in [&b""[..], b"{}", b"\x1f\x8b\x08", &MAGIC] {
        assert!(matches!(decompress(body, 1000), Err(DecompressError::Corrupt(_))));
    }
}

#[test]
fn a_frame_that_lies_about_its_size_is_corrupt() {
    // A single segment of 128 KiB that says 256 KiB, in four bytes.
    let header = [&[0b1010_0000][..], &(256 * 1024_u32).to_le_bytes()].concat();
    assert!(matches!(
        decompress(&zeros(&header, 1), 1024 * 1024),
        Err(DecompressError::Corrupt(_))
    ));
    let honest = [&[0b1010_0000][..], &(128 * 1024_u32).to_le_bytes()].concat();
    assert_eq!(
        decompress(&zeros(&honest, 1), 1024 * 1024).unwrap(),
        vec![0; 128 * 1024]
    );
}

#[test]
fn a_frame_that_wants_more_memory_than_the_window_is_refused() {
    // A window of 128 MiB, of which nothing would be needed.
    assert!(matches!(
        decompress(&zeros(&[0, 17 << 3], 1), 1024 * 1024),
        Err(DecompressError::Corrupt(_))
    ));
    assert_eq!(
        decompress(&zeros(&UNSIZED, 1), 1024 * 1024).unwrap().len(),
        128 * 1024
    );
}

#[test]
fn a_bomb_is_refused_without_the_memory() {
    const GIB: usize = 1 << 30;
    let unsized_bomb = zeros(&UNSIZED, 8192);
    let sized_bomb = zeros(&[&[0b1010_0000][..], &(1_u32 << 30).to_le_bytes()].concat(), 8192);
    assert!(unsized_bomb.len() < 64 * 1024);
    let before = peak_memory();
    for bomb in [&unsized_bomb, &sized_bomb] {
        let limit = 16 * 1024 * 1024;
        assert_eq!(decompress(bomb, limit), Err(DecompressError::TooLarge { limit }));
    }
    // Other tests share the process; none of them needs anything near a bomb.
    assert!(peak_memory() - before < GIB / 2);
}

#[test]
fn sizes_around_the_threshold_come_back() {
    for len in THRESHOLD - 3..=THRESHOLD + 3 {
        let event = bytes(repeated(len));
        let smaller = compress(&event, THRESHOLD);
        assert_eq!(smaller.is_some(), len > THRESHOLD);
        if let Some(smaller) = smaller {
            let content = decompress(smaller.payload.as_bytes(), len).unwrap();
            assert_eq!(&content, event.payload.as_bytes());
        }
    }
}

/// The most memory that this process ever had, in bytes; `None` if the system does not say.
fn peak_memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok());
    kib.map_or(0, |kib: usize| kib * 1024)
}

proptest! {
    #[test]
    fn any_bytes_come_back(content in prop::collection::vec(any::<u8>(), 0..3000), copies in 1usize..5) {
        let content = content.repeat(copies);
        let frame = zstd::bulk::compress(&content, 3).unwrap();
        prop_assert_eq!(&decompress(&frame, content.len()).unwrap(), &content);
        prop_assert_eq!(&decompress(&streamed(&content), content.len()).unwrap(), &content);
        if let Some(smaller) = compress(&bytes(content.clone()), 100) {
            prop_assert!(content.len() > 100 && smaller.payload.len() * 10 <= content.len() * 9);
            prop_assert_eq!(&decompress(smaller.payload.as_bytes(), content.len()).unwrap(), &content);
        }
    }

    #[test]
    fn broken_frames_are_refused_or_stay_within_the_limit(
        len in 0usize..40_000,
        is_streamed in any::<bool>(),
        cut in any::<prop::sample::Index>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0u8..8), 0..4),
    ) {
        let content = repeated(len);
        let mut frame = if is_streamed { streamed(&content) } else { zstd::bulk::compress(&content, 3).unwrap() };
        for (at, bit) in flips {
            let at = at.index(frame.len());
            frame[at] ^= 1 << bit;
        }
        frame.truncate(cut.index(frame.len() + 1));
        let limit = 20_000;
        if let Ok(content) = decompress(&frame, limit) {
            prop_assert!(content.len() <= limit);
        }
    }

    #[test]
    fn a_frame_that_was_cut_is_corrupt(cut in any::<prop::sample::Index>(), is_streamed in any::<bool>()) {
        let content = repeated(10_000);
        let mut frame = if is_streamed { streamed(&content) } else { zstd::bulk::compress(&content, 3).unwrap() };
        frame.truncate(cut.index(frame.len()));
        prop_assert!(matches!(decompress(&frame, 10_000), Err(DecompressError::Corrupt(_))));
    }
}
