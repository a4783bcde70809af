use super::form::Form;
use super::hash::PasswordHash;
use super::*;

const PASSWORD: &str = "correct horse";

/// Written by htpasswd 2.4 (`-B -C 4`, `-m`, `-s`, `-2`, `-5`), by the `crypt` of glibc, and by the tests of the reference
/// of Argon2.
const HASHES: [(&str, &str); 12] = [
    (
        PASSWORD,
        "$2y$04$h/7S41x30F.sMYnoyB3lf.MxJhOKOELlEBQ3J9.H6PQJG7nyPhPxK",
    ),
    (PASSWORD, "$apr1$pC/X/ZVs$OZa3g8Azq0O90HoJ64vdj0"),
    (PASSWORD, "{SHA}L55TUjtiq8FBorTWAZ0jy6g129A="),
    (
        "p",
        "$5$cBI8WcTg4RwawD9L$hyb0.S2h86sD61ScJwoulPXha4kLmw2pFJo6DQtj.V4",
    ),
    (
        PASSWORD,
        "$6$Mh3.Tx0LW.2emkGT$wPr7IWek5iXMutdpWqXF8AQaZ.659QBuM.ihU9FXehuhkbjL4kMulPaMkP6zMugECwDSJ0VSqwzaTLSaG4U6F1",
    ),
    (
        PASSWORD,
        "$5$rounds=2000$salt$zhQaeF3uPoU2lSVkqEtysXW5kOLYr9WAeVFjtz0Jp0.",
    ),
    (
        "a longer password of more than 64 bytes, so that several blocks are hashed...",
        "$6$rounds=1500$sixteencharssalt$BrlYoS4sdBzAZdK54r9ybKvsHfu7lJYw67HsP15m2wsxIibigS.f9pQd0idI98iY4pDSod05Ih7.lOUVaz40i1",
    ),
    ("ü", "$apr1$abcdefgh$JNY9bj4hb5VHXHQxpSV.41"),
    ("", "$apr1$abcdefgh$L.PT565ESX4Tp2bqNs7Ie."),
    (
        "password",
        "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
    ),
    // Of 80 bytes, of which bcrypt takes 72.
    (
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "$2y$05$kuPclJOYaYuskEaK2b6FGe0PWhgc.Nn2BNUlsRQdJbqf2ts9HPpii",
    ),
    (
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "$2a$05$kuPclJOYaYuskEaK2b6FGe0PWhgc.Nn2BNUlsRQdJbqf2ts9HPpii",
    ),
];

#[test]
fn passwords_are_checked_by_all_functions() {
    for (password, text) in HASHES {
        let hash = PasswordHash::parse(text).expect(text);
        assert!(hash.is_of(password.as_bytes()), "{text}");
        for wrong in ["", "correct horsf", "correct horse\0", "passwort"] {
            assert!(wrong == password || !hash.is_of(wrong.as_bytes()), "{text}");
        }
        let is_weak = text.starts_with("{SHA}") || text.starts_with("$apr1$");
        assert_eq!(hash.is_weak(), is_weak, "{text}");
    }
}

