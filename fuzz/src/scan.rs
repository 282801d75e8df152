use statelens_checkpoint::{Finding, Grade, Limits};
use statelens_pickle::{Broken, Pickle, ScanOptions, is_harmless, read, scan_pickles};

/// Further findings are summed up in one, without their names.
const LISTED: usize = 100;

/// Checks for any pickle: every global that is not on a list is reported; a truncated pickle is not
/// graded worse than the whole; and bytes before or after a pickle can't hide it.
pub(crate) fn run(bytes: &[u8]) {
    let options = ScanOptions::default();
    let findings = scan(bytes, &options);
    assert_eq!(findings, scan(bytes, &options), "two scans of the same bytes differ");
    let evil = b"cos\nsystem\n)R.";
    let before = [&evil[..], bytes].concat();
    assert_eq!(worst(&scan(&before, &options)), Grade::Danger, "what follows hides a pickle");
    let Ok(pickle) = read(bytes, 0, &Limits::default()) else {
        assert!(bytes.is_empty() || worst(&findings) >= Grade::Damage, "a break is no finding");
        return;
    };
    let end = pickle.end() as usize;
    let behind = [&bytes[..end], evil].concat();
    assert_eq!(worst(&scan(&behind, &options)), Grade::Danger, "the prefix hides a pickle");
    let findings = pickle.scan(&options);
    names_are_reported(&pickle, &findings);
    // Allowing names may remove findings, but never add any.
    let allow = pickle.globals().iter().map(|used| used.global.to_string()).collect();
    assert!(worst(&pickle.scan(&ScanOptions { allow })) <= worst(&findings));
    let cut = bytes.first().map_or(0, |byte| usize::from(*byte) * end / 256);
    if let Err(broken) = read(&bytes[..cut], 0, &Limits::default()) {
        cut_is_no_worse(&broken, &findings);
    }
}

fn scan(bytes: &[u8], options: &ScanOptions) -> Vec<Finding> {
    scan_pickles(bytes, 0, &Limits::default(), options).0
}

fn worst(findings: &[Finding]) -> Grade {
    findings.iter().map(|finding| finding.grade).max().unwrap_or(Grade::Note)
}

fn names_are_reported(pickle: &Pickle, findings: &[Finding]) {
    for used in pickle.globals() {
        if is_harmless(&used.global) && !used.computed {
            continue;
        }
        assert!(worst(findings) >= Grade::UnknownCode, "{} is not reported", used.global);
        let (module, name) = (&*used.global.module, &*used.global.name);
        let short = module.chars().count() <= 200 && name.chars().count() <= 200;
        let is_reported = findings.iter().any(|finding| {
            finding.grade >= Grade::UnknownCode
                && finding
                    .call
                    .as_ref()
                    .is_some_and(|call| call.module == module && call.name == name)
        });
        assert!(
            is_reported || !short || findings.len() > LISTED,
            "{} is not reported",
            used.global
        );
    }
}

fn cut_is_no_worse(broken: &Broken, whole: &[Finding]) {
    let cut = worst(&broken.pickle.scan(&ScanOptions::default()));
    assert!(cut < Grade::UnknownCode || cut <= worst(whole), "a part is worse than the whole");
}
