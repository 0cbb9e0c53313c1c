-- +goose Up
-- What the network of guilds knows about a user. It belongs to no guild and says nothing
-- about who reported.
CREATE TABLE network_listings (
    user_id           text COLLATE "C" PRIMARY KEY,
    trust_score       integer     NOT NULL
        CONSTRAINT network_listings_trust_score CHECK (trust_score BETWEEN 0 AND 100),
    report_count      bigint      NOT NULL
        CONSTRAINT network_listings_report_count CHECK (report_count >= 0),
    category          text        NOT NULL,
    severity          text        NOT NULL
        CONSTRAINT network_listings_severity CHECK (severity IN ('low', 'medium', 'high', 'critical')),
    first_reported_at timestamptz NOT NULL,
    last_reported_at  timestamptz NOT NULL
);
