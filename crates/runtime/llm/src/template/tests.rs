//! Templates of the shapes that models have, against what Jinja2 makes of them; and templates that mean harm.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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

fn noon() -> SystemTime {
    // 2024-07-26, 12:00 UTC.
    UNIX_EPOCH + Duration::from_secs(1_721_995_200)
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

fn fails(source: &str) -> TemplateError {
    let said = messages(CONVERSATIONS[2]);
    match ChatTemplate::new(source, "", "").and_then(|template| template.render(&said, true)) {
        Ok(text) => panic!("{} bytes of text", text.len()),
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
        let start = Instant::now();
        let error = fails(source);
        let spent = start.elapsed();
        assert!(spent < Duration::from_secs(8), "{source}: {spent:?}, {error}");
    }
    let deep = [
        "{{".to_owned() + &"(".repeat(9_000) + "1" + &")".repeat(9_000) + "}}",
        "{{".to_owned() + &"[".repeat(9_000) + "1" + &"]".repeat(9_000) + "}}",
        "{{".to_owned() + &"not ".repeat(16_000) + "1}}",
        "{{ 1".to_owned() + &" ~ 1".repeat(2_000) + "}}",
        "{{ 1".to_owned() + &" if 1 else 1".repeat(5_000) + "}}",
        "{{ messages".to_owned() + &"|first".repeat(9_000) + "}}",
        "{{ messages".to_owned() + &"[0]".repeat(9_000) + "}}",
        "{{ -".to_owned() + &"-".repeat(20_000) + "1}}",
        "{% if 1 %}".repeat(9_000),
    ];
    for source in &deep {
        // Whether it works or is refused, it comes to an end.
        let _ = ChatTemplate::new(source, "", "").and_then(|template| template.render(&[], true));
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
