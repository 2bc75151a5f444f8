//! Templates of the shapes that models have, against what Jinja2 makes of them; and templates that mean harm.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};

use super::{ChatTemplate, Message, TemplateError};

/// Those of the script that recorded the expected texts.
const CONVERSATIONS: [&[(&str, &str)]; 6] = [
    &[],
    &[("user", "Hi there")],
    &[
        ("system", " Be kind. "),
        ("user", "Äpfel & \"pears\" <b>"),
        ("assistant", "Yes,\n both \n"),
        ("user", "🐍?"),
    ],
    &[("user", "a"), ("user", "b")],
    &[("user", "one\n two"), ("assistant", "then stop"), ("user", "three")],
    &[("tool", "{}"), ("user", "x")],
];

fn messages(said: &[(&str, &str)]) -> Vec<Message> {
    said.iter().map(|&(role, content)| Message { role: role.into(), content: content.into() }).collect()
}

fn noon() -> DateTime<Utc> {
    "2024-07-26T12:00:00Z".parse().expect("a time")
}

#[track_caller]
fn check(template: &str, expected: &str) {
    let template = ChatTemplate::new(template, "<s>", "</s>").expect("a template");
    let mut expected = expected.split("\u{1e}\n");
    for said in CONVERSATIONS {
        for add_generation_prompt in [false, true] {
            let text = match template.render_at(&messages(said), add_generation_prompt, noon()) {
                Ok(text) => text,
                Err(TemplateError::Raised { message }) => format!("raised: {message}"),
                Err(error) => panic!("{said:?}: {error}"),
            };
            assert_eq!(Some(text.as_str()), expected.next(), "{said:?}");
        }
    }
    assert_eq!(expected.next(), None);
}

#[test]
fn turns_between_marks() {
    check(
        include_str!("../../tests/data/templates/chatml.jinja"),
        include_str!("../../tests/data/templates/chatml.expected"),
    );
}

#[test]
fn turns_under_headers_with_a_date() {
    check(
        include_str!("../../tests/data/templates/headers.jinja"),
        include_str!("../../tests/data/templates/headers.expected"),
    );
}

#[test]
fn turns_in_brackets_that_have_to_alternate() {
    check(
        include_str!("../../tests/data/templates/brackets.jinja"),
        include_str!("../../tests/data/templates/brackets.expected"),
    );
}

#[test]
fn methods_of_strings_macros_and_loops_that_end_early() {
    check(
        include_str!("../../tests/data/templates/methods.jinja"),
        include_str!("../../tests/data/templates/methods.expected"),
    );
}

#[test]
fn formats_and_parts_of_texts_are_what_they_were() {
    let template = "{{ '%s-%(a)s' | format(a=1) if 0 else '%s/%d' | format('x', 3) }} {{ '{}{a}'.format(1, a=2) }} \
                    {{ '%(k)s' | format(k='v') }} {{ 'a b  c'.split() }} {{ 'a,b' | split(',') }} {{ 'a\nb' | lines }} \
                    {{ [1, 2] | sum }} {{ ([1, 2] * 2 + [3]) | sum(start=10) }} {{ 'ab'.find('b') }} {{ 3 * 'x' }}";
    let text = ChatTemplate::new(template, "", "").and_then(|template| template.render(&[], false));
    let expected = "x/3 12 v [\"a\", \"b\", \"c\"] [\"a\", \"b\"] [\"a\", \"b\"] 3 19 1 xxx";
    assert_eq!(text.as_deref().map(|text| text.replace('\'', "\"")), Ok(expected.to_owned()));
}

fn fails(source: &str) -> TemplateError {
    let said = messages(CONVERSATIONS[2]);
    match ChatTemplate::new(source, "", "").and_then(|template| template.render(&said, true)) {
        Ok(text) => panic!("{source}: {} bytes of text", text.len()),
        Err(error) => error,
    }
}

