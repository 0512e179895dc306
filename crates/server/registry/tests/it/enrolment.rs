//! Enrolment: tokens, names and numbers.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::{Fixture, csr, der, fixture, named};
use model::{AgentId, AgentStatus};
use registry::{
    AgentEnrolment, EnrollError, IdentityError, IssuedIdentity, Life, Reader, RegistryError,
    TokenTerms, WriteContext,
};

#[test]
fn enrolment_assigns_number_certificate_and_default_group() {
    let fixture = fixture();
    let enrolled = fixture.enroll("web-1");
    assert_eq!(enrolled.agent, AgentId(1));
    assert_eq!(enrolled.cluster_name, "holdfast");
    assert_eq!(enrolled.ca_pem, fixture.registry.ca_pem());
    let record = fixture.registry.agent(AgentId(1)).unwrap();
    assert_eq!((record.name.as_str(), record.register_ip.as_str()), ("web-1", "any"));
    assert_eq!(record.groups, ["default"]);
    assert_eq!(record.status, AgentStatus::NeverConnected);
    assert_eq!(record.incarnation, enrolled.incarnation);
}

#[test]
fn groups_of_the_token_precede_those_of_the_agent() {
    let fixture = fixture();
    for group in ["linux", "web"] {
        fixture.registry.create_group(&WriteContext::server(), group).unwrap();
    }
    let token = fixture
        .registry
        .create_enrolment_token(
            &WriteContext::server(),
            &TokenTerms { groups: vec!["web".into()], ..TokenTerms::new(5, 60) },
        )
        .unwrap();
    let request = AgentEnrolment { groups: vec!["linux".into(), "web".into()], ..named("a1") };
    let enrolled = fixture.registry.enroll(&token, &csr("x"), &request).unwrap();
    assert_eq!(fixture.registry.agent(enrolled.agent).unwrap().groups, ["web", "linux"]);
    let unknown = AgentEnrolment { groups: vec!["mars".into()], ..named("a2") };
    let refused = fixture.registry.enroll(&token, &csr("x"), &unknown);
    assert!(matches!(refused, Err(EnrollError::Group(g)) if g == "mars"));
    assert!(
        fixture
            .registry
            .create_enrolment_token(
                &WriteContext::server(),
                &TokenTerms { groups: vec!["mars".into()], ..TokenTerms::new(1, 60) }
            )
            .is_err()
    );
}

#[test]
fn token_enrolls_its_number_of_agents_and_only_until_it_expires() {
    let fixture = fixture();
    let token = fixture
        .registry
        .create_enrolment_token(&WriteContext::server(), &TokenTerms::new(2, 60))
        .unwrap();
    fixture.try_enroll("a1", &token).unwrap();
    fixture.try_enroll("a2", &token).unwrap();
    let refused = fixture.try_enroll("a3", &token);
    assert!(matches!(refused, Err(EnrollError::Token("used up"))), "{refused:?}");
    let token = fixture
        .registry
        .create_enrolment_token(&WriteContext::server(), &TokenTerms::new(2, 60))
        .unwrap();
    fixture.after(60);
    assert!(matches!(fixture.try_enroll("a3", &token), Err(EnrollError::Token("expired"))));
    assert_eq!(fixture.registry.enrolment_tokens(&Reader::server()).unwrap(), []);
}

#[test]
fn refused_enrolment_does_not_consume_the_token() {
    let fixture = fixture();
    let token = fixture
        .registry
        .create_enrolment_token(&WriteContext::server(), &TokenTerms::new(1, 60))
        .unwrap();
    let bad = fixture.registry.enroll(&token, "not a request", &named("a1"));
    assert!(matches!(bad, Err(EnrollError::Request(_))), "{bad:?}");
    let long = fixture.registry.enroll(&token, &"x".repeat(1 << 20), &named("a1"));
    assert!(matches!(long, Err(EnrollError::Request(_))));
    assert!(fixture.registry.agent(AgentId(1)).is_none());
    assert_eq!(fixture.try_enroll("a1", &token).unwrap().agent, AgentId(1));
}

