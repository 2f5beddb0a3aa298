CREATE UNIQUE INDEX api_keys_by_name ON api_keys (name) WHERE revoked IS NULL;
CREATE INDEX audit_by_client ON audit (client, seq);
CREATE INDEX audit_by_kind ON audit (kind, seq);
CREATE INDEX audit_by_run ON audit (run, seq);
CREATE INDEX clients_by_standing ON clients (standing, name);
CREATE INDEX dropped_by_age ON dropped (at);
CREATE INDEX idempotency_records_by_age ON idempotency_records (made);
CREATE INDEX members_of_digest ON members (digest);
CREATE UNIQUE INDEX notice_targets_by_name ON notice_targets (project, name);
CREATE INDEX notices_due ON notices (due);
CREATE INDEX notices_of_cause ON notices (target, cause, slot);
CREATE INDEX notices_of_run ON notices (run);
CREATE INDEX orders_missed ON orders (run, cursor, client, attempt) WHERE status IN ('failed', 'expired');
CREATE INDEX orders_of_client ON orders (client, status, run);
CREATE INDEX orders_of_member ON orders (run, client, cursor, attempt);
CREATE INDEX orders_of_message ON orders (message);
CREATE INDEX orders_of_reply ON orders (reply);
CREATE INDEX orders_of_round ON orders (run, cursor);
CREATE INDEX parts_by_age ON parts (once_referred, touched);
CREATE INDEX pushed_by_client ON pushed (run, client);
CREATE INDEX refs_of_client ON refs (run, client, listing);
CREATE INDEX refs_of_listing ON refs (listing);
CREATE INDEX rounds_of_state ON rounds (state);
CREATE INDEX runs_by_age ON runs (created, id);
CREATE INDEX runs_by_end ON runs (ended);
CREATE INDEX runs_by_project ON runs (project, created, id);
CREATE UNIQUE INDEX user_sessions_by_state ON user_sessions (state_hash);
CREATE UNIQUE INDEX user_sessions_by_token ON user_sessions (token_hash);
CREATE INDEX witness_by_kind ON witness (kind, seq);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
CREATE TABLE api_keys (
	id VARCHAR NOT NULL, 
	name VARCHAR NOT NULL, 
	key_hash VARCHAR NOT NULL, 
	role VARCHAR NOT NULL, 
	created DOUBLE NOT NULL, 
	created_by VARCHAR NOT NULL, 
	last_used DOUBLE, 
	expires DOUBLE, 
	revoked DOUBLE, 
	project VARCHAR NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE audit (
	seq INTEGER NOT NULL, 
	kind VARCHAR NOT NULL, 
	at DOUBLE NOT NULL, 
	"by" VARCHAR NOT NULL, 
	client VARCHAR NOT NULL, 
	run VARCHAR NOT NULL, 
	details JSON, 
	hash VARCHAR NOT NULL, 
	PRIMARY KEY (seq)
);
CREATE TABLE audit_base (
	id INTEGER NOT NULL, 
	seq INTEGER NOT NULL, 
	hash VARCHAR NOT NULL, 
	chain VARCHAR NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE audit_tip (
	id INTEGER NOT NULL, 
	seq INTEGER NOT NULL, 
	hash VARCHAR NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE clients (
	name VARCHAR NOT NULL, 
	roles JSON, 
	labels JSON, 
	version VARCHAR NOT NULL, 
	enrolled DOUBLE NOT NULL, 
	seen DOUBLE NOT NULL, 
	sign_key VARCHAR NOT NULL, 
	receive_key VARCHAR NOT NULL, 
	standing VARCHAR NOT NULL, 
	revoked DOUBLE, 
	reason VARCHAR NOT NULL, 
	rotate BOOLEAN NOT NULL, 
	handovers JSON, 
	session INTEGER NOT NULL, 
	session_id VARCHAR NOT NULL, 
	session_began DOUBLE NOT NULL, 
	doubles JSON, 
	shut JSON, 
	projects JSON, ledger_entries INTEGER, ledger_hash VARCHAR, ledger_now INTEGER, 
	PRIMARY KEY (name)
);
CREATE TABLE drafts (
	run VARCHAR NOT NULL, 
	spec JSON, 
	roster JSON, 
	"plan" JSON, 
	contract JSON, 
	PRIMARY KEY (run), 
	FOREIGN KEY(run) REFERENCES runs (id)
);
CREATE TABLE dropped (
	digest VARCHAR NOT NULL, 
	at DOUBLE NOT NULL, 
	PRIMARY KEY (digest)
);
CREATE TABLE events (
	run VARCHAR NOT NULL, 
	seq INTEGER NOT NULL, 
	at DOUBLE NOT NULL, 
	kind VARCHAR NOT NULL, 
	data JSON, 
	PRIMARY KEY (run, seq)
);
CREATE TABLE idempotency_records (
	"key" VARCHAR NOT NULL, 
	asked VARCHAR NOT NULL, 
	seed VARCHAR NOT NULL, 
	made DOUBLE NOT NULL, 
	worker VARCHAR NOT NULL, 
	chosen JSON, 
	answer JSON, 
	PRIMARY KEY ("key")
);
CREATE TABLE invites (
	token_hash VARCHAR NOT NULL, 
	name VARCHAR NOT NULL, 
	labels JSON, 
	expires DOUBLE NOT NULL, 
	used_by VARCHAR NOT NULL, 
	hold BOOLEAN NOT NULL, 
	project VARCHAR NOT NULL, 
	PRIMARY KEY (token_hash)
);
CREATE TABLE leases (
	run VARCHAR NOT NULL, 
	holder VARCHAR NOT NULL, 
	token INTEGER NOT NULL, 
	beats INTEGER NOT NULL, 
	seconds DOUBLE NOT NULL, 
	PRIMARY KEY (run), 
	FOREIGN KEY(run) REFERENCES runs (id)
);
CREATE TABLE listings (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	name VARCHAR NOT NULL, 
	kept BOOLEAN NOT NULL, 
	files JSON, 
	UNIQUE (name)
);
CREATE TABLE loose (
	id INTEGER NOT NULL, 
	digest VARCHAR NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE marker (
	id INTEGER NOT NULL, 
	digest VARCHAR NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE members (
	listing INTEGER NOT NULL, 
	digest VARCHAR NOT NULL, 
	PRIMARY KEY (listing, digest), 
	FOREIGN KEY(listing) REFERENCES listings (id)
);
CREATE TABLE notice_mark (
	id INTEGER NOT NULL, 
	seq INTEGER NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE notice_targets (
	id VARCHAR NOT NULL, 
	name VARCHAR NOT NULL, 
	project VARCHAR NOT NULL, 
	url VARCHAR NOT NULL, 
	form VARCHAR NOT NULL, 
	kinds JSON, 
	secret VARCHAR NOT NULL, 
	created DOUBLE NOT NULL, 
	created_by VARCHAR NOT NULL, 
	ended DOUBLE, 
	reason VARCHAR NOT NULL, 
	last_sent DOUBLE, 
	tested DOUBLE NOT NULL, 
	left_out INTEGER NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE notices (
	id VARCHAR NOT NULL, 
	target VARCHAR NOT NULL, 
	cause VARCHAR NOT NULL, 
	run VARCHAR NOT NULL, 
	content JSON, 
	more INTEGER NOT NULL, 
	slot DOUBLE NOT NULL, 
	due DOUBLE, 
	attempts INTEGER NOT NULL, 
	claim VARCHAR NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(target) REFERENCES notice_targets (id)
);
CREATE TABLE orders (
	id VARCHAR NOT NULL, 
	run VARCHAR NOT NULL, 
	cursor INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	client VARCHAR NOT NULL, 
	message INTEGER, 
	seed BIGINT NOT NULL, 
	"after" INTEGER NOT NULL, 
	created DOUBLE NOT NULL, 
	status VARCHAR NOT NULL, 
	held VARCHAR NOT NULL, 
	progress DOUBLE NOT NULL, 
	beat DOUBLE NOT NULL, 
	reply INTEGER, 
	metrics JSON, 
	facts JSON, 
	failure JSON, 
	answered DOUBLE, 
	bytes_down BIGINT NOT NULL, 
	bytes_up BIGINT NOT NULL, 
	sealed JSON, 
	PRIMARY KEY (id), 
	FOREIGN KEY(run) REFERENCES runs (id), 
	FOREIGN KEY(message) REFERENCES listings (id), 
	FOREIGN KEY(reply) REFERENCES listings (id)
);
CREATE TABLE parts (
	digest VARCHAR NOT NULL, 
	touched DOUBLE NOT NULL, 
	once_referred BOOLEAN NOT NULL, 
	PRIMARY KEY (digest)
);
CREATE TABLE projects (
	name VARCHAR NOT NULL, 
	created DOUBLE NOT NULL, 
	created_by VARCHAR NOT NULL, 
	most_runs INTEGER, 
	most_members INTEGER, 
	most_bytes BIGINT, 
	ended DOUBLE, retain_runs_days DOUBLE, retain_events_days DOUBLE, most_gpu_hours DOUBLE, most_cpu_hours DOUBLE, 
	PRIMARY KEY (name)
);
CREATE TABLE pushed (
	digest VARCHAR NOT NULL, 
	run VARCHAR NOT NULL, 
	client VARCHAR NOT NULL, 
	PRIMARY KEY (digest, run, client)
);
CREATE TABLE refs (
	run VARCHAR NOT NULL, 
	cursor INTEGER NOT NULL, 
	kind VARCHAR NOT NULL, 
	owner VARCHAR NOT NULL, 
	listing INTEGER NOT NULL, 
	client VARCHAR NOT NULL, 
	PRIMARY KEY (run, cursor, kind, owner), 
	FOREIGN KEY(listing) REFERENCES listings (id)
);
CREATE TABLE rosters (
	run VARCHAR NOT NULL, 
	members JSON, 
	PRIMARY KEY (run), 
	FOREIGN KEY(run) REFERENCES runs (id)
);
CREATE TABLE round_totals (
	run VARCHAR NOT NULL, 
	cursor INTEGER NOT NULL, 
	open INTEGER NOT NULL, 
	answered INTEGER NOT NULL, 
	failed INTEGER NOT NULL, 
	bytes_down BIGINT NOT NULL, 
	bytes_up BIGINT NOT NULL, 
	scored INTEGER NOT NULL, 
	accuracy DOUBLE, 
	scores JSON, 
	PRIMARY KEY (run, cursor), 
	FOREIGN KEY(run) REFERENCES runs (id)
);
CREATE TABLE rounds (
	run VARCHAR NOT NULL, 
	cursor INTEGER NOT NULL, 
	phase VARCHAR NOT NULL, 
	round INTEGER NOT NULL, 
	opened DOUBLE NOT NULL, 
	closed DOUBLE NOT NULL, 
	folded JSON, 
	next_cursor INTEGER NOT NULL, 
	state INTEGER, 
	asked JSON, 
	marks JSON, 
	groups JSON, 
	tables JSON, 
	PRIMARY KEY (run, cursor), 
	FOREIGN KEY(run) REFERENCES runs (id), 
	FOREIGN KEY(state) REFERENCES listings (id)
);
CREATE TABLE runs (
	id VARCHAR NOT NULL, 
	name VARCHAR NOT NULL, 
	method VARCHAR NOT NULL, 
	created DOUBLE NOT NULL, 
	deadline_at DOUBLE NOT NULL, 
	status VARCHAR NOT NULL, 
	cause VARCHAR NOT NULL, 
	cursor INTEGER NOT NULL, 
	opened DOUBLE NOT NULL, 
	started DOUBLE, 
	ended DOUBLE, 
	state_digest VARCHAR, 
	fingerprint VARCHAR NOT NULL, 
	reference VARCHAR, 
	parent VARCHAR, 
	best INTEGER, 
	project VARCHAR NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE sealed (
	run VARCHAR NOT NULL, 
	holder VARCHAR NOT NULL, 
	phase VARCHAR NOT NULL, 
	round INTEGER NOT NULL, 
	digest VARCHAR NOT NULL, 
	size BIGINT NOT NULL, 
	needed INTEGER NOT NULL, 
	cipher VARCHAR NOT NULL, 
	bytes BIGINT NOT NULL, 
	keys JSON, 
	signatures JSON, 
	PRIMARY KEY (run, holder, phase, round, digest), 
	FOREIGN KEY(run) REFERENCES runs (id)
);
CREATE TABLE site_totals (
	run VARCHAR NOT NULL, 
	client VARCHAR NOT NULL, 
	bytes_down BIGINT NOT NULL, 
	bytes_up BIGINT NOT NULL, 
	metrics JSON, 
	answered INTEGER NOT NULL, 
	scored INTEGER NOT NULL, 
	last INTEGER NOT NULL, 
	PRIMARY KEY (run, client), 
	FOREIGN KEY(run) REFERENCES runs (id)
);
CREATE TABLE spent_by_day (
	project VARCHAR NOT NULL, 
	day INTEGER NOT NULL, 
	client VARCHAR NOT NULL, 
	gpu DOUBLE NOT NULL, 
	cpu DOUBLE NOT NULL, 
	reported INTEGER NOT NULL, 
	unreported INTEGER NOT NULL, 
	PRIMARY KEY (project, day, client)
);
CREATE TABLE spent_by_run (
	run VARCHAR NOT NULL, 
	client VARCHAR NOT NULL, 
	gpu DOUBLE NOT NULL, 
	cpu DOUBLE NOT NULL, 
	reported INTEGER NOT NULL, 
	unreported INTEGER NOT NULL, 
	PRIMARY KEY (run, client), 
	FOREIGN KEY(run) REFERENCES runs (id)
);
CREATE TABLE sqlite_sequence(name,seq);
CREATE TABLE tombstones (
	run VARCHAR NOT NULL, 
	name VARCHAR NOT NULL, 
	method VARCHAR NOT NULL, 
	status VARCHAR NOT NULL, 
	created DOUBLE NOT NULL, 
	ended DOUBLE, 
	state_digest VARCHAR, 
	parent VARCHAR, 
	project VARCHAR NOT NULL, 
	deleted DOUBLE NOT NULL, 
	"by" VARCHAR NOT NULL, 
	rule VARCHAR NOT NULL, 
	PRIMARY KEY (run)
);
CREATE TABLE upgrades (
	revision VARCHAR NOT NULL, 
	version VARCHAR NOT NULL, 
	at DOUBLE NOT NULL, 
	PRIMARY KEY (revision)
);
CREATE TABLE user_sessions (
	id VARCHAR NOT NULL, 
	token_hash VARCHAR NOT NULL, 
	state_hash VARCHAR NOT NULL, 
	issuer VARCHAR NOT NULL, 
	subject VARCHAR NOT NULL, 
	name VARCHAR NOT NULL, 
	claimed JSON, 
	created DOUBLE NOT NULL, 
	expires DOUBLE NOT NULL, 
	last_used DOUBLE, 
	ended DOUBLE, 
	PRIMARY KEY (id)
);
CREATE TABLE witness (
	seq INTEGER NOT NULL, 
	kind VARCHAR NOT NULL, 
	line VARCHAR NOT NULL, 
	PRIMARY KEY (seq)
);
CREATE TABLE witness_secret (
	id INTEGER NOT NULL, 
	secret VARCHAR NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TRIGGER audit_base_ahead BEFORE UPDATE ON audit_base WHEN NEW.seq <= OLD.seq OR NEW.chain <> OLD.chain OR NEW.hash IS NOT (SELECT hash FROM audit WHERE seq = NEW.seq) BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END;
CREATE TRIGGER audit_base_no_DELETE BEFORE DELETE ON audit_base BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END;
CREATE TRIGGER audit_base_no_INSERT BEFORE INSERT ON audit_base BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END;
CREATE TRIGGER audit_no_DELETE BEFORE DELETE ON audit WHEN OLD.seq > (SELECT seq FROM audit_base) BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END;
CREATE TRIGGER audit_no_UPDATE BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END;
CREATE TRIGGER audit_no_replace BEFORE INSERT ON audit WHEN NEW.seq <= max((SELECT max(seq) FROM audit), (SELECT seq FROM audit_base)) BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END;
