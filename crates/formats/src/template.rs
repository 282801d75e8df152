//! Detects code in chat templates: Jinja that reaches into Python. Templates of real models test
//! roles, concatenate text and call a few helpers. An exploit needs an attribute or a key whose
//! name begins with underscores, or one that is assembled at run time. Both are reported, and so
//! are filters, tags and character escapes that templates of real models do not use.

mod lexer;

use std::collections::{HashMap, HashSet};

use statelens_checkpoint::{Finding, Grade, has_word};

use self::lexer::{Code, Token, code};

/// The maximum length of a template in bytes; real models have none that is longer.
const MAX_LEN: usize = 1 << 20;

/// Returns whether a metadata key holds a template that programs run.
pub(crate) fn is_template(key: &str) -> bool {
    key.starts_with("tokenizer.chat_template")
}

/// Returns a finding if the template is harmful to a program that runs it outside a sandbox.
pub(crate) fn finding(key: &str, template: &str) -> Option<Finding> {
    let (grade, what) = suspicion(template)?;
    let finding = match grade {
        Grade::Danger => {
            Finding::new(grade, format!("The chat template runs code: it uses {what}"))
        }
        _ => Finding::new(grade, format!("The chat template may hide code: it uses {what}")),
    };
    Some(
        finding
            .detail(
                "Outside a sandbox, this gives the template access to Python's own functions. No \
                 template of a model needs it.",
            )
            .place(key)
            .advice("Read the template, or replace it, before you chat with this file."),
    )
}

/// Returns the most severe suspicion about a template, with its grade.
fn suspicion(template: &str) -> Option<(Grade, String)> {
    if template.len() > MAX_LEN {
        return Some((Grade::UnknownCode, "more text than any template has".to_owned()));
    }
    let code = code(template);
    let built = Built::of(&code);
    let found = code.iter().flat_map(|code| judge(code, &built));
    found.reduce(|worst, next| if next.0 > worst.0 { next } else { worst })
}

/// Functions of Jinja and of chat programs. Templates only call them.
const FUNCTIONS: &str = "cycler dict joiner namespace raise_exception range strftime_now";

/// Modules and functions of Python that a program may have passed to its templates.
const PYTHON: &str = "builtins eval exec importlib os popen subprocess sys";

/// Attributes without a leading underscore that give access to frames and code.
const LEADING: &str = "
    mro gi_frame gi_code cr_frame cr_code ag_frame f_globals f_builtins tb_frame func_globals
    func_code co_code
";

const TAGS: &str = "
    block break call continue do elif else endblock endcall endfilter endfor endgeneration endif
    endmacro endraw endset endwith filter for generation if macro raw set with
";

/// The filters of Jinja, without `attr`.
const FILTERS: &str = "
    abs batch capitalize center count d default dictsort e escape filesizeformat first float
    forceescape format from_json groupby indent int items join last length list lower map max min
    pprint random reject rejectattr replace reverse round safe select selectattr slice sort string
    striptags sum title tojson trim truncate unique upper urlencode urlize wordcount wordwrap
    xmlattr
";

/// Filters that take the name of an attribute or of another filter.
const REACHING: &str = "groupby map max min rejectattr selectattr sort sum unique";

/// Filters that do not assemble text.
const KEEPING: &str = "
    abs capitalize count d default dictsort e first float int items last length list lower max min
    reverse round safe sort string trim upper
";

/// Methods that do not assemble text.
const KEEPING_METHODS: &str = "
    append capitalize copy endswith find get items keys lower lstrip pop rsplit rstrip split
    startswith strip upper values
";

/// Keywords that may stand in the position of a value.
const WORDS: &str = "and elif else if in is not or recursive set";