#[test]
fn foreign_invalid_and_revoked_tokens_are_refused() {
    let (fixture, other) = (fixture(), fixture());
    let foreign = fixture.try_enroll("a1", &other.token());
    assert!(matches!(foreign, Err(EnrollError::Token("made by another server"))));
    let token = fixture.token();
    for bad in ["", "hf1", "hf2.a.b", &format!("{token}.x"), &token.replacen("hf1.", "hf1.A", 1)] {
        assert!(matches!(fixture.try_enroll("a1", bad), Err(EnrollError::Token(_))), "{bad}");
    }
    let made_up = format!("hf1.{}.{}", "A".repeat(43), fixture.registry.ca_fingerprint());
    let refused = fixture.try_enroll("a1", &made_up);
    assert!(matches!(refused, Err(EnrollError::Token("unknown or revoked"))), "{refused:?}");
    for row in fixture.registry.enrolment_tokens(&Reader::server()).unwrap() {
        assert!(
            fixture.registry.revoke_enrolment_token(&WriteContext::server(), &row.digest).unwrap()
        );
    }
    let refused = fixture.try_enroll("a1", &token);
    assert!(matches!(refused, Err(EnrollError::Token("unknown or revoked"))));
}

#[test]
fn enrolment_token_secret_is_not_stored() {
    let fixture = fixture();
    let token = fixture.token();
    let secret = token.split('.').nth(1).unwrap().to_owned();
    for entry in std::fs::read_dir(fixture.folder.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(secret.len()).any(|w| w == secret.as_bytes()));
    }
}

#[test]
fn invalid_agent_names_and_addresses_are_refused() {
    let fixture = fixture();
    let token = fixture.token();
    for name in ["", "a", "a b", "a/b", "grün", "a'; DROP TABLE agent; --", &"x".repeat(129)] {
        let refused = fixture.registry.enroll(&token, &csr("x"), &named(name));
        assert!(matches!(refused, Err(EnrollError::Name(_))), "{name}");
    }
    for ip in ["localhost", "192.0.2.300", "192.0.2.0/33", "any/8"] {
        let request = AgentEnrolment { ip: ip.into(), ..named("web") };
        let refused = fixture.registry.enroll(&token, &csr("x"), &request);
        assert!(matches!(refused, Err(EnrollError::Ip(_))), "{ip}");
    }
    let request = AgentEnrolment { ip: "2001:db8::/32".into(), ..named("web") };
    assert!(fixture.registry.enroll(&token, &csr("x"), &request).is_ok());
}

#[test]
fn removed_agent_frees_its_name_but_not_its_number() {
    let fixture = fixture();
    let first = fixture.enroll("web-1");
    let taken = fixture.try_enroll("web-1", &fixture.token());
    let Err(error @ EnrollError::DuplicateName { id: AgentId(1), .. }) = taken else {
        panic!("{taken:?}")
    };
    assert!(error.to_string().contains("remove it first"), "{error}");
    let removed = fixture.registry.remove_agent(&WriteContext::server(), first.agent).unwrap();
    assert_eq!(removed, Some(Life { agent: first.agent, incarnation: first.incarnation }));
    assert_eq!(fixture.registry.remove_agent(&WriteContext::server(), first.agent).unwrap(), None);
    let second = fixture.enroll("web-1");
    assert_eq!(second.agent, AgentId(2));
    assert_ne!(second.incarnation, first.incarnation);
    let fixture = fixture.reopen();
    assert_eq!(fixture.enroll("web-2").agent, AgentId(3));
    assert!(fixture.registry.overlay(first.agent).is_none());
}

/// Returns a registry with an agent `web` that enrolled with `csr`, and the token, which has one use
/// left.
fn enrolled(request: &str) -> (Fixture, String, IssuedIdentity) {
    let fixture = fixture();
    let token = fixture
        .registry
        .create_enrolment_token(&WriteContext::server(), &TokenTerms::new(2, 60))
        .unwrap();
    let first = fixture.registry.enroll(&token, request, &named("web")).unwrap();
    (fixture, token, first)
}

