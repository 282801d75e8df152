//! The names that templates of models use, and Python names that none of them uses.

/// Functions of Jinja and of chat programs. Templates only call them.
pub(super) const FUNCTIONS: &str =
    "cycler dict joiner namespace raise_exception range strftime_now";

/// Modules and functions of Python that a program may have passed to its templates.
pub(super) const PYTHON: &str = "
    builtins compile eval exec getattr globals importlib open os popen subprocess sys vars
";

/// Attributes without a leading underscore that give access to frames, code and classes: those that
/// the sandbox of Jinja refuses (`jinja2/sandbox.py`), and those of frames and tracebacks.
pub(super) const INTERNAL: &str = "
    ag_await ag_code ag_frame ag_running co_code cr_await cr_code cr_frame cr_origin f_back
    f_builtins f_code f_globals f_locals func_closure func_code func_defaults func_dict func_globals
    gi_code gi_frame gi_yieldfrom im_class im_func im_self mro tb_frame tb_next
";

/// The tests of Jinja.
pub(super) const TESTS: &str = "
    boolean callable defined divisibleby eq equalto escaped even false filter float ge greaterthan
    gt in integer iterable le lessthan lower lt mapping ne none number odd sameas sequence string
    test true undefined upper
";

/// The filters of Jinja, without `attr`, and those of chat programs.
pub(super) const FILTERS: &str = "
    abs batch capitalize center count d default dictsort e escape filesizeformat first float
    forceescape format from_json groupby indent int items join last length list lower map max min
    pprint random reject rejectattr replace reverse round safe select selectattr slice sort string
    striptags sum title tojson trim truncate unique upper urlencode urlize wordcount wordwrap
    xmlattr
";

/// Filters that take the name of an attribute, a test or another filter.
pub(super) const REACHING: &str =
    "groupby map max min reject rejectattr select selectattr sort sum unique";

/// Methods of texts, lists and dicts, and of `loop`, `cycler` and `joiner`.
pub(super) const METHODS: &str = "
    append capitalize casefold center changed clear copy count cycle endswith expandtabs extend find
    format get index insert isalnum isalpha isascii isdecimal isdigit islower isnumeric isspace
    istitle isupper items join keys ljust lower lstrip next partition pop remove removeprefix
    removesuffix replace reset reverse rfind rindex rjust rpartition rsplit rstrip setdefault sort
    split splitlines startswith strip swapcase title update upper values zfill
";

/// Filters and methods whose result is their input, a part of it, or the same letters in another
/// case.
pub(super) const KEEPING: &str = "
    batch capitalize casefold copy e escape forceescape list lower lstrip reject rejectattr
    removeprefix removesuffix reverse rstrip safe select selectattr slice sort string strip swapcase
    title trim unique upper
";

/// Methods that return parts of their text.
pub(super) const CUTTING: &str = "partition rpartition rsplit split splitlines";

/// Filters and methods that return numbers without arguments.
pub(super) const COUNTING: &str = "
    abs count float int isalnum isalpha isascii isdecimal isdigit islower isnumeric isspace istitle
    isupper length round wordcount
";

/// Methods that change their list or dict.
pub(super) const CHANGING: &str = "append extend insert setdefault update";

/// Numbers of `loop`.
pub(super) const LOOP: &str = "depth depth0 first index index0 last length revindex revindex0";

/// The values that programs pass as parameters of their own, so that no file can set them.
pub(super) const GIVEN: &str = "documents messages tools";

#[cfg(test)]
mod tests {
    use super::*;

    /// The lists in docs/scan.md are these.
    #[test]
    fn documentation_has_the_lists() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/scan.md");
        let text = std::fs::read_to_string(path).unwrap();
        let text = text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        for (title, list) in [
            ("Tests", TESTS),
            ("Filters", FILTERS),
            ("Functions, in addition to macros of the template", FUNCTIONS),
            ("Methods", METHODS),
        ] {
            let words: Vec<String> =
                list.split_ascii_whitespace().map(|word| format!("`{word}`")).collect();
            let line = format!("- {title}: {}.", words.join(" "));
            assert!(text.contains(&line), "{line}");
        }
    }
}
