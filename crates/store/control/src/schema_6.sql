-- Numbers of agents that were removed for good: whoever asks for one of them may have it. All others
-- are given once.
CREATE TABLE free_number (id INTEGER PRIMARY KEY);

-- What was refused is dropped before what was done.
CREATE INDEX audit_refused ON audit (id) WHERE outcome = 'refused';
CREATE INDEX audit_kept ON audit (id) WHERE outcome <> 'refused';

-- Step 5 gave policies of people what is asked without a resource now, beside the resources of agents:
-- there it never applies. Their roles have it by the program's own policies, unless they deny it.
INSERT OR IGNORE INTO role_policy
    SELECT DISTINCT l.role, 22, (SELECT max(level) + 1 FROM role_policy o WHERE o.role = l.role)
    FROM role_policy l JOIN policy p ON p.id = l.policy
    WHERE p.id > 99 AND p.allow
    AND EXISTS (SELECT 1 FROM json_each(p.actions) WHERE value = 'command:read')
    AND NOT EXISTS (SELECT 1 FROM role_policy o JOIN policy d ON d.id = o.policy, json_each(d.actions) a
        WHERE o.role = l.role AND d.id > 99 AND NOT d.allow AND a.value = 'command:read'
        AND EXISTS (SELECT 1 FROM json_each(d.resources) WHERE value = '*:*:*'));
INSERT OR IGNORE INTO role_policy
    SELECT DISTINCT l.role, 23, (SELECT max(level) + 1 FROM role_policy o WHERE o.role = l.role)
    FROM role_policy l JOIN policy p ON p.id = l.policy
    WHERE p.id > 99 AND p.allow
    AND EXISTS (SELECT 1 FROM json_each(p.actions) WHERE value = 'command:cancel')
    AND NOT EXISTS (SELECT 1 FROM role_policy o JOIN policy d ON d.id = o.policy, json_each(d.actions) a
        WHERE o.role = l.role AND d.id > 99 AND NOT d.allow AND a.value = 'command:cancel'
        AND EXISTS (SELECT 1 FROM json_each(d.resources) WHERE value = '*:*:*'));
