use statelens_checkpoint::{
    FileSet, Finding, Grade, Limits, Memory, OneThread, Unwatched, Workers,
};
use statelens_formats::scan_on;
use statelens_pickle::ScanOptions;

/// A pickle that calls `os.system`.
const EVIL: &[u8] = b"\x80\x02cos\nsystem\n(X\x04\x00\x00\x00truetR.";

/// Checks a scan of any file: it does not depend on the order in which its pieces are searched, and
/// bytes after a pickle, or weights before it, don't hide it.
pub(crate) fn run(bytes: &[u8]) {
    let findings = scan(&OneThread, bytes.to_vec());
    assert_eq!(findings, scan(&Backwards, bytes.to_vec()), "the order of the pieces matters");
    let before = [EVIL, bytes].concat();
    assert_eq!(worst(&scan(&OneThread, before)), Grade::Danger, "what follows hides a pickle");
    let weights = vec![0x3f; bytes.len() % 3_000];
    let behind = [&weights, EVIL, bytes].concat();
    assert_eq!(worst(&scan(&Backwards, behind)), Grade::Danger, "weights hide a pickle");
}

/// Searches the last piece first.
#[derive(Debug)]
struct Backwards;

impl Workers for Backwards {
    fn count(&self) -> usize {
        3
    }

    fn each(&self, parts: usize, part: &(dyn Fn(usize) + Sync)) {
        (0..parts).rev().for_each(part);
    }
}

fn scan(workers: &dyn Workers, bytes: Vec<u8>) -> Vec<Finding> {
    let files = FileSet::single("x.bin", Memory::from(bytes));
    let (limits, options) = (Limits::default(), ScanOptions::default());
    scan_on(workers, files, &limits, &options, &mut Unwatched).unwrap_or_default()
}

fn worst(findings: &[Finding]) -> Grade {
    findings.iter().map(|finding| finding.grade).max().unwrap_or(Grade::Note)
}
