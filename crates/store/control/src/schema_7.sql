-- What changed nothing that others see is dropped with what was refused, before what was done.
DROP INDEX audit_refused;
DROP INDEX audit_kept;
CREATE INDEX audit_idle ON audit (id) WHERE outcome IN ('refused', 'unchanged');
CREATE INDEX audit_kept ON audit (id) WHERE outcome NOT IN ('refused', 'unchanged');
