//! The addresses that may be connected to: unicast addresses of the public internet.
//!
//! The tables follow the IANA registries of special-purpose addresses (iana-ipv4-special-registry,
//! iana-ipv6-special-registry) and of multicast. Blocks that are globally reachable but serve no pages (AS112, relays,
//! anycast of protocols) are refused too. So is every IPv6 address that carries an IPv4 address, since an unknown translator
//! would decide where it leads.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Refused IPv4 blocks: network and length of the prefix.
const REFUSED_V4: &[(Ipv4Addr, u32)] = &[
    // This network.
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    // Private.
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    // Shared by carriers (CGNAT); some clouds have their metadata service there.
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    // Loopback.
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    // Azure's metadata and health service.
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    // Link-local, with the metadata services of most clouds.
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    // Private.
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    // Protocol assignments.
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    // Documentation.
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    // AS112.
    (Ipv4Addr::new(192, 31, 196, 0), 24),
    // Automatic multicast tunnelling.
    (Ipv4Addr::new(192, 52, 193, 0), 24),
    // Relays of 6to4.
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    // Private.
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    // AS112.
    (Ipv4Addr::new(192, 175, 48, 0), 24),
    // Benchmarks of networks.
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    // Documentation.
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    // Multicast.
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    // Reserved, and broadcast.
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// The only IPv6 block for global unicast.
const GLOBAL_V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// Refused blocks inside it.
const REFUSED_V6: &[(Ipv6Addr, u32)] = &[
    // Protocol assignments: Teredo, benchmarks, ORCHID and others.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    // Documentation.
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    // 6to4, which carries IPv4 addresses.
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    // AS112.
    (Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0), 48),
    // Documentation.
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// Whether this is a unicast address of the public internet.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !REFUSED_V4
            .iter()
            .any(|(network, prefix)| covers_v4(*network, *prefix, address)),
        IpAddr::V6(address) => {
            covers_v6(GLOBAL_V6.0, GLOBAL_V6.1, address)
                && !is_isatap(address)
                && !REFUSED_V6
                    .iter()
                    .any(|(network, prefix)| covers_v6(*network, *prefix, address))
        }
    }
}

fn covers_v4(network: Ipv4Addr, prefix: u32, address: Ipv4Addr) -> bool {
    let differing = network.to_bits() ^ address.to_bits();
    differing.leading_zeros() >= prefix
}

fn covers_v6(network: Ipv6Addr, prefix: u32, address: Ipv6Addr) -> bool {
    let differing = network.to_bits() ^ address.to_bits();
    differing.leading_zeros() >= prefix
}

