"""Values that the chart is rendered with, beside the manual's own, and values that it refuses."""

from __future__ import annotations

import functools
from typing import Any

from tests.deploy.chart import Object, examples, parsed, texts

IMAGES = {"image": {each: {"repository": f"registry.example/tideline/{each}"} for each in ("coordinator", "agent")}}


def agent(name: str = "hospital-a", **more: Any) -> Object:
    whole = {"name": name, "roles": ["source"], "data": {"existingClaim": f"{name}-data"}, "token": {"secret": f"{name}-token"}}
    return whole | more


def plain(**coordinator: Any) -> Object:
    """A coordinator on a network that is trusted."""
    return IMAGES | {"insecure": True, "coordinator": coordinator}


TLS = {"tls": {"secret": "tls"}}
MUTUAL = {"tls": {"secret": "tls", "ca": {"secret": "authorities"}, "clientCa": {"secret": "authority", "key": "authority.pem"}}}
POSTGRES = {"database": {"url": "postgresql://tideline@db:5433/tideline", "passwordSecret": {"name": "database"}}}
SHARED = {"parts": {"kind": "claim", "claim": {"existing": "parts"}}}
STORE = {"url": "s3://federation/tideline", "endpoint": "https://store:9000", "region": "here", "secret": "store"}
S3 = {"parts": {"kind": "s3", "s3": STORE | {"caSecret": {"name": "store-ca"}}}}
SCRATCH = {"home": {"kind": "scratch"}}
PEERS = [{"podSelector": {"matchLabels": {"app": "gate"}}}]

COORDINATOR_OFF = {"coordinator": {"enabled": False}}
GPUS = {"gpus": 2, "runtimeClassName": "nvidia", "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}
ROLE = {"name": "federation", "annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/federation"}}
FIVE = {"replicas": 5, "strategy": "RollingUpdate", "parts": {"kind": "claim", "claim": {"size": "1Ti", "storageClass": "nfs"}}}
URLS = {"database": {"urlSecret": {"name": "urls", "key": "db"}}, "redis": {"urlSecret": {"name": "urls"}}}

EVERY_OPTION = agent(data={"hostPath": "/data/digits", "subPath": "digits"}, token={"secret": "tokens", "key": "hospital-a"})
EVERY_OPTION |= {"home": {"existingClaim": "hospital-a-home"}, "coordinator": "a.example:7800,b.example:7800", "device": "cpu"}
EVERY_OPTION |= {"policy": {"configMap": "policies", "key": "strict.toml"}, "ca": {"secret": "authority"}, "groups": [2000]}
EVERY_OPTION |= {"tls": {"secret": "hospital-a-tls"}, "parallel": 2, "workers": 2, "gpuMemory": 0.5, "rowsCache": "20GB"}
EVERY_OPTION |= {"trainerIdle": 5, "wait": 600, "methods": "ours:METHODS", "networks": ["ours:small", "ours:NETWORKS"]}
EVERY_OPTION |= {"bulk": "off", "proxy": "http://proxy.site:3128", "metrics": "0.0.0.0:9107", "logLevel": "debug", "notes": False}
EVERY_OPTION |= {"resources": {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "8Gi"}}, "pinAddresses": True}
EVERY_OPTION |= {"image": {"tag": "0.1.0-ours"}, "nodeSelector": {"disk": "fast"}, "podAnnotations": {"note": "here"}}
EVERY_OPTION |= {"podLabels": {"team": "a"}, "env": [{"name": "OMP_NUM_THREADS", "value": "2"}]}

