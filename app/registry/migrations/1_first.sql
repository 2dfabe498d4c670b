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
