//! Connects to a server, with TLS where its URL says so, and sends nothing.

use url::Url;

use super::cause::cause_of;
use super::client::{CaCertificates, ClientOptions};
use super::connect_only::Connected;

/// Connects to the server of an `http` or `https` URL.
///
/// # Errors
/// The cause, without the URL.
pub async fn reach(url: &Url, certificates: &CaCertificates) -> Result<(), String> {
    let options = ClientOptions {
        certificates: certificates.clone(),
        tls: url.scheme() == "https",
        connect_only: true,
        ..ClientOptions::default()
    };
    let client = options.build().map_err(|error| cause_of(&error))?;
    match client.get(url.clone()).send().await {
        Ok(_) => Ok(()),
        Err(error) if is_connected(&error) => Ok(()),
        Err(error) if error.is_timeout() => Err("no connection in time".to_owned()),
        Err(error) => Err(cause_of(&error)),
    }
}

fn is_connected(error: &reqwest::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<Connected>() {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    fn url(scheme: &str, listener: &TcpListener) -> Url {
        let address = listener.local_addr().unwrap();
        format!("{scheme}://{address}/run?token=secret")
            .parse()
            .unwrap()
    }

    #[tokio::test]
    async fn nothing_is_sent_on_the_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = url("http", &listener);
        let certificates = CaCertificates::default();
        let (reached, sent) = tokio::join!(reach(&url, &certificates), async {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut sent = Vec::new();
            socket.read_to_end(&mut sent).await.unwrap();
            sent
        });
        assert_eq!((reached, sent.len()), (Ok(()), 0));
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_or_speaks_no_tls_is_not_reached() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let secure = url("https", &listener);
        let certificates = CaCertificates::default();
        let (reached, ()) = tokio::join!(reach(&secure, &certificates), async {
            let (socket, _) = listener.accept().await.unwrap();
            drop(socket);
        });
        let cause = reached.unwrap_err();
        assert!(!cause.contains("secret"), "{cause}");
        let gone = url("http", &listener);
        drop(listener);
        let cause = reach(&gone, &certificates).await.unwrap_err();
        assert!(
            cause.contains("refused") && !cause.contains("secret"),
            "{cause}"
        );
    }
}