SETTINGS = {"lease": 7.5, "wait": 30, "rate": 2000000, "rateWrongKeys": 5, "rateEnrol": 0, "connections": 1000}
SETTINGS |= {"partsCache": 2.5, "methods": "ours:METHODS", "networks": ["ours:small", "ours:NETWORKS"], "dashboard": "off"}
SETTINGS |= {"publicUrl": "https://federation.example", "notifyPrivate": ["10.0.0.0/8", "::1"], "smtp": "mail.example:587"}
SETTINGS |= {"smtpFrom": "tideline@example.org", "smtpSecurity": "tls", "smtpUser": "tideline"}
SETTINGS |= {"oidcIssuer": "https://idp.example", "oidcClientId": "tideline", "oidcGrant": ["a=admin", "b=viewer:cardio"]}
EVERY_KNOB = TLS | POSTGRES | S3 | SCRATCH | {"replicas": 3, "settings": SETTINGS}
EVERY_KNOB |= {"grpc": {"type": "NodePort", "nodePort": 30780, "bulkPort": 7801, "annotations": {"a": "b"}}}
EVERY_KNOB |= {"http": {"type": "LoadBalancer", "port": 443, "sourceRanges": ["192.0.2.0/24"]}}
EVERY_KNOB |= {"ingress": {"enabled": True, "host": "federation.example", "tlsSecret": "web", "className": "nginx"}}
EVERY_KNOB |= {"adminKey": {"secret": "mine", "key": "key"}, "signingKey": {"secret": "signing"}}
EVERY_KNOB |= {"smtpPassword": {"secret": "mail", "key": "password"}, "priorityClassName": "high"}
EVERY_KNOB |= {"oidc": {"clientSecret": {"name": "client"}, "caSecret": {"name": "authority"}}}
EVERY_KNOB |= {"nodeSelector": {"pool": "federation"}, "tolerations": [{"key": "federation", "operator": "Exists"}]}
EVERY_KNOB |= {"affinity": {"nodeAffinity": {}}, "podAnnotations": {"note": "here"}, "podLabels": {"team": "a"}}
EVERY_PORT = {"grpcFrom": PEERS, "httpFrom": PEERS, "coordinatorTo": PEERS, "coordinators": PEERS, "databasePods": {"app": "db"}}
EVERY_PORT |= {"ports": {"notices": [443, 587]}}

OURS: dict[str, Object] = {
    "coordinator with TLS": {"coordinator": TLS},
    "stopped": plain(replicas=0),
    "many replicas": {"coordinator": TLS | POSTGRES | SCRATCH | FIVE},
    "URLs in Secrets": plain(**SCRATCH | S3 | URLS, replicas=2),
    "Postgres with an authority": {
        "coordinator": TLS | SHARED | {"database": POSTGRES["database"] | {"caSecret": {"name": "db-ca", "key": "root.crt"}}}
    },
    "role instead of keys": plain(
        **POSTGRES | SCRATCH, parts={"kind": "s3", "s3": {"url": "s3://federation"}}, serviceAccount=ROLE
    ),
    "both, with certificates of agents": {"coordinator": MUTUAL, "agents": [agent(tls={"secret": "hospital-a-tls"})]},
    "GPU": COORDINATOR_OFF | {"agents": [agent(**GPUS)]},
    "sixteen agents": plain() | {"agents": [agent(f"site-{i}", roles=["source", "target", "peer"]) for i in range(16)]},
    "agent with everything": COORDINATOR_OFF | {"agents": [EVERY_OPTION]},
    "every port and every knob": {
        "imagePullSecrets": [{"name": "registry"}],
        "coordinator": EVERY_KNOB,
        "agents": [agent()],
        "networkPolicy": EVERY_PORT,
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "keySecret": {"name": "viewer"}},
    },
    "without policies": plain() | {"networkPolicy": {"enabled": False}, "agents": [agent()]},
    "numbers of agents": COORDINATOR_OFF
    | {
        "agents": [agent(metrics="0.0.0.0:9107"), agent("hospital-b", metrics="0.0.0.0:9108"), agent("hospital-c")],
        "networkPolicy": {"metricsFrom": PEERS},
    },
}
RENDERED = examples() | {name: IMAGES | values for name, values in OURS.items()}

ONE_MACHINE = {"kind": "claim", "claim": {"size": "1Gi", "accessMode": "ReadWriteOnce"}}
TWO = POSTGRES | SCRATCH | {"replicas": 2}


def with_agents(*agents: Object, **more: Object) -> Object:
    """A coordinator on a network that is trusted, and agents."""
    return plain() | {"agents": [*agents]} | more


