//! The URL of a database: `postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=…`, or with a Unix socket
//! `postgres:///DATABASE?host=/run/postgresql`.

use std::fmt;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use secrecy::{ExposeSecret, SecretString};
use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;
use url::Url;

/// Default number of connections of one process, where the URL names no other.
const DEFAULT_POOL: u32 = 10;
/// How long a lease outlives its last renewal, where the URL names no other time. Then another process may take it.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// The parameters that libpq knows and the driver reads.
const LIBPQ_PARAMETERS: [&str; 11] = [
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
];

/// The URL of a PostgreSQL database. Its password is not printed.
#[derive(Clone)]
pub struct PostgresUrl {
    /// With the parameters of the driver only.
    pub(super) text: SecretString,
    pub(super) location: String,
    pub(super) pool: u32,
    pub(super) lease: Duration,
}

impl PostgresUrl {
    /// Parses a URL.
    ///
    /// # Errors
    /// A problem and its remedy, without any part of the text that may be a secret.
    pub fn parse(text: &str) -> Result<Self, String> {
        const EXAMPLE: &str = "write postgres://USER:PASSWORD@HOST/DATABASE";
        let mut url =
            Url::parse(text).map_err(|error| format!("not a URL ({error}); {EXAMPLE}"))?;
        if !["postgres", "postgresql"].contains(&url.scheme()) {
            return Err(format!("not the URL of a PostgreSQL database; {EXAMPLE}"));
        }
        let (mut pool, mut lease, mut rest) = (DEFAULT_POOL, DEFAULT_LEASE, Vec::new());
        for (key, value) in url.query_pairs() {
            match &*key {
                "pool_size" => {
                    let number = value
                        .parse()
                        .ok()
                        .filter(|number| (2..=1000).contains(number));
                    pool = number.ok_or("pool_size is not a number from 2 to 1000")?;
                }
                "lease_seconds" => {
                    let number = value
                        .parse()
                        .ok()
                        .filter(|number| (1..=600).contains(number));
                    let number = number.ok_or("lease_seconds is not a number from 1 to 600")?;
                    lease = Duration::from_secs(number);
                }
                "user" => rest.push(("user".to_owned(), value.into_owned())),
                known if LIBPQ_PARAMETERS.contains(&known) => {
                    rest.push((known.to_owned(), value.into_owned()));
                }
                _ => {
                    return Err(format!(
                        "the parameter {key:?} is unknown; the URL can have {}, user, pool_size and lease_seconds",
                        LIBPQ_PARAMETERS.join(", ")
                    ));
                }
            }
        }
        url.set_query(None);
        if !rest.is_empty() {
            url.query_pairs_mut().extend_pairs(rest);
        }
        let options: Result<PgConnectOptions, sqlx::Error> = url.as_str().parse();
        // The cause may repeat the text.
        let options = options.map_err(|_| format!("a part of the URL is not valid; {EXAMPLE}"))?;
        Ok(Self {
            text: url.as_str().to_owned().into(),
            location: location(&options),
            pool,
            lease,
        })
    }

    /// The host and the database.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// The passwords in it.
    pub fn passwords(&self) -> Vec<SecretString> {
        let Ok(url) = Url::parse(self.text.expose_secret()) else {
            return Vec::new();
        };
        let of_user = url.password().map(percent_decode_str);
        let of_user = of_user.map(|password| password.decode_utf8_lossy().into_owned());
        let of_query = url.query_pairs().filter(|(key, _)| key == "password");
        let of_query = of_query.map(|(_, password)| password.into_owned());
        of_user
            .into_iter()
            .chain(of_query)
            .map(Into::into)
            .collect()
    }

    pub(super) fn options(&self) -> Result<PgConnectOptions, sqlx::Error> {
        let options: PgConnectOptions = self.text.expose_secret().parse()?;
        let options = match options.get_application_name() {
            Some(_) => options,
            None => options.application_name("loopwright"),
        };
        Ok(options.disable_statement_logging())
    }
}

fn location(options: &PgConnectOptions) -> String {
    let database = options.get_database();
    let database = database.unwrap_or_else(|| options.get_username());
    match options.get_socket() {
        Some(socket) => format!("postgres:///{database}?host={}", socket.display()),
        None => {
            let (host, port) = (options.get_host(), options.get_port());
            format!("postgres://{host}:{port}/{database}")
        }
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("PostgresUrl")
            .field(&self.location)
            .finish()
    }
}

impl PartialEq for PostgresUrl {
    fn eq(&self, other: &Self) -> bool {
        self.text.expose_secret() == other.text.expose_secret()
            && (self.pool, self.lease) == (other.pool, other.lease)
    }
}

impl Eq for PostgresUrl {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_the_database_and_never_shows_its_password() {
        for (text, location) in [
            (
                "postgres://u:s3cret@db.corp/chat?sslmode=verify-full&pool_size=20",
                "postgres://db.corp:5432/chat",
            ),
            (
                "postgresql://u:s3cret@10.0.0.1:6432/chat?lease_seconds=2",
                "postgres://10.0.0.1:6432/chat",
            ),
            (
                "postgres:///chat?host=/run/postgresql&user=u&password=s3cret",
                "postgres:///chat?host=/run/postgresql",
            ),
        ] {
            let url = PostgresUrl::parse(text).unwrap();
            assert_eq!(url.location(), location);
            assert!(!format!("{url:?}").contains("s3cret"));
            let passwords = url.passwords();
            let passwords = passwords.iter().map(ExposeSecret::expose_secret);
            assert_eq!(passwords.collect::<Vec<_>>(), ["s3cret"]);
            assert_eq!(
                url.options().unwrap().get_application_name(),
                Some("loopwright")
            );
        }
        let url = PostgresUrl::parse("postgres://h/d?pool_size=20&lease_seconds=2").unwrap();
        assert_eq!((url.pool, url.lease), (20, Duration::from_secs(2)));
    }

    #[test]
    fn a_wrong_url_is_refused_without_its_secrets() {
        for (text, part) in [
            ("postgres://u:s3cret@h:port/d", "not a URL"),
            ("postgres://u:s3cret@h/d?sslmode=s3cret", "not valid"),
            (
                "postgres://u:s3cret@h/d?pasword=s3cret",
                "\"pasword\" is unknown",
            ),
            ("postgres://u:s3cret@h/d?pool_size=1", "pool_size"),
            ("postgres://u:s3cret@h/d?lease_seconds=0", "lease_seconds"),
            ("mysql://u:s3cret@h/d", "not the URL of a PostgreSQL"),
        ] {
            let error = PostgresUrl::parse(text).unwrap_err();
            assert!(error.contains(part), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
