//! The name server of the world.

use std::collections::HashMap;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;

use parking_lot::Mutex;

/// How often each name was asked for its IPv4 addresses.
pub(crate) type Asked = Arc<Mutex<HashMap<String, usize>>>;

const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;

/// What a name stands for.
enum Answer {
    Addresses(&'static [&'static str]),
    /// Another name, and the addresses that the server adds for it.
    Alias(&'static str, &'static [&'static str]),
    /// Never.
    Silence,
    Nothing,
}

/// The zone. `asked` counts earlier questions for the name's IPv4 addresses.
fn answer(name: &str, asked: usize) -> Answer {
    use Answer::{Addresses, Alias, Nothing, Silence};
    match name {
        "public.site.com" | "xn--bcher-kva.site.com" => {
            Addresses(&["93.184.216.34", "2606:4700::1111"])
        }
        "six.site.com" => Addresses(&["2606:4700::1111"]),
        "private.site.com" | "printer.office.corp.site.com" | "intranet.corp.site.com" => {
            Addresses(&["10.0.0.5"])
        }
        "class-b.site.com" => Addresses(&["172.16.0.5"]),
        "class-c.site.com" => Addresses(&["192.168.1.5"]),
        "carrier.site.com" => Addresses(&["100.64.0.5"]),
        "loopback.site.com" | "127.0.0.1.nip.com" => Addresses(&["127.0.0.1"]),
        "zero.site.com" => Addresses(&["0.0.0.0"]),
        "metadata.site.com" | "metadata.google.internal" => Addresses(&["169.254.169.254"]),
        "mixed.site.com" => Addresses(&["93.184.216.34", "10.0.0.5"]),
        "mixed-six.site.com" => Addresses(&["93.184.216.34", "fd00::5"]),
        "alias.site.com" => Alias("private.site.com", &["10.0.0.5"]),
        "mapped.site.com" => Addresses(&["::ffff:10.0.0.5"]),
        "translated.site.com" => Addresses(&["64:ff9b::10.0.0.5"]),
        "six-to-four.site.com" => Addresses(&["2002:a00:5::1"]),
        "local-six.site.com" => Addresses(&["fd00::5"]),
        "loopback-six.site.com" => Addresses(&["::1"]),
        "turning.site.com" if asked == 0 => Addresses(&["93.184.216.34"]),
        "turning.site.com" => Addresses(&["10.0.0.5"]),
        "slow.site.com" => Silence,
        _ => Nothing,
    }
}

/// Serves the zone on a thread of its own.
pub(crate) fn serve(asked: Asked) {
    let socket = UdpSocket::bind("127.0.0.1:53").expect("nobody else serves names here");
    std::thread::spawn(move || {
        let mut query = [0; 1500];
        while let Ok((length, peer)) = socket.recv_from(&mut query) {
            if let Some(reply) = reply(&query[..length], &asked) {
                let _gone = socket.send_to(&reply, peer);
            }
        }
    });
}

fn reply(query: &[u8], asked: &Asked) -> Option<Vec<u8>> {
    let (name, end) = question(query)?;
    let kind = u16::from_be_bytes([query[end], query[end + 1]]);
    let before = {
        let mut asked = asked.lock();
        let count = asked.entry(name.clone()).or_default();
        let before = *count;
        if kind == A {
            *count += 1;
        }
        before
    };
    let mut records = Vec::new();
    let (owner, addresses) = match answer(&name, before) {
        Answer::Silence => return None,
        Answer::Nothing => (name, &[][..]),
        Answer::Addresses(addresses) => (name, addresses),
        Answer::Alias(target, addresses) => {
            records.push(record(&name, CNAME, &encoded(target)));
            (target.to_owned(), addresses)
        }
    };
    let is_known = !addresses.is_empty();
    for address in addresses {
        match (address.parse().expect("the zone holds addresses"), kind) {
            (IpAddr::V4(address), A) => records.push(record(&owner, A, &address.octets())),
            (IpAddr::V6(address), AAAA) => records.push(record(&owner, AAAA, &address.octets())),
            _ => {}
        }
    }
    let code = if is_known { 0 } else { 3 };
    let mut reply = query[..2].to_vec();
    reply.extend([
        0x81,
        0x80 | code,
        0,
        1,
        0,
        u8::try_from(records.len()).ok()?,
        0,
        0,
        0,
        0,
    ]);
    reply.extend(&query[12..end + 4]);
    reply.extend(records.concat());
    Some(reply)
}

/// The name that is asked for, in lower case, and where it ends.
fn question(query: &[u8]) -> Option<(String, usize)> {
    let mut labels = Vec::new();
    let mut at = 12;
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            query.get(at + 3)?;
            return Some((labels.join("."), at));
        }
        let label = query.get(at..at + length)?;
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
        at += length;
    }
}

fn record(owner: &str, kind: u16, data: &[u8]) -> Vec<u8> {
    let mut record = encoded(owner);
    record.extend(kind.to_be_bytes());
    // Of the internet, and to be forgotten at once.
    record.extend([0, 1, 0, 0, 0, 0]);
    record.extend(
        u16::try_from(data.len())
            .expect("records are short")
            .to_be_bytes(),
    );
    record.extend(data);
    record
}

fn encoded(name: &str) -> Vec<u8> {
    let mut encoded = Vec::new();
    for label in name.split('.') {
        encoded.push(u8::try_from(label.len()).expect("labels are short"));
        encoded.extend(label.as_bytes());
    }
    encoded.push(0);
    encoded
}