# Values, and what the refusal names: what is wrong, or what to set.
REFUSED: dict[str, tuple[Object, str]] = {
    "nothing said": ({}, r"no certificate: .*coordinator\.tls\.secret.* or set insecure=true"),
    "no image of coordinators": (plain() | {"image": {"coordinator": {"repository": ""}}}, r"image\.coordinator\.repository"),
    "no image of agents": (
        with_agents(agent(), image={"coordinator": IMAGES["image"]["coordinator"]}),
        r"image\.agent\.repository",
    ),
    "nothing to install": ({"coordinator": {"enabled": False}}, r"Enable the coordinator, or list agents"),
    "a certificate and insecure": ({"insecure": True, "coordinator": TLS}, r"contradict each other\. Leave out one"),
    "agents' certificates without TLS": (plain(tls={"clientCa": {"secret": "a"}}), r"Name the coordinator's own certificate"),
    "an ingress without a host": (plain(ingress={"enabled": True}), r"no host\. Set coordinator\.ingress\.host"),
    "a node port of no node": (plain(grpc={"nodePort": 30780}), r"grpc is of type ClusterIP.*leave them out"),
    "a policy of no node": (plain(http={"externalTrafficPolicy": "Local"}), r"http is of type ClusterIP"),
    "ranges of no balancer": (plain(grpc={"type": "NodePort", "sourceRanges": ["::/0"]}), r"Set .*type=LoadBalancer"),
    "a password of Postgres": (plain(database={"url": "postgresql://tideline:secret@db/t"}), r"holds a password.*passwordSecret"),
    "a password behind a ?": (plain(database={"url": "postgresql://db/t?password=s"}), r"a password.*passwordSecret"),
    "a password of Redis": (plain(redis={"url": "redis://:secret@redis"}), r"holds a password.*urlSecret"),
    "two URLs of Postgres": (
        plain(database={"url": "postgresql://db/t", "urlSecret": {"name": "url"}}),
        r"both url and urlSecret",
    ),
    "two URLs of Redis": (plain(redis={"url": "redis://redis", "urlSecret": {"name": "url"}}), r"both url and urlSecret"),
    "a password without a URL": (plain(database={"passwordSecret": {"name": "db"}}), r"no URL\. Set coordinator\.database\.url"),
    "no bucket": (plain(parts={"kind": "s3"}), r"none is named\. Set coordinator\.parts\.s3\.url"),
    "no claim": (plain(parts={"kind": "claim"}), r"none is described\. Name one"),
    "a bucket that is not used": (plain(parts={"s3": {"url": "s3://federation"}}), r"Set coordinator\.parts\.kind=s3"),
    "replicas on one home": (plain(replicas=2), r"2 replicas cannot share .* the database .*, the parts .*replicas=1"),
    "replicas with parts in a home": (plain(**TWO), r"2 replicas cannot share .*home: the parts"),
    "replicas with SQLite": (plain(**SHARED | SCRATCH, replicas=2), r"2 replicas cannot share .*home: the database"),
    "replicas on a claim of one machine": (plain(**TWO, parts=ONE_MACHINE), r"is ReadWriteOnce\. Set .*ReadWriteMany"),
    "replicas that share a home": (plain(**POSTGRES | SHARED, replicas=2), r"A home serves one.*home\.kind=scratch"),
    "runs in a scratch home": (plain(**SCRATCH), r"scratch home is lost.*the database.*the parts"),
    "rolling on one home": (plain(strategy="RollingUpdate"), r"second coordinator.*strategy=Recreate"),
    "rolling on a claim of one machine": (
        plain(**POSTGRES | SCRATCH, strategy="RollingUpdate", parts=ONE_MACHINE),
        r"ReadWriteOnce\. Set .*accessMode=ReadWriteMany, or .*strategy=Recreate",
    ),
    "a cache that fills a scratch home": (
        plain(**POSTGRES | S3, home={"kind": "scratch", "size": "10Gi"}),
        r"home of 10Gi has no room for a cache of 10 GB .*home\.size to 13G or more, or .*partsCache to less",
    ),
    "a cache that nearly fills a scratch home": (
        plain(**POSTGRES | S3 | SCRATCH, settings={"partsCache": 16.6}),
        r"home of 20Gi has no room for a cache of 16\.6 GB .*home\.size to 22G or more",
    ),
    "a start that is cut short": (plain(settings={"wait": 180}), r"killed after 180\. Set coordinator\.startupSeconds to more"),
    "numbers without a key": (
        plain() | {"serviceMonitor": {"enabled": True}},
        r"tideline keys add --name prometheus --role viewer.* \(serviceMonitor\.keySecret\.name\)",
    ),
    "numbers that nobody can read": (
        with_agents(agent(metrics="9107"), networkPolicy={"metricsFrom": PEERS}),
        r"hospital-a serves its metrics within its own pod alone.*Set metrics to 0\.0\.0\.0:9107",
    ),
    "an agent without a token": (with_agents(agent(token={})), r"no token\. Make one with `tideline invite --name hospital-a`"),
    "two agents of one name": (with_agents(agent(), agent()), r"hospital-a is listed twice"),
    "two agents with one token": (
        with_agents(agent(token={"secret": "t"}), agent("b", token={"secret": "t"})),
        r"agent b has the same token.*Invite it too",
    ),
    "two agents in one home": (
        with_agents(*(agent(name, home={"existingClaim": "home"}) for name in ("a", "b"))),
        r"agent b has the same home as another \(home\)",
    ),
    "a home among the data": (
        with_agents(agent(home={"existingClaim": "hospital-a-data"})),
        r"its home and its data in the same claim",
    ),
    "no data": (with_agents(agent(data={})), r"Set either data\.existingClaim or data\.hostPath"),
    "data twice": (
        with_agents(agent(data={"existingClaim": "a", "hostPath": "/b"})),
        r"Set either data\.existingClaim or data\.hostPath",
    ),
    "GPUs for a processor": (with_agents(agent(gpus=1, device="cpu")), r"asks for 1 GPUs and computes on the CPU"),
    "an agent without certificate": (
        {"coordinator": MUTUAL, "agents": [agent()]},
        r"no certificate.*tideline tls client hospital-a",
    ),
    # The schema's words
    "an unknown key": (plain(replica=2), r"(?s)/coordinator.*'replica' not allowed"),
    "an unknown section": ({"postgres": {}}, r"(?s)'postgres' not allowed"),
    "an unknown setting": (plain(settings={"leese": 3}), r"(?s)/coordinator/settings.*'leese' not allowed"),
    "a setting that is out of range": (plain(settings={"lease": 0}), r"(?s)/coordinator/settings/lease.*minimum"),
    "an unknown key of an agent": (with_agents(agent(role="source")), r"(?s)/agents/0.*'role' not allowed"),
    "an unknown role": (with_agents(agent(roles=["teacher"])), r"(?s)/agents/0/roles/0.*'source', 'target', 'peer'"),
    "no role": (with_agents(agent(roles=[])), r"(?s)/agents/0/roles.*minItems"),
    "a name that no pod can have": (with_agents(agent("Hospital A")), r"(?s)/agents/0/name.*does not match pattern"),
    "root": (plain() | {"user": 0}, r"(?s)/user.*minimum"),
    "an image that moves": (plain() | {"image": {"coordinator": {"tag": "latest"}}}, r"(?s)/image/coordinator/tag"),
    "labels that selectors go by": (plain(podLabels={"app.kubernetes.io/name": "x"}), r"(?s)'app\.kubernetes\.io/name'"),
    "words for a number": (plain(replicas="two"), r"(?s)/coordinator/replicas.*want integer"),
    "an address without a port": (plain(advertise="federation.example"), r"(?s)/coordinator/advertise.*does not match"),
    "SQLite by URL": (plain(database={"url": "sqlite:///x.db"}), r"(?s)/coordinator/database/url.*does not match"),
    "credentials of a bucket": (plain(parts={"kind": "s3", "s3": {"url": "s3://key@f"}}), r"(?s)/parts/s3/url.*does not match"),
}


@functools.cache
def said_of(name: str) -> dict[str, str]:
    return texts(RENDERED[name])


@functools.cache
def made_of(name: str) -> list[Object]:
    return parsed(said_of(name))
