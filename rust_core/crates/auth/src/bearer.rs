//! Bearer tokens of an identity provider: JSON Web Tokens (RFC 7519) and its keys (JWKS, RFC 7517).

use crate::permissions::PermissionLists;
use crate::signatures;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::error::Error;
use std::fmt;

/// The longest token, in bytes: what fits into a header field or a `CONNECT` anyway.
const LONGEST: usize = 16 * 1024;
/// The fewest bytes of a secret of HMAC with SHA-256 (RFC 7518, section 3.2).
const SHORTEST_SECRET: usize = 32;

/// What a token must say, and where it says who its bearer is.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BearerRules {
    /// The audience (`aud`) that a token must name. `None`: tokens need not name one.
    pub audience: Option<String>,
    /// The issuer (`iss`) that a token must name. `None`: any.
    pub issuer: Option<String>,
    /// The claim with the user's name. Default `sub`.
    pub user_claim: String,
    /// The claim with the user's permissions. `None`: tokens bring none.
    pub permissions_claim: Option<String>,
    /// Seconds by which the clocks of provider and broker may differ. Default 60.
    pub leeway_s: u64,
}

impl Default for BearerRules {
    fn default() -> Self {
        Self {
            audience: None,
            issuer: None,
            user_claim: "sub".into(),
            permissions_claim: None,
            leeway_s: 60,
        }
    }
}

/// The keys of an identity provider.
#[derive(Clone)]
pub struct KeySet(Vec<Key>);

#[derive(Clone)]
struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.0.iter().map(|key| (&key.id, key.algorithm));
        f.debug_list().entries(keys).finish()
    }
}

/// A set of keys that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidKeySet(String);

impl fmt::Display for InvalidKeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for InvalidKeySet {}

/// The statements of a token that was verified.
#[derive(Debug, Clone, PartialEq)]
pub struct Claims {
    /// The user's name.
    pub user: String,
    /// The permissions that the token brings.
    pub permissions: Option<PermissionLists>,
    /// The end of the token's time, in seconds since 1970. `None`: it does not end.
    pub expires: Option<u64>,
    all: Map<String, Value>,
}

impl Claims {
    /// Return a claim that is text, for a placeholder.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.all.get(name).and_then(Value::as_str)
    }
}

/// The reason why a token is refused: for the log, never for the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The text is not a token, or longer than 16 KiB.
    Malformed(String),
    /// No key has the token's `kid` and `alg`.
    UnknownKey,
    /// The signature is not the key's, or the token has none.
    Signature,
    /// The time of the token has ended.
    Expired,
    /// The time of the token has not begun.
    NotYetValid,
    /// The audience or the issuer is another one.
    Addressee(String),
    /// A claim that is needed is missing, or is not of its type.
    Claim(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(reason) => write!(f, "not a token: {reason}"),
            Self::UnknownKey => f.write_str("no key of the key set has the token's kid and alg"),
            Self::Signature => f.write_str("the signature is wrong"),
            Self::Expired => f.write_str("the token has expired"),
            Self::NotYetValid => f.write_str("the token is not valid yet"),
            Self::Addressee(claim) => write!(f, "the claim {claim:?} names another one"),
            Self::Claim(claim) => write!(f, "the claim {claim:?} is missing or of a wrong type"),
        }
    }
}

impl Error for Refusal {}

impl KeySet {
    /// Read a key set (JWKS). Keys for encryption, and of kinds that are not known, are passed over.
    ///
    /// # Errors
    /// The text is not a key set, a key is not what it says, or no key is left.
    pub fn parse(text: &[u8]) -> Result<Self, InvalidKeySet> {
        #[derive(Deserialize)]
        struct Listed {
            keys: Vec<Value>,
        }
        signatures::install();
        let listed: Listed = serde_json::from_slice(text)
            .map_err(|error| InvalidKeySet(format!("not a JSON Web Key Set: {error}")))?;
        let mut keys = Vec::new();
        for (number, value) in listed.keys.into_iter().enumerate() {
            let key = serde_json::from_value::<Jwk>(value)
                .map_err(|error| error.to_string())
                .and_then(|jwk| Key::new(&jwk));
            match key {
                Ok(key) => keys.extend(key),
                Err(reason) => return Err(InvalidKeySet(format!("keys[{number}]: {reason}"))),
            }
        }
        if keys.is_empty() {
            return Err(InvalidKeySet("no key that signs tokens".into()));
        }
        Ok(Self(keys))
    }

    /// Verify a token at `now`, in seconds since 1970, and return its statements.
    ///
    /// # Errors
    /// [`Refusal`] says what is wrong with the token.
    pub fn verify(&self, token: &str, rules: &BearerRules, now: u64) -> Result<Claims, Refusal> {
        if token.len() > LONGEST {
            return Err(Refusal::Malformed(format!("longer than {LONGEST} bytes")));
        }
        let header = decode_header(token).map_err(|error| Refusal::Malformed(error.to_string()))?;
        // The key says by which algorithm it signs; a token has no choice (RFC 8725, section 3.1).
        let has_id = |key: &&Key| header.kid.is_none() || key.id == header.kid;
        let fitting = self
            .0
            .iter()
            .filter(|key| key.algorithm == header.alg)
            .filter(has_id);
        let mut refusal = Refusal::UnknownKey;
        for key in fitting {
            match key.verify(token) {
                Ok(all) => return check(all, rules, now),
                Err(error) => refusal = error,
            }
        }
        Err(refusal)
    }
}

