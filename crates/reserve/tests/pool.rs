//! All threads take their memory from one pool. In a file of its own: it is about a whole process.
#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::hint::black_box;
use std::sync::Barrier;

use statelens_reserve::Reserve;

#[global_allocator]
static MEMORY: Reserve = Reserve::new(|| ());

/// Pools beside the first: each has 64 MiB of addresses, most of which nobody may read yet.
fn further_pools() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let pool = |line: &&str| {
        let (range, rest) = line.split_once(' ').unwrap();
        let (from, to) = range.split_once('-').unwrap();
        let at = |text| u64::from_str_radix(text, 16).unwrap();
        rest.starts_with("---p") && (32 << 20..=64 << 20).contains(&(at(to) - at(from)))
    };
    maps.lines().filter(pool).count()
}

#[test]
fn threads_share_what_there_is() {
    MEMORY.share();
    let before = further_pools();
    let all = Barrier::new(6);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let held = black_box(vec![1u8; 1000]);
                all.wait();
                drop(held);
            });
        }
    });
    assert_eq!(further_pools(), before);
}
