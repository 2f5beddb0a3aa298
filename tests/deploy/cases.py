"""Values that the chart is rendered with, beside the manual's own, and values that it refuses."""

from __future__ import annotations

import functools
from typing import Any

from tests.deploy.chart import Object, examples, parsed, texts

IMAGES = {"image": {each: {"repository": f"registry.example/tideline/{each}"} for each in ("coordinator", "agent")}}


def agent(name: str = "hospital-a", **more: Any) -> Object:
    """An agent with what it needs."""
    whole = {"name": name, "roles": ["source"], "data": {"existingClaim": f"{name}-data"}, "token": {"secret": f"{name}-token"}}
    return whole | more


def without_tls(**coordinator: Any) -> Object:
    """A coordinator on a network that is trusted."""
    return IMAGES | {"insecure": True, "coordinator": coordinator}


TLS = {"tls": {"secret": "tls"}}
MUTUAL = {"tls": {"secret": "tls", "ca": {"secret": "authorities"}, "clientCa": {"secret": "authority", "key": "authority.pem"}}}
POSTGRES = {"database": {"url": "postgresql://tideline@db:5433/tideline", "passwordSecret": {"name": "database"}}}
SHARED = {"parts": {"kind": "claim", "claim": {"existing": "parts"}}}
S3 = {
    "parts": {
        "kind": "s3",
        "s3": {
            "url": "s3://federation/tideline",
            "endpoint": "https://store:9000",
            "region": "here",
            "secret": "store",
            "caSecret": {"name": "store-ca"},
        },
    }
}
SCRATCH = {"home": {"kind": "scratch"}}
PEERS = [{"podSelector": {"matchLabels": {"app": "gate"}}}]

