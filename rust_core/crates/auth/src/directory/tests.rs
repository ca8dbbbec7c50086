//! Who is admitted, and which settings are refused.

use super::*;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::signature::{Ed25519KeyPair, KeyPair};

const BY: ConnectionType = ConnectionType::Standard;

fn directory(settings: &str) -> Directory {
    let settings: AuthSettings = serde_json::from_str(settings).expect("settings");
    Directory::new(&settings, None).expect("valid")
}

fn fault(settings: &str) -> String {
    let settings: AuthSettings = serde_json::from_str(settings).expect("settings");
    Directory::new(&settings, None)
        .expect_err("invalid")
        .to_string()
}

fn in_(by: ConnectionType) -> Circumstances<'static> {
    Circumstances {
        by,
        nonce: b"nonce",
        now: 0,
    }
}

fn decided(directory: &Directory, given: &Credentials<'_>) -> Result<String, Refusal> {
    let decision = match directory.decide(given, in_(BY)) {
        Decision::Made(made) => made,
        Decision::Slow(check) => check.finish(),
    };
    decision.map(|identity| identity.user.to_string())
}

fn user<'a>(name: &'a str, password: &'a str) -> Credentials<'a> {
    Credentials {
        user: Some(name),
        password: Some(password),
        ..Default::default()
    }
}

fn token(token: &str) -> Credentials<'_> {
    Credentials {
        token: Some(token),
        ..Default::default()
    }
}

#[test]
fn a_token_admits() {
    let directory = directory(r#"{"token": "s3cret"}"#);
    assert!(directory.is_required() && !directory.needs_nonce());
    assert_eq!(decided(&directory, &token("s3cret")), Ok(String::new()));
    assert_eq!(decided(&directory, &token("s3cret2")), Err(Refusal::Wrong));
    assert_eq!(
        decided(&directory, &user("s3cret", "s3cret")),
        Err(Refusal::Unknown)
    );
    for nothing in [Credentials::default(), token(""), user("", "")] {
        assert_eq!(decided(&directory, &nothing), Err(Refusal::Absent));
    }
}

#[test]
fn passwords_admit_users_in_their_ways() {
    let directory = directory(
        r#"{"users": [
            {"name": "ann", "password": "a", "connection_types": ["WEBSOCKET"], "max_connections": 3},
            {"name": "bob", "password": "b", "permissions": {"subscribe": {"allow": ["c.{user}"]}}}
        ], "no_auth_user": "bob"}"#,
    );
    assert!(!directory.is_required());
    assert_eq!(
        decided(&directory, &Credentials::default()),
        Ok("bob".into())
    );
    assert_eq!(decided(&directory, &user("bob", "b")), Ok("bob".into()));
    assert_eq!(decided(&directory, &user("bob", "a")), Err(Refusal::Wrong));
    assert_eq!(decided(&directory, &user("bob", "")), Err(Refusal::Wrong));
    assert_eq!(
        decided(&directory, &user("eve", "a")),
        Err(Refusal::Unknown)
    );
    assert_eq!(
        decided(&directory, &user("ann", "a")),
        Err(Refusal::ConnectionType)
    );
    let Decision::Made(Ok(ann)) =
        directory.decide(&user("ann", "a"), in_(ConnectionType::Websocket))
    else {
        panic!("admitted");
    };
    assert_eq!((&*ann.user, ann.max_connections), ("ann", 3));
    let Decision::Made(Ok(bob)) = directory.decide(&user("bob", "b"), in_(BY)) else {
        panic!("admitted");
    };
    assert!(bob.grant.may_subscribe(b"c.bob", None) && !bob.grant.may_subscribe(b"c.ann", None));
}

#[test]
fn hashes_are_checked_elsewhere_and_unknown_users_take_as_long() {
    let hash = Password::hash("s3cret").expect("hash");
    let directory = directory(&format!(
        r#"{{"users": [{{"name": "ann", "password": "{hash}"}}]}}"#
    ));
    for (name, password, expected) in [
        ("ann", "s3cret", Ok("ann".to_owned())),
        ("ann", "other", Err(Refusal::Wrong)),
        ("eve", "s3cret", Err(Refusal::Unknown)),
    ] {
        let Decision::Slow(check) = directory.decide(&user(name, password), in_(BY)) else {
            panic!("{name} is decided at once");
        };
        assert!(!format!("{check:?}").contains("s3cret"));
        assert_eq!(
            check.finish().map(|identity| identity.user.to_string()),
            expected
        );
    }
}