#[test]
fn same_key_and_token_get_a_certificate_again() {
    let request = csr("web");
    let (fixture, token, first) = enrolled(&request);
    assert!(!first.again);
    let fixture = fixture.reopen();
    let second = fixture.registry.enroll(&token, &request, &named("web")).unwrap();
    assert_eq!((second.agent, second.again), (first.agent, true));
    assert_eq!(second.incarnation, first.incarnation);
    let left = fixture.registry.enrolment_tokens(&Reader::server()).unwrap();
    assert_eq!(left[0].uses_left, 1, "no use is counted");
    // Under another name the same key is another agent, which uses up the token.
    let other = fixture.registry.enroll(&token, &request, &named("db")).unwrap();
    assert_ne!(other.agent, first.agent);
    let third = fixture.registry.enroll(&token, &request, &named("web")).unwrap();
    assert_eq!(third.agent, first.agent, "with the token it used up");
    let identify =
        |issued: &IssuedIdentity| fixture.registry.identify(&der(&issued.certificate_pem));
    assert_eq!(identify(&second), Err(IdentityError::Superseded), "the last one counts");
    assert_eq!(identify(&third).unwrap().agent, first.agent);
    // It has connected: the name is in use.
    let refused = fixture.registry.enroll(&fixture.token(), &request, &named("web"));
    assert!(matches!(refused, Err(EnrollError::DuplicateName { .. })), "{refused:?}");
    fixture.registry.flush().unwrap();
    let fixture = fixture.reopen();
    let refused = fixture.registry.enroll(&fixture.token(), &request, &named("web"));
    assert!(matches!(refused, Err(EnrollError::DuplicateName { .. })), "{refused:?}");
}

#[test]
fn certificate_is_not_issued_again_for_another_key_or_token() {
    let request = csr("web");
    let (fixture, token, first) = enrolled(&request);
    let again = |token: &str, request: &str| {
        fixture.registry.enroll(token, request, &named("web")).map(|issued| issued.agent)
    };
    let duplicate = |refused| matches!(refused, Err(EnrollError::DuplicateName { .. }));
    assert!(duplicate(again(&token, &csr("web"))), "another key");
    assert_eq!(again(&fixture.token(), &request).unwrap(), first.agent, "a new token");
    fixture.after(60);
    assert!(matches!(again(&token, &request), Err(EnrollError::Token("expired"))));
    fixture.registry.revoke(&WriteContext::server(), first.agent).unwrap();
    assert!(duplicate(again(&fixture.token(), &request)), "its certificates are revoked");
}

#[test]
fn revoked_token_issues_no_certificate_again() {
    let request = csr("web");
    let (fixture, token, _) = enrolled(&request);
    for row in fixture.registry.enrolment_tokens(&Reader::server()).unwrap() {
        fixture.registry.revoke_enrolment_token(&WriteContext::server(), &row.digest).unwrap();
    }
    let refused = fixture.registry.enroll(&token, &request, &named("web"));
    assert!(matches!(refused, Err(EnrollError::Token("unknown or revoked"))), "{refused:?}");
}

#[test]
fn server_agent_cannot_be_removed_or_renewed() {
    let fixture = fixture();
    assert!(fixture.registry.remove_agent(&WriteContext::server(), AgentId::SERVER).is_err());
    let renewed = fixture.registry.renew(AgentId::SERVER, &csr("000"));
    assert!(matches!(renewed, Err(EnrollError::NoSuchAgent(AgentId::SERVER))));
}

#[test]
fn agent_on_the_server_host_may_have_its_name() {
    let fixture = fixture();
    let name = fixture.registry.agent(AgentId::SERVER).unwrap().name;
    let local = AgentEnrolment { on_server: true, ..named(&name) };
    let enrolled = fixture.registry.enroll(&fixture.token(), &csr("x"), &local).unwrap();
    assert_eq!(enrolled.agent, AgentId(1));
    assert_eq!(fixture.reopen().registry.agent(AgentId(1)).unwrap().name, name);
}

