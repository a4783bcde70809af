use blitz_site::matcher::{Pattern, Router, RouterBuilder, Token};
use proptest::prelude::*;

/// Matches by trying every route: slow, and simple enough to be obviously correct.
fn naive<'r>(patterns: &'r [Pattern], path: &str) -> Option<(&'r Pattern, Vec<String>)> {
    let matching = patterns.iter().filter_map(|pattern| {
        let params = naive_match(pattern.tokens(), path)?;
        Some((precedence(pattern.tokens()), pattern, params))
    });
    matching
        .min_by_key(|(key, ..)| key.clone())
        .map(|(_, pattern, params)| (pattern, params))
}

fn naive_match(tokens: &[Token], path: &str) -> Option<Vec<String>> {
    match tokens {
        [] => path.is_empty().then(Vec::new),
        [Token::Rest, ..] => Some(vec![path.to_owned()]),
        [Token::Literal(literal), after @ ..] => {
            let literal = std::str::from_utf8(literal).ok()?;
            naive_match(after, path.strip_prefix(literal)?)
        }
        [Token::Param(kind), after @ ..] => {
            let (segment, rest) = path.split_at(path.find('/').unwrap_or(path.len()));
            kind.measure(segment.as_bytes())?;
            let mut params = naive_match(after, rest)?;
            params.insert(0, segment.to_owned());
            Some(params)
        }
    }
}

/// Smaller is better, decided at the first byte where two routes differ.
fn precedence(tokens: &[Token]) -> Vec<Token> {
    let mut key = Vec::new();
    for token in tokens {
        match token {
            Token::Literal(bytes) => key.extend(bytes.iter().map(|b| Token::Literal(vec![*b]))),
            other => key.push(other.clone()),
        }
    }
    key
}

fn build(patterns: &[Pattern]) -> Router<Option<Pattern>> {
    let mut builder = RouterBuilder::<Option<Pattern>>::default();
    for pattern in patterns {
        builder
            .entry(pattern)
            .get_or_insert_with(|| pattern.clone());
    }
    builder.build()
}

#[track_caller]
fn agree(router: &Router<Option<Pattern>>, patterns: &[Pattern], path: &str) {
    let expected = naive(patterns, path);
    let found = router.find(path).map(|(pattern, params)| {
        let values = (0..params.len()).map(|at| params.get(path, at).expect("in range").to_owned());
        (pattern.as_ref().expect("set"), values.collect::<Vec<_>>())
    });
    let shape = |found: &Option<(&Pattern, Vec<String>)>| {
        found
            .as_ref()
            .map(|(pattern, params)| (pattern.tokens().to_vec(), params.clone()))
    };
    assert_eq!(
        shape(&found),
        shape(&expected),
        "path {path:?} among {patterns:?}"
    );
}

fn segment() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "a", "ab", "abc", "b", "users", "user", "7", "-7", "42", "user-", "user-{p}", "a{p:u64}",
        "{p}", "{p}", "{p:u64}", "{p:u32}", "{p:i64}", "{p:i32}", "{p:str}", "{p:uuid}", "",
    ])
}

fn pattern() -> impl Strategy<Value = Pattern> {
    (prop::collection::vec(segment(), 1..5), any::<bool>()).prop_map(|(segments, rest)| {
        let mut text = String::new();
        for (at, segment) in segments.iter().enumerate() {
            text.push('/');
            text.push_str(&segment.replace("{p", &format!("{{p{at}")));
        }
        if rest {
            text.push_str("/{rest...}");
        }
        Pattern::parse(&text).expect("a good pattern")
    })
}

fn path() -> impl Strategy<Value = String> {
    let segments = prop::sample::select(vec![
        "a",
        "ab",
        "abc",
        "abcd",
        "b",
        "users",
        "user",
        "user-",
        "user-x",
        "7",
        "-7",
        "a7",
        "42",
        "4294967295",
        "4294967296",
        "-2147483648",
        "-2147483649",
        "99999999999999999999",
        "",
        "%2F",
        "01234567-89ab-cdef-0123-456789ABCDEF",
        "x",
    ]);
    prop::collection::vec(segments, 1..6).prop_map(|segments| format!("/{}", segments.join("/")))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn random_routes_and_paths(
        patterns in prop::collection::vec(pattern(), 1..12),
        paths in prop::collection::vec(path(), 1..12),
    ) {
        let router = build(&patterns);
        for path in &paths {
            agree(&router, &patterns, path);
        }
    }
}

#[test]
fn literals_precede_parameters_and_parameters_precede_the_catch_all() {
    let texts = [
        "/u/me",
        "/u/{id:u64}",
        "/u/{name}",
        "/u/{rest...}",
        "/u/{name}/edit",
        "/{all...}",
    ];
    let patterns = texts.map(|text| Pattern::parse(text).unwrap());
    let router = build(&patterns);
    let found = |path: &str| {
        router
            .find(path)
            .map(|(p, _)| p.as_ref().unwrap().text().to_owned())
    };
    assert_eq!(found("/u/me").as_deref(), Some("/u/me"));
    assert_eq!(found("/u/12").as_deref(), Some("/u/{id:u64}"));
    assert_eq!(found("/u/mel").as_deref(), Some("/u/{name}"));
    assert_eq!(found("/u/me/edit").as_deref(), Some("/u/{name}/edit"));
    assert_eq!(found("/u/12/edit").as_deref(), Some("/u/{name}/edit"));
    assert_eq!(found("/u/me/delete").as_deref(), Some("/u/{rest...}"));
    assert_eq!(found("/u/").as_deref(), Some("/u/{rest...}"));
    assert_eq!(found("/u").as_deref(), Some("/{all...}"));
    assert_eq!(found("/").as_deref(), Some("/{all...}"));
}

#[test]
fn literals_are_normalised_like_paths() {
    let patterns = ["/caf\u{e9}", "/a b", "/%7euser", "/x%2fy"].map(|t| Pattern::parse(t).unwrap());
    let router = build(&patterns);
    for path in ["/caf%C3%A9", "/a%20b", "/~user", "/x%2Fy"] {
        assert!(router.find(path).is_some(), "{path}");
    }
    assert!(router.find("/x/y").is_none());
}

#[test]
fn overlapping_routes_cost_no_more_than_their_number() {
    // Every level has a literal and a parameter; only the last byte differs.
    let mut patterns = Vec::new();
    for bits in 0..1 << 8 {
        let segment = |level: usize| match bits >> level & 1 {
            0 => "a".to_owned(),
            _ => format!("{{p{level}}}"),
        };
        let text: String = (0..8).map(|level| format!("/{}", segment(level))).collect();
        patterns.push(Pattern::parse(&format!("{text}/end")).unwrap());
    }
    let router = build(&patterns);
    assert!(router.find("/a/a/a/a/a/a/a/a/other").is_none());
    agree(&router, &patterns, "/a/b/a/b/a/b/a/b/end");
}