OURS: dict[str, Object] = {
    "coordinator with TLS": {"coordinator": TLS},
    "stopped": without_tls(replicas=0),
    "many replicas": {
        "coordinator": TLS
        | POSTGRES
        | SCRATCH
        | {
            "replicas": 5,
            "strategy": "RollingUpdate",
            "parts": {"kind": "claim", "claim": {"size": "1Ti", "storageClass": "nfs"}},
        }
    },
    "URLs in Secrets": without_tls(
        **SCRATCH | S3, replicas=2, database={"urlSecret": {"name": "urls", "key": "db"}}, redis={"urlSecret": {"name": "urls"}}
    ),
    "Postgres with an authority": {
        "coordinator": TLS | SHARED | {"database": POSTGRES["database"] | {"caSecret": {"name": "db-ca", "key": "root.crt"}}}
    },
    "role instead of keys": without_tls(
        **POSTGRES | SCRATCH,
        parts={"kind": "s3", "s3": {"url": "s3://federation"}},
        serviceAccount={"name": "federation", "annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/federation"}},
    ),
    "both, with certificates of agents": {"coordinator": MUTUAL, "agents": [agent(tls={"secret": "hospital-a-tls"})]},
    "GPU": {
        "coordinator": {"enabled": False},
        "agents": [agent(gpus=2, runtimeClassName="nvidia", tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}])],
    },
    "sixteen agents": without_tls() | {"agents": [agent(f"site-{i}", roles=["source", "target", "peer"]) for i in range(16)]},
    "agent with everything": {
        "coordinator": {"enabled": False},
        "agents": [
            agent(
                data={"hostPath": "/data/digits", "subPath": "digits"},
                token={"secret": "tokens", "key": "hospital-a"},
                home={"existingClaim": "hospital-a-home"},
                coordinator="a.example:7800,b.example:7800",
                device="cpu",
                policy={"configMap": "policies", "key": "strict.toml"},
                ca={"secret": "authority"},
                tls={"secret": "hospital-a-tls"},
                groups=[2000],
                parallel=2,
                workers=2,
                gpuMemory=0.5,
                rowsCache="20GB",
                trainerIdle=5,
                wait=600,
                methods="ours:METHODS",
                networks=["ours:small", "ours:NETWORKS"],
                bulk="off",
                proxy="http://proxy.site:3128",
                metrics="0.0.0.0:9107",
                logLevel="debug",
                notes=False,
                pinAddresses=True,
                image={"tag": "0.1.0-ours"},
                resources={"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "8Gi"}},
                nodeSelector={"disk": "fast"},
                podAnnotations={"note": "here"},
                podLabels={"team": "a"},
                env=[{"name": "OMP_NUM_THREADS", "value": "2"}],
            )
        ],
    },
    "every port and every knob": {
        "imagePullSecrets": [{"name": "registry"}],
        "coordinator": TLS
        | POSTGRES
        | S3
        | SCRATCH
        | {
            "replicas": 3,
            "grpc": {"type": "NodePort", "nodePort": 30780, "bulkPort": 7801, "annotations": {"a": "b"}},
            "http": {"type": "LoadBalancer", "port": 443, "sourceRanges": ["192.0.2.0/24"]},
            "ingress": {"enabled": True, "host": "federation.example", "tlsSecret": "web", "className": "nginx"},
            "adminKey": {"secret": "mine", "key": "key"},
            "signingKey": {"secret": "signing"},
            "settings": {"lease": 7.5, "wait": 30, "rate": 2000000, "rateWrongKeys": 5, "rateEnrol": 0, "connections": 1000}
            | {"partsCache": 2.5, "methods": "ours:METHODS", "networks": ["ours:small", "ours:NETWORKS"]}
            | {
                "dashboard": "off",
                "publicUrl": "https://federation.example",
                "notifyPrivate": ["10.0.0.0/8", "::1"],
                "smtp": "mail.example:587",
            }
            | {"smtpFrom": "tideline@example.org", "smtpSecurity": "tls", "smtpUser": "tideline"}
            | {"oidcIssuer": "https://idp.example", "oidcClientId": "tideline", "oidcGrant": ["a=admin", "b=viewer:cardio"]},
            "smtpPassword": {"secret": "mail", "key": "password"},
            "oidc": {"clientSecret": {"name": "client"}, "caSecret": {"name": "authority"}},
            "nodeSelector": {"pool": "federation"},
            "tolerations": [{"key": "federation", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "priorityClassName": "high",
            "podAnnotations": {"note": "here"},
            "podLabels": {"team": "a"},
        },
        "agents": [agent()],
        "networkPolicy": {
            "grpcFrom": PEERS,
            "httpFrom": PEERS,
            "coordinatorTo": PEERS,
            "coordinators": PEERS,
            "databasePods": {"app": "db"},
            "ports": {"notices": [443, 587]},
        },
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "keySecret": {"name": "viewer"}},
    },
    "without policies": without_tls() | {"networkPolicy": {"enabled": False}, "agents": [agent()]},
    "numbers of agents": IMAGES
    | {
        "coordinator": {"enabled": False},
        "agents": [agent(metrics="0.0.0.0:9107"), agent("hospital-b", metrics="0.0.0.0:9108"), agent("hospital-c")],
        "networkPolicy": {"metricsFrom": PEERS},
    },
}
RENDERED = examples() | {name: IMAGES | values for name, values in OURS.items()}

REFUSED: dict[str, tuple[Object, str]] = {
    "nothing said": ({}, r"The coordinator has no certificate: .*coordinator\.tls\.secret.* or set insecure=true"),
    "no image of coordinators": (
        {"insecure": True, "image": {"coordinator": {"repository": ""}}},
        r"No image is named for coordinators\. .*set image\.coordinator\.repository",
    ),
    "no image of agents": (
        without_tls() | {"image": {"coordinator": IMAGES["image"]["coordinator"]}, "agents": [agent()]},
        r"No image is named for the agent hospital-a\. .*set image\.agent\.repository",
    ),
    "nothing to install": ({"coordinator": {"enabled": False}}, r"nothing to install.*Enable the coordinator, or list agents"),
    "a certificate and insecure": ({"insecure": True, "coordinator": TLS}, r"contradict each other\. Leave out one"),
    "certificates of agents without TLS": (
        without_tls(tls={"clientCa": {"secret": "authority"}}),
        r"takes TLS\. Name the coordinator's own certificate",
    ),
    "an ingress without a host": (without_tls(ingress={"enabled": True}), r"no host\. Set coordinator\.ingress\.host"),
    "a node port of no node": (without_tls(grpc={"nodePort": 30780}), r"grpc is of type ClusterIP.*leave them out"),
    "a policy of no node": (without_tls(http={"externalTrafficPolicy": "Local"}), r"http is of type ClusterIP"),
    "ranges of no balancer": (
        without_tls(grpc={"type": "NodePort", "sourceRanges": ["192.0.2.0/24"]}),
        r"sourceRanges is for load balancers\. Set .*type=LoadBalancer",
    ),
    "a password of Postgres": (
        without_tls(database={"url": "postgresql://tideline:secret@db/tideline"}),
        r"holds a password.*passwordSecret",
    ),
    "a password behind a question mark": (
        without_tls(database={"url": "postgresql://db/tideline?password=secret"}),
        r"holds a password.*passwordSecret",
    ),
    "a password of Redis": (without_tls(redis={"url": "redis://:secret@redis"}), r"holds a password.*urlSecret"),
    "two URLs of Postgres": (
        without_tls(database={"url": "postgresql://db/t", "urlSecret": {"name": "url"}}),
        r"both url and urlSecret\. Leave out one",
    ),
    "two URLs of Redis": (
        without_tls(redis={"url": "redis://redis", "urlSecret": {"name": "url"}}),
        r"both url and urlSecret\. Leave out one",
    ),
    "a password without a URL": (
        without_tls(database={"passwordSecret": {"name": "db"}}),
        r"no URL\. Set coordinator\.database\.url",
    ),
    "no bucket": (without_tls(parts={"kind": "s3"}), r"none is named\. Set coordinator\.parts\.s3\.url"),
    "no claim": (without_tls(parts={"kind": "claim"}), r"none is described\. Name one"),
    "a bucket that is not used": (
        without_tls(parts={"s3": {"url": "s3://federation"}}),
        r"parts go to the home\. Set coordinator\.parts\.kind=s3",
    ),
    "replicas on one home": (without_tls(replicas=2), r"2 replicas cannot share .* the database .*, the parts .*replicas=1"),
    "replicas with parts in a home": (
        without_tls(**POSTGRES | SCRATCH, replicas=2),
        r"2 replicas cannot share .*home: the parts",
    ),
    "replicas with SQLite": (without_tls(**SHARED | SCRATCH, replicas=2), r"2 replicas cannot share .*home: the database"),
    "replicas on a claim of one machine": (
        without_tls(
            **POSTGRES | SCRATCH, replicas=2, parts={"kind": "claim", "claim": {"size": "1Gi", "accessMode": "ReadWriteOnce"}}
        ),
        r"cannot share a claim that is ReadWriteOnce\. Set .*ReadWriteMany",
    ),
    "replicas that share a home": (without_tls(**POSTGRES | SHARED, replicas=2), r"A home serves one.*home\.kind=scratch"),
    "runs in a scratch home": (without_tls(**SCRATCH), r"scratch home is lost.*the database.*the parts"),
    "rolling on one home": (without_tls(strategy="RollingUpdate"), r"second coordinator.*strategy=Recreate"),
    "rolling on a claim of one machine": (
        without_tls(
            **POSTGRES | SCRATCH,
            strategy="RollingUpdate",
            parts={"kind": "claim", "claim": {"size": "1Gi", "accessMode": "ReadWriteOnce"}},
        ),
        r"cannot mount a claim that is ReadWriteOnce\. Set .*accessMode=ReadWriteMany, or .*strategy=Recreate",
    ),
    "a cache that fills a scratch home": (
        without_tls(**POSTGRES | S3, home={"kind": "scratch", "size": "10Gi"}),
        r"home of 10Gi has no room for a cache of 10 GB .*home\.size to 13G or more, or .*partsCache to less",
    ),
    "a cache that nearly fills a scratch home": (
        without_tls(**POSTGRES | S3 | SCRATCH, settings={"partsCache": 16.6}),
        r"home of 20Gi has no room for a cache of 16\.6 GB .*home\.size to 22G or more",
    ),
    "a start that is cut short": (
        without_tls(settings={"wait": 180}),
        r"wait 180 seconds for its database, and is killed after 180\. Set coordinator\.startupSeconds to more",
    ),
    "numbers without a key": (
        without_tls() | {"serviceMonitor": {"enabled": True}},
        r"/metrics asks for one\. .*tideline keys add --name prometheus --role viewer.* \(serviceMonitor\.keySecret\.name\)",
    ),
    "numbers that nobody can read": (
        without_tls() | {"agents": [agent(metrics="9107")], "networkPolicy": {"metricsFrom": PEERS}},
        r"hospital-a serves its metrics within its own pod alone.*Set metrics to 0\.0\.0\.0:9107",
    ),
    "an agent without a token": (
        without_tls() | {"agents": [agent(token={})]},
        r"hospital-a has no token\. Make one with `tideline invite --name hospital-a`",
    ),
    "two agents of one name": (without_tls() | {"agents": [agent(), agent()]}, r"hospital-a is listed twice"),
    "two agents with one token": (
        without_tls() | {"agents": [agent(token={"secret": "t"}), agent("b", token={"secret": "t"})]},
        r"agent b has the same token.*Invite it too",
    ),
    "two agents in one home": (
        without_tls() | {"agents": [agent(name, home={"existingClaim": "home"}) for name in ("a", "b")]},
        r"agent b has the same home as another \(home\)",
    ),
    "a home among the data": (
        without_tls() | {"agents": [agent(home={"existingClaim": "hospital-a-data"})]},
        r"its home and its data in the same claim",
    ),
    "no data": (without_tls() | {"agents": [agent(data={})]}, r"Set either data\.existingClaim or data\.hostPath"),
    "data twice": (
        without_tls() | {"agents": [agent(data={"existingClaim": "a", "hostPath": "/b"})]},
        r"Set either data\.existingClaim or data\.hostPath",
    ),
    "GPUs for a processor": (
        without_tls() | {"agents": [agent(gpus=1, device="cpu")]},
        r"asks for 1 GPUs and computes on the CPU",
    ),
    "an agent without a certificate": (
        {"coordinator": MUTUAL, "agents": [agent()]},
        r"hospital-a has no certificate.*tideline tls client hospital-a",
    ),
    # The schema's words
    "an unknown key": (without_tls(replica=2), r"(?s)/coordinator.*'replica' not allowed"),
    "an unknown section": ({"postgres": {}}, r"(?s)'postgres' not allowed"),
    "an unknown setting": (without_tls(settings={"leese": 3}), r"(?s)/coordinator/settings.*'leese' not allowed"),
    "a setting that is out of range": (without_tls(settings={"lease": 0}), r"(?s)/coordinator/settings/lease.*minimum"),
    "an unknown key of an agent": (without_tls() | {"agents": [agent(role="source")]}, r"(?s)/agents/0.*'role' not allowed"),
    "an unknown role": (
        without_tls() | {"agents": [agent(roles=["teacher"])]},
        r"(?s)/agents/0/roles/0.*'source', 'target', 'peer'",
    ),
    "no role": (without_tls() | {"agents": [agent(roles=[])]}, r"(?s)/agents/0/roles.*minItems"),
    "a name that no pod can have": (
        without_tls() | {"agents": [agent("Hospital A")]},
        r"(?s)/agents/0/name.*does not match pattern",
    ),
    "root": (without_tls() | {"user": 0}, r"(?s)/user.*minimum"),
    "an image that moves": (without_tls() | {"image": {"coordinator": {"tag": "latest"}}}, r"(?s)/image/coordinator/tag"),
    "labels that selectors go by": (
        without_tls(podLabels={"app.kubernetes.io/name": "x"}),
        r"(?s)invalid propertyName 'app\.kubernetes\.io/name'",
    ),
    "words for a number": (without_tls(replicas="two"), r"(?s)/coordinator/replicas.*want integer"),
    "an address without a port": (without_tls(advertise="federation.example"), r"(?s)/coordinator/advertise.*does not match"),
    "SQLite by URL": (without_tls(database={"url": "sqlite:///x.db"}), r"(?s)/coordinator/database/url.*does not match"),
    "credentials of a bucket": (
        without_tls(parts={"kind": "s3", "s3": {"url": "s3://key@federation"}}),
        r"(?s)/coordinator/parts/s3/url.*does not match",
    ),
}


@functools.cache
def said_of(name: str) -> dict[str, str]:
    """What the templates say, asked once."""
    return texts(RENDERED[name])


@functools.cache
def made_of(name: str) -> list[Object]:
    """The objects in it."""
    return parsed(said_of(name))
