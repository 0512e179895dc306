//! Agents, groups, enrolment, certificates, users.
