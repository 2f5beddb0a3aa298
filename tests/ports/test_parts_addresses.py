"""Where parts may lie, as people write it: what is no such place is refused in words, without the secrets in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tideline.core.errors import ConfigRefused
from tideline_server.parts.opening import Address, endpoint_of, read_address

SECRET = "s3cret"


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
    assert read_address(where) == Address(bucket, prefix)
    assert str(Address(bucket, prefix)) == where.rstrip("/")


def test_everything_else_is_a_directory() -> None:
    """A path, from this folder on or from the root, or from the user's home."""
    assert read_address("parts") == Path("parts")
    assert read_address("/mnt/parts:1") == Path("/mnt/parts:1")
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
        (f"s3://key:{SECRET}@tide/a", "has an @"),
        (f"{SECRET}://key@tide", "has an @"),
    ],
)
def test_what_is_no_place_is_refused(where: str, words: str) -> None:
    """With what is wrong, and what to write instead."""
    with pytest.raises(ConfigRefused) as told:
        read_address(where)
    assert words in told.value.what and told.value.todo
    assert told.value.context["path"] == "parts"
    assert SECRET not in str(told.value)


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
        f"https://key:{SECRET}@store",
    ],
)
def test_an_endpoint_that_is_none_is_refused(url: str) -> None:
    """The variable is named, and its value is not repeated."""
    with pytest.raises(ConfigRefused, match="AWS_ENDPOINT_URL is not the URL of a store") as told:
        endpoint_of({"AWS_ENDPOINT_URL": url})
    assert SECRET not in str(told.value)
