//! Certificates and enrolment tokens.

use model::{AgentId, AgentRecord, Incarnation};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{ControlStore, groups, rows};
use crate::limits::{ENROLMENT_TOKEN_USES_MAX, ENROLMENT_TOKENS_MAX};
use crate::{
    CertificateRow, ControlError, ControlResult, EnrolmentRow, EnrolmentTokenRow, NewCertificate,
    NewEnrolmentToken, WriteContext,
};
use sqlite::Reader;

impl ControlStore {
    /// Stores a new enrolment token (its digest only). Groups that do not exist are refused.
    ///
    /// # Errors
    /// `NotFound` for a group; `Limit` at [`ENROLMENT_TOKENS_MAX`].
    pub fn add_enrolment_token(
        &self,
        context: &WriteContext,
        token: &NewEnrolmentToken,
    ) -> ControlResult<()> {
        self.write(context, |tx| add_token(tx, token))
    }

    /// Returns the enrolment tokens that are neither used up nor expired at `now_s`, with their
    /// digests.
    pub fn enrolment_tokens(
        &self,
        reader: &Reader,
        now_s: i64,
    ) -> ControlResult<Vec<EnrolmentTokenRow>> {
        self.read(reader, |tx| tokens(tx, now_s))
    }

    /// Deletes an enrolment token; returns true if it existed.
    pub fn revoke_enrolment_token(
        &self,
        context: &WriteContext,
        digest: &[u8; 32],
    ) -> ControlResult<bool> {
        self.write(context, |tx| revoke_token(tx, digest))
    }

    /// Returns the enrolment of the agent with this name, if it has not connected since and the
    /// token permits a further certificate: it is the token of that enrolment, used up or not, or
    /// another one that has uses left. No use is counted.
    pub fn unused_enrolment(
        &self,
        token: &[u8; 32],
        name: &str,
        now_s: i64,
    ) -> ControlResult<Option<EnrolmentRow>> {
        self.write_soft(&Reader::server(), |tx| unused(tx, token, name, now_s))
    }

    /// Stores a further certificate of an agent. Superseded certificates that were never used are
    /// deleted.
    ///
    /// # Errors
    /// `NotFound` when the agent is gone.
    pub fn add_certificate(
        &self,
        agent: AgentId,
        certificate: &NewCertificate,
    ) -> ControlResult<()> {
        self.write(&WriteContext::server(), |tx| add(tx, agent, certificate))
    }

    /// Writes the times at which certificates were first used and superseded, in one transaction;
    /// survives a killed process.
    pub fn save_certificate_uses(&self, rows: &[CertificateRow]) -> ControlResult<()> {
        self.write_soft(&Reader::server(), |tx| save_uses(tx, rows))
    }

    /// Revokes every certificate of these agents in one transaction; returns the number that were
    /// in force.
    pub fn revoke_certificates(
        &self,
        context: &WriteContext,
        agents: &[AgentId],
        now_s: i64,
    ) -> ControlResult<u64> {
        self.write(context, |tx| agents.iter().map(|agent| revoke(tx, *agent, now_s)).sum())
    }

    /// Deletes expired certificates, enrolment tokens and revocations of tokens; returns their
    /// number.
    pub fn forget_expired(&self, now_s: i64) -> ControlResult<u64> {
        self.write(&WriteContext::server(), |tx| forget_expired(tx, now_s))
    }
}

pub(super) fn all(tx: &Connection) -> ControlResult<Vec<CertificateRow>> {
    let mut statement = tx.prepare_cached(
        "SELECT fingerprint, agent, incarnation, not_before_s, not_after_s, used_at_s,
         superseded_at_s, revoked_at_s FROM certificate",
    )?;
    statement.query_and_then([], certificate)?.collect()
}

fn certificate(row: &Row<'_>) -> ControlResult<CertificateRow> {
    Ok(CertificateRow {
        fingerprint: rows::digest(row, 0)?,
        agent: AgentId(row.get(1)?),
        incarnation: rows::incarnation(row.get(2)?),
        not_before_s: row.get(3)?,
        not_after_s: row.get(4)?,
        used_at_s: row.get(5)?,
        superseded_at_s: row.get(6)?,
        revoked_at_s: row.get(7)?,
    })
}

fn insert(
    tx: &Connection,
    agent: AgentId,
    incarnation: Incarnation,
    new: &NewCertificate,
) -> ControlResult<()> {
    tx.prepare_cached(
        "INSERT INTO certificate (fingerprint, agent, incarnation, not_before_s, not_after_s)
         VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![
        new.fingerprint,
        agent.0,
        rows::bits(incarnation),
        new.not_before_s,
        new.not_after_s
    ])?;
    Ok(())
}

