//! Detects code in chat templates: Jinja that reaches into Python. A template is read as Jinja reads
//! it, and is harmless if everything in it is on the lists in [`names`]: tags, tests, filters,
//! functions and methods. Any other attribute or key is harmless if it is a name that the sandbox of
//! Jinja permits and that neither the template nor another text of the file assembles ([`flow`]).
//! What can't be read is unknown code.

mod flow;
mod lexer;
mod names;
mod parser;
mod scope;

use statelens_checkpoint::{Finding, Grade};

use self::parser::Suspicion;

/// The maximum length of a template in bytes; templates of real models are shorter.
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
fn suspicion(template: &str) -> Option<Suspicion> {
    let unknown = |what: String| Some((Grade::UnknownCode, what));
    if template.len() > MAX_LEN {
        return unknown("more text than any template has".to_owned());
    }
    match lexer::tokens(template) {
        Ok(tokens) => parser::judge(&tokens)
            .into_iter()
            .reduce(|worst, next| if next.0 > worst.0 { next } else { worst }),
        Err(what) => unknown(what),
    }
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

    /// The constructs of 141 templates of public models and trainers, in other words. jinja2 3.1
    /// renders them.
    #[test]
    fn accepts_constructs_of_public_templates() {
        for template in [
            "{{ bos_token + eos_token if messages else pad_token }}{{- '\\n' -}}{%+ if true %}{%- endif +%}",
            "{%- if not add_generation_prompt is defined %}{%- set add_generation_prompt = false %}{%- endif %}",
            "{% if strftime_now is defined %}{% set today = strftime_now('%d %b %Y') %}{% else %}{% set today = '1 Jan' %}{% endif %}",
            "{% if messages[0].role == 'system' %}{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}{% for m in rest[::-1] %}{{ m.content }}{% endfor %}",
            "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles' ~ m.role) }}{% elif loop.last or messages[loop.index0 + 1].role != 'tool' %}{% endif %}{% else %}{% endfor %}",
            "{% set ns = namespace(last=0, text='', seen=[], is_first=true) %}{% for m in messages %}{% set ns.last = loop.index0 %}{% set ns.text = ns.text ~ m.content + '\n\n' %}{% endfor %}{{ messages[ns.last].content }}",
            "{% for i in range(messages|length - 1, -1, -1) %}{% set m = messages[i] %}{{ m }}{% endfor %}",
            "{% for _ in range(2) %}{% set index = (messages|length - 1) - loop.index0 %}{{ messages[index].role }}{% endfor %}",
            "{% macro show(spec, name='x') %}{% set types = {'string': 'str', 'integer': 'int'} %}{% if types[spec.type] is defined %}{{ types[spec.type] }}{% elif spec.type is sequence and spec.type is not string %}{{ spec.type | join(' | ') }}{% endif %}{% endmacro %}{% for tool in tools %}{{ show(tool.function.parameters) }}{% endfor %}",
            "{% macro extra(dict_, handled) %}{% for key in dict_ if key not in handled %}{% if dict_[key] is mapping %}{{ dict_[key] | tojson | safe }}{% endif %}{% endfor %}{% endmacro %}{% for t in tools %}{{ extra(t, ['name', 'type']) }}{% endfor %}",
            "{% for name, spec in tools[0].parameters.properties.items() %}{{ tools[0].parameters.required[loop.index0] }}{{ name ~ ': ' ~ spec | tojson(indent=4, ensure_ascii=False) }}{% endfor %}",
            "{% for k, v in tool.arguments|items %}{{ k }}{{ tool.arguments[k] }}{% endfor %}{% for k in tools|dictsort %}{{ k[0] }}{% endfor %}",
            "{% set text = message.content.split('</think>')[-1].lstrip('\n').rstrip() %}{{ text.startswith('<x>') and not text.endswith(\"</x>\") }}",
            "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list | last | default('', true) | trim }}",
            "{{ tools | map('tojson') | join(',') }}{{ tools | rejectattr('type', 'in', ['a']) | list | length }}{{ x | reject('none') | first }}",
            "{{ message.get('tool_calls', []) | length }}{{ messages[-1]['content'][0]['text'] }}{{ tool_call.function.arguments if tool_call.function is defined else tool_call.arguments }}",
            "{% set messages = [{'role': 'system', 'content': 'a' ~ date}] + messages %}{% set names = {'user': 'U', 'assistant': 'A'} %}{% for m in messages %}{{ names[m['role']] }}{% endfor %}",
            "{% set parts = [] %}{% for m in messages %}{% set _ = parts.append(m.role ~ m.content) %}{% endfor %}{{ parts | join('\n') }}{{ messages[loop_index|int] }}",
            "{% generation %}{{ m.content | upper | replace('a', 'b') }}{% endgeneration %}{% continue %}{% break %}{% do x.append(1) %}",
            "{% raw %}{{ not code }}{% endraw %}{%- raw -%} {% endraw -%}{# a 'comment {{ #}a {%- if a %}'{%- endif %} { % }",
            "{% set x %}{{ a }} b{% endset %}{% set y = x | trim %}",
            "{{ '%s: %d' | format('a', 1) }}{{ 'a {} b'.format(x) }}{{ \"it's\" ~ 'a\\'b' ~ '\\u2581' ~ '\\d' }}{{ 1.5 * 2 ** 3 // 4 % 5 }}",
            "{{ x is not none and x is iterable and x is not string or x is boolean and not (y is true) }}{{ x is divisibleby 3 }}{{ a in b and a not in ['c', 'd'] }}",
            "{% for kind, items in [('a', 1), ('b', 2)] %}{{ kind }}{% endfor %}{{ {'a': {'b': 1}}.a.b }}{{ ('a', 'b')[loop_ % 2 == 0] }}",
            "{{ '__' }}{{ '________' }}{{ 'a_b' }}{{ '<|_|>' }}{{ x.replace(' ', '_') }}{{ 'file__1' if false }}".replace("file__1", "file_1").as_str(),
        ] {
            assert_eq!(suspicion(template), None, "{template}");
        }
    }

    /// Names that the template or another text of the file assembles, on their way to a key.
    #[test]
    fn follows_assembled_names_to_keys() {
        let start = "{% macro m() %}{% endmacro %}{% set u = 'a_b'[1] %}{% set n = u ~ u ~ 'init' ~ u ~ u %}";
        for template in [
            "{{ x[n] }}",
            "{{ x[(n)] }}{{ x[n|trim] }}",
            "{{ x[n if a else 'b'] }}",
            "{{ x['a' and n] }}",
            "{{ x['__init' '__'] }}",
            "{% set l = [n] %}{{ x[l[0]] }}",
            "{% set l = [[n]] %}{{ x[l[0][0]] }}",
            "{% set l = [] %}{% set _ = l.append(n) %}{{ x[l[0]] }}",
            "{% set l = [] %}{% set d = {'a': l} %}{% set _ = d.a.append(n) %}{{ x[l[0]] }}",
            "{% set l = [] %}{% set d = {'a': l} %}{% for v in d.values() %}{% set _ = v.append(n) %}{% endfor %}{{ x[l[0]] }}",
            "{% set l = [] %}{% set d = {y: l} %}{% set _ = d.a.append(n) %}{{ x[l[0]] }}",
            "{% set l = [] %}{% set k = [l] %}{% set _ = k[0].insert(0, n) %}{{ x[l[0]] }}",
            "{% set d = {} %}{% set _ = d.update({'a': n}) %}{{ x[d.a] }}",
            "{% set d = {} %}{% set _ = d.update(a=n) %}{{ x[d['a']] }}",
            "{% set d = {} %}{% set _ = d.setdefault('a', n) %}{{ x[d.get('a')] }}",
            "{% set d = {'a': n} %}{% for k, v in d.items() %}{{ x[v] }}{% endfor %}",
            "{% set d = {'a': n} %}{% for v in d.values() %}{{ x[v] }}{% endfor %}",
            "{% set d = {n: 1} %}{% for k, v in d|items %}{{ x[k] }}{% endfor %}",
            "{% set d = {n: 1} %}{% for k in d %}{{ x[k] }}{% endfor %}",
            "{% set d = dict(a=n) %}{{ x[d.pop('a')] }}",
            "{% set d = {'a': n} %}{% for p in d|dictsort %}{{ x[p[1]] }}{% endfor %}",
            "{% set s = namespace(a='') %}{% set s.a = n %}{{ x[s.a] }}{{ x[s['a']] }}",
            "{% set s = namespace({'a': n}) %}{{ x[s.a] }}",
            "{% macro f(k) %}{{ x[k] }}{% endmacro %}{{ f(n) }}",
            "{% macro f(a, k='b') %}{{ x[k] }}{% endmacro %}{{ f(1, k=n) }}",
            "{% macro f(k=n) %}{{ x[k] }}{% endmacro %}{{ f() }}",
            "{% macro f() %}{{ x[varargs[0]] }}{% endmacro %}{{ f(n) }}",
            "{% macro f() %}{{ x[kwargs.a] }}{% endmacro %}{{ f(a=n) }}",
            "{% macro f() %}{{ caller(n) }}{% endmacro %}{% call(k) f() %}{{ x[k] }}{% endcall %}",
            "{% macro f() %}{{ n }}{% endmacro %}{{ x[f()] }}",
            "{% set k %}{{ n }}{% endset %}{{ x[k] }}",
            "{% for k in cycler(n, 'a') %}{{ x[k] }}{% endfor %}",
            "{{ x[cycler(n).next()] }}",
            "{% for k in [n, 'b'] %}{{ x[loop.previtem] }}{% endfor %}",
            "{{ x[[u, u]|join] }}{{ x['-_-_-'|replace('-', '')] }}",
            "{{ x['_x_xixnxixtx_x_'[::2]] }}",
            "{{ x['_<b>_'|striptags] }}",
            "{{ x|map(attribute=n)|list }}",
            "{{ x|sort(false, false, n) }}",
            "{{ [{'a': n}]|map(attribute='a')|list }}{% for k in [{'a': n}]|map(attribute='a') %}{{ x[k] }}{% endfor %}",
            // A special token, or a variable that a file can set to one.
            "{{ x[bos_token] }}",
            "{{ x[additional_special_tokens[0]] }}",
            "{{ x[anything] }}{{ x[anything[2:]] }}",
            "{% for k in [anything] %}{{ x[k] }}{% endfor %}",
            "{% if false %}{% set k = 'a' %}{% endif %}{{ x[k] }}",
            "{% for k in [] %}{% endfor %}{{ x[k] }}",
            "{% for k in [1] %}{% block b %}{{ x[k] }}{% endblock %}{% endfor %}",
            "{% if a %}{% set k = 'a' %}{% elif b %}{% else %}{% set k = 'b' %}{% endif %}{{ x[k] }}",
            // Calls and values that no list has.
            "{% set f = m %}{{ f() }}",
            "{{ m['name'] }}",
            "{{ [m][0] }}",
            "{% if a %}{% set m = x.y %}{% endif %}{{ m() }}",
            "{{ x.y.getpid() }}{{ x['a']() }}",
            "{{ (x.y)() }}",
            "{{ x.encode() }}",
            "{{ x is unheard_of }}",
            "{{ x|select('unheard_of') }}",
            "{{ x|map('map', 'a') }}",
            "{% for k in x recursive %}{{ loop(k) }}{% endfor %}",
            "{% set loop = 1 %}",
            "{% macro range() %}{% endmacro %}{{ range() }}",
            "{{ x['_private'] }}{{ x['mro'] }}",
            "{{ ｘ }}{{ x.__ｃｌａｓｓ__ }}",
            // What can't be parsed.
            "{{ x",
            "{{ x }",
            "{% if x %}",
            "{% endif %}",
            "{% if x %}{% endfor %}",
            "{{ 'x }}",
            "{# x",
            "{% raw %}",
            "{% raw %}{% x %}{% endraw %}",
            "{{ (x] }}",
            "{{ x y }}",
            "{{ 1abc }}{{ 007 }}",
            "{{ 'a\\\nb' }}{{ '\\N{LOW LINE}' }}",
        ] {
            assert!(suspicion(&format!("{start}{template}")).is_some(), "{template}");
        }
        assert_eq!(suspicion(start), None);
    }

    /// Hostile templates take time in proportion to their length.
    #[test]
    fn deep_and_long_templates_end() {
        let many = |text: &dyn Fn(usize) -> String| (0..20_000).map(text).collect::<String>();
        let names = many(&|index| format!("a{index},"));
        for template in [
            format!("{{{{{}", "a[".repeat(100_000)),
            format!("{{{{ {}1 }}}}", "-".repeat(100_000)),
            format!("{{{{ a{} }}}}", " if b else c".repeat(50_000)),
            format!("{{% macro m({names}) %}}{{% endmacro %}}{}", "{{ m(x[y]) }}".repeat(20_000)),
            many(&|index| format!("{{% set a{index} = a{} %}}", index + 1)) + "{{ x[a0] }}",
            "{% if a %}".repeat(50_000),
        ] {
            assert!(suspicion(&template).is_some(), "{template:.40}");
        }
        assert_eq!(suspicion(&format!("{{{{ a{} }}}}", " ~ b".repeat(100_000))), None);
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
            ("{{ '\\x61b' }}", Grade::UnknownCode, "letters that are written as escapes"),
        ] {
            assert_eq!(suspicion(template), Some((grade, what.to_owned())), "{template:.40}");
        }
    }
}
