"""A name of any spelling, any separator, any surroundings: what follows the name is masked."""

from __future__ import annotations

from itertools import product

import pytest

from nccl_triage.redaction.secrets import Masker

NAMES = [
    "password",
    "passwd",
    "PASSWORD",
    "DB_PASSWORD",
    "dbPassword",
    "db.password",
    "user_password",
    "mysql-password",
    "passphrase",
    "SMTP_PASS",
    "pwd",
    "secret",
    "SECRET_KEY",
    "secretKey",
    "client_secret",
    "api_key",
    "API_KEY",
    "apiKey",
    "api-key",
    "apikey",
    "OPENAI_API_KEY",
    "access_key",
    "accessKey",
    "AWS_SECRET_ACCESS_KEY",
    "secretAccessKey",
    "token",
    "HF_TOKEN",
    "hf_token",
    "access_token",
    "accessToken",
    "auth_token",
    "refresh_token",
    "GITHUB_TOKEN",
    "private_token",
    "bot_token",
    "TOKEN",
    "credentials",
    "private_key",
    "encryption_key",
    "authkey",
    "WANDB_API_KEY",
    "jwt",
    "密码",
    "口令",
    "密钥",
    "令牌",
    "license_key",
    "signing_secret",
    "webhook_secret",
    "session_token",
    "x-api-key",
    "ssh_password",
    "sshPassword",
    "redis_password",
    "ray_token",
    "id_token",
    "csrf_token",
    "deploy_token",
]
VALUES = ("Xk7hunterQ9", "aZ3kP9qLm2Xv7RtY5wBn8", "3f9a1c07e5b2d8463f9a1c07e5b2d846")
#: With the name before it and the value behind it.
JOINTS = (
    "{}={}", "{}: {}", '{}="{}"', "{}='{}'", "'{}': '{}'", '"{}": "{}"', "{} = {}", '{} => "{}"', "{}:={}", "{}：{}", "{}＝{}",
    '\\"{}\\": \\"{}\\"', "'{}': b'{}'", "{}%3D{}", "{} is {}", "{} was {}",
)  # fmt: skip
AROUND = (
    "{}",
    "RuntimeError: bad config {}, retrying",
    "[rank3]: {{{}}}",
    "Namespace(lr=1, {}, x=2)",
    "url?{}&a=1",
    "--{} --lr 1",
)


@pytest.mark.parametrize("joint", JOINTS)
def test_what_follows_a_name_is_masked(joint: str) -> None:
    texts = {around.format(joint.format(name, value)): value for name, value, around in product(NAMES, VALUES, AROUND)}
    masker = Masker(texts)
    assert [text for text, value in texts.items() if value in masker.text(text)] == []


#: Names that look like those of secrets, with values as they have them.
HARMLESS = (
    "max_tokens=4096", "num_tokens: 131072", "pad_token='<pad>'", "eos_token_id=151643", "tokens_per_second=1834.2",
    "token_type_ids=True", "tokenizer=/models/tok", "key=value", "primary_key: id", "cache_key=layer_12", "keys=['a', 'b']",
    "pass=2", "passed: 12", "first_pass=fused", "bypass=True", "compass: north", "password=None", "password_file=/run/x",
    "secret=<unset>", "secretary: ann", "auth=False", "author: the team", "credential_helper=store", "token_count is 4096",
    "jwt=None", "session=3", "pwd=/workspace/train", "NCCL_IB_PKEY=0x7fff", "pkey_index=0", "license=apache-2.0", "密码长度=8",
    "令牌数：131072",
)  # fmt: skip


@pytest.mark.parametrize("around", [around for around in AROUND if "url" not in around])
def test_names_that_only_look_like_those_of_secrets(around: str) -> None:
    texts = [around.format(text) for text in HARMLESS]
    masker = Masker(texts)
    assert [masker.text(text) for text in texts] == texts