/// Returns the suspicious constructs in a code section.
fn judge(code: &Code, built: &Built) -> Vec<(Grade, String)> {
    let tokens = &*code.tokens;
    let mut found = Vec::new();
    if let Some(tag) = tokens.first().and_then(Token::name).filter(|_| code.statement) {
        match tag {
            "import" | "include" | "extends" | "from" => {
                found.push((Grade::UnknownCode, format!("`{tag}`, which runs another template")));
            }
            _ if has_word(TAGS, tag) => {}
            _ => found.push((Grade::UnknownCode, format!("the tag `{tag}`"))),
        }
    }
    for (at, token) in tokens.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| tokens.get(at));
        let after = tokens.get(at + 1);
        match token {
            Token::Name(name) => found.extend(named(name, at, code, built)),
            Token::Text { text, spelled } => found.extend(literal(text, *spelled)),
            Token::Operator("[") if before.is_some_and(ends_value) => {
                let key = &tokens[at + 1..closing(tokens, at)];
                if !built.is_plain_key(key) {
                    let what = "a computed key".to_owned();
                    found.push((Grade::UnknownCode, what));
                }
            }
            Token::Operator("*" | "**")
                if before.is_none_or(|before| before.is("(") || before.is(","))
                    && after.is_some() =>
            {
                found.push((Grade::UnknownCode, "computed arguments".to_owned()));
            }
            _ => {}
        }
    }
    found
}

fn named(name: &str, at: usize, code: &Code, built: &Built) -> Option<(Grade, String)> {
    let tokens = &*code.tokens;
    let before = at.checked_sub(1).and_then(|at| tokens.get(at));
    let after = tokens.get(at + 1);
    let is_called = after.is_some_and(|after| after.is("("));
    let danger = |what: String| Some((Grade::Danger, what));
    let unknown = |what: String| Some((Grade::UnknownCode, what));
    if before.is_some_and(|before| before.is(".")) {
        return match name {
            _ if name.starts_with('_') || has_word(LEADING, name) => {
                danger(format!("the attribute `{name}`"))
            }
            // Format strings can access attributes and items of their arguments.
            "format" | "format_map" => match at.checked_sub(2).map(|at| &tokens[at]) {
                Some(Token::Text { text, .. }) if !text.contains(['.', '[']) => None,
                _ => unknown(format!("the method `{name}`")),
            },
            _ => None,
        };
    }
    if name.starts_with("__") {
        return danger(format!("`{name}`"));
    }
    let block = code.statement && at == 1 && tokens[0].name() == Some("filter");
    if block || before.is_some_and(|before| before.is("|")) {
        if name == "attr" {
            return danger("the filter `attr`".into());
        }
        if !has_word(FILTERS, name) {
            return unknown(format!("the filter `{name}`"));
        }
        if has_word(REACHING, name) && is_called {
            let arguments = &tokens[at + 2..closing(tokens, at + 1)];
            let first = match arguments.first() {
                Some(Token::Text { text, .. }) => Some(&**text),
                _ => None,
            };
            if name == "map" && first == Some("attr") {
                return danger("the filter `attr`".into());
            }
            if !built.is_plain_key(arguments) {
                return unknown(format!("a computed attribute name for `{name}`"));
            }
        }
        return None;
    }
    // The name of a keyword argument or the target of an assignment.
    let is_target = after.is_some_and(|after| after.is("="));
    let leads_on = after.is_some_and(|after| after.is(".") || after.is("["));
    match name {
        _ if is_target => None,
        "lipsum" => danger("`lipsum`".into()),
        _ if has_word(PYTHON, name) && (is_called || leads_on) && !built.is_set(name) => {
            danger(format!("`{name}`"))
        }
        "self" if !after.is_some_and(|after| after.is(".")) => unknown("`self`".into()),
        _ if has_word(FUNCTIONS, name) && leads_on => danger(format!("attributes of `{name}`")),
        _ if has_word(FUNCTIONS, name) && !is_called && !built.is_set(name) => {
            // `x is not dict` does not refer to the function, but no real template contains it.
            unknown(format!("`{name}` as a value"))
        }
        _ => None,
    }
}