impl Key {
    /// Return the key; `None` if it is not one that signs tokens, or of a kind that is not known.
    fn new(jwk: &Jwk) -> Result<Option<Self>, String> {
        if matches!(&jwk.common.public_key_use, Some(used) if *used != PublicKeyUse::Signature) {
            return Ok(None);
        }
        let named = jwk
            .common
            .key_algorithm
            .map(|named| named.to_string().parse::<Algorithm>());
        let permitted: &[Algorithm] = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => &[
                Algorithm::RS256,
                Algorithm::RS384,
                Algorithm::RS512,
                Algorithm::PS256,
                Algorithm::PS384,
                Algorithm::PS512,
            ],
            AlgorithmParameters::EllipticCurve(key) => match key.curve {
                EllipticCurve::P256 => &[Algorithm::ES256],
                EllipticCurve::P384 => &[Algorithm::ES384],
                _ => return Ok(None),
            },
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
                &[Algorithm::EdDSA]
            }
            AlgorithmParameters::OctetKey(_) => {
                &[Algorithm::HS256, Algorithm::HS384, Algorithm::HS512]
            }
            _ => return Ok(None),
        };
        let algorithm = match named {
            None => permitted[0],
            Some(Ok(named)) if permitted.contains(&named) => named,
            Some(Ok(named)) => {
                return Err(format!("a key of this kind does not sign by {named:?}"));
            }
            Some(Err(_)) => return Ok(None),
        };
        let key = DecodingKey::from_jwk(jwk).map_err(|error| error.to_string())?;
        let is_secret = matches!(jwk.algorithm, AlgorithmParameters::OctetKey(_));
        if is_secret
            && key
                .try_get_as_bytes()
                .is_ok_and(|secret| secret.len() < SHORTEST_SECRET)
        {
            return Err(format!("the secret has fewer than {SHORTEST_SECRET} bytes"));
        }
        Ok(Some(Self {
            id: jwk.common.key_id.clone(),
            algorithm,
            key,
        }))
    }

    fn verify(&self, token: &str) -> Result<Map<String, Value>, Refusal> {
        use jsonwebtoken::errors::ErrorKind;
        let mut validation = Validation::new(self.algorithm);
        // Times and addressees are checked against the caller's clock and rules.
        validation.required_spec_claims.clear();
        (validation.validate_exp, validation.validate_aud) = (false, false);
        match decode::<Map<String, Value>>(token, &self.key, &validation) {
            Ok(data) => Ok(data.claims),
            Err(error) => Err(match error.kind() {
                ErrorKind::InvalidSignature => Refusal::Signature,
                _ => Refusal::Malformed(error.to_string()),
            }),
        }
    }
}

fn check(all: Map<String, Value>, rules: &BearerRules, now: u64) -> Result<Claims, Refusal> {
    let expires = time(&all, "exp")?;
    if expires.is_some_and(|end| now >= end.saturating_add(rules.leeway_s)) {
        return Err(Refusal::Expired);
    }
    if time(&all, "nbf")?.is_some_and(|begin| now.saturating_add(rules.leeway_s) < begin) {
        return Err(Refusal::NotYetValid);
    }
    for (claim, wanted) in [("aud", &rules.audience), ("iss", &rules.issuer)] {
        let Some(wanted) = wanted else { continue };
        let named = match all.get(claim) {
            Some(Value::Array(named)) if claim == "aud" => {
                named.iter().any(|one| one == wanted.as_str())
            }
            Some(named) => named == wanted.as_str(),
            None => return Err(Refusal::Claim(claim.into())),
        };
        if !named {
            return Err(Refusal::Addressee(claim.into()));
        }
    }
    let missing = |claim: &str| Refusal::Claim(claim.into());
    let user = all
        .get(&rules.user_claim)
        .and_then(Value::as_str)
        .filter(|user| !user.is_empty());
    let user = user.ok_or_else(|| missing(&rules.user_claim))?.to_owned();
    let permissions = rules
        .permissions_claim
        .as_ref()
        .and_then(|claim| Some((claim, all.get(claim)?)));
    let permissions = permissions
        .map(|(claim, value)| PermissionLists::deserialize(value).map_err(|_| missing(claim)))
        .transpose()?;
    Ok(Claims {
        user,
        permissions,
        expires,
        all,
    })
}

/// Return a claim that is a time in seconds since 1970 (RFC 7519, "NumericDate": fractions may occur).
fn time(all: &Map<String, Value>, claim: &str) -> Result<Option<u64>, Refusal> {
    match all.get(claim) {
        None => Ok(None),
        Some(value) => match value.as_f64() {
            Some(seconds) if seconds >= 0.0 => Ok(Some(seconds as u64)),
            _ => Err(Refusal::Claim(claim.into())),
        },
    }
}

#[cfg(test)]
mod tests;
