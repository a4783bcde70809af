//! `jwt`, with the keys of its file.

use std::sync::Arc;

use blitz_config::{ClaimDemand as Demand, Diagnostic, JwtKeys, Placed, TokenSource as Source};
use blitz_http::CaSet;
use blitz_site::{
    Algorithm, Claim, ClaimDemand, FetchedKeys, Jwt, JwtKey, JwtSettings, LoadedFile, Policy,
    Prover, TokenSource, key_set,
};

use super::Compiler;

impl<'a> Compiler<'a, '_> {
    /// Adds the policy, and those of levels around a block.
    pub(super) fn jwt(&mut self, jwt: &'a Placed<blitz_config::Jwt>, policies: &mut Vec<Policy>) {
        for also in &jwt.value.also {
            self.jwt(also, policies);
        }
        // Routes that inherit the same settings share the tokens that are verified.
        let address = std::ptr::from_ref(jwt).addr();
        let policy = match self.shared.tokens.get(&address) {
            Some(policy) => policy.clone(),
            None => {
                let policy = self.jwt_policy(&jwt.value);
                self.shared.tokens.insert(address, policy.clone());
                policy
            }
        };
        policies.extend(policy);
    }

    fn jwt_policy(&mut self, settings: &'a blitz_config::Jwt) -> Option<Policy> {
        let names = settings.algorithms.iter();
        let algorithms: Vec<_> = names.filter_map(|name| Algorithm::parse(name)).collect();
        let (keys, fetched) = match &settings.keys {
            JwtKeys::KeysUrl(url) => {
                let authorities = match &settings.keys_ca {
                    Some(path) => Some(self.authorities(path)?),
                    None => None,
                };
                let url = url.value.to_string();
                let authorities = authorities.as_ref().map(|file| &*file.content);
                let fetched = FetchedKeys::shared(&url, &algorithms, authorities);
                (Vec::new(), Some(fetched))
            }
            keys => (self.keys(keys, &algorithms)?, None),
        };
        let demand = |(claim, demand): &(String, Demand)| {
            let demand = match demand {
                Demand::Present => ClaimDemand::Present,
                Demand::OneOf(texts) => ClaimDemand::OneOf(texts.clone()),
            };
            (Claim(claim.clone()), demand)
        };
        let source = |source: &Source| match source {
            Source::Header => TokenSource::Authorization,
            Source::Cookie(name) => TokenSource::Cookie(name.clone()),
            Source::Query(name) => TokenSource::Query(name.clone()),
        };
        let forward = settings.forward.iter();
        let jwt = Jwt::new(JwtSettings {
            keys,
            fetched,
            issuers: settings.issuers.clone(),
            audiences: settings.audiences.clone(),
            require: settings.require.iter().map(demand).collect(),
            scopes: settings.scopes.clone(),
            forward: forward
                .map(|(name, claim)| (name.clone(), Claim(claim.clone())))
                .collect(),
            keeps_all: false,
            keeps_subject: self.tells_users,
            kept: self.claims.iter().cloned().map(Claim).collect(),
            sources: settings.sources.iter().map(source).collect(),
            leeway: settings.leeway,
            is_optional: settings.is_optional,
        });
        Some(Policy::Proof(Prover::Jwt(Arc::new(jwt))))
    }

    /// A file with authorities.
    fn authorities(&mut self, path: &'a Placed<String>) -> Option<LoadedFile> {
        let file = self.file(path)?;
        match CaSet::from_pem(&file.content) {
            Ok(_) => Some(file),
            Err(error) => {
                self.error("jwt-keys", path, &error.to_string(), error.remedy());
                None
            }
        }
    }

    fn keys(&mut self, keys: &'a JwtKeys, algorithms: &[Algorithm]) -> Option<Vec<JwtKey>> {
        match keys {
            JwtKeys::Secret(secret) => {
                let key = JwtKey::secret(secret.value.0.as_bytes(), algorithms);
                let key = key.map_err(|(problem, remedy)| {
                    self.error("jwt-keys", secret, &problem, &remedy);
                });
                Some(vec![key.ok()?])
            }
            JwtKeys::SecretFile(path) => {
                let file = self.file(path)?;
                let key = JwtKey::secret(without_line_end(&file.content), algorithms);
                let key = key.map_err(|(problem, remedy)| {
                    self.error("jwt-keys", path, &problem, &remedy);
                });
                Some(vec![key.ok()?])
            }
            JwtKeys::KeysFile(path) => {
                let file = self.file(path)?;
                match key_set(&file.content, algorithms) {
                    Ok((keys, notes)) => {
                        for note in notes {
                            let label =
                                "keys for other purposes may stay; others need another `alg`";
                            let warning =
                                Diagnostic::warning("jwt-keys", path.span.clone(), note, label);
                            if !self.diagnostics.contains(&warning) {
                                self.diagnostics.push(warning);
                            }
                        }
                        Some(keys)
                    }
                    Err(problem) => {
                        let remedy = "write a JSON Web Key Set with public keys (RFC 7517)";
                        self.error("jwt-keys", path, &problem, remedy);
                        None
                    }
                }
            }
            // Its keys are fetched while the process runs.
            JwtKeys::KeysUrl(_) => Some(Vec::new()),
        }
    }
}

/// Editors and `echo` end a file with a line end.
fn without_line_end(content: &[u8]) -> &[u8] {
    let content = content.strip_suffix(b"\n").unwrap_or(content);
    content.strip_suffix(b"\r").unwrap_or(content)
}
