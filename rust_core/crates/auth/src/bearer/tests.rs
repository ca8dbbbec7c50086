//! Tokens that are verified, and tokens and key sets that are refused.

use super::*;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use serde_json::json;

const NOW: u64 = 1_800_000_000;
const SECRET: [u8; 32] = [9; 32];

fn encoded(value: &Value) -> String {
    BASE64.encode(value.to_string())
}

fn token(header: &Value, claims: &Value, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let message = format!("{}.{}", encoded(header), encoded(claims));
    let signature = sign(message.as_bytes());
    format!("{message}.{}", BASE64.encode(signature))
}

fn hmac(message: &[u8]) -> Vec<u8> {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &SECRET);
    ring::hmac::sign(&key, message).as_ref().to_vec()
}

fn keys(keys: &Value) -> KeySet {
    KeySet::parse(json!({ "keys": keys }).to_string().as_bytes()).expect("keys")
}

fn secret() -> KeySet {
    keys(&json!([{"kty": "oct", "alg": "HS256", "kid": "s", "k": BASE64.encode(SECRET)}]))
}

fn signed(claims: &Value) -> String {
    token(&json!({"alg": "HS256", "kid": "s"}), claims, hmac)
}

fn refusal(token: &str) -> Refusal {
    secret()
        .verify(token, &BearerRules::default(), NOW)
        .expect_err("refused")
}

#[test]
fn each_algorithm_is_verified() {
    let claims = json!({"sub": "ann", "exp": NOW + 10});
    let point = |bytes: &[u8]| BASE64.encode(bytes);
    let ed = Ed25519KeyPair::from_seed_unchecked(&[1; 32]).expect("seed");
    let rng = SystemRandom::new();
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &rng).expect("key");
    let ec = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &rng)
        .expect("key");
    let (x, y) = ec.public_key().as_ref()[1..].split_at(32);
    let set = keys(&json!([
        {"kty": "oct", "k": BASE64.encode(SECRET)},
        {"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": point(ed.public_key().as_ref())},
        {"kty": "EC", "crv": "P-256", "use": "sig", "x": point(x), "y": point(y)},
        {"kty": "EC", "crv": "P-256", "use": "enc", "x": "", "y": ""},
    ]));
    let tokens = [
        token(&json!({"alg": "HS256"}), &claims, hmac),
        token(&json!({"alg": "EdDSA", "kid": "ed"}), &claims, |m| {
            ed.sign(m).as_ref().to_vec()
        }),
        token(&json!({"alg": "ES256"}), &claims, |m| {
            ec.sign(&rng, m).expect("sign").as_ref().to_vec()
        }),
    ];
    for token in tokens {
        let claims = set
            .verify(&token, &BearerRules::default(), NOW)
            .expect(&token);
        assert_eq!((&*claims.user, claims.expires), ("ann", Some(NOW + 10)));
        let (message, signature) = token.rsplit_once('.').expect("signed");
        let mut bytes = BASE64.decode(signature).expect("base64");
        bytes[5] ^= 1;
        let broken = format!("{message}.{}", BASE64.encode(bytes));
        let refused = set.verify(&broken, &BearerRules::default(), NOW);
        assert_eq!(refused, Err(Refusal::Signature));
    }
}

/// The example of RFC 7515, appendix A.2.
#[test]
fn an_rsa_signature_is_verified() {
    let n = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-y\
             RT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXB\
             dQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaG\
             Nj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";
    let token = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9\
                 pc19yb290Ijp0cnVlfQ.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Q\
                 c_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARN\
                 PvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6I\
                 eYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
    let set = keys(&json!([{"kty": "RSA", "n": n, "e": "AQAB"}]));
    let rules = BearerRules {
        user_claim: "iss".into(),
        leeway_s: 0,
        ..Default::default()
    };
    let claims = set.verify(token, &rules, 1_300_819_379).expect("valid");
    assert_eq!((&*claims.user, claims.text("exp")), ("joe", None));
    assert_eq!(
        set.verify(token, &rules, 1_300_819_380),
        Err(Refusal::Expired)
    );
    let broken = token.replace("cC4h", "cC4i");
    assert_eq!(set.verify(&broken, &rules, 0), Err(Refusal::Signature));
}

#[test]
fn a_token_chooses_neither_algorithm_nor_key() {
    let claims = json!({"sub": "ann"});
    let none = token(&json!({"alg": "none"}), &claims, |_| Vec::new());
    assert!(matches!(refusal(&none), Refusal::Malformed(_)));
    let unsigned = token(&json!({"alg": "HS256"}), &claims, |_| Vec::new());
    assert_eq!(refusal(&unsigned), Refusal::Signature);
    for (alg, kid) in [("HS384", "s"), ("RS256", "s"), ("HS256", "other")] {
        let token = token(&json!({"alg": alg, "kid": kid}), &claims, hmac);
        assert_eq!(refusal(&token), Refusal::UnknownKey, "{alg} {kid}");
    }
    // The public key as a secret: the classic confusion of RS256 and HS256.
    let ed = Ed25519KeyPair::from_seed_unchecked(&[1; 32]).expect("seed");
    let public = ed.public_key().as_ref().to_vec();
    let set = keys(&json!([{"kty": "OKP", "crv": "Ed25519", "x": BASE64.encode(&public)}]));
    let forged = token(&json!({"alg": "HS256"}), &claims, |message| {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &public);
        ring::hmac::sign(&key, message).as_ref().to_vec()
    });
    let refused = set.verify(&forged, &BearerRules::default(), NOW);
    assert_eq!(refused, Err(Refusal::UnknownKey));
}

