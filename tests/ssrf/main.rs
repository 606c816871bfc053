//! URLs that are after what a server can reach and others cannot, against the guarded client.
//!
//! A test of a guard assumes that it fails. So each of these tests makes a world first ([`world`]), a network namespace
//! in which every address there is leads back into it: to a canary ([`canary`]) that remembers each connection and
//! where it was meant to go. Names are answered by a server of the world's own ([`names`]). Next to the guarded client a
//! naive one asks for the same, to show that the canary would have been reached.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, its support code included; what it prints is its report"
)]

mod canary;
mod cases;
mod names;
mod world;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use web::DomainFilter;
use web::fetch::{Fetched, Fetcher};
use web::settings::FetchSettings;

use crate::canary::{Canary, Contact};
use crate::names::Asked;

/// The addresses that stand for the public internet.
const PUBLIC: [&str; 2] = ["93.184.216.34", "2606:4700::1111"];
/// The host that has them.
const CONTROL: &str = "http://public.site.com/";

macro_rules! suite {
    ($($name:ident)*) => {$(
        #[test]
        #[ignore = "needs root, namespaces and ip"]
        fn $name() {
            world::inside(stringify!($name), || {
                let stage = Stage::set();
                stage.control();
                cases::$name(&stage);
            });
        }
    )*};
}

suite! {
    addresses
    names_of_private_addresses
    names_that_change
    redirects
    odd_urls
    bodies
    environment
    robots_files
}

/// The world and what happens in it.
struct Stage {
    canary: Canary,
    asked: Asked,
}

/// A URL that must not be fetched.
struct Attack<'c> {
    url: String,
    /// What the model is told, in part.
    told: &'c str,
    /// Where a naive client ends up; nowhere, where such a client does not exist.
    naively: Option<SocketAddr>,
}

impl Stage {
    fn set() -> Self {
        let asked = Asked::default();
        names::serve(asked.clone());
        let canary = Canary::serve();
        Self { canary, asked }
    }

    /// The public internet can be read here, in both its forms.
    fn control(&self) {
        for url in [CONTROL, "http://six.site.com/", "http://93.184.216.34/"] {
            let (fetched, contacts) = self.fetch(&settings(), url);
            assert_eq!(&fetched.unwrap().body[..], b"reached", "{url}");
            assert_eq!(contacts.len(), 1, "{url}: {contacts:?}");
        }
    }

    /// Fetches with the guarded client, and says who was reached until it was gone.
    fn fetch(
        &self,
        settings: &FetchSettings,
        url: &str,
    ) -> (Result<Fetched, String>, Vec<Contact>) {
        let fetched = run(async {
            let fetcher = Fetcher::new(settings).unwrap();
            fetcher.get(url, &DomainFilter::default()).await
        });
        let contacts = self.canary.contacts();
        for contact in &contacts {
            assert!(is_public(contact), "{url} reached {contact:?}");
        }
        (fetched.map_err(|error| error.to_string()), contacts)
    }

    /// The guarded client refuses and says why; a naive one ends up where the attack is after.
    fn refuses(&self, attack: &Attack<'_>) {
        let Attack { url, told, naively } = attack;
        let (fetched, _) = self.fetch(&settings(), url);
        match fetched {
            Ok(fetched) => panic!("{url} was fetched: {fetched:?}"),
            Err(error) => {
                println!("{url:?}: {error}");
                assert!(error.contains(told), "{url}: {error}");
                let is_name = reqwest::Url::parse(url).is_ok_and(|url| url.domain().is_some());
                let found = naively.filter(|_| is_name && told.contains("on the public"));
                let found = found.map(|found| found.ip().to_string());
                assert!(
                    !found.is_some_and(|found| error.contains(&format!(" {found}"))),
                    "{url} tells its address: {error}"
                );
            }
        }
        if let Some(target) = naively {
            let contacts = self.naively(reqwest::Client::builder().no_proxy(), url);
            assert!(
                contacts.iter().any(|contact| contact.to == *target),
                "{url} is no attack: {contacts:?}"
            );
        }
    }

    /// Whom a client without a guard reaches.
    fn naively(&self, builder: reqwest::ClientBuilder, url: &str) -> Vec<Contact> {
        run(async {
            let client = builder.timeout(Duration::from_secs(2)).build().unwrap();
            let _whatever = client.get(url).send().await;
        });
        self.canary.contacts()
    }
}

/// Runs something to its end, and everything that it left running, too.
fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let result = runtime.block_on(future);
    // A look-up cannot be called off.
    runtime.shutdown_timeout(Duration::from_secs(10));
    result
}

/// A public address on a port of the web.
fn is_public(contact: &Contact) -> bool {
    let public = PUBLIC.map(|ip| ip.parse::<IpAddr>().unwrap());
    public.contains(&contact.to.ip()) && contact.to.port() == 80
}

fn settings() -> FetchSettings {
    FetchSettings {
        user_agent: "loopwright/0.1 (tests)".to_owned(),
        connect_timeout: Duration::from_secs(2),
        timeout: Duration::from_secs(3),
        max_bytes: 1_000_000,
        max_redirects: 5,
        ports: vec![80, 443],
        allow: Vec::new(),
        block: Vec::new(),
        private: Vec::new(),
        robots: false,
        per_host: 4,
        host_interval: Duration::ZERO,
    }
}