#[test]
fn an_nkey_signs_the_nonce() {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[3; 32]).expect("seed");
    let nkey = PublicKey::user(pair.public_key().as_ref())
        .expect("key")
        .to_string();
    let directory = directory(&format!(r#"{{"users": [{{"nkey": "{nkey}"}}]}}"#));
    assert!(directory.needs_nonce());
    let sign = |nonce: &[u8]| BASE64.encode(pair.sign(nonce));
    let given = |signature: &str| {
        let credentials = Credentials {
            nkey: Some(&nkey),
            signature: Some(signature),
            ..Default::default()
        };
        decided(&directory, &credentials)
    };
    assert_eq!(given(&sign(b"nonce")), Ok(nkey.clone()));
    assert_eq!(given(&sign(b"other")), Err(Refusal::Wrong));
    assert_eq!(given(""), Err(Refusal::Wrong));
    let other = nkey.replace('U', "A");
    let credentials = Credentials {
        nkey: Some(&other),
        ..Default::default()
    };
    assert_eq!(decided(&directory, &credentials), Err(Refusal::Unknown));
}

#[test]
fn faults_name_their_key() {
    for (settings, text) in [
        (
            r#"{"users": [{"name": "a"}, {"password": "x"}]}"#,
            "auth.users[1].name: a user needs a name",
        ),
        (
            r#"{"users": [{"name": "a"}, {"name": "a"}]}"#,
            r#"auth.users[1].name: two users have the name "a""#,
        ),
        (
            r#"{"users": [{"nkey": "UA"}]}"#,
            "auth.users[0].nkey: not a public nkey",
        ),
        (
            r#"{"no_auth_user": "eve"}"#,
            r#"auth.no_auth_user: there is no user "eve""#,
        ),
        (
            r#"{"token": ""}"#,
            "auth.token: an empty secret admits everybody",
        ),
        (r#"{"token": "$2b$12$short"}"#, "auth.token: bcrypt hash"),
        (r#"{"jwt": {}}"#, "auth.jwt.jwks: a key set is needed"),
        (
            r#"{"users": [{"name": "a", "permissions": {"publish": {"deny": ["a..b"]}}}]}"#,
            r#"auth.users[0].permissions.publish.deny: "a..b": subject has an empty token"#,
        ),
    ] {
        let found = fault(settings);
        assert!(found.starts_with(text), "{found} instead of {text}");
    }
    let unknown = serde_json::from_str::<AuthSettings>(r#"{"user": []}"#);
    assert!(
        unknown
            .expect_err("unknown key")
            .to_string()
            .contains("unknown field")
    );
}

#[test]
fn bearer_tokens_and_a_shared_token_come_in_one_field() {
    let secret = [9; 32];
    let keys = format!(
        r#"{{"keys": [{{"kty": "oct", "k": "{}"}}]}}"#,
        BASE64.encode(secret)
    );
    let message = [r#"{"alg":"HS256"}"#, r#"{"sub":"ann"}"#]
        .map(|part| BASE64.encode(part))
        .join(".");
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &secret);
    let signature = BASE64.encode(ring::hmac::sign(&key, message.as_bytes()));
    let (good, forged) = (
        format!("{message}.{signature}"),
        format!("{message}.{}", BASE64.encode([0; 32])),
    );
    for shared in ["s3cret".to_owned(), Password::hash("s3cret").expect("hash")] {
        let settings = format!(r#"{{"token": "{shared}", "jwt": {{}}}}"#);
        let settings: AuthSettings = serde_json::from_str(&settings).expect("settings");
        let directory = Directory::new(&settings, Some(keys.as_bytes())).expect("valid");
        assert_eq!(decided(&directory, &token(&good)), Ok("ann".into()));
        assert_eq!(decided(&directory, &token("s3cret")), Ok(String::new()));
        for wrong in [&forged, "other"] {
            assert!(decided(&directory, &token(wrong)).is_err());
        }
    }
}
