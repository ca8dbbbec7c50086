//! Shards over real sockets: the contract of a turn, on every driver.

use subjectbus_reactor::{DriverChoice, DriverKind};

mod echo;
mod ends;
mod exchanges;
mod fairness;
mod fence;
mod herd;
mod order;
mod peer;
mod rings;
mod stage;
mod writes;

/// Whether the kernel permits this driver here; where it does not, nothing can be tested.
fn is_permitted(driver: DriverKind) -> bool {
    match DriverChoice::Named(driver).resolve() {
        Ok(_) => true,
        Err(error) => {
            eprintln!("not tested, the kernel permits no {driver}: {error}");
            false
        }
    }
}

/// Every test runs on every driver.
macro_rules! on_every_driver {
    ($($subject:ident { $($test:ident)* })*) => {
        mod epoll {
            $(mod $subject {
                $(#[test]
                fn $test() {
                    crate::$subject::$test(crate::DriverKind::Epoll);
                })*
            })*
        }
        mod uring {
            $(mod $subject {
                $(#[test]
                fn $test() {
                    if crate::is_permitted(crate::DriverKind::Uring) {
                        crate::$subject::$test(crate::DriverKind::Uring);
                    }
                })*
            })*
        }
    };
}

on_every_driver! {
    exchanges {
        echoes_and_tells_the_peers_end
        the_last_bytes_of_a_half_closed_peer_are_answered
        close_sends_what_is_pending_although_the_peer_still_sends
        close_sends_what_the_socket_does_not_take_at_once
        what_the_socket_takes_is_sent_before_the_shard_ends
        the_last_write_of_the_shard_waits_for_the_one_before
        a_peer_that_never_reads_blocks_only_itself
        abort_tells_how_much_was_not_sent
        timers_fire_and_a_paused_connection_keeps_its_bytes
        what_arrived_before_a_pause_took_effect_is_handed_out_after_it
        connects_from_the_given_address_and_tells_refusals
        mail_goes_round_the_shards_and_none_is_lost_at_the_end
        stopping_closes_connections_and_listeners
        a_paused_listener_keeps_its_callers_waiting
        a_panic_gives_the_mail_back_and_refuses_more
    }
    order {
        a_turn_has_its_order
        every_part_of_a_turn_has_its_share
    }
    fairness {
        a_quiet_connection_is_served_in_every_turn_while_20_flood
        a_quiet_connection_is_served_in_every_turn_while_200_flood
    }
    herd {
        a_herd_that_comes_keeps_traffic_waiting_for_no_turn
        a_herd_that_goes_keeps_traffic_waiting_for_no_turn
        a_herd_that_goes_in_answer_keeps_traffic_waiting_for_no_turn
        a_herd_that_says_its_last_keeps_traffic_waiting_for_no_turn
        a_herd_that_breaks_off_keeps_traffic_waiting_for_no_turn
        a_herd_that_reads_keeps_traffic_waiting_for_no_turn
        a_herd_of_timers_keeps_traffic_waiting_for_no_turn
        a_herd_of_mail_keeps_traffic_waiting_for_no_turn
        a_shard_that_connects_often_keeps_traffic_waiting_for_no_turn
    }
    fence {
        mail_is_in_front_of_what_is_sent_after_it
        what_an_answer_causes_on_another_shard_comes_after_the_mail
    }
    ends {
        what_a_peer_says_last_comes_before_its_end
        what_a_peer_says_last_comes_before_its_reset
        what_a_peer_says_last_comes_before_a_failed_write
        a_peer_that_ends_its_side_gets_the_answers_to_its_last_bytes
        a_paused_connection_keeps_its_bytes
        the_end_of_a_paused_connection_waits_until_it_is_read
        the_reset_of_a_paused_connection_is_noticed_at_once
        an_attempt_to_connect_can_be_given_up
    }
    writes {
        writes_cut_short_anywhere_leave_no_gap
        a_slow_peer_is_told_of_once_for_each_backlog
        what_sockets_take_of_many_chunks_is_sent_at_the_end
        thousands_of_connections_are_established_in_one_turn
    }
}
