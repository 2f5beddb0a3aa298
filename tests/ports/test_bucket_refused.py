"""A bucket that cannot be used: the coordinator does not begin, and says what is wrong, where, and what to do; never a secret."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.s3 import EVERYBODY, NOBODY, SECRET, Server
from tideline.archive.digests import digest_of
from tideline.core.errors import ConfigRefused
from tideline_server.parts import open_parts
from tideline_server.parts.opening import Address, endpoint_of, read_address

GIGABYTES = 1.0
CONTENT = b"content"


def refusal(where: str, home: Path) -> ConfigRefused:
    """The refusal with which a store begins."""
    with pytest.raises(ConfigRefused) as told:
        open_parts(where, home, GIGABYTES).begin()
    assert SECRET not in f"{told.value} {told.value.context} {told.value.__cause__}" and told.value.todo
    return told.value


def test_a_bucket_that_can_be_used(s3: Server, bucket: str, tmp_path: Path) -> None:
    """All that is done later is tried, and nothing stays behind."""
    parts = open_parts(bucket, tmp_path, GIGABYTES)
    s3.asked.clear()
    parts.begin()
    assert [asked.split()[0] for asked in s3.asked] == ["GET", "PUT", "PUT", "HEAD", "GET", "DELETE", "DELETE"]
    assert s3.objects(bucket.split("/")[2]) == {}


def test_a_missing_bucket_is_refused(s3: Server, tmp_path: Path) -> None:
    """By its name."""
    error = refusal("s3://no-such-bucket/parts", tmp_path)
    assert error.what == "There is no such bucket: s3://no-such-bucket/parts (404 NoSuchBucket)"
    assert error.context["path"] == "parts"


def test_refused_credentials_are_refused(s3: Server, bucket: str, tmp_path: Path) -> None:
    """The refusal says whose, where and what they must be allowed."""
    s3.admits(NOBODY)
    try:
        error = refusal(bucket, tmp_path)
    finally:
        s3.admits(EVERYBODY)
    assert error.what == f"The credentials are refused for {bucket} (403 InvalidAccessKeyId)"
    assert "AWS_SECRET_ACCESS_KEY" in error.todo and "list, read, write and delete" in error.todo


@pytest.mark.parametrize("right", ["PUT", "PUT .*-copy", "GET /.*/probe", "DELETE"], ids=["write", "copy", "read", "delete"])
def test_a_missing_right_is_refused(s3: Server, bucket: str, tmp_path: Path, right: str) -> None:
    """At the start, and not in the middle of a run."""
    s3.instead = lambda asked: "403 Forbidden" if re.match(right, asked) else None
    assert refusal(bucket, tmp_path).what == f"The credentials are refused for {bucket} (403)"


def test_half_a_pair_of_credentials_is_refused(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables to set are named."""
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    error = refusal(bucket, tmp_path)
    assert error.what == f"There are no credentials for {bucket}"
    assert "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in error.todo


def test_a_store_that_does_not_answer_is_refused(s3: Server, bucket: str, tmp_path: Path) -> None:
    """With the variable that names it."""
    s3.stop()
    try:
        error = refusal(bucket, tmp_path)
    finally:
        s3.start()
    assert error.what == f"There is no answer for {bucket}" and "AWS_ENDPOINT_URL" in error.todo


def test_a_store_without_tls_that_is_said_to_have_it(
    s3: Server, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the endpoint says https, nothing goes over plain http."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.url.replace("http:", "https:"))
    s3.asked.clear()
    assert refusal(bucket, tmp_path).what == f"There is no answer for {bucket}" and s3.asked == []


def test_a_variable_with_a_value_that_it_cannot_have(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused without repeating the value."""
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", SECRET)
    assert refusal(bucket, tmp_path).what == "A variable AWS_... has a value that it cannot have"


def test_certificates_that_cannot_be_read(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable and the file are named."""
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "none.pem"))
    assert "AWS_CA_BUNDLE cannot be read" in refusal(bucket, tmp_path).what