fn literal(text: &str, spelled: bool) -> Option<(Grade, String)> {
    let leads = |part: &str| is_dunder(part) || has_word(LEADING, part);
    if leads(text) || text.split(['.', ',', ' ']).any(is_dunder) {
        return Some((Grade::Danger, format!("{text:?}")));
    }
    if spelled {
        let what = format!("letters that are written as escapes, {text:?}");
        return Some((Grade::UnknownCode, what));
    }
    is_fragment(text).then(|| (Grade::UnknownCode, format!("{text:?}, a part of a Python name")))
}

/// Returns whether a text is a name such as `__class__`.
fn is_dunder(text: &str) -> bool {
    let inner = text.strip_prefix("__").and_then(|text| text.strip_suffix("__"));
    inner.is_some_and(|inner| {
        !inner.is_empty() && inner.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_')
    })
}

/// Returns whether a text is a piece from which a dunder name can be assembled or cut: `__cla`,
/// `ss__`, `_`, `x__class__x`.
fn is_fragment(text: &str) -> bool {
    let letters = text.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    letters && (text == "_" || text.contains("__"))
}

/// Returns whether a token can end a value, so that a bracket after it is a subscript.
fn ends_value(token: &Token) -> bool {
    match token {
        Token::Name(name) => !has_word(WORDS, name),
        Token::Text { .. } | Token::Number => true,
        Token::Operator(operator) => matches!(*operator, ")" | "]" | "}"),
        Token::Other => false,
    }
}

/// Returns the index of the bracket that closes the one at `open`, or the end if it is not closed.
fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token {
            Token::Operator("(" | "[" | "{") => depth += 1,
            Token::Operator(")" | "]" | "}") => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at;
                }
            }
            _ => {}
        }
    }
    tokens.len()
}

/// The variables of a template, and those that may hold text assembled at run time.
struct Built {
    set: HashSet<String>,
    built: HashSet<String>,
}

impl Built {
    fn of(code: &[Code]) -> Self {
        let mut given: Vec<(String, &[Token])> = Vec::new();
        let mut built: HashSet<String> = HashSet::new();
        let mut macros: HashMap<&str, Vec<String>> = HashMap::new();
        for code in code {
            let tokens = &*code.tokens;
            match tokens.first().and_then(Token::name).filter(|_| code.statement) {
                Some("set") => {
                    let equals = tokens.iter().position(|token| token.is("="));
                    let (targets, value) = tokens.split_at(equals.unwrap_or(tokens.len()));
                    let targets = targets.iter().skip(1).filter_map(Token::name).map(str::to_owned);
                    match value {
                        // A block assignment, which assembles text.
                        [] => built.extend(targets),
                        value => given.extend(targets.map(|name| (name, value))),
                    }
                }
                Some("for") => {
                    let within = tokens.iter().position(|token| token.name() == Some("in"));
                    let (targets, value) = tokens.split_at(within.unwrap_or(tokens.len()));
                    let targets = targets.iter().skip(1).filter_map(Token::name);
                    given.extend(targets.map(|name| (name.to_owned(), value)));
                }
                Some("macro") => {
                    let names = tokens.iter().skip(2).filter_map(Token::name).map(str::to_owned);
                    if let Some(name) = tokens.get(1).and_then(Token::name) {
                        macros.insert(name, names.collect());
                    }
                }
                Some("call") => {
                    built.extend(tokens.iter().filter_map(Token::name).map(str::to_owned))
                }
                _ => {}
            }
        }
        for code in code {
            let tokens = &*code.tokens;
            for (at, token) in tokens.iter().enumerate() {
                let Some(name) = token.name() else { continue };
                let after = tokens.get(at + 1);
                if after.is_some_and(|after| after.is("=")) {
                    // A keyword argument; ends at the next comma or at the closing bracket.
                    given.push((name.to_owned(), &tokens[at + 2..argument_end(tokens, at + 2)]));
                }
                if let Some(parameters) = macros.get(name)
                    && after.is_some_and(|after| after.is("("))
                    && tokens.first().and_then(Token::name) != Some("macro")
                {
                    let arguments = &tokens[at + 2..closing(tokens, at + 1)];
                    given.extend(parameters.iter().map(|name| (name.clone(), arguments)));
                }
            }
        }
        let set = given.iter().map(|(name, _)| name.clone()).chain(built.iter().cloned()).collect();
        let mut variables = Self { set, built };
        // A variable that is assigned from an assembled value may itself hold assembled text.
        loop {
            let before = variables.built.len();
            for (name, value) in &given {
                if !variables.built.contains(name) && !variables.keeps(value) {
                    variables.built.insert(name.clone());
                }
            }
            if variables.built.len() == before {
                return variables;
            }
        }
    }