#[test]
fn hashes_that_are_damaged_or_too_costly_are_refused() {
    let problem = |text: &str| match PasswordHash::parse(text) {
        Ok(_) => "accepted".to_owned(),
        Err((problem, remedy)) => {
            assert!(!remedy.is_empty());
            problem
        }
    };
    for (_, text) in HASHES {
        let cut = &text[..text.len() - 1];
        assert!(problem(cut).contains("cut off"), "{cut}");
        let longer = format!("{text}x");
        assert!(
            problem(&longer).contains("cut off") || text.contains("argon2"),
            "{longer}"
        );
    }
    for text in [
        "$2y$17$h/7S41x30F.sMYnoyB3lf.MxJhOKOELlEBQ3J9.H6PQJG7nyPhPxK",
        "$6$rounds=1000001$salt$BrlYoS4sdBzAZdK54r9ybKvsHfu7lJYw67HsP15m2wsxIibigS.f9pQd0idI98iY4pDSod05Ih7.lOUVaz40i1",
        "$argon2id$v=19$m=262145,t=1,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
        "$argon2id$v=19$m=65536,t=100,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
    ] {
        assert!(problem(text).contains("too long"), "{text}");
    }
    for text in [
        "$2y$03$h/7S41x30F.sMYnoyB3lf.MxJhOKOELlEBQ3J9.H6PQJG7nyPhPxK",
        "$5$rounds=10$salt$zhQaeF3uPoU2lSVkqEtysXW5kOLYr9WAeVFjtz0Jp0.",
        "$argon2id$v=19$m=256,t=2$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
        "$argon2id$v=19$m=256,t=2,p=1,x=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
        "$argon2id$v=16$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
        "$argon2id$v=19$m=256,t=0,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
    ] {
        assert!(problem(text).contains("cut off"), "{text}");
    }
    for text in [
        "$1$saltsalt$2vnaRpHa6Jxjz5n83ok8Z0",
        "$2x$04$x",
        "$argon2i$v=19$x",
        "{SSHA}x",
    ] {
        assert!(problem(text).contains("another form"), "{text}");
    }
    for text in ["", "hunter2", "abJnggxhB/yWI"] {
        assert!(problem(text).contains("not hashed"), "{text}");
    }
}

#[test]
fn users_are_read_with_the_lines_of_mistakes() {
    let good = HASHES[0].1;
    let weak = HASHES[2].1;
    let text = format!("# staff\r\n\r\nanna:{good}:a comment\r\nbob:{weak}\n\"carl x\":{weak}");
    let (users_of_file, note) = users(text.as_bytes()).expect("they are good");
    assert!(users_of_file.find(b"anna").is_some() && users_of_file.find(b"bob").is_some());
    assert!(users_of_file.find(b"Anna").is_none() && users_of_file.find(b"").is_none());
    let note = note.expect("some are weak");
    assert!(
        note.starts_with("2 passwords") && note.ends_with("line 4"),
        "{note}"
    );
    // A comment does not change who has been checked.
    let plain = format!("anna:{good}");
    let (plain, note) = users(plain.as_bytes()).expect("it is good");
    assert!(note.is_none());
    let line = |users: &Users| users.find(b"anna").map(|user| user.line().to_vec());
    assert_eq!(line(&plain), line(&users_of_file));
    for (text, expected) in [
        (String::new(), "the file has no users"),
        ("\n# nobody\n".to_owned(), "the file has no users"),
        (
            format!("anna:{good}\nhunter2"),
            "line 2 has not the form of a user",
        ),
        (
            format!("\n\n:{good}"),
            "line 3 has a name that no client can say",
        ),
        (
            "anna:hunter2".to_owned(),
            "line 1 has a password that is not hashed",
        ),
        (
            format!("anna:{good}\nanna:{weak}"),
            "line 2 has the name of line 1",
        ),
        (format!("{}:{good}", "x".repeat(256)), "line 1 has a name"),
    ] {
        let (problem, remedy) = users(text.as_bytes()).map(|_| ()).expect_err(&text);
        assert!(problem.starts_with(expected), "{problem}");
        assert!(!problem.contains("hunter2") && !remedy.contains("hunter2"));
    }
}

#[test]
fn credentials_have_a_name_and_a_password() {
    let decode = |text: &str| {
        let found = Credentials::decode(STANDARD.encode(text).as_bytes())?;
        Some((found.name, found.password))
    };
    let parts = |name: &str, password: &str| Some((name.into(), password.into()));
    assert_eq!(decode("anna:secret"), parts("anna", "secret"));
    assert_eq!(decode("anna:a:b:"), parts("anna", "a:b:"));
    assert_eq!(decode(":x"), parts("", "x"));
    assert_eq!(decode("anna:"), parts("anna", ""));
    assert_eq!(decode("änna:ü"), parts("änna", "ü"));
    for wrong in ["anna", "", "an\0na:x", "anna:x\n", "anna:\u{7f}"] {
        assert_eq!(decode(wrong), None, "{wrong:?}");
    }
    assert_eq!(
        decode(&format!("a:{}", "x".repeat(CREDENTIALS_BYTES_MAX))),
        None
    );
    for wrong in ["YTpi=", "YTpi YTpi", "YTp", "*", "YTpi\u{e4}"] {
        assert!(Credentials::decode(wrong.as_bytes()).is_none(), "{wrong}");
    }
    assert!(Credentials::decode(b"YTpi").is_some());
}

