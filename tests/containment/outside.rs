//! 26 to 39 and 42 to 53: network, other processes, privileges and the surface of the kernel.

use std::fs;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use protocol::ids::WorkspaceId;
use sandbox::settings::{InterpreterLimits, Network, Settings};
use serde_json::json;

use crate::stage::{judge, play, play_with, processes, settings};
use crate::world::{self, World};

pub(crate) fn network_is_out_of_reach(world: World) {
    probes_fail(world, include_str!("probes/network.py"));
}

pub(crate) fn processes_are_out_of_reach(world: World) {
    probes_fail(world, include_str!("probes/processes.py"));
}

pub(crate) fn kernel_is_out_of_reach(world: World) {
    probes_fail(world, include_str!("probes/kernel.py"));
}

fn probes_fail(world: World, probes: &'static str) {
    play(world, InterpreterLimits::default(), async |stage| {
        let (workspace, neighbour) = (WorkspaceId::fresh(), WorkspaceId::fresh());
        for workspace in [&workspace, &neighbour] {
            stage.run(workspace, "before = 1").await;
        }
        let found = stage.probe(&workspace, probes).await;
        for (name, what) in &found {
            println!("{name}: {what}");
        }
        judge(&found, &[]);
        // Neither did they hit another interpreter, or what looks after it.
        for workspace in [&workspace, &neighbour] {
            assert_eq!(stage.value(workspace, "before").await, "1");
        }
        assert_eq!(stage.sandbox.stats().killed, 0);
        stage.is_untouched();
    });
}

/// 32 and 54 to 56: with a network, code calls others, and nobody calls code.
pub(crate) fn a_full_network_is_for_outgoing_connections(world: World) {
    let settings = Settings {
        network: Network::Full,
        ..settings()
    };
    play_with(world, settings, async |stage| {
        let service = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut facts = stage.facts.clone();
        facts["service"] = json!(service.local_addr().unwrap().port());
        let workspace = WorkspaceId::fresh();
        let probes = include_str!("probes/full_network.py");
        let found = stage.probe_with(&workspace, &facts, probes).await;
        for (name, what) in &found {
            println!("{name}: {what}");
        }
        judge(&found, &["54 "]);
        // Names that anybody on the host can take keep no interpreter from starting.
        let (first, last) = world::uids();
        let _names: Vec<_> = (first..=last)
            .map(|uid| {
                let name = format!("loopwright-interpreter-{uid}");
                UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap()
            })
            .collect();
        for _ in 0..3 {
            assert_eq!(stage.value(&WorkspaceId::fresh(), "1 + 1").await, "2");
        }
    });
}

/// 51: seen from the outside, in the namespaces of the server.
pub(crate) fn interpreters_hold_no_rights(world: World) {
    play(world, InterpreterLimits::default(), async |stage| {
        let workspace = WorkspaceId::fresh();
        let code = "
import subprocess
child = subprocess.Popen(['sh', '-c', 'echo; read word'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()";
        stage.run(&workspace, code).await;
        let mut seen = Vec::new();
        for pid in processes() {
            let read =
                |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
            let comm = read("comm").trim().to_owned();
            if !(comm.starts_with("python") || comm == "sh") {
                continue;
            }
            seen.push(comm);
            let status = read("status");
            let field = |name: &str| {
                let line = status
                    .lines()
                    .find(|line| line.starts_with(&format!("{name}:")));
                line.unwrap()
                    .split_whitespace()
                    .skip(1)
                    .collect::<Vec<_>>()
                    .join(" ")
            };
            for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
                // An unprivileged server cannot empty the set that bounds programs with privileges of their own, of
                // which the next lines take the use.
                let fixed = set == "CapBnd" && world == World::ContainerUser;
                assert!(
                    fixed || field(set) == "0000000000000000",
                    "{set}: {}",
                    field(set)
                );
            }
            assert_eq!(field("NoNewPrivs"), "1");
            assert_eq!(field("Seccomp"), "2");
            for ids in [field("Uid"), field("Gid")] {
                assert!(!ids.split(' ').any(|id| id == "0"), "{ids}");
            }
            assert!(
                !field("Groups").split(' ').any(|id| id == "0"),
                "{}",
                field("Groups")
            );
        }
        assert!(
            seen.iter().any(|comm| comm == "sh") && seen.len() >= 2,
            "{seen:?}"
        );
    });
}