#[test]
fn errors_name_the_line() {
    let error = fails("a\n{% for x in %}");
    assert!(matches!(error, TemplateError::Failed { line: Some(2), .. }), "{error:?}");
    let error = fails("a\nb\n{{ nothing.at.all }}");
    assert!(matches!(error, TemplateError::Failed { line: Some(3), .. }), "{error:?}");
    assert!(error.to_string().contains("line 3 of the template"), "{error}");
    let error = fails("{{ messages | unheard_of }}");
    assert!(error.to_string().contains("unheard_of"), "{error}");
    assert_eq!(fails("{{ raise_exception('not me') }}"), TemplateError::Raised { message: "not me".into() });
    assert!(matches!(fails(&"x".repeat(2 << 20)), TemplateError::Failed { line: None, .. }));
}

#[test]
fn a_template_that_means_harm_is_stopped() {
    let hostile = [
        "{% for a in range(10000) %}{% for b in range(10000) %}{% for c in range(10000) %}x{% endfor %}{% endfor %}{% endfor %}",
        "{% for a in range(10000) %}{% for b in range(10000) %}{% set x = a * b %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(x='xxxxxxxxxxxxxxxx') %}{% for a in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x='xxxxxxxxxxxxxxxx') %}{% for a in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for a in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x | length }}{{ ns.x | tojson }}",
        "{% set ns = namespace(x='x') %}{% for a in range(60) %}{% set ns.x = ns.x.replace('x', 'xxxx') %}{% endfor %}",
        "{% set ns = namespace(x='x') %}{% for a in range(60) %}{% set ns.x = '%s%s' | format(ns.x, ns.x) %}{% endfor %}",
        "{% set ns = namespace(x='x') %}{% for a in range(60) %}{% set ns.x = [ns.x, ns.x] | join(ns.x) %}{% endfor %}",
        "{% set ns = namespace(x=['x']) %}{% for a in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}",
        "{% set ns = namespace(x=['x']) %}{% for a in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=['x']) %}{% for a in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x ~ '' }}",
        "{% set ns = namespace(x=['x']) %}{% for a in range(60) %}{% set ns.x = [ns.x] * 3 %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=['x']) %}{% for a in range(60) %}{% set ns.x = {'a': ns.x, 'b': ns.x} %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=['x']) %}{% for a in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
        "{{ 'x' * 100000000000 }}",
        "{{ ('x' * 10000000) * 10000 }}",
        "{{ range(100000000000) | list | length }}",
        "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(0) }}",
        "{{ '%1000000000s' | format('x') }}",
        "{{ 'x' | indent(1000000000, true) }}",
        "{{ 'x' | center(1000000000) }}",
        "{{ {'a': 1} | tojson(indent=1000000000) }}",
    ];
    for source in hostile {
        stops(source);
    }
}

/// It fails, and soon; in what time is measured in a release build, this only tells seconds from hours.
#[track_caller]
fn stops(source: &str) {
    let start = Instant::now();
    let error = fails(source);
    let spent = start.elapsed();
    assert!(spent < Duration::from_secs(8), "{source}: {spent:?}, {error}");
}

/// Fifteen lists, each of them the one before twice: as a tree they have 16,384 leaves, and as many as that are paid for.
/// What is done with them is done 10^8 times: it is stopped only if it is paid for too.
const TREE: &str =
    "{% set n = namespace(x='x') %}{% for a in range(14) %}{% set n.x = [n.x, n.x] %}{% endfor %}";
const OFTEN: &str = "{% for a in range(10000) %}{% for b in range(10000) %}";
const END: &str = "{% endfor %}{% endfor %}";

