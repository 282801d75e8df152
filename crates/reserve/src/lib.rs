//! An allocator with a reserve: when the system refuses memory, the program is told and goes on with
//! what was set aside, until it can stop in good order.
//!
//! Memory whose size a file claims is asked for, and its lack is an error. But thousands of places make
//! small texts and lists that grow with a checkpoint, in libraries too, and Rust aborts where one of them
//! fails. No place can ask for all of them, so the reserve stands in until the next one that asks.
#![doc = include_str!("../README.md")]
#![allow(unsafe_code, reason = "`GlobalAlloc` is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::{black_box, spin_loop};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The most that is set aside, in bytes: what a list of a million keys takes when it grows, and some
/// thousands of texts.
const MOST: usize = 64 << 20;
/// The least that is worth it, in bytes.
const LEAST: usize = 128 << 10;
/// What must be there for a reserve, in sizes of it.
const SHARE: usize = 2;

/// The system's allocator, with a reserve.
///
/// Give it as `#[global_allocator]`, and call [`Reserve::set_aside`] when the program begins.
#[derive(Debug)]
pub struct Reserve {
    kept: AtomicPtr<u8>,
    size: AtomicUsize,
    short: fn(),
}

impl Reserve {
    /// `short` is called when the system refuses memory and the reserve is given up. It must not
    /// allocate; setting a flag is all that it should do.
    pub const fn new(short: fn()) -> Self {
        Self { kept: AtomicPtr::new(ptr::null_mut()), size: AtomicUsize::new(0), short }
    }

    /// Sets memory aside, up to 64 MiB and half of what the system would give. It is never touched,
    /// so it takes addresses and no memory. Where there is next to nothing, nothing is set aside.
    pub fn set_aside(&self) {
        let mut size = MOST;
        while size >= LEAST && self.size.load(Ordering::Acquire) == 0 {
            if self.has(size * SHARE) {
                self.keep(size);
            }
            size /= 2;
        }
    }

    /// Has all threads take their memory from one pool; to be called before there are threads.
    ///
    /// The allocator of glibc makes a pool for each of the first threads, up to eight for each core, and what is
    /// freed in one isn't there for another: a program that starts threads for one tensor after the other
    /// holds far more than it uses. Where the system has another allocator, nothing changes.
    pub fn share(&self) {
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        {
            use std::ffi::c_int;
            const M_ARENA_MAX: c_int = -8;
            unsafe extern "C" {
                fn mallopt(what: c_int, value: c_int) -> c_int;
            }
            // SAFETY: it sets a number of the allocator, under the lock of its first pool. One that it doesn't know
            // is ignored.
            unsafe {
                mallopt(M_ARENA_MAX, 1);
            }
        }
    }

    /// Whether the system would give so many bytes at once.
    fn has(&self, bytes: usize) -> bool {
        let Ok(layout) = layout(bytes) else { return false };
        // SAFETY: the size is not zero, and what was given is given back once, as it was asked for.
        unsafe {
            // Seen, or the compiler takes it for given and leaves out the question.
            let start = black_box(System.alloc(layout));
            if start.is_null() {
                return false;
            }
            System.dealloc(start, layout);
        }
        true
    }

    fn keep(&self, size: usize) {
        let Ok(layout) = layout(size) else { return };
        // SAFETY: the size is not zero.
        let start = unsafe { System.alloc(layout) };
        if !start.is_null() {
            self.kept.store(start, Ordering::Release);
            self.size.store(size, Ordering::Release);
        }
    }

    /// Asks the system for memory, and once more after the reserve was given back to it.
    fn ask(&self, size: usize, from: impl Fn() -> *mut u8) -> *mut u8 {
        let start = from();
        match start.is_null() && self.give_up(size) {
            true => from(),
            false => start,
        }
    }

    /// Gives the reserve back to the system, unless that is too little; whether to ask once more.
    fn give_up(&self, wanted: usize) -> bool {
        let size = self.size.load(Ordering::Acquire);
        if size == 0 {
            // Another thread may have done so since the refusal.
            return true;
        }
        // Far more than that was a claim of a file: whoever asks for so much can bear a refusal.
        if wanted > size {
            return false;
        }
        let start = self.kept.swap(ptr::null_mut(), Ordering::AcqRel);
        if start.is_null() {
            // Another thread is about to.
            while self.size.load(Ordering::Acquire) > 0 {
                spin_loop();
            }
            return true;
        }
        (self.short)();
        if let Ok(layout) = layout(size) {
            // SAFETY: it was allocated with this layout by the same allocator, and whoever swapped it out
            // is the only one that has it.
            unsafe { System.dealloc(start, layout) };
        }
        self.size.store(0, Ordering::Release);
        true
    }
}

fn layout(size: usize) -> Result<Layout, std::alloc::LayoutError> {
    Layout::from_size_align(size, align_of::<usize>())
}

// SAFETY: all memory comes from `System`, with the layouts that it is asked for.
unsafe impl GlobalAlloc for Reserve {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which is that of `System`.
        self.ask(layout.size(), || unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        self.ask(layout.size(), || unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above; where it fails, what was there stays as it was, so it can be asked again.
        self.ask(size, || unsafe { System.realloc(start, layout, size) })
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(start, layout) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    static SHORT: AtomicBool = AtomicBool::new(false);

    #[test]
    fn a_refusal_is_told_once_and_the_reserve_is_given_up() {
        let reserve = Reserve::new(|| SHORT.store(true, Ordering::Relaxed));
        reserve.set_aside();
        assert_eq!(reserve.size.load(Ordering::Relaxed), MOST);
        assert!(!reserve.give_up(MOST + 1), "it would not help");
        assert!(!SHORT.load(Ordering::Relaxed));
        // As several threads may, of which one gives it and the others wait for that.
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| reserve.give_up(MOST));
            }
        });
        assert!(SHORT.load(Ordering::Relaxed) && reserve.kept.load(Ordering::Relaxed).is_null());
        assert_eq!(reserve.size.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_no_system_has_is_refused_and_costs_nothing() {
        let reserve = Reserve::new(|| ());
        assert!(!reserve.has(isize::MAX as usize - 64), "the question is left out by the compiler");
        reserve.set_aside();
        let claimed = layout(isize::MAX as usize - 64).unwrap();
        // SAFETY: the size is not zero.
        let start = black_box(unsafe { reserve.alloc(claimed) });
        assert!(start.is_null());
        assert!(!reserve.kept.load(Ordering::Relaxed).is_null());
    }

    #[test]
    fn it_gives_what_the_system_gives() {
        let reserve = Reserve::new(|| ());
        let small = layout(8).unwrap();
        // SAFETY: sizes are not zero, and all is given back once with its last layout.
        unsafe {
            let start = reserve.alloc_zeroed(small);
            assert_eq!(*start, 0);
            *start = 7;
            let moved = reserve.realloc(start, small, 1 << 20);
            assert_eq!(*moved, 7);
            reserve.dealloc(moved, layout(1 << 20).unwrap());
        }
    }
}