/// Stores the first certificate of an agent, and the key and the token that it enrolled with.
pub(super) fn insert_first(
    tx: &Connection,
    agent: &AgentRecord,
    new: &NewCertificate,
    token: &EnrolmentTokenRow,
) -> ControlResult<()> {
    insert(tx, agent.id, agent.incarnation, new)?;
    tx.prepare_cached("INSERT OR REPLACE INTO enrolment VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![agent.id.0, new.key_digest, token.digest, token.expires_at_s])?;
    Ok(())
}

/// Returns the enrolment of the agent with this name if the token permits a further certificate.
fn unused(
    tx: &Connection,
    token: &[u8; 32],
    name: &str,
    now_s: i64,
) -> ControlResult<Option<EnrolmentRow>> {
    let found = tx
        .prepare_cached(
            "SELECT e.agent, e.key_digest, e.token, e.expires_at_s
             FROM agent a JOIN enrolment e ON e.agent = a.id WHERE a.name = ?1 AND a.id > 0",
        )?
        .query_and_then([name], |row| {
            let enrolment =
                EnrolmentRow { agent: AgentId(row.get(0)?), key_digest: rows::digest(row, 1)? };
            Ok::<_, ControlError>((enrolment, rows::digest(row, 2)?, row.get::<_, i64>(3)?))
        })?
        .next()
        .transpose()?;
    let Some((enrolment, used, expires_at_s)) = found else { return Ok(None) };
    let same = equal_in_constant_time(&used, token) && expires_at_s > now_s;
    let permitted = same || check(find_token(tx, token)?, now_s).is_ok();
    Ok(permitted.then_some(enrolment))
}

/// Forgets with which key an agent enrolled: no other certificate is issued for it.
fn forget_enrolment(tx: &Connection, agent: AgentId) -> ControlResult<()> {
    tx.prepare_cached("DELETE FROM enrolment WHERE agent = ?1")?.execute([agent.0])?;
    Ok(())
}

/// Stores a renewed certificate and deletes superseded ones that were never used: an agent that
/// cannot store its certificate would add one with each attempt.
fn add(tx: &Connection, agent: AgentId, new: &NewCertificate) -> ControlResult<()> {
    let incarnation: Option<i64> = tx
        .prepare_cached("SELECT incarnation FROM agent WHERE id = ?1 AND id > 0")?
        .query_row([agent.0], |r| r.get(0))
        .optional()?;
    let Some(incarnation) = incarnation else {
        return Err(ControlError::NotFound { what: "agent", name: agent.to_string() });
    };
    tx.prepare_cached(
        "DELETE FROM certificate
         WHERE agent = ?1 AND used_at_s IS NULL AND superseded_at_s IS NOT NULL",
    )?
    .execute([agent.0])?;
    insert(tx, agent, rows::incarnation(incarnation), new)
}

fn save_uses(tx: &Connection, rows: &[CertificateRow]) -> ControlResult<()> {
    let mut statement = tx.prepare_cached(
        "UPDATE certificate SET used_at_s = ?2, superseded_at_s = ?3 WHERE fingerprint = ?1",
    )?;
    for row in rows {
        statement.execute(params![row.fingerprint, row.used_at_s, row.superseded_at_s])?;
        if row.used_at_s.is_some() {
            forget_enrolment(tx, row.agent)?;
        }
    }
    Ok(())
}

pub(super) fn revoke(tx: &Connection, agent: AgentId, now_s: i64) -> ControlResult<u64> {
    forget_enrolment(tx, agent)?;
    let n = tx
        .prepare_cached(
            "UPDATE certificate SET revoked_at_s = ?2 WHERE agent = ?1 AND revoked_at_s IS NULL",
        )?
        .execute(params![agent.0, now_s])?;
    Ok(n as u64)
}

fn forget_expired(tx: &Connection, now_s: i64) -> ControlResult<u64> {
    let mut n = rows::run(
        tx,
        "DELETE FROM certificate WHERE not_after_s < ?1
         AND (superseded_at_s IS NOT NULL OR revoked_at_s IS NOT NULL)",
        [now_s],
    )?;
    n += rows::run(
        tx,
        "DELETE FROM enrolment_token WHERE expires_at_s <= ?1 OR uses_left = 0",
        [now_s],
    )?;
    n += rows::run(tx, "DELETE FROM token_revocation WHERE expires_at_s <= ?1", [now_s])?;
    Ok(n as u64)
}

fn add_token(tx: &Connection, token: &NewEnrolmentToken) -> ControlResult<()> {
    groups::require(tx, &token.groups)?;
    if token.uses == 0 || token.uses > ENROLMENT_TOKEN_USES_MAX {
        return Err(ControlError::Refused(format!(
            "enrolment token: uses must be 1 to {ENROLMENT_TOKEN_USES_MAX}"
        )));
    }
    rows::run(
        tx,
        "DELETE FROM enrolment_token WHERE expires_at_s <= ?1 OR uses_left = 0",
        [token.now_s],
    )?;
    let in_force =
        rows::get(tx, "SELECT count(*) FROM enrolment_token", [], |r| rows::unsigned(r, 0))?;
    if in_force >= ENROLMENT_TOKENS_MAX {
        let what = "enrolment tokens in force: revoke some";
        return Err(ControlError::Limit { what, max: ENROLMENT_TOKENS_MAX });
    }
    rows::run(
        tx,
        "INSERT INTO enrolment_token (digest, groups, uses_left, expires_at_s, created_at_s,
         ephemeral_s) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            token.digest,
            rows::json(&token.groups),
            token.uses,
            token.expires_at_s,
            token.now_s,
            token.ephemeral_s.map(rows::signed)
        ],
    )?;
    Ok(())
}

