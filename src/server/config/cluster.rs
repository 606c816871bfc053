//! The settings of the address for other replicas.

use super::ConfigError;
use super::file::File;
use super::http::check_key;
use super::validation::Validation;
use net::cluster::settings::Settings;

pub(super) fn settings(
    file: &File,
    checks: &mut Validation<'_>,
) -> Result<Option<Settings>, ConfigError> {
    let Some(listen) = file.cluster_listen.as_ref().map(|address| address.0) else {
        for (key, is_given) in [
            ("cluster_url", file.cluster_url.is_some()),
            ("cluster_key_env", file.cluster_key_env.is_some()),
        ] {
            if is_given {
                let problem = "belongs to `cluster_listen`, which is not set; set it (--cluster-listen), or remove this";
                return Err(checks.error(key, problem));
            }
        }
        return Ok(None);
    };
    if !file.session_store.0.is_shared() {
        let notice = "`cluster_listen` is not used, because no other replica can use this session store; remove it, or set a \
                      postgres: URL";
        checks.notices.push(notice.to_owned());
        return Ok(None);
    }
    let url = file.cluster_url.clone().map(Into::into);
    if url.is_none() && listen.ip().is_unspecified() {
        let problem = format!(
            "other replicas cannot connect to {listen}; set `cluster_url` (--cluster-url) to the URL by which they reach this one, \
             such as http://replica-1:{}",
            listen.port()
        );
        return Err(checks.error("cluster_listen", problem));
    }
    let Some(variable) = &file.cluster_key_env else {
        let problem = "other replicas must prove that they are such; set `cluster_key_env` (--cluster-key-env) to the variable \
                       with the key that all replicas have";
        return Err(checks.error("cluster_listen", problem));
    };
    let key = checks.variable("cluster_key_env", variable)?;
    checks.valid("cluster_key_env", check_key(&key, &variable.0))?;
    Ok(Some(Settings {
        listen,
        url,
        key: key.into(),
        certificates: checks.certificates.clone(),
    }))
}