#[test]
fn lists_made_of_themselves_are_paid_for_wherever_they_go() {
    let uses = [
        "{{ n.x | join }}",
        "{{ n.x == [1] }}{{ n.x == n.x }}",
        "{{ n.x == n.x[0:] }}{{ n.x < n.x }}{{ n.x != n.x }}",
        "{{ n.x in [[n.x]] }}",
        "{{ [n.x] | select('in', [n.x]) | list }}",
        "{{ [n.x, n.x] | unique | list }}",
        "{{ [n.x, n.x] | sort }}",
        "{{ n.x is eq(n.x) }}",
        "{{ n.x | string }}",
        "{{ n.x | pprint }}",
        "{{ {'a': n.x} | dictsort }}",
        "{{ {n.x: 1} }}",
        "{{ '%s' | format(n.x) }}",
        "{{ n.x.count(n.x) }}",
        "{{ n.x | map('join') | list }}",
        "{{ n.x | map('upper') | list }}",
        "{{ [1] | map(attribute='q', default=n.x) | list }}",
        "{% macro f(y, z=[y, y]) %}{{ z | join }}{% endmacro %}{{ f(n.x) }}",
        "{% set y %}{{ n.x }}{% endset %}",
        "{% with y = [n.x, n.x] %}{{ y | join }}{% endwith %}",
        "{% for y in [n.x, n.x] %}{{ loop.changed(y) }}{% endfor %}",
        "{{ dict(a=n.x) | tojson }}",
        "{{ n.x | reverse }}{{ n.x + n.x }}{{ n.x ~ n.x }}",
        "{{ n.x | min }}",
        "{{ [n.x, n.x] | rejectattr('x', 'eq', n.x) | list }}",
        "{% if {'a': 1}[n.x] %}{% endif %}",
        "{% filter replace(n.x, 'x') %}x{% endfilter %}",
        "{% set y | replace(n.x, 'x') %}x{% endset %}",
    ];
    for use_of_it in uses {
        stops(&format!("{TREE}{OFTEN}{use_of_it}{END}"));
    }
    stops("{% set n = namespace(x='x') %}{% for a in range(40) %}{% set n.x = [n.x, n.x] %}{% endfor %}");
}

#[test]
fn lists_that_grow_by_any_means_are_stopped() {
    let hostile = [
        "{% set r = range(1000) %}{{ r | map(attribute='q', default=r | map(attribute='q', default=r | list) | list) | join }}",
        "{{ (range(1000) | batch(1, range(1000) | list) | list) * 1000 == 1 }}",
        "{{ ([[1] * 1000] * 1000) * 1000 == ([[1] * 1000] * 1000) * 1000 }}",
        "{{ 3 * [[1]] }}",
        "{{ range(100000) | map(attribute='q', default='x' * 1000) | sum(start='') }}",
        "{{ range(100000) | map(attribute='q', default='x' * 100000) | join }}",
        "{{ range(100000) | join('x' * 100000) }}",
        "{{ [1] | batch(1000000000000, 1) | list }}",
        "{{ [1] | slice(1000000000000, 1) | list }}",
        "{{ [[[[[[[[1]]]]]]]] | tojson(indent=16) }}{% for a in range(10000) %}{% for b in range(10000) %}{{ [[[[1]]]] | tojson(indent=16) }}{% endfor %}{% endfor %}",
        "{% set n = namespace(x=[1]) %}{% for a in range(60) %}{% set n.x = n.x | zip(n.x) | list %}{% set n.x = [n.x, n.x] %}{% endfor %}",
        "{% set n = namespace(x='x') %}{% for a in range(60) %}{% set n.x = {n.x: n.x} %}{% endfor %}{{ n.x | length }}{{ {n.x: n.x} == n.x | items }}{% for a in range(100000) %}{% for b in range(100000) %}{{ n.x }}{% endfor %}{% endfor %}",
        "{% set n = namespace(x='x') %}{% set x = 'xxxxxxxxxxxxxxxx' * 10000 %}{% for a in range(100000) %}{% set n.x = x.replace('x', 'yyyyyyyyyyyyyyyyyy') %}{% endfor %}",
        "{% set x = 'x' * 1000000 %}{% for a in range(100000) %}{% if x == x ~ '' %}{% endif %}{% endfor %}",
        "{% set x = range(100000) | list %}{% for a in range(100000) %}{% if 'a' in x %}{% endif %}{% endfor %}",
        "{% set x = 'x' * 5000000 %}{% for a in range(10000) %}{% for b in range(10000) %}{{ x.find('y') }}{% endfor %}{% endfor %}",
        "{% set x = 'x' * 5000000 %}{% set n = namespace() %}{% for a in range(100) %}{% set n.x = [n.x, x.split('x'), x.splitlines(), x.split()] %}{% endfor %}",
        "{{ ('x' * 6000000) | split('x') }}",
        "{{ ('\n' * 6000000) | lines }}",
        "{{ ('x' * 6000000) | list }}",
        "{{ '{:1000000000}'.format('x') }}",
        "{{ ('{0}' * 20000).format('x' * 5000000) }}",
        "{{ ('%(a)s' * 20000) | format(a='x' * 5000000) }}",
        "{% set x = ['x'] * 10000 %}{{ ('%(a)s' * 20000) | format(a=x) }}",
        "{% set n = namespace(x=3) %}{% for a in range(10000) %}{% for b in range(10000) %}{% set n.x = n.x * n.x %}{% endfor %}{% endfor %}",
        "{% for a in range(10000) %}{% for b in range(10000) %}{% set x = 2 ** 100000 %}{% endfor %}{% endfor %}",
        "{% set n = namespace() %}{% set n.x = n %}",
        "{% set n = namespace() %}{% set n.x = [{'a': n}] %}",
        "{% set n = namespace() %}{% for a in [1] %}{% set n.x = loop %}{% endfor %}",
        "{% for a in [1] %}{{ loop.changed(loop) }}{% endfor %}",
    ];
    for source in hostile {
        stops(source);
    }
    let x = "{% set x = range(3000) | list %}";
    let sum = " + x".repeat(499);
    stops(&format!("{x}{{{{ (x{sum}) | join }}}}"));
    stops(&format!("{x}{{{{ x{sum} == x{sum} }}}}"));
    let nested = "(".repeat(70) + "x" + &" + x)".repeat(70);
    stops(&format!("{x}{{{{ {nested} == {nested} }}}}{{{{ [{nested}] * 100000 }}}}"));
}