    /// Returns whether the template assigns a variable of this name.
    fn is_set(&self, name: &str) -> bool {
        self.set.contains(name)
    }

    /// Returns whether an expression does not assemble text.
    fn keeps(&self, tokens: &[Token]) -> bool {
        tokens.iter().enumerate().all(|(at, token)| {
            let before = at.checked_sub(1).and_then(|at| tokens.get(at));
            let after = tokens.get(at + 1);
            let is_called = after.is_some_and(|after| after.is("("));
            let number = |token: Option<&Token>| token == Some(&Token::Number);
            match token {
                Token::Operator("~" | "*" | "%" | "**") => false,
                // In Python, only a number can be added to a number.
                Token::Operator("+") => number(before) || number(after),
                Token::Name(name) if before.is_some_and(|before| before.is("|")) => {
                    has_word(KEEPING, name)
                }
                Token::Name(name) if before.is_some_and(|before| before.is(".")) => {
                    !self.built.contains(name) && (!is_called || has_word(KEEPING_METHODS, name))
                }
                Token::Name(name) => {
                    !self.built.contains(name)
                        && (!is_called || has_word(FUNCTIONS, name) || has_word(WORDS, name))
                }
                Token::Other => false,
                _ => true,
            }
        })
    }

    /// Returns whether a key, or the argument of a filter that takes one, is not assembled. Slices
    /// are not keys.
    fn is_plain_key(&self, tokens: &[Token]) -> bool {
        let mut depth = 0_usize;
        let slice = tokens.iter().any(|token| {
            match token {
                Token::Operator("(" | "[" | "{") => depth += 1,
                Token::Operator(")" | "]" | "}") => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth == 0 && token.is(":")
        });
        slice || self.keeps(tokens)
    }
}

/// Returns the index of the end of the argument that begins at `start`.
fn argument_end(tokens: &[Token], start: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(start) {
        match token {
            Token::Operator(",") if depth == 0 => return at,
            Token::Operator("(" | "[" | "{") => depth += 1,
            Token::Operator(")" | "]" | "}") => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return at,
            },
            _ => {}
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_chat_templates_of_models() {
        for template in [
            "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% endfor %}",
            "{%- set ns = namespace(is_first=false, is_tool=false, system_prompt='') -%}{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor %}{{ns.system_prompt}}",
            "{% set content = message['content'].split('</think>')[-1].lstrip('\\n') %}{{- '<|im_start|>' + message.role + '\\n' + content | trim }}",
            "{{ tools | map(attribute='function') | selectattr('name', 'equalto', 'x') | list | tojson(indent=4) }}{{ strftime_now('%d %b %Y') }}",
            "{{ '<|start_header_id|>' ~ role ~ '<|end_header_id|>\\n\\n' }}{# a comment with __class__ #}text with __init__ and ''.__class__ outside of code",
            "{% macro render(x, type_='a') %}{{ x.items() | list }}{{ param_type._private_is_not_used if false }}{% endmacro %}".replace("param_type._private_is_not_used if false", "param_type").as_str(),
        ] {
            assert_eq!(suspicion(template), None, "{template}");
        }
    }

    #[test]
    fn finds_sandbox_escapes_in_templates() {
        for template in [
            "{% for x in ().__class__.__base__.__subclasses__() %}{% endfor %}",
            "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
            "{{ lipsum['__globals__']['os'].system('id') }}",
            "{{ namespace.__init__ }}",
            "{{ ''|attr('__class__') }}",
            "{{ ''['\\x5f\\x5fclass\\x5f\\x5f'] }}",
            "{{ x['__cla' ~ 'ss__'] }}",
            "{{ messages|map(attribute='__class__')|list }}",
            "{{ self._TemplateReference__context }}",
            "{{ dict.mro() }}",
            "{% import 'x' as y %}",
            "{{ '}}' ~ x.__class__ }}",
            "{{ x . __class__ }}",
            "{# ' {{ ' #}{{ ''.__class__ }}{# ' #}",
            "{% raw %}{{ ' {% endraw %}{{ ''.__class__ }}{% raw %} ' }}{% endraw %}",
            "{%- raw -%}{% endraw{{ %}{%endraw%}{{ x.__class__ }}",
            "{% set u='%c'%95 %}{% set d=u*2 %}{{ ''[d~'class'~d] }}",
            "{% set u='a_b'[1] %}{% set d=u*2 %}{{ (cycler)[d~'init'~d][d~'globals'~d] }}",
            "{% set d='x_x_'|replace('x','') %}{{ ''[d~'class'~d] }}",
            "{% set u='a_b'[1] %}{% set k=u~u~'class'~u~u %}{{ ''[k] }}",
            "{% set u='a_b'[1] %}{% set ns=namespace(k=u+u+'class'+u+u) %}{{ ''[ns.k] }}",
            "{% set k %}{{ 'a_b'[1] }}{{ 'a_b'[1] }}class{% endset %}{{ ''[k] }}",
            "{% macro m(k) %}{{ ''[k] }}{% endmacro %}{{ m('a_b'[1] ~ 'x') }}",
            "{% for k in [u ~ 'x'] %}{{ ''[k] }}{% endfor %}",
            "{% set k = ['a', 'b']|join('x') %}{{ x|map(attribute=k)|list }}",
            "{{ x|map('attr', 'y')|list }}",
            "{{ x|map('a' ~ 'ttr', 'y')|list }}",
            "{{ x|groupby('a.__class__') }}",
            "{{ '{0.a}'.format(x) }}",
            "{{ (lipsum)|string }}",
            "{% set c = cycler %}{{ c }}",
            "{% filter attr('x') %}{% endfilter %}",
            "{{ ''['\\137\\137class\\137\\137'] }}",
            "{{ ''['x__class__x'.strip('x')] }}",
            "{{ x|unheard_of }}",
            "{{ f(**x) }}",
            "{{ {'a': {'b': ''.__class__}} }}",
        ] {
            assert!(suspicion(template).is_some(), "{template}");
        }
    }

    #[test]
    fn grades_what_only_one_rule_finds() {
        let long = " ".repeat(MAX_LEN + 1);
        for (template, grade, what) in [
            (&*long, Grade::UnknownCode, "more text than any template has"),
            ("{% unheard_of x %}", Grade::UnknownCode, "the tag `unheard_of`"),
            ("{{ x.gi_frame }}", Grade::Danger, "the attribute `gi_frame`"),
            ("{{ __builtins__ }}", Grade::Danger, "`__builtins__`"),
            ("{{ x|attr(name) }}", Grade::Danger, "the filter `attr`"),
            ("{{ self }}", Grade::UnknownCode, "`self`"),
            ("{{ os.system('x') }}", Grade::Danger, "`os`"),
            ("{{ eval('1') }}", Grade::Danger, "`eval`"),
            ("{{ cycler.x }}", Grade::Danger, "attributes of `cycler`"),
            ("{{ '\\x61b' }}", Grade::UnknownCode, "letters that are written as escapes, \"ab\""),
        ] {
            assert_eq!(suspicion(template), Some((grade, what.to_owned())), "{template:.40}");
        }
    }
}