/// Counts one use of a token and returns the token.
pub(super) fn use_token(
    tx: &Connection,
    digest: &[u8; 32],
    now_s: i64,
) -> ControlResult<EnrolmentTokenRow> {
    let token = check(find_token(tx, digest)?, now_s)?;
    tx.prepare_cached("UPDATE enrolment_token SET uses_left = uses_left - 1 WHERE digest = ?1")?
        .execute([digest])?;
    Ok(token)
}

/// Returns the token with a digest. Compares every digest in full, so that the duration reveals
/// nothing about any of them.
fn find_token(tx: &Connection, digest: &[u8; 32]) -> ControlResult<Option<EnrolmentTokenRow>> {
    let mut found = None;
    for token in token_rows(tx)? {
        if equal_in_constant_time(&token.digest, digest) {
            found = Some(token);
        }
    }
    Ok(found)
}

/// Returns the token if an agent may be registered with it.
fn check(token: Option<EnrolmentTokenRow>, now_s: i64) -> ControlResult<EnrolmentTokenRow> {
    let token = token.ok_or(ControlError::Token("unknown or revoked"))?;
    if token.expires_at_s <= now_s {
        return Err(ControlError::Token("expired"));
    }
    if token.uses_left == 0 {
        return Err(ControlError::Token("used up"));
    }
    Ok(token)
}

fn equal_in_constant_time(a: &[u8; 32], b: &[u8; 32]) -> bool {
    std::hint::black_box(a.iter().zip(b).fold(0, |seen, (x, y)| seen | (x ^ y))) == 0
}

fn tokens(tx: &Connection, now_s: i64) -> ControlResult<Vec<EnrolmentTokenRow>> {
    let mut tokens = token_rows(tx)?;
    tokens.retain(|t| t.expires_at_s > now_s && t.uses_left > 0);
    Ok(tokens)
}

fn token_rows(tx: &Connection) -> ControlResult<Vec<EnrolmentTokenRow>> {
    let mut statement = tx.prepare_cached(
        "SELECT digest, groups, uses_left, expires_at_s, ephemeral_s FROM enrolment_token
         ORDER BY created_at_s",
    )?;
    statement
        .query_and_then([], |row| {
            Ok(EnrolmentTokenRow {
                digest: rows::digest(row, 0)?,
                groups: rows::list(&row.get::<_, String>(1)?)?,
                uses_left: row.get(2)?,
                expires_at_s: row.get(3)?,
                ephemeral_s: rows::seconds(row, 4)?,
            })
        })?
        .collect()
}

fn revoke_token(tx: &Connection, digest: &[u8; 32]) -> ControlResult<bool> {
    // A token that was used up is deleted before it expires, but still permits a second attempt.
    let ended = rows::run(
        tx,
        "UPDATE enrolment SET expires_at_s = 0 WHERE token = ?1 AND expires_at_s <> 0",
        [digest],
    )?;
    let deleted = rows::run(tx, "DELETE FROM enrolment_token WHERE digest = ?1", [digest])?;
    Ok(ended + deleted > 0)
}