def test_without_the_extra_a_bucket_is_refused(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that installs it is told; a directory needs none."""
    monkeypatch.setitem(sys.modules, "obstore", None)
    for module in ("bucket", "s3"):
        monkeypatch.delitem(sys.modules, f"tideline_server.parts.{module}", raising=False)
    error = refusal(bucket, tmp_path)
    assert "the package that speaks S3 is not installed" in error.what
    assert error.todo == "pip install 'tideline[s3]'"
    assert open_parts(str(tmp_path / "parts"), tmp_path, GIGABYTES).put([CONTENT]) == digest_of([CONTENT])


@pytest.fixture
def certified(tmp_path: Path) -> Iterator[tuple[Server, Path]]:
    """A server over TLS, and the certificate of the authority that vouches for it."""
    if shutil.which("openssl") is None:
        pytest.skip("NOT TESTED: there is no openssl to make a certificate with")
    made = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    leaf = ("-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE", "-CA", "ca.pem", "-CAkey", "ca.key")
    for files, more in ((("ca.key", "ca.pem"), ("-subj", "/CN=ca")), (("a.key", "a.pem"), ("-subj", "/CN=a", *leaf))):
        subprocess.run(
            ["openssl", *made, "-keyout", files[0], "-out", files[1], *more], cwd=tmp_path, check=True, capture_output=True
        )
    server = Server((tmp_path / "a.pem", tmp_path / "a.key"))
    yield server, tmp_path / "ca.pem"
    server.stop()


def test_a_store_over_tls(
    certified: tuple[Server, Path], s3: Server, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is used if the authority that AWS_CA_BUNDLE names vouches for it, and refused if nobody does."""
    server, authority = certified
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    error = refusal(bucket, tmp_path)
    assert error.what == f"The certificate is not trusted of the store of {bucket}" and "AWS_CA_BUNDLE" in error.todo
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority))
    parts = open_parts(bucket, tmp_path, GIGABYTES)
    parts.begin()
    assert parts.has(parts.put([CONTENT]))


# Where parts may lie, as people write it: what is no such place is refused in words, without the secrets in it.
HIDDEN = "s3cret"


@pytest.mark.parametrize(
    ("where", "bucket", "prefix"),
    [
        ("s3://tide", "tide", ""),
        ("s3://tide/", "tide", ""),
        ("s3://tide.example-1/a/b.c/d_e=f/", "tide.example-1", "a/b.c/d_e=f"),
    ],
)
def test_a_bucket_and_a_prefix(where: str, bucket: str, prefix: str) -> None:
    """The prefix may be missing, and a slash at the end says nothing."""
    assert read_address(where) == Address(bucket, prefix) and str(Address(bucket, prefix)) == where.rstrip("/")


def test_everything_else_is_a_directory() -> None:
    """A path, from this folder on or from the root, or from the user's home."""
    assert read_address("parts") == Path("parts") and read_address("/mnt/parts:1") == Path("/mnt/parts:1")
    assert read_address("~/parts") == Path.home() / "parts"


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("s3://", "'' cannot name a bucket"),
        ("s3:///prefix", "'' cannot name a bucket"),
        ("s3://Upper/prefix", "'Upper' cannot name a bucket"),
        ("s3://tide:9000/prefix", "'tide:9000' cannot name a bucket"),
        ("s3://ab", "'ab' cannot name a bucket"),
        ("s3://tide/a//b", "'a//b' cannot begin the names of objects"),
        ("s3://tide//a", "'/a' cannot begin the names of objects"),
        ("s3://tide/a/../b", "'a/../b' cannot begin the names of objects"),
        ("s3://tide/a?region=x", "'a?region=x' cannot begin the names of objects"),
        ("s3://tide/a b", "'a b' cannot begin the names of objects"),
        ("gs://tide/a", "parts cannot be stored there"),
        ("S3://tide/a", "parts cannot be stored there"),
        ("https://tide.s3.example/a", "parts cannot be stored there"),
        (f"s3://key:{HIDDEN}@tide/a", "has an @"),
        (f"{HIDDEN}://key@tide", "has an @"),
    ],
)
def test_what_is_no_place_is_refused(where: str, words: str) -> None:
    """With what is wrong, and what to write instead."""
    with pytest.raises(ConfigRefused) as told:
        read_address(where)
    assert words in told.value.what and told.value.todo and told.value.context["path"] == "parts"
    assert HIDDEN not in str(told.value)


def test_the_endpoint_of_the_environment() -> None:
    """The one for S3 alone wins; with none, the store is Amazon's."""
    both = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000", "AWS_ENDPOINT_URL_S3": "https://[::1]:9000/s3"}
    assert endpoint_of(both) == "https://[::1]:9000/s3"
    assert endpoint_of({"AWS_ENDPOINT_URL": "http://127.0.0.1:9000", "AWS_ENDPOINT_URL_S3": ""}) == "http://127.0.0.1:9000"
    assert endpoint_of({}) is None


@pytest.mark.parametrize(
    "url",
    [
        *("nonsense", "127.0.0.1:9000", "ftp://store", "https://", "http://:9000", "http://store:port", "http://store:0"),
        *("http://store:70000", "https://store/?a=b", "https://store/#a", "https://st ore", "https://stör", "http://[::1"),
        f"https://key:{HIDDEN}@store",
    ],
)
def test_an_endpoint_that_is_none_is_refused(url: str) -> None:
    """The variable is named, and its value is not repeated."""
    with pytest.raises(ConfigRefused, match="AWS_ENDPOINT_URL is not the URL of a store") as told:
        endpoint_of({"AWS_ENDPOINT_URL": url})
    assert HIDDEN not in str(told.value)