/// The forms that a password is checked by, and whether it is right, where it is that of the user or not.
fn checked(users: &Users, name: &[u8], is_of_user: bool) -> (Vec<Form>, bool) {
    let user = users.find(name);
    let hashes = users.hashes_for(user);
    let mut forms = Vec::new();
    let is_right = verifier::is_right(&hashes, user.is_some(), |hash| {
        forms.push(hash.form());
        // Passwords of others do not count.
        is_of_user || forms.len() > 1
    });
    (forms, is_right)
}

#[test]
fn each_refusal_checks_a_hash_of_each_form() {
    let text: String = (0..)
        .zip(HASHES)
        .map(|(number, (_, hash))| format!("user{number}:{hash}\n"))
        .collect();
    let (few, _) = users(
        text.lines()
            .take(3)
            .collect::<Vec<_>>()
            .join("\n")
            .as_bytes(),
    )
    .unwrap();
    let (bcrypt, md5, sha1) = (Form::Bcrypt { cost: 4 }, Form::Apr1, Form::Sha1);
    for (name, first) in [
        (&b"nobody"[..], bcrypt),
        (b"user", bcrypt),
        (b"user0", bcrypt),
        (b"user1", md5),
        (b"user2", sha1),
    ] {
        let (mut forms, is_right) = checked(&few, name, false);
        assert!(!is_right);
        assert_eq!(forms[0], first, "{name:?}");
        forms.sort_unstable_by_key(|form| std::cmp::Reverse(form.nanoseconds()));
        assert_eq!(forms, [bcrypt, md5, sha1], "{name:?}");
    }
    // A right password is checked once.
    assert_eq!(checked(&few, b"user2", true), (vec![sha1], true));
    assert!(!checked(&few, b"nobody", true).1);
    // Of many forms the dearest ones count.
    let (many, _) = users(text.as_bytes()).unwrap();
    let dearest = checked(&many, b"nobody", false).0;
    let sha = |is_512, rounds| Form::ShaCrypt { is_512, rounds };
    let cost = |cost| Form::Bcrypt { cost };
    assert_eq!(
        dearest,
        [sha(false, 5000), sha(true, 5000), cost(5), sha(false, 2000)]
    );
    for (number, (_, hash)) in (0..).zip(HASHES) {
        let forms = checked(&many, format!("user{number}").as_bytes(), false).0;
        assert_eq!(
            forms[0],
            PasswordHash::parse(hash)
                .map(|hash| hash.form())
                .ok()
                .unwrap()
        );
        assert!(dearest.iter().all(|form| forms.contains(form)), "{forms:?}");
    }
}

#[test]
fn all_that_a_check_costs_is_part_of_the_form() {
    let of = |text: &str| {
        PasswordHash::parse(text)
            .map(|hash| hash.form())
            .ok()
            .unwrap()
    };
    let argon2 = |parameters: &str| {
        of(&format!(
            "$argon2id$v=19${parameters}$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4"
        ))
    };
    let forms = [
        "m=256,t=2,p=1",
        "m=512,t=2,p=1",
        "m=256,t=3,p=1",
        "m=256,t=2,p=2",
    ]
    .map(argon2);
    for (at, form) in forms.iter().enumerate() {
        assert!(!forms[..at].contains(form), "{form:?}");
    }
    assert!(forms[1].nanoseconds() > forms[2].nanoseconds());
}

#[test]
fn the_challenge_has_the_realm_as_a_quoted_string() {
    let (users, _) = users(format!("anna:{}", HASHES[0].1).as_bytes()).unwrap();
    let policy = BasicAuth::new(Arc::new(users), "a \"b\" \\");
    let crate::edit::FieldChange::Add(value) = policy.challenge().change else {
        panic!("it adds a line");
    };
    assert_eq!(value, br#"Basic realm="a \"b\" \\", charset="UTF-8""#);
}
