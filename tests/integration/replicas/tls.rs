//! TLS between a replica and its database, with certificates made here.

use std::path::{Path, PathBuf};
use std::process::Command;

use sqlx::{Connection, PgConnection};
use tempfile::TempDir;

use super::*;

/// Certificates of two authorities, and addresses of this test alone.
struct Authorities {
    directory: TempDir,
    /// The server's certificate names the first one.
    addresses: [String; 2],
}

pub(crate) fn openssl(directory: &Path, arguments: &str) {
    let mut command = Command::new("openssl");
    command.args(arguments.split(' ')).current_dir(directory);
    let ended = command.output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "openssl {arguments}: {said}");
}

impl Authorities {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        // Every process has addresses of its own on the loopback interface, so that no port is taken.
        let [.., high, low] = std::process::id().to_be_bytes();
        let addresses = [1, 2].map(|last| format!("127.{}.{high}.{low}", 200 + last));
        let path = directory.path();
        for authority in ["own", "other"] {
            openssl(
                path,
                &format!(
                    "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN={authority} \
                     -keyout {authority}.key -out {authority}.pem"
                ),
            );
        }
        openssl(
            path,
            "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=db -keyout server.key -out server.csr",
        );
        let names = format!("subjectAltName=IP:{}", addresses[0]);
        std::fs::write(path.join("names"), names).unwrap();
        openssl(
            path,
            "x509 -req -in server.csr -CA own.pem -CAkey own.key -CAcreateserial -days 2 -extfile names -out server.pem",
        );
        Self {
            directory,
            addresses,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The arguments of a server whose files are in a directory. It takes no connection over TCP without TLS.
    fn arguments(&self, server: &Path) -> Vec<String> {
        let access = "local all all trust\nhostssl all all 127.0.0.0/8 trust\n";
        std::fs::write(server.join("access"), access).unwrap();
        for name in ["server.key", "server.pem"] {
            std::fs::copy(self.file(name), server.join(name)).unwrap();
        }
        let path = |name: &str| server.join(name).display().to_string();
        let settings = [
            format!("listen_addresses={}", self.addresses.join(",")),
            "ssl=on".to_owned(),
            format!("ssl_key_file={}", path("server.key")),
            format!("ssl_cert_file={}", path("server.pem")),
            format!("hba_file={}", path("access")),
        ];
        let settings = settings.into_iter();
        settings
            .flat_map(|setting| ["-c".to_owned(), setting])
            .collect()
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_database_is_believed_as_far_as_sslmode_says() {
    let authorities = Authorities::new();
    let server = PostgresServer::start_with(|directory| authorities.arguments(directory));
    let local = server.create_database().await;
    let name = url::Url::parse(&local).unwrap().path().to_owned();
    let upstream = ScriptedUpstream::answering(one_round).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let [named, unnamed] = &authorities.addresses;
    let url = |address: &str, mode: &str, authority: Option<&str>| {
        let file = authority.map(|authority| authorities.file(&format!("{authority}.pem")));
        let file = file.map(|file| format!("&sslrootcert={}", file.display()));
        let file = file.unwrap_or_default();
        format!("postgres://postgres@{address}:5432{name}?sslmode={mode}{file}")
    };
    for (address, mode, authority) in [
        (named, "verify-full", Some("own")),
        (unnamed, "verify-ca", Some("own")),
        (unnamed, "require", None),
    ] {
        let app = replica(&upstream, &hook, &url(address, mode, authority)).await;
        assert_eq!(
            app.post_chat(in_session(mode)).await.content(),
            format!("re {mode}")
        );
        let mut connection = PgConnection::connect(&local).await.unwrap();
        let sql = "SELECT count(*), count(*) FILTER (WHERE s.ssl) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid)
            WHERE a.application_name = 'loopwright'";
        let (all, encrypted): (i64, i64) = sqlx::query_as(sql)
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert!(all > 0 && all == encrypted, "{mode}: {encrypted} of {all}");
    }
    for (address, mode, authority, part) in [
        (named, "verify-full", Some("other"), "UnknownIssuer"),
        (named, "verify-ca", Some("other"), "UnknownIssuer"),
        // Without a file, the authorities of the web.
        (named, "verify-full", None, "UnknownIssuer"),
        (unnamed, "verify-full", Some("own"), "not valid for name"),
        (named, "disable", None, "pg_hba.conf"),
    ] {
        let builder = TestApp::builder().upstream(&upstream);
        let database = url(address, mode, authority);
        let ended = builder
            .env("LOOPWRIGHT_SESSION_STORE", &database)
            .run("serve")
            .await;
        assert_eq!(
            ended.code,
            Some(1),
            "{mode} {authority:?}: {}",
            ended.stderr
        );
        assert!(
            ended.stderr.contains(part),
            "{mode} {authority:?}: {}",
            ended.stderr
        );
    }
}
