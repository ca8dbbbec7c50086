//! Signatures of JSON Web Tokens, verified by `ring`.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::hmac;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};
use std::sync::Once;

/// Have `jsonwebtoken` verify by `ring`, which the TLS of this process uses too.
pub(crate) fn install() {
    static PROVIDER: CryptoProvider = CryptoProvider {
        signer_factory: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
        verifier_factory: |algorithm, key| {
            Ok(Box::new(RingVerifier {
                algorithm: *algorithm,
                key: key.clone(),
            }))
        },
        key_utils: KeyUtils::new_unimplemented(),
    };
    static INSTALLED: Once = Once::new();
    // There is no other provider in this extension, so this cannot fail.
    INSTALLED.call_once(|| {
        let _ = PROVIDER.install_default();
    });
}

struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(
        &self,
        message: &[u8],
        signature: &Vec<u8>,
    ) -> std::result::Result<(), signature::Error> {
        self.check(message, signature)
            .map_err(|_| signature::Error::new())
    }
}

impl RingVerifier {
    fn check(&self, message: &[u8], signature: &[u8]) -> Result<()> {
        let is_valid = match self.algorithm {
            Algorithm::HS256 => self.check_hmac(hmac::HMAC_SHA256, message, signature)?,
            Algorithm::HS384 => self.check_hmac(hmac::HMAC_SHA384, message, signature)?,
            Algorithm::HS512 => self.check_hmac(hmac::HMAC_SHA512, message, signature)?,
            Algorithm::ES256 => self.check_point(&ECDSA_P256_SHA256_FIXED, message, signature)?,
            Algorithm::ES384 => self.check_point(&ECDSA_P384_SHA384_FIXED, message, signature)?,
            Algorithm::EdDSA => self.check_point(&ED25519, message, signature)?,
            Algorithm::RS256 => self.check_rsa(&RSA_PKCS1_2048_8192_SHA256, message, signature)?,
            Algorithm::RS384 => self.check_rsa(&RSA_PKCS1_2048_8192_SHA384, message, signature)?,
            Algorithm::RS512 => self.check_rsa(&RSA_PKCS1_2048_8192_SHA512, message, signature)?,
            Algorithm::PS256 => self.check_rsa(&RSA_PSS_2048_8192_SHA256, message, signature)?,
            Algorithm::PS384 => self.check_rsa(&RSA_PSS_2048_8192_SHA384, message, signature)?,
            Algorithm::PS512 => self.check_rsa(&RSA_PSS_2048_8192_SHA512, message, signature)?,
            _ => return Err(ErrorKind::UnsupportedAlgorithm.into()),
        };
        if is_valid {
            Ok(())
        } else {
            Err(ErrorKind::InvalidSignature.into())
        }
    }

    fn check_hmac(
        &self,
        algorithm: hmac::Algorithm,
        message: &[u8],
        signature: &[u8],
    ) -> Result<bool> {
        let key = hmac::Key::new(algorithm, self.key.try_get_as_bytes()?);
        Ok(hmac::verify(&key, message, signature).is_ok())
    }

    fn check_point(
        &self,
        algorithm: &'static dyn VerificationAlgorithm,
        message: &[u8],
        signature: &[u8],
    ) -> Result<bool> {
        let key = UnparsedPublicKey::new(algorithm, self.key.try_get_as_bytes()?);
        Ok(key.verify(message, signature).is_ok())
    }

    fn check_rsa(
        &self,
        parameters: &'static RsaParameters,
        message: &[u8],
        signature: &[u8],
    ) -> Result<bool> {
        let DecodingKeyKind::RsaModulusExponent { n, e } = self.key.kind() else {
            return Err(ErrorKind::InvalidKeyFormat.into());
        };
        Ok(RsaPublicKeyComponents { n, e }
            .verify(parameters, message, signature)
            .is_ok())
    }
}