#[test]
fn deep_and_long_expressions_come_to_an_end() {
    let deep = [
        "{{".to_owned() + &"(".repeat(9_000) + "1" + &")".repeat(9_000) + "}}",
        "{{".to_owned() + &"[".repeat(9_000) + "1" + &"]".repeat(9_000) + "}}",
        "{{".to_owned() + &"not ".repeat(16_000) + "1}}",
        "{{ 1".to_owned() + &" ~ 1".repeat(9_000) + "}}",
        "{{ 1".to_owned() + &" if 1 else 1".repeat(5_000) + "}}",
        "{{ messages".to_owned() + &"|first".repeat(9_000) + "}}",
        "{{ messages".to_owned() + &"[0]".repeat(9_000) + "}}",
        "{{ -".to_owned() + &"-".repeat(20_000) + "1}}",
        "{% if 1 %}".repeat(6_500),
        ("{{ 1".to_owned() + &" ~ 1".repeat(1_998) + "}}").repeat(8),
        ("{{ 1".to_owned() + &" == 1".repeat(1_998) + "}}").repeat(6),
        ("{{ 1".to_owned() + &" and 1".repeat(1_998) + "}}").repeat(4),
        "{% set x = [".to_owned() + &"1,".repeat(30_000) + "] %}",
        "{{ 1".to_owned() + &" ~ 1".repeat(9_000),
        "{% set x = ".to_owned() + &"{1:".repeat(9_000),
        "{{ ))]]}{% )) + a * (".to_owned(),
    ];
    for source in &deep {
        let start = Instant::now();
        // Whether it works or is refused, it comes to an end.
        let _ = ChatTemplate::new(source, "", "").and_then(|template| template.render(&[], true));
        assert!(start.elapsed() < Duration::from_secs(8), "{}", &source[..20]);
    }
}

#[test]
fn long_conversations_are_no_harm() {
    let template = include_str!("../../tests/data/templates/headers.jinja");
    let template = ChatTemplate::new(template, "<s>", "</s>").expect("a template");
    let long = "word ".repeat(20_000);
    let said: Vec<(&str, &str)> = (0..10).map(|at| (["user", "assistant"][at % 2], long.as_str())).collect();
    let text = template.render(&messages(&said), true).expect("ten long messages");
    assert!(text.len() > 900_000);
}
