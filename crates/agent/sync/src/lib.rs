//! Enrolment and sessions: one session, one POST, one answer.
