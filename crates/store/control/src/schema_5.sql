-- How far what a row tells of went: begun, done, partly, refused or failed. Rows from before were
-- written when it was done.
ALTER TABLE audit ADD COLUMN outcome TEXT NOT NULL DEFAULT 'done';

-- What is read and ordered has actions of its own now: whoever wrote a policy of their own (default
-- ones are refreshed by the program) said as much with the actions that were asked before.
UPDATE policy SET actions = json_insert(actions,
    '$[#]', 'change:read', '$[#]', 'state:read', '$[#]', 'coverage:read')
WHERE id > 99 AND EXISTS (SELECT 1 FROM json_each(policy.actions) WHERE value = 'syscheck:read');
UPDATE policy SET actions = json_insert(actions, '$[#]', 'command:read')
WHERE id > 99 AND EXISTS (SELECT 1 FROM json_each(policy.actions) WHERE value = 'agent:read');
UPDATE policy SET actions = json_insert(actions, '$[#]', 'command:cancel')
WHERE id > 99 AND EXISTS (SELECT 1 FROM json_each(policy.actions) WHERE value = 'agent:restart');
UPDATE policy SET actions = json_insert(actions, '$[#]', 'enrolment:create')
WHERE id > 99 AND EXISTS (SELECT 1 FROM json_each(policy.actions) WHERE value = 'agent:create');