#[test]
fn name_and_number_of_the_server_are_refused() {
    let fixture = fixture();
    let server = fixture.registry.agent(AgentId::SERVER).unwrap().name;
    for name in [server.as_str(), &server.to_ascii_uppercase(), "000"] {
        let enrolled = fixture.try_enroll(name, &fixture.token()).map(|issued| issued.agent);
        let added = fixture.registry.add_agents(&WriteContext::server(), &[(None, named(name))]);
        for refused in [enrolled, added.map(|ids| ids[0])] {
            let Err(error @ EnrollError::DuplicateName { id: AgentId::SERVER, .. }) = refused
            else {
                panic!("{name}: {refused:?}")
            };
            assert!(error.to_string().contains("choose another name"), "{error}");
        }
    }
    let local = AgentEnrolment { on_server: true, ..named("000") };
    assert!(fixture.registry.enroll(&fixture.token(), &csr("x"), &local).is_err());
    for address in ["127.0.0.1", "::1"] {
        assert!(fixture.registry.is_own_address(address.parse().unwrap()));
    }
    assert!(!fixture.registry.is_own_address("192.0.2.7".parse().unwrap()));
}

#[test]
fn names_that_differ_only_in_case_are_refused() {
    let fixture = fixture();
    assert_eq!(fixture.enroll("web-1").agent, AgentId(1));
    let enrolled = fixture.try_enroll("Web-1", &fixture.token()).map(|issued| issued.agent);
    let new = [(None, named("WEB-1"))];
    let added = fixture.registry.add_agents(&WriteContext::server(), &new).map(|ids| ids[0]);
    for refused in [enrolled, added] {
        let Err(EnrollError::DuplicateName { name, id }) = refused else { panic!("{refused:?}") };
        assert_eq!((name.as_str(), id), ("web-1", AgentId(1)));
    }
}

fn at_once(fixture: &Fixture, threads: u32, work: impl Fn(u32) + Sync) {
    let _ = fixture;
    std::thread::scope(|scope| {
        for n in 0..threads {
            let work = &work;
            scope.spawn(move || work(n));
        }
    });
}

#[test]
fn concurrent_enrolments_get_distinct_numbers() {
    let fixture = fixture();
    let token = fixture.token();
    let ids = parking_lot::Mutex::new(BTreeSet::new());
    at_once(&fixture, 100, |n| {
        let enrolled = fixture.try_enroll(&format!("agent-{n}"), &token).unwrap();
        ids.lock().insert(enrolled.agent);
    });
    assert_eq!(ids.into_inner(), (1..=100).map(AgentId).collect());
    assert_eq!(fixture.registry.status_summary().unwrap().never_connected, 100);
}

#[test]
fn single_use_token_enrolls_one_of_twenty_concurrent_agents() {
    let fixture = fixture();
    let token = fixture
        .registry
        .create_enrolment_token(&WriteContext::server(), &TokenTerms::new(1, 60))
        .unwrap();
    let (won, lost) = (AtomicU32::new(0), AtomicU32::new(0));
    at_once(&fixture, 20, |n| match fixture.try_enroll(&format!("agent-{n}"), &token) {
        Ok(_) => drop(won.fetch_add(1, Ordering::SeqCst)),
        Err(EnrollError::Token("used up")) => drop(lost.fetch_add(1, Ordering::SeqCst)),
        Err(other) => panic!("{other}"),
    });
    assert_eq!((won.into_inner(), lost.into_inner()), (1, 19));
}

#[test]
fn concurrent_enrolments_register_a_name_once() {
    let fixture = fixture();
    let token = fixture.token();
    let won = AtomicU32::new(0);
    at_once(&fixture, 20, |_| match fixture.try_enroll("same", &token) {
        Ok(_) => drop(won.fetch_add(1, Ordering::SeqCst)),
        Err(EnrollError::DuplicateName { .. }) => {}
        Err(other) => panic!("{other}"),
    });
    assert_eq!(won.into_inner(), 1);
}

#[test]
fn added_agent_number_must_exceed_all_earlier_numbers() {
    let fixture = fixture();
    let add = |id: u32, name: &str| {
        fixture.registry.add_agents(&WriteContext::server(), &[(Some(AgentId(id)), named(name))])
    };
    assert_eq!(add(7, "seven").unwrap(), [AgentId(7)]);
    assert_eq!(fixture.enroll("next").agent, AgentId(8));
    assert!(matches!(add(7, "again"), Err(EnrollError::Registry(RegistryError::Store(_)))));
    assert!(add(3, "below").is_err());
    assert!(matches!(add(9, "seven"), Err(EnrollError::DuplicateName { id: AgentId(7), .. })));
    assert_eq!(fixture.registry.status_summary().unwrap().total, 2);
}
