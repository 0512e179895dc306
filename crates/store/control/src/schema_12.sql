-- Ephemeral agents: one that is silent for `ephemeral_s` seconds is removed. A token gives the limit to
-- each agent that registers with it.
ALTER TABLE enrolment_token ADD COLUMN ephemeral_s INTEGER;
ALTER TABLE agent ADD COLUMN ephemeral_s INTEGER;
