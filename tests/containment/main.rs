//! Attacks from inside real interpreters of the built binary, in every kind of isolation that a machine can form.
//!
//! A test of containment assumes that it fails. So each of these tests makes a world first ([`world`]): namespaces in
//! which the machine is read-only, its secrets are canaries, its addresses are stand-ins and its processes are out of
//! sight, with bounds of its own on time, processes and memory; then it runs itself again in there. The test process
//! is the server there: it has the secrets, the descriptors and the listeners that the attacks are after, and it looks
//! at what became of them, not only at what the attacks were told.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, its support code included; what it prints is its report"
)]

mod bait;
mod bounds;
mod capacity;
mod capture;
mod files;
mod lives;
mod outside;
mod protocol;
mod resources;
mod stage;
mod unseen;
mod works;
mod world;

/// The same tests in each world.
macro_rules! suite {
    ($($world:ident: $kind:ident;)*) => {$(
        mod $world {
            use crate::world::{World, inside};

            suite!(@tests $world, $kind,
                files: crate::files::stay_closed;
                links: crate::capture::links::links_are_not_followed;
                swaps: crate::capture::links::swapping_does_not_help;
                odd_files: crate::capture::odd_files_do_not_block;
                floods: crate::capture::floods_and_names_are_bounded;
                images: crate::capture::images_are_checked;
                network: crate::outside::network_is_out_of_reach;
                full_network: crate::outside::a_full_network_is_for_outgoing_connections;
                processes: crate::outside::processes_are_out_of_reach;
                kernel: crate::outside::kernel_is_out_of_reach;
                strays: crate::lives::nothing_outlives_its_interpreter;
                rest: crate::lives::nothing_runs_between_calls;
                late_output: crate::lives::late_output_is_told_apart;
                interrupts: crate::lives::interrupts_between_cells_are_harmless;
                process_bombs: crate::resources::bombs_of_processes_are_contained;
                memory: crate::resources::memory::memory_is_bounded;
                kernel_memory: crate::resources::kernel::kernel_memory_is_bounded;
                disk: crate::resources::disk::disk_is_bounded;
                time: crate::resources::time::time_is_bounded;
                output: crate::resources::output_is_bounded;
                nameless: crate::unseen::files_without_names_are_counted;
                sockets: crate::unseen::sockets_count_as_memory;
                resting: crate::unseen::limits_hold_when_no_cell_runs;
                descriptors: crate::resources::descriptors_are_bounded;
                buffers: crate::resources::buffers_are_bounded;
                raised_limits: crate::resources::limits_cannot_be_raised;
                forgeries: crate::protocol::forgeries_fool_only_their_own_workspace;
                own_results: crate::protocol::own_results_stay_bounded;
                closed_descriptors: crate::protocol::closed_descriptors_are_noticed;
                no_protocol: crate::protocol::output_is_no_protocol;
                crashes: crate::protocol::crashes_are_clean;
                patches: crate::protocol::patched_interpreters_stay_alone;
                churn: crate::capacity::coming_and_going_leaks_nothing;
                crowd: crate::capacity::a_crowd_is_served_in_turn;
                overload: crate::capacity::too_many_are_told_so;
                ordinary_code: crate::works::ordinary_code_works;
                rights: crate::outside::interpreters_hold_no_rights;
                unmapped: crate::bounds::unmapped_memory_does_not_escape;
                beside: crate::bounds::nothing_is_writable_beside_what_is_counted;
                writers: crate::bounds::endless_writers_hold_nobody_up;
                measuring: crate::bounds::measuring_holds_nobody_up;
                directories: crate::bounds::hostile_directories_are_deleted;
                given_up: crate::bounds::calls_given_up_early_lose_nothing;
                in_sight: crate::bounds::files_in_sight_are_not_watched_or_changed;
                go_first: crate::bounds::interpreters_go_first;
            );
        }
    )*};
    (@tests $world:ident, $kind:ident, $($name:ident: $test:path;)*) => {$(
        #[test]
        #[ignore = "needs root, namespaces, ip and crun"]
        fn $name() {
            let name = concat!(stringify!($world), "::", stringify!($name));
            inside(World::$kind, name, $test);
        }
    )*};
}

suite! {
    root: Root;
    user: User;
    container_root: ContainerRoot;
    container_user: ContainerUser;
}

/// That the attacks would work if nothing were in their way; as root, on a world of the tests' own.
mod unprotected {
    use crate::world::{World, inside};

    suite!(@tests unprotected, Root,
        files: crate::files::probes_are_real;
        network: crate::files::calls_are_real;
    );
}