#[test]
fn times_are_checked_with_leeway() {
    let rules = BearerRules {
        leeway_s: 5,
        ..Default::default()
    };
    let verify = |claims: Value, now| {
        secret()
            .verify(&signed(&claims), &rules, now)
            .map(|claims| claims.user)
    };
    let until = json!({"sub": "ann", "exp": NOW});
    assert!(verify(until.clone(), NOW + 4).is_ok());
    assert_eq!(verify(until, NOW + 5), Err(Refusal::Expired));
    let from = json!({"sub": "ann", "nbf": NOW});
    assert!(verify(from.clone(), NOW - 5).is_ok());
    assert_eq!(verify(from, NOW - 6), Err(Refusal::NotYetValid));
    assert!(verify(json!({"sub": "ann", "exp": 1e300}), NOW).is_ok());
    assert_eq!(
        verify(json!({"sub": "ann", "exp": NOW as f64 - 5.5}), NOW),
        Err(Refusal::Expired)
    );
    for exp in [json!("soon"), json!(-1), json!(null), json!([NOW])] {
        let refused = verify(json!({"sub": "ann", "exp": exp}), NOW);
        let is_named = matches!(refused, Err(Refusal::Claim(_) | Refusal::Malformed(_)));
        assert!(is_named, "{exp}: {refused:?}");
    }
}

#[test]
fn addressee_and_user_are_checked() {
    let rules = BearerRules {
        audience: Some("bus".into()),
        issuer: Some("idp".into()),
        user_claim: "email".into(),
        permissions_claim: Some("nats".into()),
        leeway_s: 0,
    };
    let verify = |claims: Value| secret().verify(&signed(&claims), &rules, NOW);
    let good = json!({
        "aud": ["other", "bus"], "iss": "idp", "email": "ann", "tenant": "blue",
        "nats": {"publish": {"allow": ["a.>"]}},
    });
    let claims = verify(good.clone()).expect("good");
    assert_eq!(
        (&*claims.user, claims.text("tenant"), claims.text("aud")),
        ("ann", Some("blue"), None)
    );
    let allow = claims
        .permissions
        .and_then(|lists| lists.publish)
        .and_then(|list| list.allow);
    assert_eq!(allow, Some(vec!["a.>".to_owned()]));
    let with = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        verify(claims).expect_err(name)
    };
    assert_eq!(with("aud", json!("buss")), Refusal::Addressee("aud".into()));
    assert_eq!(with("aud", json!([])), Refusal::Addressee("aud".into()));
    assert_eq!(
        with("iss", json!(["idp"])),
        Refusal::Addressee("iss".into())
    );
    assert_eq!(with("email", json!("")), Refusal::Claim("email".into()));
    assert_eq!(with("email", json!(7)), Refusal::Claim("email".into()));
    assert_eq!(
        with("nats", json!({"publsh": {}})),
        Refusal::Claim("nats".into())
    );
    let mut without = good.clone();
    without.as_object_mut().expect("object").remove("aud");
    assert_eq!(verify(without), Err(Refusal::Claim("aud".into())));
}

#[test]
fn texts_that_are_no_tokens_are_refused() {
    let good = signed(&json!({"sub": "ann"}));
    assert!(secret().verify(&good, &BearerRules::default(), NOW).is_ok());
    for at in 0..good.len() {
        assert!(
            secret()
                .verify(&good[..at], &BearerRules::default(), NOW)
                .is_err(),
            "{at} bytes"
        );
    }
    let long = format!("{good}{}", "A".repeat(LONGEST));
    for text in [
        "",
        ".",
        "..",
        "...",
        "ä.ö.ü",
        "a.b.c",
        &format!("{good}."),
        &format!(" {good}"),
        &long,
    ] {
        assert!(
            matches!(refusal(text), Refusal::Malformed(_) | Refusal::Signature),
            "{text:.40}"
        );
    }
    let list = format!(
        "{}.{}",
        encoded(&json!({"alg": "HS256"})),
        encoded(&json!(["ann"]))
    );
    let list = format!("{list}.{}", BASE64.encode(hmac(list.as_bytes())));
    assert!(matches!(refusal(&list), Refusal::Malformed(_)));
}

#[test]
fn faults_of_key_sets_are_named() {
    let short = json!({"keys": [{"kty": "oct", "k": BASE64.encode([1; 31])}]});
    let confused = json!({"keys": [{"kty": "oct", "alg": "RS256", "k": BASE64.encode(SECRET)}]});
    let broken = json!({"keys": [{"kty": "RSA", "n": "!", "e": "AQAB"}]});
    let texts = [
        "",
        "{}",
        "[]",
        r#"{"keys":[]}"#,
        r#"{"keys":[{}]}"#,
        "{\"keys\":1}",
    ]
    .map(str::to_owned);
    for text in
        texts
            .into_iter()
            .chain([short.to_string(), confused.to_string(), broken.to_string()])
    {
        let error = KeySet::parse(text.as_bytes()).expect_err(&text).to_string();
        assert!(
            !error.contains(&BASE64.encode(SECRET)),
            "a secret in {error}"
        );
    }
    let shown = format!("{:?}", secret());
    assert!(
        shown.contains("HS256") && !shown.contains(&BASE64.encode(SECRET)),
        "{shown}"
    );
}
