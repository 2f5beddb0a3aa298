BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0007');
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
INSERT INTO "audit" VALUES(1,'log_begun',1.79575195242243432994e+09,'','','','{"chain":"bd015f645cddc558"}','9869bfc9c86758563d4a3e1e23bc85eb0123cc001ede3320279164f22ea30a89');
INSERT INTO "audit" VALUES(2,'run_started',1.79488795244346475594e+09,'','','over','{"method":"fedavg","roster":{"ann":"peer","bob":"peer"},"contract":"c","experiment":"","config":{"rounds":2},"world":{"inputs":[1,8,8],"classes":10,"model":"lenet","sizes":{}},"seed":7}','775836dabb80d087850b8d812d08fd6c34c1cdf3670bed8bf0348e6494b230bf');
INSERT INTO "audit" VALUES(3,'reply_accepted',1.79488795244346475594e+09,'','ann','over','{"order":"over/ann","cursor":-1,"files":[["b3-cb24a03b74f0826503084f24efb37cb72e96813536d84b2c9b26950ff9671d57",3000]]}','634a39b721c5af6094bd2eb78181682004d25a26ea1dc7e9ca5ed29a7b40f52d');
INSERT INTO "audit" VALUES(4,'reply_accepted',1.79488795244346475594e+09,'','bob','over','{"order":"over/bob","cursor":-1,"files":[["b3-e5a424e5f374122444e0283d87608fc6da4a535b895fdacf42514bf67ac574c4",3000]]}','4fedd601e06f1272dd6030ca740e3d515f353f0085a71c7f3bc3d8b72edf0111');
INSERT INTO "audit" VALUES(5,'round_closed',1.79488795244346475594e+09,'','','over','{"cursor":-1,"next":0,"folded":["ann","bob"],"late":[],"sent":[]}','1a35bd63ffa55040c8b1940ea036dfd5402762166fd32d5137de1f00117ad3fe');
INSERT INTO "audit" VALUES(6,'run_completed',1.79488795244346475594e+09,'','','over','{"result":{"files":[["b3-116c7694cc9f4486b9e226e57d19ba554644025480d53bd69433d52a59656260",3000]]}}','fc6b669ffe9df363741f49c772447228c048a68276532a752a2bfb33cc2acee8');
CREATE TABLE audit_base (
	id INTEGER NOT NULL, 
	seq INTEGER NOT NULL, 
	hash VARCHAR NOT NULL, 
	chain VARCHAR NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "audit_base" VALUES(1,0,'0000000000000000000000000000000000000000000000000000000000000000','9869bfc9c86758563d4a3e1e23bc85eb0123cc001ede3320279164f22ea30a89');
CREATE TABLE audit_tip (
	id INTEGER NOT NULL, 
	seq INTEGER NOT NULL, 
	hash VARCHAR NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "audit_tip" VALUES(1,6,'fc6b669ffe9df363741f49c772447228c048a68276532a752a2bfb33cc2acee8');
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
INSERT INTO "drafts" VALUES('over','{"id":"over","method":"fedavg","config":{"rounds":2},"world":{"inputs":[1,8,8],"classes":10,"model":"lenet","sizes":{},"class_names":[],"options":{},"trains":["all"],"normalise":null,"columns":[],"dtype":"float32","vocabulary":0},"seed":7,"contract":"c","keeps":true,"waiting":{"target_replies":null,"min_replies":null,"deadline":60.0,"held":604800.0},"notes":[],"kept":[],"admins":false,"checkpoint_every":1,"threads":1,"initial_weights":null,"initial_weights_bytes":0,"sampling":null,"network":null,"scoring":{"scores":"accuracy","selection":"none","outputs":false,"prior":"source"},"children":[],"rehearses":null,"by":"","experiment":"","shares":{"max":null,"counts":{}},"augment":{"flip":"none","crop":null,"colour":null,"randaugment":null},"computing":null,"wire":{"format":"float32","down":"float32","scale":"tensor","share":0.01,"delta":false,"feedback":true},"track":[]}','{"ann":"peer","bob":"peer"}','[["train","train",1,null,""]]','[]');
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
INSERT INTO "events" VALUES('over',1,1.79488795244346475594e+09,'created','{"method":"fedavg"}');
INSERT INTO "events" VALUES('over',2,1.79488795244346475594e+09,'answered','{"client":"ann","cursor":-1,"metrics":{"loss":0.5}}');
INSERT INTO "events" VALUES('over',3,1.79488795244346475594e+09,'answered','{"client":"bob","cursor":-1,"metrics":{"loss":0.5}}');
INSERT INTO "events" VALUES('over',4,1.79488795244346475594e+09,'held_up','{"why":"reason 0"}');
INSERT INTO "events" VALUES('over',5,1.79488795244346475594e+09,'held_up','{"why":"reason 1"}');
INSERT INTO "events" VALUES('over',6,1.79488795244346475594e+09,'held_up','{"why":"reason 2"}');
INSERT INTO "events" VALUES('over',7,1.79488795244346475594e+09,'held_up','{"why":"reason 3"}');
INSERT INTO "events" VALUES('over',8,1.79488795244346475594e+09,'held_up','{"why":"reason 4"}');
INSERT INTO "events" VALUES('over',9,1.79488795244346475594e+09,'closed','{"phase":"train","round":1,"seconds":0.0,"replies":2,"cursor":0,"asked":0}');
INSERT INTO "events" VALUES('over',10,1.79488795244346475594e+09,'completed','{"cause":""}');
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
INSERT INTO "leases" VALUES('over','',0,0,0.0);
CREATE TABLE listings (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	name VARCHAR NOT NULL, 
	kept BOOLEAN NOT NULL, 
	files JSON, 
	UNIQUE (name)
);
INSERT INTO "listings" VALUES(1,'00514ea15ff869688e6531b02ed0796e10d3ac95e9102e342919e4831444eb30',1,'[["b3-05086815fa251d284b2f2f8c505dba65e9853f3490291be6bd3b78244664ef7a",3000]]');
INSERT INTO "listings" VALUES(2,'a4d053d4a0c6ba0263cb39f4703c8c74c62add2cd70b511b73a65e2f69e2749a',1,'[["b3-cb24a03b74f0826503084f24efb37cb72e96813536d84b2c9b26950ff9671d57",3000]]');
INSERT INTO "listings" VALUES(3,'7603159431caa5a283c3c83cce38e9b12e0be12eb12cb599583f41901709d351',1,'[["b3-e5a424e5f374122444e0283d87608fc6da4a535b895fdacf42514bf67ac574c4",3000]]');
INSERT INTO "listings" VALUES(4,'ae3a835a4004fa87717d45cf2c194f235de572bc830c2697908d2ee409fef525',1,'[["b3-116c7694cc9f4486b9e226e57d19ba554644025480d53bd69433d52a59656260",3000]]');
CREATE TABLE loose (
	id INTEGER NOT NULL, 
	digest VARCHAR NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "loose" VALUES(1,'b3-05086815fa251d284b2f2f8c505dba65e9853f3490291be6bd3b78244664ef7a');
INSERT INTO "loose" VALUES(2,'b3-cb24a03b74f0826503084f24efb37cb72e96813536d84b2c9b26950ff9671d57');
INSERT INTO "loose" VALUES(3,'b3-e5a424e5f374122444e0283d87608fc6da4a535b895fdacf42514bf67ac574c4');
CREATE TABLE marker (
	id INTEGER NOT NULL, 
	digest VARCHAR NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "marker" VALUES(1,'b3-f6ced63f7f8fa2ba2d9fe330bcc425ad39197362f71fb22a5365fa5f45e5c5ac');
CREATE TABLE members (
	listing INTEGER NOT NULL, 
	digest VARCHAR NOT NULL, 
	PRIMARY KEY (listing, digest), 
	FOREIGN KEY(listing) REFERENCES listings (id)
);
INSERT INTO "members" VALUES(1,'b3-05086815fa251d284b2f2f8c505dba65e9853f3490291be6bd3b78244664ef7a');
INSERT INTO "members" VALUES(2,'b3-cb24a03b74f0826503084f24efb37cb72e96813536d84b2c9b26950ff9671d57');
INSERT INTO "members" VALUES(3,'b3-e5a424e5f374122444e0283d87608fc6da4a535b895fdacf42514bf67ac574c4');
INSERT INTO "members" VALUES(4,'b3-116c7694cc9f4486b9e226e57d19ba554644025480d53bd69433d52a59656260');
CREATE TABLE notice_mark (
	id INTEGER NOT NULL, 
	seq INTEGER NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "notice_mark" VALUES(1,1);
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
INSERT INTO "orders" VALUES('over/ann','over',-1,1,'ann',1,1,-2,1.79488795244346475594e+09,'answered','',1.0,0.0,2,'{"loss":0.5}','{}',NULL,1.79488795244346475594e+09,1,1,NULL);
INSERT INTO "orders" VALUES('over/bob','over',-1,1,'bob',1,1,-2,1.79488795244346475594e+09,'answered','',1.0,0.0,3,'{"loss":0.5}','{}',NULL,1.79488795244346475594e+09,1,1,NULL);
CREATE TABLE parts (
	digest VARCHAR NOT NULL, 
	touched DOUBLE NOT NULL, 
	once_referred BOOLEAN NOT NULL, 
	PRIMARY KEY (digest)
);
INSERT INTO "parts" VALUES('b3-05086815fa251d284b2f2f8c505dba65e9853f3490291be6bd3b78244664ef7a',1.79488795244346475594e+09,1);
INSERT INTO "parts" VALUES('b3-cb24a03b74f0826503084f24efb37cb72e96813536d84b2c9b26950ff9671d57',1.79488795244346475594e+09,1);
INSERT INTO "parts" VALUES('b3-e5a424e5f374122444e0283d87608fc6da4a535b895fdacf42514bf67ac574c4',1.79488795244346475594e+09,1);
INSERT INTO "parts" VALUES('b3-116c7694cc9f4486b9e226e57d19ba554644025480d53bd69433d52a59656260',1.79488795244346475594e+09,1);
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
INSERT INTO "refs" VALUES('over',0,'state','',4,'');
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
INSERT INTO "round_totals" VALUES('over',-1,0,2,0,2,2,0,NULL,NULL);
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
INSERT INTO "rounds" VALUES('over',-1,'train',1,1.79488795244346475594e+09,1.79488795244346475594e+09,'["ann","bob"]',0,4,'{}','{}','{}','{}');
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
INSERT INTO "runs" VALUES('over','name of over','fedavg',1.79488795244346475594e+09,1.79488795244346475594e+09,'completed','',0,1.79488795244346475594e+09,1.79488795244346475594e+09,1.79488795244346475594e+09,'b3-116c7694cc9f4486b9e226e57d19ba554644025480d53bd69433d52a59656260','',NULL,NULL,NULL,'default');
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
INSERT INTO "site_totals" VALUES('over','ann',1,1,'{"loss":0.5}',0,0,-1);
INSERT INTO "site_totals" VALUES('over','bob',1,1,'{"loss":0.5}',0,0,-1);
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
INSERT INTO "spent_by_day" VALUES('default',20774,'ann',0.0,0.0,0,1);
INSERT INTO "spent_by_day" VALUES('default',20774,'bob',0.0,0.0,0,1);
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
INSERT INTO "spent_by_run" VALUES('over','ann',0.0,0.0,0,1);
INSERT INTO "spent_by_run" VALUES('over','bob',0.0,0.0,0,1);
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
INSERT INTO "upgrades" VALUES('0007','0.2.0',1.79575195243618082998e+09);
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
INSERT INTO "witness_secret" VALUES(1,'d07ecf09cb09ca0fcb0d0ae71e471fe89a083c7cf7db5aa5f4c9be190af7f686');
CREATE UNIQUE INDEX api_keys_by_name ON api_keys (name) WHERE revoked IS NULL;
CREATE INDEX idempotency_records_by_age ON idempotency_records (made);
CREATE INDEX clients_by_standing ON clients (standing, name);
CREATE INDEX runs_by_project ON runs (project, created, id);
CREATE INDEX runs_by_age ON runs (created, id);
CREATE INDEX runs_by_end ON runs (ended);
CREATE INDEX rounds_of_state ON rounds (state);
CREATE INDEX orders_of_round ON orders (run, cursor);
CREATE INDEX orders_of_message ON orders (message);
CREATE INDEX orders_of_reply ON orders (reply);
CREATE INDEX orders_of_client ON orders (client, status, run);
CREATE INDEX orders_of_member ON orders (run, client, cursor, attempt);
CREATE INDEX orders_missed ON orders (run, cursor, client, attempt) WHERE status IN ('failed', 'expired');
CREATE INDEX parts_by_age ON parts (once_referred, touched);
CREATE INDEX dropped_by_age ON dropped (at);
CREATE INDEX members_of_digest ON members (digest);
CREATE INDEX refs_of_listing ON refs (listing);
CREATE INDEX refs_of_client ON refs (run, client, listing);
CREATE INDEX pushed_by_client ON pushed (run, client);
CREATE INDEX audit_by_run ON audit (run, seq);
CREATE INDEX audit_by_client ON audit (client, seq);
CREATE INDEX audit_by_kind ON audit (kind, seq);
CREATE TRIGGER audit_no_UPDATE BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END;
CREATE INDEX witness_by_kind ON witness (kind, seq);
CREATE UNIQUE INDEX notice_targets_by_name ON notice_targets (project, name);
CREATE INDEX notices_due ON notices (due);
CREATE INDEX notices_of_cause ON notices (target, cause, slot);
CREATE INDEX notices_of_run ON notices (run);
CREATE TRIGGER audit_no_DELETE BEFORE DELETE ON audit WHEN OLD.seq > (SELECT seq FROM audit_base) BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END;
CREATE TRIGGER audit_no_replace BEFORE INSERT ON audit WHEN NEW.seq <= max((SELECT max(seq) FROM audit), (SELECT seq FROM audit_base)) BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END;
CREATE TRIGGER audit_base_ahead BEFORE UPDATE ON audit_base WHEN NEW.seq <= OLD.seq OR NEW.chain <> OLD.chain OR NEW.hash IS NOT (SELECT hash FROM audit WHERE seq = NEW.seq) BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END;
CREATE TRIGGER audit_base_no_INSERT BEFORE INSERT ON audit_base BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END;
CREATE TRIGGER audit_base_no_DELETE BEFORE DELETE ON audit_base BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END;
CREATE UNIQUE INDEX user_sessions_by_token ON user_sessions (token_hash);
CREATE UNIQUE INDEX user_sessions_by_state ON user_sessions (state_hash);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('listings',4);
COMMIT;
