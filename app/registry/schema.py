"""The tables, as migrations. Pure text.

`application_id` identifies the program, `user_version` is the number of migrations that were applied. A
released migration is never edited: a change is a new one.
"""

from typing import Final

APPLICATION_ID: Final = 0x4D616E6E
"""The letters "Mann"."""

_FIRST: Final = """
CREATE TABLE artefact (
    root       TEXT PRIMARY KEY,
    name       TEXT NOT NULL,
    format     TEXT NOT NULL,
    base_model TEXT,
    parents    TEXT NOT NULL,
    created    TEXT NOT NULL
) STRICT;

CREATE TABLE engine (
    digest   TEXT PRIMARY KEY,
    name     TEXT NOT NULL,
    artefact TEXT REFERENCES artefact (root),
    spec     TEXT NOT NULL
) STRICT;

CREATE TABLE report (
    digest    TEXT PRIMARY KEY,
    statement TEXT NOT NULL,
    artefact  TEXT NOT NULL,
    suite     TEXT NOT NULL,
    policy    TEXT NOT NULL,
    baseline  TEXT NOT NULL,
    verdict   TEXT NOT NULL CHECK (verdict IN ('pass', 'fail', 'inconclusive')),
    created   TEXT NOT NULL,
    path      TEXT NOT NULL
) STRICT;

CREATE TABLE alias (
    model      TEXT NOT NULL,
    name       TEXT NOT NULL CHECK (name IN ('live', 'previous', 'baseline')),
    engine     TEXT REFERENCES engine (digest),
    generation INTEGER NOT NULL CHECK (generation > 0),
    since      TEXT NOT NULL,
    PRIMARY KEY (model, name)
) STRICT;

CREATE TABLE revocation (
    thing  TEXT NOT NULL CHECK (thing IN ('artefact', 'engine', 'report', 'key')),
    id     TEXT NOT NULL,
    reason TEXT NOT NULL,
    at     TEXT NOT NULL,
    PRIMARY KEY (thing, id)
) STRICT;

CREATE TABLE operation (
    id      TEXT PRIMARY KEY,
    kind    TEXT NOT NULL,
    model   TEXT NOT NULL,
    phase   TEXT NOT NULL,
    state   TEXT NOT NULL,
    created TEXT NOT NULL,
    done    INTEGER NOT NULL CHECK (done IN (0, 1)),
    result  TEXT,
    error   TEXT,
    key     TEXT UNIQUE,
    request TEXT
) STRICT;

CREATE UNIQUE INDEX one_unfinished_operation ON operation (model) WHERE done = 0;

CREATE TABLE event (
    seq       INTEGER PRIMARY KEY,
    at        TEXT NOT NULL,
    actor     TEXT NOT NULL,
    verb      TEXT NOT NULL,
    subject   TEXT NOT NULL,
    operation TEXT,
    detail    TEXT NOT NULL,
    prev_hash TEXT NOT NULL,
    hash      TEXT NOT NULL
) STRICT;

CREATE INDEX event_of_operation ON event (operation, seq);

CREATE TRIGGER event_is_never_changed BEFORE UPDATE ON event
BEGIN SELECT RAISE (ABORT, 'events are never changed'); END;

CREATE TRIGGER event_is_never_deleted BEFORE DELETE ON event
BEGIN SELECT RAISE (ABORT, 'events are never deleted'); END;

-- INSERT OR REPLACE deletes without asking the trigger above, so a row that does not follow is refused.
CREATE TRIGGER event_follows_the_last BEFORE INSERT ON event
WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM event)
  OR NEW.prev_hash IS NOT coalesce((SELECT hash FROM event ORDER BY seq DESC LIMIT 1), printf('%064d', 0))
BEGIN SELECT RAISE (ABORT, 'an event follows the last one'); END;
"""

_ACCESS: Final = """
CREATE TABLE api_key (
    name         TEXT PRIMARY KEY,
    digest       TEXT NOT NULL UNIQUE,
    rpm          INTEGER CHECK (rpm > 0),
    tpm          INTEGER CHECK (tpm > 0),
    concurrency  INTEGER CHECK (concurrency > 0),
    daily_budget INTEGER CHECK (daily_budget > 0),
    budget       INTEGER CHECK (budget > 0),
    created      TEXT NOT NULL,
    revoked      TEXT
) STRICT;

CREATE TABLE key_usage (
    name     TEXT PRIMARY KEY REFERENCES api_key (name),
    requests REAL NOT NULL,
    tokens   REAL NOT NULL,
    at       REAL NOT NULL,
    day      INTEGER NOT NULL,
    today    INTEGER NOT NULL,
    total    INTEGER NOT NULL
) STRICT;

CREATE TABLE operator (
    name    TEXT PRIMARY KEY,
    digest  TEXT NOT NULL UNIQUE,
    role    TEXT NOT NULL CHECK (role IN ('watch', 'promote', 'administer')),
    created TEXT NOT NULL,
    revoked TEXT
) STRICT;
"""
"""Callers' keys and operators. Usage is written in batches, and is not in the chain of events."""

_ROTATION: Final = """
ALTER TABLE api_key ADD COLUMN old_digest TEXT;
ALTER TABLE api_key ADD COLUMN old_until TEXT;
"""
"""The secret that a rotation has replaced, and how long it still works."""

MIGRATIONS: Final = (_FIRST, _ACCESS, _ROTATION)


def script(number: int) -> str:
    """Migration `number` (from 0) and the mark that it was done, as one transaction."""
    marks = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {number + 1};"
    return f"BEGIN IMMEDIATE; {MIGRATIONS[number]} {marks} COMMIT;"
