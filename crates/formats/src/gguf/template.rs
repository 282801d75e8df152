//! Code in chat templates: Jinja that reaches into Python. Templates of models test roles, join texts
//! and call a few helpers; none of them needs an attribute that begins with an underscore.

use statelens_checkpoint::{Finding, Grade};

/// Whether a key of the metadata holds a template that programs run.
pub(crate) fn is_template(key: &str) -> bool {
    key.starts_with("tokenizer.chat_template")
}

/// What a program that runs the template outside a sandbox would be made to do.
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
                "Programs that fill in a chat template outside a sandbox would be led to Python's own \
                 functions by that. No template of a model needs it.",
            )
            .place(key)
            .advice("Do not chat with this file before you have read the template, or replace it."),
    )
}

/// The first thing in a template's code that reaches into Python, and how sure that is.
fn suspicion(template: &str) -> Option<(Grade, String)> {
    code(template).find_map(|code| tokens(code).find_map(|found| judge(&found)))
}

/// What is between `{{` and `}}`, and between `{%` and `%}`.
fn code(template: &str) -> impl Iterator<Item = &str> {
    let mut rest = template;
    std::iter::from_fn(move || {
        loop {
            let start = rest.find('{')?;
            let (kind, after) = rest[start + 1..].split_at_checked(1)?;
            let end = match kind {
                "{" => "}}",
                "%" => "%}",
                _ => {
                    rest = &rest[start + 1..];
                    continue;
                }
            };
            // An end that is missing is no end: the rest is taken for code.
            let len = after.find(end).unwrap_or(after.len());
            // Strings may hold what looks like the end.
            let len = if quotes(&after[..len]) { after.len() } else { len };
            let (code, left) = after.split_at(len);
            rest = left;
            return Some(code);
        }
    })
}

/// Whether a string is still open at the end.
fn quotes(code: &str) -> bool {
    let mut open = None;
    let mut escaped = false;
    for letter in code.chars() {
        match open {
            Some(_) if escaped => escaped = false,
            Some(_) if letter == '\\' => escaped = true,
            Some(quote) if letter == quote => open = None,
            Some(_) => {}
            None if letter == '"' || letter == '\'' => open = Some(letter),
            None => {}
        }
    }
    open.is_some()
}

/// A piece of code: a name with what stands before and behind it, or a string.
enum Token<'a> {
    Name { before: Option<char>, name: &'a str, behind: Option<char> },
    Text(&'a str),
}

fn tokens(code: &str) -> impl Iterator<Item = Token<'_>> {
    let mut rest = code;
    let mut before = None;
    std::iter::from_fn(move || {
        loop {
            let first = rest.chars().next()?;
            if first == '"' || first == '\'' {
                let body = &rest[1..];
                let mut escaped = false;
                let end = body.char_indices().find(|(_, letter)| {
                    let ends = *letter == first && !escaped;
                    escaped = *letter == '\\' && !escaped;
                    ends
                });
                let end = end.map_or(body.len(), |(end, _)| end);
                rest = body.get(end + 1..).unwrap_or_default();
                before = Some(first);
                return Some(Token::Text(&body[..end]));
            }
            let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
            if is_name(first) {
                let len = rest.find(|letter| !is_name(letter)).unwrap_or(rest.len());
                let (name, left) = rest.split_at(len);
                rest = left;
                let behind = left.trim_start().chars().next();
                return Some(Token::Name { before: before.replace('a'), name, behind });
            }
            rest = &rest[first.len_utf8()..];
            if !first.is_whitespace() {
                before = Some(first);
            }
        }
    })
}

/// Functions of Jinja that templates call, and whose attributes lead out of it.
const GLOBALS: [&str; 8] =
    ["cycler", "joiner", "lipsum", "namespace", "dict", "range", "raise_exception", "strftime_now"];

/// Attributes without an underscore in front that lead to frames and code.
const LEADING: [&str; 12] = [
    "mro",
    "gi_frame",
    "gi_code",
    "cr_frame",
    "cr_code",
    "ag_frame",
    "f_globals",
    "f_builtins",
    "tb_frame",
    "func_globals",
    "func_code",
    "co_code",
];

fn judge(token: &Token<'_>) -> Option<(Grade, String)> {
    let danger = |what: String| Some((Grade::Danger, what));
    match token {
        Token::Name { before: Some('.'), name, .. }
            if name.starts_with('_') || LEADING.contains(name) =>
        {
            danger(format!("the attribute `{name}`"))
        }
        Token::Name { name, .. } if name.starts_with("__") => danger(format!("`{name}`")),
        Token::Name { before: Some('|'), name: "attr", .. } => danger("the filter `attr`".into()),
        Token::Name { before, name, behind: Some('.' | '[') }
            if *before != Some('.') && GLOBALS.contains(name) =>
        {
            danger(format!("attributes of `{name}`"))
        }
        // `{% import %}`, `{% include %}` of other templates.
        Token::Name {
            before: None | Some('-' | '+'),
            name: name @ ("import" | "include" | "extends" | "from"),
            ..
        } => Some((Grade::UnknownCode, format!("`{name}`, which runs another template"))),
        Token::Text(text) if is_dunder(text) || LEADING.contains(text) => {
            danger(format!("{text:?}"))
        }
        // Underscores or letters that are spelled in another way.
        Token::Text(text)
            if ["\\x", "\\u005f", "\\137", "\\N{"].iter().any(|code| text.contains(code)) =>
        {
            Some((Grade::UnknownCode, format!("letters that are written as numbers, {text:?}")))
        }
        Token::Text(text) if is_fragment(text) => {
            Some((Grade::UnknownCode, format!("{text:?}, a piece of a name of Python's")))
        }
        _ => None,
    }
}

/// `__class__` and the like.
fn is_dunder(text: &str) -> bool {
    let inner = text.strip_prefix("__").and_then(|text| text.strip_suffix("__"));
    inner.is_some_and(|inner| {
        !inner.is_empty() && inner.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    })
}

/// `__cla`, `ss__`, `_`: what such a name is put together from.
fn is_fragment(text: &str) -> bool {
    let letters = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    letters && (text == "_" || text.starts_with("__") || text.ends_with("__"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_of_models_are_fine() {
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
    fn ways_out_of_a_template_are_told() {
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
        ] {
            assert!(suspicion(template).is_some(), "{template}");
        }
    }
}