/// Whether the interface identifier is one of ISATAP (RFC 5214), which carries an IPv4 address under any prefix.
fn is_isatap(address: Ipv6Addr) -> bool {
    /// Number of the bit that marks an address as unique in the world.
    const UNIVERSAL: u16 = 0x0200;
    let segments = address.segments();
    segments[4] & !UNIVERSAL == 0 && segments[5] == 0x5efe
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn public(address: &str) -> bool {
        is_public(address.parse().unwrap())
    }

    #[test]
    fn the_public_internet_is_permitted() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "93.184.216.34",
            "168.63.129.15",
            "168.63.129.17",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450:4001::1",
            "2001:4860:4860::8888",
            "2001:200::1",
            "2003::1",
            "3ffe::1",
        ] {
            assert!(public(address), "{address}");
        }
    }

    /// The first and the last address of blocks, and their neighbours where those are public (else empty).
    const BLOCKS: &[[&str; 4]] = &[
        ["0.0.0.0", "0.255.255.255", "", "1.0.0.0"],
        ["10.0.0.0", "10.255.255.255", "9.255.255.255", "11.0.0.0"],
        [
            "100.64.0.0",
            "100.127.255.255",
            "100.63.255.255",
            "100.128.0.0",
        ],
        [
            "127.0.0.0",
            "127.255.255.255",
            "126.255.255.255",
            "128.0.0.0",
        ],
        [
            "169.254.0.0",
            "169.254.255.255",
            "169.253.255.255",
            "169.255.0.0",
        ],
        [
            "172.16.0.0",
            "172.31.255.255",
            "172.15.255.255",
            "172.32.0.0",
        ],
        ["192.0.0.0", "192.0.0.255", "191.255.255.255", "192.0.1.0"],
        ["192.0.2.0", "192.0.2.255", "192.0.1.255", "192.0.3.0"],
        [
            "192.88.99.0",
            "192.88.99.255",
            "192.88.98.255",
            "192.88.100.0",
        ],
        [
            "192.168.0.0",
            "192.168.255.255",
            "192.167.255.255",
            "192.169.0.0",
        ],
        [
            "198.18.0.0",
            "198.19.255.255",
            "198.17.255.255",
            "198.20.0.0",
        ],
        [
            "198.51.100.0",
            "198.51.100.255",
            "198.51.99.255",
            "198.51.101.0",
        ],
        [
            "203.0.113.0",
            "203.0.113.255",
            "203.0.112.255",
            "203.0.114.0",
        ],
        ["224.0.0.0", "255.255.255.255", "223.255.255.255", ""],
        [
            "2001::",
            "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff",
            "",
            "2001:200::",
        ],
        [
            "2001:db8::",
            "2001:db8:ffff::",
            "2001:db7:ffff::",
            "2001:db9::",
        ],
        ["2002::", "2002:ffff:ffff::", "2001:ffff::", "2003::"],
        ["3fff::", "3fff:fff:ffff::", "3ffe:ffff::", "3fff:1000::"],
        [
            "4000::",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "3fff:ffff::",
            "",
        ],
        [
            "::",
            "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "",
            "2000::",
        ],
    ];

    #[test]
    fn every_block_is_refused_from_its_first_address_to_its_last_and_no_further() {
        for [first, last, before, after] in BLOCKS {
            assert!(!public(first) && !public(last), "{first} to {last}");
            for neighbour in [before, after] {
                assert!(
                    neighbour.is_empty() || public(neighbour),
                    "{neighbour} beside {first} to {last}"
                );
            }
        }
    }

    #[test]
    fn metadata_services_are_refused() {
        for address in [
            "169.254.169.254",
            "169.254.170.2",
            "168.63.129.16",
            "100.100.100.200",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd20:ce::254",
            "fe80::a9fe:a9fe",
        ] {
            assert!(!public(address), "{address}");
        }
    }

    proptest! {
        #[test]
        fn what_the_standard_library_knows_as_special_is_refused(bits: u32) {
            let address = Ipv4Addr::from_bits(bits);
            let is_special = address.is_private() || address.is_loopback() || address.is_link_local()
                || address.is_multicast() || address.is_broadcast() || address.is_documentation()
                || address.is_unspecified();
            prop_assert!(!(is_special && is_public(address.into())));
        }

        #[test]
        fn no_ipv6_form_that_carries_an_ipv4_address_is_permitted(bits: u32, prefix: u64, universal: bool) {
            let (high, low) = ((bits >> 16) as u16, bits as u16);
            let isatap = (u128::from(prefix) << 64) | (u128::from(universal) << 57) | (0x5efe << 32) | u128::from(bits);
            for address in [
                Ipv4Addr::from_bits(bits).to_ipv6_mapped(),
                Ipv4Addr::from_bits(bits).to_ipv6_compatible(),
                Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
                Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, !high, !low),
                Ipv6Addr::from_bits(isatap),
            ] {
                prop_assert!(!is_public(address.into()), "{}", address);
            }
        }

        #[test]
        fn outside_of_global_unicast_nothing_is_permitted(bits: u128) {
            let address = Ipv6Addr::from_bits(bits);
            prop_assert!(bits >> 125 == 1 || !is_public(address.into()));
        }

        #[test]
        fn ordinary_addresses_are_permitted(bits: u128) {
            // Of the largest blocks that registries give out.
            let address = Ipv6Addr::from_bits((0x2a << 120) | (bits >> 8));
            prop_assert!(is_isatap(address) || is_public(address.into()));
        }
    }
}
