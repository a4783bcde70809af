//! An allocator without free memory of earlier work.

/// Sizes of blocks above 2 KiB, the largest first.
const LARGE_BYTES: [usize; 8] = [100_000, 50_000, 25_000, 12_000, 6_000, 4_000, 3_000, 2_500];

/// Free blocks that the allocator may have of one size.
const BLOCKS: usize = 64;

/// Takes all free blocks, so that the next ones come from fresh memory. Otherwise the instructions of an allocation
/// depend on what the process has freed before: those of a head on a new connection by 8 %.
pub(super) fn settle() {
    let small = (1..=128).rev().map(|units| units * 16);
    for bytes in LARGE_BYTES.into_iter().chain(small) {
        for _ in 0..BLOCKS {
            std::hint::black_box(Vec::<u8>::with_capacity(bytes)).leak();
        }
    }
    // And enough of it that the next blocks do not ask the kernel for more.
    drop(std::hint::black_box(Vec::<u8>::with_capacity(
        LARGE_BYTES[0],
    )));
}
