-- The keys of agents that enrolled and have not connected yet. The holder of such a key gets a further
-- certificate, because the first one may not have reached the agent's disk. The token is its digest;
-- an end of 0 means that it was revoked.
CREATE TABLE enrolment (
    agent        INTEGER PRIMARY KEY,
    key_digest   BLOB NOT NULL,
    token        BLOB NOT NULL,
    expires_at_s INTEGER NOT NULL
);
CREATE INDEX enrolment_by_token ON enrolment (token);
